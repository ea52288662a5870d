"""What the accumulator asks before a batch leaves. Owns: the protocol :class:`DrainControl`.

``transaction_manager.py`` answers it; tests put their own answers in its place. Never: state.
"""

from __future__ import annotations

from typing import Protocol

from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.cluster import TopicPartition


class DrainControl(Protocol):
    """What drain asks of the transaction manager (Java: shouldStopDrainBatchesForPartition)."""

    @property
    def is_completing(self) -> bool:
        """A transaction is being committed or aborted: every batch must go, or is dropped."""
        ...

    def may_leave(self, batch: ProducerBatch) -> bool:
        """May ``batch``, the head of its queue, be drained now? Without a sequence by rule R3
        (there is a producer id; transactional: the partition is part of the transaction; nothing
        unresolved; at most five in flight); a retry, which has its sequence, when all before it
        are settled, so that they can't overtake each other.
        """
        ...

    def first_in_flight_sequence(self, tp: TopicPartition) -> int:
        """Base sequence of the first batch in flight (tracked until it is completed or failed for
        good, so a batch that waits for its retry counts); NO_SEQUENCE when none is.
        """
        ...

    def batch_sent(self, batch: ProducerBatch) -> None:
        """``batch`` leaves: the first time with the producer's identity and its next sequence,
        which are written into its header, and it is tracked from then on.
        """
        ...

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        """Track ``batch``, a piece of a split, which has its sequence."""
        ...

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        """Forget ``batch`` (called for a batch that is split, before its pieces are added)."""
        ...
