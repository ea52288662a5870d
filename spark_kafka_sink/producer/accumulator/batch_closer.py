"""Closing an open batch: claimed under the accumulator's lock, compressed without it.

Owns: the two steps from OPEN to READY, and the recovery of an interrupted closer. Never: why a
batch is closed (the writer closes full ones, ``batch_drainer.py`` those that must be sent).
``record_accumulator.py`` describes how the two threads interact here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from spark_kafka_sink.producer.accumulator.batch_limits import BatchLimits
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.partition_queues import PartitionQueue, PartitionQueues
from spark_kafka_sink.producer.accumulator.producer_batch import BatchState, ProducerBatch
from spark_kafka_sink.records.compression import Codec


class BatchCloser:
    """Works on the accumulator's lock and queues, on the thread that closes the batch."""

    __slots__ = ("_codec", "_limits", "_lock", "_pool", "_queues", "_uncompressed", "_wakeup")

    def __init__(
        self,
        lock: threading.Lock,
        queues: PartitionQueues,
        pool: BufferPool,
        codec: Codec,
        limits: BatchLimits,
        wakeup: Callable[[], None],
    ) -> None:
        self._lock = lock
        self._queues = queues
        self._pool = pool
        self._codec, self._uncompressed = codec, codec.is_none
        self._limits = limits
        self._wakeup = wakeup

    def claim(self, queue: PartitionQueue, claimed: list[ProducerBatch]) -> bool:
        """Stop appends to the open batch. True: it is READY; False: it was added to ``claimed``,
        and the caller must close it without the lock.
        """
        batch = self._queues.close_open(queue)
        batch.claim()
        if self._uncompressed:
            batch.finish_close(None, self._codec)  # nothing to compress: keep the lock
            return True
        claimed.append(batch)
        return False

    def close_claimed(self, claimed: list[ProducerBatch]) -> None:
        """Compress the batches that this thread claimed, without the lock; each is then READY."""
        done = 0
        try:
            for batch in claimed:
                self.finish_closing(batch)
                done += 1
                self._wakeup()
        finally:
            if done < len(claimed):
                # Interrupted in the middle: the sender closes the rest, see ``BatchDrainer``.
                with self._lock:
                    for batch in claimed[done:]:
                        batch.release_claim()
                self._wakeup()

    def finish_closing(self, batch: ProducerBatch) -> None:
        compressed = batch.compress(self._codec)
        with self._lock:
            if batch.state is not BatchState.CLOSING:
                return  # aborted meanwhile: its memory was already deallocated
            before = batch.pool_size
            batch.finish_close(compressed, self._codec)
            after = batch.pool_size = batch.size_in_bytes
        self._limits.closed(batch)
        self._pool.adjust(before, after)
