"""Changes of a table as records: rows and tombstones (``changed_rows``), their order
(``change_order``), Debezium's envelope (``envelope``), and changes that can't be sent (``marks``).
"""
