"""The accumulator: the queues of a producer's record batches. One lock guards all queues.

* ``producer_batch``: one batch, from its creation until its memory is freed.
* ``record_accumulator``: the queues, flush, and the failure of all batches.
* ``batch_filler``: fills and closes batches.
* ``batch_drainer``: selects the batches to send.
* ``batch_returns``: puts batches back for a retry, splits them, and expires them.
* ``partition_load``: computes weights of partitions for rows without a key.
"""
