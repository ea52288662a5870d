"""Producer id, epoch and sequences: who we are to the brokers (Java's ``TransactionManager``).

Owns: the states of the producer's identity as one table, the producer id and epoch, one
:class:`PartitionSequences` for each partition, and the answer to "may this batch leave now?". On a
record's way it stands beside the accumulator (which asks at drain) and the sender (which reports
every answer). Never: requests on a wire, backoff, bytes.

Idempotent mode is all of it now. A transaction's states (in transaction, prepared, ending,
abortable error) join :data:`TRANSITIONS`, its partitions :meth:`can_drain`, its protocol version
:attr:`max_produce_version`.

What Java's class does and this one leaves out, because a task attempt is replayable (design.md rule
5.2): no epoch bump, no rewriting of sequences, no unresolved partitions that later resolve.

Belongs to the sender's thread; :attr:`reusable` and :attr:`fatal_error` may be read from any.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from spark_kafka_sink.errors import ErrorCode, IllegalStateError, KafkaError
from spark_kafka_sink.producer.partition_sequences import (
    MAX_IN_FLIGHT,
    NO_SEQUENCE,
    Action,
    Answer,
    PartitionSequences,
    Verdict,
)
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages import InitProducerIdRequest
from spark_kafka_sink.protocol.responses import InitProducerIdResponse

#: A partition without an acknowledgement for this long is treated as if its broker had forgotten
#: us: the next batch travels alone. Far below any sensible producer.id.expiration.ms.
LAPSE_MS = 60_000

#: Transactions of version 1 must not use Produce v12 (the leader would add the partition itself).
_MAX_PRODUCE_VERSION = 12


class ProducerIdAndEpoch(NamedTuple):
    """(-1, -1) while there is none."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id >= 0


NO_PRODUCER_ID = ProducerIdAndEpoch(-1, -1)


class State(Enum):
    """How far the producer's identity is."""

    UNINITIALIZED = "no producer id"
    INITIALIZING = "InitProducerId is under way or to be retried"
    READY = "has a producer id"
    FATAL_ERROR = "failed for good"


#: Every transition that is allowed; any state may fail.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.READY, State.FATAL_ERROR}),
    State.READY: frozenset({State.FATAL_ERROR}),
    State.FATAL_ERROR: frozenset({State.FATAL_ERROR}),
}


