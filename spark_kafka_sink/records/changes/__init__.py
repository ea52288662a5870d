"""Changes of a table as records: rows and tombstones (``changed_rows``), their order
(``change_order``), Debezium's envelope (``envelope``), and why some can't be sent (``marks``).
"""
