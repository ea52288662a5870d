"""Batches from opening to completion, guarded by one lock (``RecordAccumulator``).

Owns: ``record_accumulator`` and its components: ``partition_queues``, ``batch_limits`` and
``batch_closer`` (full batches), ``batch_drainer`` with ``drain_control`` (sendable batches),
``batch_requeuer`` (retries, splits, expiry), ``incomplete_batches`` (for ``flush``),
``buffer_pool`` (memory), ``partition_load`` (adaptive partitioning), and ``producer_batch``.
"""
