"""The accumulator: a producer's batches from opening to completion, guarded by one lock.

Owns: ``record_accumulator`` (the queues, the incomplete batches, flush and failure),
``batch_filler`` (fills and closes batches), ``batch_drainer`` (selects the batches to send),
``partition_load`` (the weights of partitions), ``batch_returns`` (retries, splits, expiry), and
``producer_batch``.
"""
