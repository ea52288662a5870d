"""Columns to records, and records to batches: pure functions over Arrow and numpy.

Owns: a record's bytes. Never: a clock, a thread, a socket.

``column_plan`` and ``arrow_schema`` assign roles to columns; ``record_columns`` and
``record_headers`` check the columns and hold them. ``record_encoder`` and ``batch_cutter`` encode
records and distribute them over batches (with ``varint``, ``gather``, ``encoded_slice``), and
``single_record`` encodes one record. ``formats`` and ``json`` convert named columns to payloads.
For a format with a schema, ``nodes`` describes the encoding. ``record_batch`` has the format of a
batch, with ``compression``. ``log_records`` reads the batches of a log. ``partitioning`` chooses
partitions.
"""
