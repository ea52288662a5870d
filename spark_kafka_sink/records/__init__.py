"""Converts columns to records, and records to record batches: pure functions over Arrow and numpy.

No function of this package reads a clock, uses a socket or starts a thread.

``column_plan`` and ``arrow_schema`` determine which column is the key, the value and so on.
``record_columns`` and ``record_headers`` check and convert these columns. ``record_encoder``
encodes the records, and ``batch_cutter`` divides them into batches. Both use ``varint``, ``gather``
and ``encoded_slice``. ``single_record`` encodes one record. ``batch_joiner`` joins small Arrow
batches. ``formats`` and ``json`` build the key or value of a record from several columns, with
``row_pieces``. For a format with a schema, ``nodes`` describes how columns are encoded. ``changes``
converts the changes of a change feed to rows. ``bad_rows`` collects rows that can't be sent, and
``letters`` converts them to dead letters. ``partitioning`` chooses partitions. ``compression``
compresses the records of a batch, and ``record_batch`` writes the header of a batch.
``log_records`` reads the batches of a log.
"""
