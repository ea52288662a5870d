"""``send``: single records, on top of the batches that columns fill.

Owns: all that only a record of ``send`` needs: ``record_appender`` (Java's ``doSend``),
``record_partitioner``, ``serialization`` and ``record_future``. Never: a cost for columns.
"""