class TransactionManager:
    """Identity and sequences of one producer."""

    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._max_in_flight = max_in_flight
        self._state = State.UNINITIALIZED
        self._identity = NO_PRODUCER_ID
        self._partitions: dict[TopicPartition, PartitionSequences[ProducerBatch]] = {}
        self._unresolved = 0
        self._next_lapse_ms = 0
        self._fatal_error: KafkaError | None = None

    # -- identity ---------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self._state

    @property
    def transactional_id(self) -> str | None:
        return self._transactional_id

    @property
    def is_transactional(self) -> bool:
        return self._transactional_id is not None

    @property
    def is_completing(self) -> bool:
        """A transaction is being ended, so every batch must go. Never, without transactions."""
        return False

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch:
        return self._identity

    @property
    def has_producer_id(self) -> bool:
        return self._identity.is_valid

    @property
    def max_produce_version(self) -> int:
        return _MAX_PRODUCE_VERSION

    @property
    def fatal_error(self) -> KafkaError | None:
        return self._fatal_error

    @property
    def reusable(self) -> bool:
        """True when a next task may go on with this id: no error, nothing without an answer."""
        return self._state is State.READY and self._unresolved == 0

    def begin_initialize(self) -> InitProducerIdRequest:
        """The request that asks for an identity; also for a retry of it."""
        if self._state is not State.INITIALIZING:
            self._transition(State.INITIALIZING)
        return InitProducerIdRequest(self._transactional_id, self._transaction_timeout_ms)

    def handle_init_producer_id(self, response: InitProducerIdResponse, where: str) -> bool:
        """Take the broker's answer. True: there is an id now. False: ask again after backoff.

        An error that no retry mends is fatal (:attr:`fatal_error`).
        """
        if response.error is ErrorCode.NONE:
            self._transition(State.READY)
            self._identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            return True
        if not response.error.retriable:
            self.transition_to_fatal_error(response.error.error(where))
        return False

    def transition_to_fatal_error(self, error: KafkaError) -> None:
        """This producer sends nothing any more; the first error is the one that is kept."""
        self._transition(State.FATAL_ERROR)
        if self._fatal_error is None:
            self._fatal_error = error

    def _transition(self, target: State) -> None:
        if target not in TRANSITIONS[self._state]:
            raise IllegalStateError(
                f"the producer's identity can't go from '{self._state.value}' to '{target.value}'"
            )
        self._state = target

    # -- drain: asked by the accumulator ----------------------------------------------------------

    def can_drain(self, tp: TopicPartition) -> bool:
        """May a batch of ``tp`` that never left, and so has no sequence, leave now?

        With :meth:`first_in_flight_sequence` for batches that go again, this is Java's
        shouldStopDrainBatchesForPartition. False is lifted by an answer, never by time alone, so
        nobody has to poll for it.
        """
        if self._state is not State.READY:
            return False
        sequences = self._partitions.get(tp)
        return sequences is None or sequences.can_send_new()

    def first_in_flight_sequence(self, tp: TopicPartition) -> int:
        """The sequence of the one batch of ``tp`` that may be sent again, or NO_SEQUENCE."""
        sequences = self._partitions.get(tp)
        return NO_SEQUENCE if sequences is None else sequences.first_sequence

    def take_sequence(self, tp: TopicPartition, record_count: int) -> int:
        """The base sequence of a batch that leaves for the first time."""
        return self._sequences(tp).take(record_count)

    def next_sequence(self, tp: TopicPartition) -> int:
        """What :meth:`take_sequence` would give."""
        return self._sequences(tp).next_sequence

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        """A batch leaves for the first time, or a piece of a split is queued; it has a sequence."""
        if batch.base_sequence == NO_SEQUENCE:
            raise IllegalStateError(f"{batch.tp}: a batch without a sequence can't be in flight")
        self._sequences(batch.tp).add(batch, batch.base_sequence, batch.record_count)
        self._unresolved += 1

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        """A batch is split; its pieces are added next, and together cover its sequences."""
        self._sequences(batch.tp).remove(batch)
        self._unresolved -= 1

    # -- answers: reported by the sender ----------------------------------------------------------

    def batch_sent(self, batch: ProducerBatch) -> None:
        """``batch``, first time or again, is on its way."""
        self._sequences(batch.tp).sent(batch)

    def handle_answer(
        self, batch: ProducerBatch, answer: Answer, base_offset: int, now: int
    ) -> Verdict[ProducerBatch]:
        """What to do with ``batch`` now; rule 5.3 lives in ``partition_sequences.py``."""
        sequences = self._sequences(batch.tp)
        before = len(sequences)
        verdict = sequences.answer(batch, answer, base_offset, now)
        if verdict.action is Action.COMPLETE:
            self._unresolved -= before - len(sequences)
        return verdict

    def has_in_flight_batches(self, tp: TopicPartition) -> bool:
        return bool(self._partitions.get(tp))

    def is_acknowledged(self, tp: TopicPartition) -> bool:
        """True once a broker acknowledged something of this producer on ``tp``."""
        sequences = self._partitions.get(tp)
        return sequences is not None and sequences.acknowledged

    def lapse(self, now: int) -> None:
        """Once in a while, forget acknowledgements older than LAPSE_MS."""
        if now < self._next_lapse_ms:
            return
        self._next_lapse_ms = now + LAPSE_MS // 4
        for sequences in self._partitions.values():
            sequences.lapse(now - LAPSE_MS)

    def _sequences(self, tp: TopicPartition) -> PartitionSequences[ProducerBatch]:
        sequences = self._partitions.get(tp)
        if sequences is None:
            sequences = self._partitions[tp] = PartitionSequences(self._max_in_flight)
        return sequences
