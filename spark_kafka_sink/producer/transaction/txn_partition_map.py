"""The sequences of one producer id and epoch on all its partitions (Java's ``TxnPartitionMap``).

Owns: one :class:`PartitionSequences` for each partition, and the counts over all of them. The
accumulator calls it (through the transaction manager) at drain, the sender for every response.
Never: an identity, a transaction, a lock: it belongs to the sender thread.
"""

from __future__ import annotations

from spark_kafka_sink.errors import IllegalStateError
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.transaction.partition_sequences import (
    PartitionSequences,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.record_batch import NO_SEQUENCE

#: A partition without an acknowledgement for this long is treated as if its broker had lost this
#: producer's state: the next batch is sent alone. Far below any sensible producer.id.expiration.ms.
ACK_EXPIRY_MS = 60_000


class _ByPartition(dict[TopicPartition, PartitionSequences[ProducerBatch]]):
    """A dict, because it is read several times for each batch."""

    __slots__ = ("_max_in_flight",)

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight

    def __missing__(self, tp: TopicPartition) -> PartitionSequences[ProducerBatch]:
        sequences = self[tp] = PartitionSequences(self._max_in_flight)
        return sequences


class TxnPartitionMap:
    """``in_flight`` counts unresolved batches with a sequence."""

    __slots__ = ("_next_expiry_ms", "in_flight", "of")

    def __init__(self, max_in_flight: int) -> None:
        #: The sequences of each partition, created on first access.
        self.of = _ByPartition(max_in_flight)
        self._next_expiry_ms = 0
        self.in_flight = 0

    def reset(self) -> None:
        """A new identity: every sequence begins at 0. Nothing may be in flight."""
        if self.in_flight:
            raise IllegalStateError(
                f"the producer's epoch changed while {self.in_flight} batches were in flight"
            )
        self.of.clear()

    def add(self, batch: ProducerBatch) -> None:
        """A split batch."""
        if batch.base_sequence == NO_SEQUENCE:
            raise IllegalStateError(f"{batch.tp}: a batch without a sequence can't be in flight")
        self.of[batch.tp].add(batch, batch.base_sequence, batch.record_count)
        self.in_flight += 1

    def remove(self, batch: ProducerBatch) -> None:
        self.of[batch.tp].remove(batch)
        self.in_flight -= 1

    def fail(self, batch: ProducerBatch, *, unclear: bool) -> tuple[ProducerBatch, ...]:
        sequences = self.of[batch.tp]
        before = len(sequences)
        others = sequences.fail(batch, unclear=unclear)
        self.in_flight -= before - len(sequences)
        return others

    def resolve(self, batch: ProducerBatch) -> None:
        self.of[batch.tp].resolve(batch)

    @property
    def has_unresolved(self) -> bool:
        """True while it is unknown whether some failed batch is, or will be, in the log."""
        return any(sequences.has_unresolved for sequences in self.of.values())

    def expire_acks(self, now: int) -> None:
        """Periodically expire acknowledgements older than ACK_EXPIRY_MS."""
        if now < self._next_expiry_ms:
            return
        self._next_expiry_ms = now + ACK_EXPIRY_MS // 4
        for sequences in self.of.values():
            sequences.expire_acks(now - ACK_EXPIRY_MS)
