"""Adds single records of ``send`` to the producer's batches.

Owns: ``record_appender`` (the steps of ``send``, Java's ``doSend``), ``record_partitioner``,
``serialization`` and ``record_future``. A batch may contain single records and rows of columns.
Never: rows of columns (``column_appender.py``).
"""
