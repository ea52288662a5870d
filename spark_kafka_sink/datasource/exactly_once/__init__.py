"""The parts of a write that only ``deliveryGuarantee=exactly-once`` uses.

The driver reads the commit log and makes a plan (``transaction_plan``). A task writes its rows in a
transaction (``transactional_producers``). The driver commits or aborts the transactions of all
tasks (``transaction_commit``). ``checkpoint``, ``offset_log`` and ``source_offsets`` read the
offsets of a query's sources from the query's checkpoint. The offsets identify a micro-batch, and
can be committed with the rows to the consumer group of the option offsetsGroup (``offsets_group``).
``named_writes`` has the run ids of the writes of ``foreach_batch`` and ``transaction``.
"""
