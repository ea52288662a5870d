"""The accumulator: a producer's batches from opening to completion, guarded by one lock.

Owns: ``record_accumulator`` (the queues, the incomplete batches, flush and failure),
``batch_filler`` (columns in, full batches closed), ``batch_drainer`` (sendable batches out),
``partition_load`` (the weights of partitions), ``batch_returns`` (retries, splits, expiry), and
``producer_batch``.
"""
