"""What ``deliveryGuarantee=exactly-once`` adds to a write.

Owns: ``transaction_plan`` (made on the driver), ``transactional_producers`` (a task's transaction),
``transaction_commit`` (the driver commits them), ``source_offsets`` and ``offset_log`` (a query's
Kafka offsets, committed with the rows).
"""
