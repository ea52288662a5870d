"""The parts of a write that only ``deliveryGuarantee=exactly-once`` uses.

- ``transaction_plan``: the driver reads the commit log and makes a plan.
- ``transactional_producers``: a task writes its rows in a transaction.
- ``transaction_commit``: the driver commits or aborts the transactions of all tasks.
- ``checkpoint``, ``offset_log`` and ``source_offsets`` read the offsets of a query's sources from
  the query's checkpoint. The offsets identify a micro-batch.
- ``offsets_group`` checks the consumer group of the option offsetsGroup. The source offsets can be
  committed to this group together with the rows.
- ``named_writes`` has the run ids of the writes of ``foreach_batch`` and ``transaction``.
"""
