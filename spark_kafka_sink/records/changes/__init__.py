"""Converts the changes of a change feed (inserts, updates, deletes) to records.

``changed_rows`` converts changes to rows and tombstones, and ``envelope`` builds Debezium's
envelopes for changes. ``change_order`` finds changes in the wrong order. ``marks`` has the numbers
for the kind of a change, and for the reason why a change can't be sent.
"""
