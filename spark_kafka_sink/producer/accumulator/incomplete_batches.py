"""Incomplete batches, and the flushes that wait for them (Java's IncompleteBatches).

Owns: the set of all batches between their opening and their last response, and the counts of the
flushes. Never: a lock; the accumulator's guards it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_kafka_sink.clock import Waiters
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch


class Flush:
    """One call of flush: counts down the batches that existed when it began, also split ones."""

    __slots__ = ("remaining", "upto")

    def __init__(self, upto: int, remaining: int) -> None:
        self.upto = upto
        self.remaining = remaining


class IncompleteBatches:
    """Batches by generation. Every method runs under the accumulator's lock; the ``flushed``
    waiters are woken when a flush is complete.
    """

    __slots__ = ("_batches", "_flushed", "_flushes", "generation")

    def __init__(self, flushed: Waiters) -> None:
        self._flushed = flushed
        self._batches: dict[int, ProducerBatch] = {}
        self._flushes: list[Flush] = []
        #: The generation of the newest batch.
        self.generation = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def flushing(self) -> bool:
        """True while a flush is in progress."""
        return bool(self._flushes)

    def add(self, batch: ProducerBatch) -> None:
        """Add an opened batch of the next generation: earlier flushes do not wait for it."""
        self.generation = batch.generation
        self._batches[batch.generation] = batch

    def replace(self, batch: ProducerBatch, split_batches: Sequence[ProducerBatch]) -> None:
        """``batch`` was split: flushes that wait for it now wait for the split batches."""
        if batch.generation in self._batches:
            for flush in self._flushes:
                if batch.lineage <= flush.upto:
                    flush.remaining += len(split_batches)
        for split_batch in split_batches:
            self._batches[split_batch.generation] = split_batch
        self.remove((batch,))

    def remove(self, batches: Iterable[ProducerBatch]) -> None:
        """The batches are complete. Idempotent."""
        for batch in batches:
            if self._batches.pop(batch.generation, None) is None:
                continue
            for flush in self._flushes:
                if batch.lineage <= flush.upto:
                    flush.remaining -= 1
                    if flush.remaining == 0:
                        self._flushed.wake_all()

    def all(self) -> list[ProducerBatch]:
        """A copy, oldest generation first."""
        return list(self._batches.values())

    def begin_flush(self) -> Flush:
        """Start a flush of the existing batches: later ones have higher generations."""
        flush = Flush(self.generation, len(self._batches))
        self._flushes.append(flush)
        return flush

    def end_flush(self, flush: Flush) -> None:
        self._flushes.remove(flush)
