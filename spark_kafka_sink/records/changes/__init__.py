"""Converts the changes of a change feed (inserts, updates, deletes) to records.

``changed_rows`` converts changes to rows and tombstones, and ``envelope`` converts changes to
Debezium's envelopes. ``change_order`` checks the order of changes. ``marks`` notes the changes that
can't be sent.
"""
