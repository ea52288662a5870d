"""Batches that are not done with, and the flushes that wait for them (Java's IncompleteBatches).

Owns: the set of all batches between their opening and their last answer, and the counts of the
flushes. Never: a lock of its own; the accumulator's guards it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_kafka_sink.clock import Waiters
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch


class Flush:
    """One call of flush: counts down the batches that existed when it began, and their pieces."""

    __slots__ = ("remaining", "upto")

    def __init__(self, upto: int, remaining: int) -> None:
        self.upto = upto
        self.remaining = remaining


class IncompleteBatches:
    """Batches by generation. Every method runs under the accumulator's lock; ``flushed`` are
    woken when a flush is complete.
    """

    __slots__ = ("_batches", "_flushed", "_flushes", "generation")

    def __init__(self, flushed: Waiters) -> None:
        self._flushed = flushed
        self._batches: dict[int, ProducerBatch] = {}
        self._flushes: list[Flush] = []
        #: The last one that a batch has got.
        self.generation = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def flushing(self) -> bool:
        """Some flush is under way."""
        return bool(self._flushes)

    def add(self, batch: ProducerBatch) -> None:
        """A batch that was opened, of the next generation: flushes that began before don't wait
        for it.
        """
        self.generation = batch.generation
        self._batches[batch.generation] = batch

    def replace(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """``batch`` was split: whoever waits for it waits for its pieces."""
        if batch.generation in self._batches:
            for flush in self._flushes:
                if batch.lineage <= flush.upto:
                    flush.remaining += len(pieces)
        for piece in pieces:
            self._batches[piece.generation] = piece
        self.remove((batch,))

    def remove(self, batches: Iterable[ProducerBatch]) -> None:
        """They are done with. Harmless when repeated."""
        for batch in batches:
            if self._batches.pop(batch.generation, None) is None:
                continue
            for flush in self._flushes:
                if batch.lineage <= flush.upto:
                    flush.remaining -= 1
                    if flush.remaining == 0:
                        self._flushed.wake_all()

    def all(self) -> list[ProducerBatch]:
        """The batches as they are now, oldest generation first."""
        return list(self._batches.values())

    def begin_flush(self) -> Flush:
        """Wait for what exists now: batches to come have higher generations."""
        flush = Flush(self.generation, len(self._batches))
        self._flushes.append(flush)
        return flush

    def end_flush(self, flush: Flush) -> None:
        self._flushes.remove(flush)
