"""Requeues batches (retries and split batches) and expires queued ones.

Owns: the queue position of a retry and of split batches, their backoff, and
delivery.timeout.ms of queued batches. Runs on the sender thread. Never: why a batch is requeued
(``sender.py``), its completion, a clock.
"""

from __future__ import annotations

import threading

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.errors import IllegalStateError
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.producer.accumulator.batch_limits import BatchLimits
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.drain_control import DrainControl
from spark_kafka_sink.producer.accumulator.incomplete_batches import IncompleteBatches
from spark_kafka_sink.producer.accumulator.partition_queues import PartitionQueues
from spark_kafka_sink.producer.accumulator.producer_batch import (
    BatchState,
    ProducerBatch,
)
from spark_kafka_sink.records.record_batch import NO_SEQUENCE, sequence_before


class BatchRequeuer:
    """Works on the accumulator's lock (``_lock``) and queues.

    The lock also guards ``next_expiry_ms``: no queued batch expires before that time (monotonic
    ms); NEVER when none is queued. It may be read without the lock.
    """

    __slots__ = (
        "_backoff",
        "_delivery_timeout_ms",
        "_incomplete",
        "_limits",
        "_lock",
        "_pool",
        "_queues",
        "_transaction_manager",
        "next_expiry_ms",
    )

    def __init__(
        self,
        delivery_timeout_ms: int,
        backoff: ExponentialBackoff,
        lock: threading.Lock,
        queues: PartitionQueues,
        incomplete: IncompleteBatches,
        pool: BufferPool,
        limits: BatchLimits,
        transaction_manager: DrainControl | None,
    ) -> None:
        self._delivery_timeout_ms = delivery_timeout_ms
        self._backoff = backoff
        self._lock = lock
        self._queues = queues
        self._incomplete = incomplete
        self._pool = pool
        self._limits = limits
        self._transaction_manager = transaction_manager
        self.next_expiry_ms = NEVER

    def queued(self, created_ms: int) -> None:
        """Under the lock: a batch created at ``created_ms`` was queued."""
        expiry = created_ms + self._delivery_timeout_ms
        if expiry < self.next_expiry_ms:
            self.next_expiry_ms = expiry

    def reenqueue(self, batch: ProducerBatch, now: int) -> None:
        """Put ``batch`` at the head of its queue; with sequences, after earlier retries.

        Raises IllegalStateError under idempotence for a batch that has no sequence, or that the
        transaction manager does not track as in flight.
        """
        with self._lock:
            self._check_tracked(batch)
            batch.reenqueued(now + self._backoff.backoff(batch.attempts))
            self._insert(batch)

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """Split a batch that a broker rejected as too large; returns the number of split batches.

        They go to the head, in order, without backoff; with sequences they are tracked in
        flight in place of ``batch`` and take over its memory. Batches of this topic are limited to
        half of the rejected size from now on (rule R7).
        """
        with self._lock:
            self._check_tracked(batch)
            first = self._incomplete.generation + 1
            self._incomplete.generation += 2
        split_batches = batch.split(first)
        self._limits.refused(batch)
        with self._lock:
            for split_batch in split_batches:
                split_batch.pool_size = split_batch.size_in_bytes
            before, batch.pool_size = batch.pool_size, 0
            after = sum(split_batch.pool_size for split_batch in split_batches)
            self._incomplete.replace(batch, split_batches)
            manager = self._transaction_manager
            if manager is not None:
                manager.remove_in_flight_batch(batch)
                for split_batch in split_batches:
                    manager.add_in_flight_batch(split_batch)
            for split_batch in reversed(split_batches):
                self._insert(split_batch)
        self._pool.adjust(before, after)
        return len(split_batches)

    def _check_tracked(self, batch: ProducerBatch) -> None:
        manager = self._transaction_manager
        if manager is None:
            return
        if not batch.has_sequence:
            raise IllegalStateError(
                f"{batch.tp}: a batch without sequence was put back although the producer is "
                "idempotent"
            )
        if manager.first_in_flight_sequence(batch.tp) == NO_SEQUENCE:
            raise IllegalStateError(
                f"{batch.tp}: the batch with sequence {batch.base_sequence} was put back, but it "
                "is not tracked as in flight"
            )

    def _insert(self, batch: ProducerBatch) -> None:
        queue = self._queues.by_partition[batch.tp]
        index = 0
        if batch.has_sequence:
            # Two batches in flight on one connection may be requeued in any order: the earlier
            # sequence must be sent first again.
            for other in queue.batches:
                if not other.has_sequence or not sequence_before(
                    other.base_sequence, batch.base_sequence
                ):
                    break
                index += 1
        self._queues.insert(queue, index, batch)
        self.queued(batch.created_ms)

    def expired(self, now: int) -> list[ProducerBatch]:
        """Take queued batches past delivery.timeout.ms out of their queues, oldest first.

        The caller fails them (``complete_exceptionally``) and deallocates them.
        """
        if now < self.next_expiry_ms:
            return []  # no queued batch is older than the last pass found
        expired: list[ProducerBatch] = []
        with self._lock:
            self.next_expiry_ms = NEVER
            for queue in self._queues.by_partition.values():
                while queue.batches:
                    batch = queue.batches[0]
                    if (
                        not batch.has_reached_delivery_timeout(self._delivery_timeout_ms, now)
                        # Being compressed by its closer; it expires once READY, a moment later.
                        or batch.state is BatchState.CLOSING
                    ):
                        expiry = max(batch.created_ms + self._delivery_timeout_ms, now + 1)
                        self.next_expiry_ms = min(self.next_expiry_ms, expiry)
                        break
                    self._queues.remove(queue, batch)
                    expired.append(batch)
        expired.sort(key=lambda batch: (batch.created_ms, batch.generation))
        return expired
