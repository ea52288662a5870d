"""Adds single records of ``send`` to the producer's batches.

Owns: ``record_appender`` (the steps of ``send``, Java's ``doSend``), ``record_partitioner``,
``serialization`` and ``record_future``. A batch may also contain rows of ``send_columns``. Never:
appending these rows (``column_appender.py``).
"""
