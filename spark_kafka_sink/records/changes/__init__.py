"""Converts changes of a table to records: to rows and tombstones (``changed_rows``), or to
Debezium's envelopes (``envelope``). ``change_order`` checks the order of changes, and ``marks``
marks changes that can't be sent.
"""
