"""The checks before a batch is drained. Owns: the protocol :class:`DrainControl`.

``transaction_manager.py`` implements it; tests have other implementations. Never: state.
"""

from __future__ import annotations

from typing import Protocol

from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.cluster import TopicPartition


class DrainControl(Protocol):
    """The drain's view of the transaction manager (Java: shouldStopDrainBatchesForPartition)."""

    @property
    def is_completing(self) -> bool:
        """A transaction is being committed or aborted: every batch is sent now, or failed."""
        ...

    def may_drain(self, batch: ProducerBatch) -> bool:
        """True when ``batch``, the head of its queue, may be drained now. Without a sequence, by
        rule R3 (there is a producer id; transactional: the partition is part of the transaction;
        nothing unresolved; at most five in flight); a retry, which has its sequence, when all
        earlier batches are resolved, so that they can't overtake each other.
        """
        ...

    def first_in_flight_sequence(self, tp: TopicPartition) -> int:
        """Base sequence of the first batch in flight (tracked until it is completed or permanently
        failed, so a batch that waits for its retry counts); NO_SEQUENCE when there is none.
        """
        ...

    def batch_sent(self, batch: ProducerBatch) -> None:
        """``batch`` is sent: the first time, the producer id and epoch and the next sequence are
        written into its header, and it is tracked from then on.
        """
        ...

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        """Track ``batch``, a split batch, which has its sequence."""
        ...

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        """Forget ``batch`` (it is split; called before the split batches are added)."""
        ...
