"""The parts that only single records of ``send`` need.

Owns: ``record_appender`` (Java's ``doSend``), ``record_partitioner``, ``serialization`` and
``record_future``. Single records share batches with columns. Never: a cost for columns.
"""
