"""The parts of the producer that only single records of ``send`` need.

Owns: ``record_appender`` (Java's ``doSend``), ``record_partitioner``, ``serialization`` and
``record_future``. Single records may be in the same batches as columns. Never: a cost for columns.
"""
