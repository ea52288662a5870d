"""Converts columns to records, and records to record batches: pure functions over Arrow and numpy.

No function of this package reads a clock, uses a socket or starts a thread.

From columns to keys and values:

* ``column_plan``, ``arrow_schema``: which column is the key, the value and so on.
* ``batch_joiner``: joins small Arrow batches.
* ``changes``: converts the changes of a change feed to rows.
* ``formats``, ``json``: build the key or value of a record from several columns, with
  ``row_pieces``. For a format with a schema, ``nodes`` describes how columns are encoded.
* ``record_columns``, ``record_headers``: check and convert the columns of a record.
* ``bad_rows``: collects rows that can't be sent. ``letters`` converts them to dead letters.

From keys and values to batches:

* ``partitioning``: chooses partitions.
* ``record_encoder``: encodes the records, and ``batch_cutter`` divides them into batches. Both use
  ``varint``, ``gather`` and ``encoded_slice``.
* ``single_record``: encodes one record.
* ``compression``: compresses the records of a batch, and ``record_batch`` writes its header.
* ``log_records``: reads the batches of a log.
"""
