"""Converts the changes of a change feed (inserts, updates, deletes) to records.

* ``changed_rows``: converts changes to rows and tombstones.
* ``envelope``: builds Debezium's envelopes for changes.
* ``change_order``: finds changes that are in the wrong order.
* ``marks``: the numbers for the kind of a change, and for the reason why a change can't be sent.
"""
