"""Puts batches back into their queues after a failed send, splits batches that are too large, and
expires queued batches.

``sender.py`` decides whether a batch is retried, split or failed. This module computes the backoff
of a retried batch, and the place of a batch in its queue. It runs on the network thread.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable, Sequence

from spark_kafka_sink.base.backoff import ExponentialBackoff, concurrent_backoff
from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator.batch_drainer import DrainControl
from spark_kafka_sink.producer.accumulator.batch_filler import BatchLimits
from spark_kafka_sink.producer.accumulator.producer_batch import BatchState, ProducerBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.records.record_batch import NO_SEQUENCE, sequence_before


class BatchReturns:
    """Puts batches back into the accumulator's queues, and removes expired batches from them, under
    the accumulator's lock.
    """

    __slots__ = (
        "_accumulator",
        "_backoff",
        "_delivery_timeout_ms",
        "_limits",
        "_queues",
        "_soon",
        "_transaction_manager",
    )

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        limits: BatchLimits,
        transaction_manager: DrainControl | None,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._accumulator = accumulator
        self._queues = accumulator.queues
        self._limits = limits
        self._transaction_manager = transaction_manager
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._backoff = ExponentialBackoff(
            config.retry_backoff_ms, config.retry_backoff_max_ms, random=random
        )
        self._soon = concurrent_backoff(
            config.retry_backoff_ms, config.retry_backoff_max_ms, random
        )

    def reenqueue(self, batch: ProducerBatch, now: int, *, soon: bool = False) -> None:
        """Puts ``batch`` at the head of its queue, for a retry after a backoff. Only batches with
        lower sequence numbers stay before ``batch``. ``soon`` selects a shorter backoff.

        An idempotent producer raises IllegalStateError in two cases: the batch has no sequence
        number, or the transaction manager has no batch of the partition in flight.
        """
        with self._accumulator.lock:
            self._check_tracked(batch)
            # Soon after CONCURRENT_TRANSACTIONS: the broker itself waits before it returns it.
            backoff = self._soon if soon else self._backoff
            batch.reenqueued(now + backoff.backoff(batch.attempts))
            self._insert(batch)

    def begin_again(self, batches: Sequence[ProducerBatch], now: int) -> None:
        """Puts ``batches`` at the heads of their queues, without producer epoch and sequence
        numbers. The next drain assigns new values.

        Called after the producer has raised its epoch. ``batches`` have the old epoch, and are not
        in the log. The batches of a partition keep their order.
        """
        with self._accumulator.lock:
            for batch in reversed(batches):
                queue = self._queues.by_partition[batch.tp]
                if batch.state is BatchState.READY:  # it waited there to be sent again
                    self._queues.remove(queue, batch)
                batch.begin_again(now)
                self._queues.insert(queue, 0, batch)
                self._accumulator.queued(batch.created_ms)

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """Splits ``batch``, which a broker rejected with MESSAGE_TOO_LARGE. Returns the number of
        the new batches.

        The new batches are at the head of the queue, in order, and are sent without a backoff.
        Later batches of the topic are limited to half of the rejected size (DESIGN.md, rule R7).

        Raises IllegalStateError in the cases of :meth:`reenqueue`, and for a batch with a single
        record.
        """
        incomplete = self._accumulator.incomplete
        with self._accumulator.lock:
            self._check_tracked(batch)
            first = incomplete.take_generations(2)
        split_batches = batch.split(first)
        self._limits.refused(batch)
        with self._accumulator.lock:
            # The pool and the transaction manager now count the new batches instead of ``batch``.
            before = batch.take_memory()
            after = sum(split_batch.charge_its_bytes() for split_batch in split_batches)
            incomplete.replace(batch, split_batches)
            manager = self._transaction_manager
            if manager is not None:
                manager.remove_in_flight_batch(batch)
                for split_batch in split_batches:
                    manager.add_in_flight_batch(split_batch)
            for split_batch in reversed(split_batches):
                self._insert(split_batch)
        self._accumulator.pool.adjust(before, after)
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
        self._accumulator.queued(batch.created_ms)

    def discard(self, batch: ProducerBatch) -> None:
        """Removes ``batch`` from its queue. Used when the acknowledgement of a later batch has
        proved that ``batch`` is already in the log. Does nothing if ``batch`` is not queued.
        """
        with self._accumulator.lock:
            queue = self._queues.by_partition[batch.tp]
            if batch in queue.batches:
                self._queues.remove(queue, batch)

    def expired(self, now: int) -> list[ProducerBatch]:
        """Removes the queued batches that are older than delivery.timeout.ms, and returns them,
        oldest first.

        The caller fails these batches (``complete_exceptionally``), and frees their memory.
        """
        accumulator = self._accumulator
        if now < accumulator.next_expiry_ms:
            return []  # no queued batch is older than the last pass found
        expired: list[ProducerBatch] = []
        next_expiry_ms = NEVER
        with accumulator.lock:
            for queue in self._queues.by_partition.values():
                while queue.batches:
                    batch = queue.batches[0]
                    if (
                        not batch.has_reached_delivery_timeout(self._delivery_timeout_ms, now)
                        # Being compressed by its closer; it expires once READY, a moment later.
                        or batch.state is BatchState.CLOSING
                    ):
                        expiry = max(batch.created_ms + self._delivery_timeout_ms, now + 1)
                        next_expiry_ms = min(next_expiry_ms, expiry)
                        break
                    self._queues.remove(queue, batch)
                    expired.append(batch)
            accumulator.reset_next_expiry_time(next_expiry_ms)
        expired.sort(key=lambda batch: (batch.created_ms, batch.generation))
        return expired
