"""Batches that are filled, wait, leave and come back, behind one lock (``RecordAccumulator``).

Owns: ``record_accumulator`` and its chapters: ``partition_queues``, ``batch_limits`` and
``batch_closer`` (when a batch is full), ``batch_drainer`` with ``drain_control`` (what may leave),
``batch_requeuer`` (retries, splits, expiry), ``incomplete_batches`` (what ``flush`` waits for),
``buffer_pool`` (memory), ``partition_load`` (adaptive partitioning), and ``producer_batch``.
"""
