"""The parts of a write that only ``deliveryGuarantee=exactly-once`` uses.

Owns: ``transaction_plan`` (created on the driver), ``transactional_producers`` (a task's
transaction), ``transaction_commit`` (the driver commits the tasks' transactions),
``source_offsets`` and ``offset_log`` (a query's Kafka offsets, committed with the rows).
"""
