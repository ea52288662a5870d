"""What the accumulator asks before a batch leaves. Owns: the protocol :class:`DrainControl`.

``transaction_manager.py`` answers it; tests put their own answers in its place. Never: state.
"""

from __future__ import annotations

from typing import Protocol

from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.cluster import TopicPartition


class DrainControl(Protocol):
    """What drain asks of the transaction manager (Java: shouldStopDrainBatchesForPartition)."""

    @property
    def is_transactional(self) -> bool: ...

    @property
    def producer_id_and_epoch(self) -> tuple[int, int]:
        """(producer id, epoch); a NamedTuple is fine. Negative id: not known yet."""
        ...

    @property
    def has_producer_id(self) -> bool: ...

    @property
    def is_completing(self) -> bool:
        """A transaction is being committed or aborted: every batch must go, or is dropped."""
        ...

    def can_drain(self, tp: TopicPartition) -> bool:
        """May a batch *without* sequence be drained for ``tp`` now (rule 5.3; transactional: the
        partition is part of the transaction; nothing unresolved; at most five in flight)?
        """
        ...

    def first_in_flight_sequence(self, tp: TopicPartition) -> int:
        """Base sequence of the first batch in flight (tracked until it is completed or failed for
        good, so a batch that waits for its retry counts); NO_SEQUENCE when none is.
        """
        ...

    def take_sequence(self, tp: TopicPartition, record_count: int) -> int:
        """The next base sequence of ``tp``; moves on by ``record_count``, wrapping at 2^31."""
        ...

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        """Track ``batch``, which has its sequence now (called at drain, and for split pieces)."""
        ...

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        """Forget ``batch`` (called for a batch that is split, before its pieces are added)."""
        ...
