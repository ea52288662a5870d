"""Adds single records of ``send`` to the producer's batches.

``record_appender`` performs the steps of ``send`` (Java's ``doSend``). It uses ``serialization``
(keys and values as bytes), ``record_partitioner`` (the partition of a record) and ``record_future``
(the result of ``send``). A batch may also contain rows of ``send_columns``:
``column_appender.py`` appends these rows.
"""
