"""The parts of a write that only ``deliveryGuarantee=exactly-once`` has.

Owns: ``transaction_plan`` (made on the driver), ``transactional_producers`` (a task's transaction),
``transaction_commit`` (the driver commits them), ``source_offsets`` and ``offset_log`` (a query's
Kafka offsets, committed with the rows).
"""
