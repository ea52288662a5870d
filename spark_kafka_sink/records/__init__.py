"""Columns to records, and records to batches: pure functions over Arrow and numpy.

Owns: a record's bytes. Never: a clock, a thread, a socket.

``column_plan`` and ``arrow_schema`` say which columns mean what, ``record_columns`` and
``record_headers`` check and hold them, ``record_encoder`` and ``batch_cutter`` make and cut the
bytes (with ``varint``, ``gather``, ``encoded_slice``), ``single_record`` does it for one.
``formats`` makes payloads of named columns, also with a schema, as ``nodes`` say, with ``json``.
``record_batch`` is the format around them, with ``compression``; ``log_records`` reads a log.
``partitioning`` chooses partitions.
"""
