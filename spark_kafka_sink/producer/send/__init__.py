"""Adds single records of ``send`` to the producer's batches.

* ``record_appender``: performs the steps of ``send`` (Java's ``doSend``).
* ``serialization``: converts keys and values to bytes.
* ``record_partitioner``: chooses the partition of a record.
* ``record_future``: the result of ``send``.

A batch may also contain rows of ``send_columns``. ``column_appender.py`` appends these rows.
"""
