"""The sequence numbers of one producer id on its partitions, and the handling of responses.

Owns: the next sequence, the batches that have one and are unresolved, whether a batch may be sent
now, and the one table (:data:`ACTIONS`) from (situation, answer) to action. Never: bytes, clocks,
sockets, backoff, a lock: it belongs to the sender thread. :class:`TxnPartitionMap` keeps one
instance for each partition; the accumulator calls it (through the transaction manager) at drain,
the sender for every response.

The broker (``ProducerStateManager``) keeps, for each producer id and partition, the last sequence
and the last five batches. A batch that equals one of the five is acknowledged again; one that
continues the last sequence is appended; any other is OUT_OF_ORDER. A producer **unknown** to the
broker may begin with *any* sequence. After a clean restart the broker remembers only the last
batch, so an older duplicate is OUT_OF_ORDER although it is in the log.

The rules, each with the race that it closes:

* **The first batch is sent alone until it is acknowledged.** Fresh topic: A gets
  NOT_LEADER_OR_FOLLOWER; B, sent right after A, reaches the broker when it has become leader. The
  broker does not know the producer, so it accepts B; A is then always out of order, and B precedes
  A in the log. A sent alone is resent until it is appended; then the broker knows the producer.
* **A later acknowledgement proves the earlier batches**, after a first one: a broker that knows
  the producer appends B only after A. So A need not be resent when its response is lost. The
  acknowledged offset must leave offsets for them; if not, the broker has lost this producer's
  state (topic recreated, log truncated by an unclean election), and the attempt fails.
* **Batches with a sequence are resent in order, one at a time, before any new batch.** A gets
  NOT_LEADER; B and C after it OUT_OF_ORDER, because A is missing: B and C are not at fault, and are
  resent after A.
* **OUT_OF_ORDER counts only against a batch sent with no unresolved batch before it.** A is
  rejected by old leader 1, B's rejection by 1 is still in flight; A is sent to new leader 2 and
  acknowledged; now B's old OUT_OF_ORDER arrives, and B is the first unresolved batch. It proves
  nothing: B was sent after A. B is resent, and that response counts.
* **OUT_OF_ORDER against such a batch is a doubt, not yet a failure.** All batches before A are in
  the log, so the broker's last sequence is beyond A: A is a duplicate older than the broker
  remembers (A to D were appended, their responses lost, the broker restarted and remembers D only).
  B, C, D are resent in order; D is acknowledged and proves A, B, C. If all batches with a sequence
  end up in doubt, nothing can prove them, and the attempt fails. No new batch is sent meanwhile: a
  broker that has lost this producer's state could accept it.
* **OUT_OF_ORDER before any acknowledgement fails the attempt**: the state of that log is unknown.

* **After a permanently failed batch nothing can follow.** Only a transactional producer continues
  then, to abort (nothing is renumbered, rule R2): each batch after the gap fails with its next
  response, unless that is an acknowledgement. A batch that failed without a definite response is
  *lost*: it may be in the log, or may still be appended, until a later acknowledgement or its own
  late response resolves it.

A split (MESSAGE_TOO_LARGE, rule R7) replaces the batch by its halves: they keep its sequence range
and are sent, one after the other, before the later batches, which get OUT_OF_ORDER and are resent
unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.record_batch import NO_SEQUENCE

#: A broker remembers five batches of a producer on a partition; no more may be in flight.
MAX_IN_FLIGHT = 5

#: A partition without an acknowledgement for this long is treated as if its broker had lost this
#: producer's state: the next batch is sent alone. Far below any sensible producer.id.expiration.ms.
ACK_EXPIRY_MS = 60_000

_SEQUENCES = 2**31

BatchT = TypeVar("BatchT")


class Answer(Enum):
    """The outcome of a Produce request for a batch, as the sequence logic sees it."""

    ACKNOWLEDGED = "NONE or DUPLICATE_SEQUENCE_NUMBER"
    OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    UNKNOWN_PRODUCER = "UNKNOWN_PRODUCER_ID (brokers before 2.5)"
    UNCLEAR = "a retriable error, a disconnect, a time-out"
    REFUSED = "any other error"

    # Enum's is a Python function, and :data:`ACTIONS` is read for each batch.
    __hash__ = object.__hash__


class Situation(Enum):
    """The situation of the batch when its response arrives."""

    FIRST = "no batch of this producer is acknowledged on the partition yet"
    HEAD = "it was sent with no unresolved batch before it"
    BEHIND = "it was sent with unresolved batches before it"
    SETTLED = "a later acknowledgement already proved it"
    FAILED = "an earlier batch of the partition failed permanently"

    __hash__ = object.__hash__  # as above


class Action(Enum):
    """The sender's action for the batch."""

    COMPLETE = "complete it, and the batches that it proves"
    RESEND = "requeue it"
    AWAIT_PROOF = "keep it; a later acknowledgement proves it, or the attempt fails"
    FAIL = "the attempt fails"
    IGNORE = "nothing: it is done"


_FIRST, _HEAD, _BEHIND, _SETTLED, _FAILED = Situation

#: Rule R3 for responses, complete.
ACTIONS: dict[tuple[Situation, Answer], Action] = {
    (_FIRST, Answer.ACKNOWLEDGED): Action.COMPLETE,
    (_FIRST, Answer.OUT_OF_ORDER): Action.FAIL,
    (_FIRST, Answer.UNKNOWN_PRODUCER): Action.FAIL,
    (_FIRST, Answer.UNCLEAR): Action.RESEND,
    (_FIRST, Answer.REFUSED): Action.FAIL,
    (_HEAD, Answer.ACKNOWLEDGED): Action.COMPLETE,
    (_HEAD, Answer.OUT_OF_ORDER): Action.AWAIT_PROOF,
    (_HEAD, Answer.UNKNOWN_PRODUCER): Action.FAIL,
    (_HEAD, Answer.UNCLEAR): Action.RESEND,
    (_HEAD, Answer.REFUSED): Action.FAIL,
    (_BEHIND, Answer.ACKNOWLEDGED): Action.COMPLETE,
    (_BEHIND, Answer.OUT_OF_ORDER): Action.RESEND,
    (_BEHIND, Answer.UNKNOWN_PRODUCER): Action.RESEND,
    (_BEHIND, Answer.UNCLEAR): Action.RESEND,
    (_BEHIND, Answer.REFUSED): Action.FAIL,
    **{(_SETTLED, answer): Action.IGNORE for answer in Answer},
    **{(_FAILED, answer): Action.FAIL for answer in Answer},
    (_FAILED, Answer.ACKNOWLEDGED): Action.COMPLETE,
}


@dataclass(frozen=True, slots=True)
class Verdict(Generic[BatchT]):
    """``proven`` are earlier batches to complete with an unknown offset, in order.

    ``reason`` explains a FAIL that is caused by the sequences.
    """

    action: Action
    proven: tuple[BatchT, ...] = ()
    reason: str | None = None


#: The verdict for nearly every batch.
_COMPLETED: Verdict[Any] = Verdict(Action.COMPLETE)


class _Place(Enum):
    SENT = "in flight"
    QUEUED = "waits to be resent"
    AWAITING_PROOF = "waits for proof"


@dataclass(slots=True, eq=False)
class _InFlight(Generic[BatchT]):
    batch: BatchT
    base_sequence: int
    record_count: int
    place: _Place
    left_as_head: bool
    resent: bool = False


def _precedes(one: _InFlight[BatchT], other: _InFlight[BatchT]) -> bool:
    """Order of two that are in flight together, where 0 may follow the largest sequence."""
    return (other.base_sequence - one.base_sequence) % _SEQUENCES < _SEQUENCES // 2


class PartitionSequences(Generic[BatchT]):
    """Sequence state of one (producer id, epoch) on one partition. Sender thread only."""

    __slots__ = (
        "_in_flight",
        "_last_acknowledged_ms",
        "_last_offset",
        "_lost",
        "_max_in_flight",
        "acknowledged",
        "failed",
        "next_sequence",
    )

    def __init__(self, max_in_flight: int = MAX_IN_FLIGHT, next_sequence: int = 0) -> None:
        self.next_sequence = next_sequence
        #: True once the broker knows this producer.
        self.acknowledged = False
        #: True once a batch failed permanently: the next sequence will never be accepted.
        self.failed = False
        self._max_in_flight = min(max_in_flight, MAX_IN_FLIGHT)
        self._in_flight: list[_InFlight[BatchT]] = []
        self._lost: list[_InFlight[BatchT]] = []
        self._last_offset = -1
        self._last_acknowledged_ms = 0

    def __len__(self) -> int:
        """The number of unresolved batches with a sequence."""
        return len(self._in_flight)

    @property
    def first_sequence(self) -> int:
        """The lowest unresolved sequence, except of batches that await proof, or NO_SEQUENCE.

        Of the batches that wait to be resent, only the one with this sequence may be sent.
        """
        for flight in self._in_flight:
            if flight.place is not _Place.AWAITING_PROOF:
                return flight.base_sequence
        return NO_SEQUENCE

    def can_send_new(self) -> bool:
        """True when a batch without a sequence may be sent now."""
        if self.failed:
            return False
        if not self._in_flight:
            return True
        if not self.acknowledged or len(self._in_flight) >= self._max_in_flight:
            return False
        for flight in self._in_flight:
            if flight.place is not _Place.SENT or flight.resent:
                return False
        return True

    def assign_sequence(self, batch: BatchT, record_count: int) -> int:
        """The sequence of a new batch of ``record_count`` records, which is sent now."""
        sequence = self.next_sequence
        self.next_sequence = (sequence + record_count) % _SEQUENCES
        head = not self._in_flight
        self._in_flight.append(_InFlight(batch, sequence, record_count, _Place.SENT, head))
        return sequence

    def add(self, batch: BatchT, base_sequence: int, record_count: int) -> None:
        """Track a split batch: ordered by its sequence, waiting to be resent."""
        split_batch = _InFlight(
            batch, base_sequence, record_count, _Place.QUEUED, left_as_head=True
        )
        split_batch.resent = True
        at = 0
        while at < len(self._in_flight) and _precedes(self._in_flight[at], split_batch):
            at += 1
        self._in_flight.insert(at, split_batch)

    def remove(self, batch: BatchT) -> None:
        """Forget a batch that is split; the split batches are added next."""
        self._in_flight = [f for f in self._in_flight if f.batch is not batch]

    def sent(self, batch: BatchT) -> None:
        """``batch`` is sent; only a requeued one changes: it is sent as the head."""
        for flight in self._in_flight:
            if flight.batch is batch and flight.place is _Place.QUEUED:
                flight.place = _Place.SENT
                flight.left_as_head = flight.resent = True

    def answer(
        self, batch: BatchT, answer: Answer, base_offset: int = -1, now: int = 0
    ) -> Verdict[BatchT]:
        """Update the state for a response. ``base_offset`` is -1 when unknown."""
        for at, flight in enumerate(self._in_flight):  # noqa: B007 - used after the loop
            if flight.batch is batch:
                break
        else:
            return Verdict(Action.IGNORE)
        if self.failed:
            situation = Situation.FAILED
        elif not self.acknowledged:
            situation = Situation.FIRST
        else:
            situation = Situation.HEAD if flight.left_as_head else Situation.BEHIND
        action = ACTIONS[situation, answer]
        if action is Action.COMPLETE:
            return self._acknowledge(at, base_offset, now)
        if action is Action.RESEND:
            flight.place = _Place.QUEUED
        elif action is Action.AWAIT_PROOF:
            flight.place = _Place.AWAITING_PROOF
            if all(f.place is _Place.AWAITING_PROOF for f in self._in_flight):
                return Verdict(Action.FAIL, reason="no later batch was accepted to prove it")
        elif answer is Answer.OUT_OF_ORDER and not self.failed:
            reason = "no batch of this producer was acknowledged on the partition before"
            return Verdict(Action.FAIL, reason=reason)
        return Verdict(action)

    def fail(self, batch: BatchT, *, unclear: bool) -> tuple[BatchT, ...]:
        """``batch`` failed permanently. Returns the batches that fail with it: all that await
        proof.

        ``unclear``: its outcome is unknown. Batches that await proof are always unclear.
        """
        self.failed = True
        gone = [f for f in self._in_flight if f.batch is batch or f.place is _Place.AWAITING_PROOF]
        self._in_flight = [f for f in self._in_flight if f not in gone]
        self._lost += [f for f in gone if unclear or f.batch is not batch]
        return tuple(f.batch for f in gone if f.batch is not batch)

    def resolve(self, batch: BatchT) -> None:
        """The late response of a lost batch is definite."""
        self._lost = [f for f in self._lost if f.batch is not batch]

    @property
    def has_unresolved(self) -> bool:
        """True while it is unknown whether some failed batch is, or will be, in the log."""
        return bool(self._lost)

    def expire_acks(self, before_ms: int) -> None:
        """Assume that the broker lost this producer's state when its last acknowledgement is older
        than ``before_ms``.

        A broker removes a producer that was idle for producer.id.expiration.ms. A warm producer
        that was idle for long sends one batch alone again: one round trip, and safe.
        """
        if not self._in_flight and self._last_acknowledged_ms < before_ms:
            self.acknowledged = False

    def _acknowledge(self, at: int, base_offset: int, now: int) -> Verdict[BatchT]:
        flight, earlier = self._in_flight[at], self._in_flight[:at]
        room = self._last_offset + 1
        for before in earlier:
            room += before.record_count
        if earlier and self._last_offset >= 0 and 0 <= base_offset < room:
            return Verdict(
                Action.FAIL,
                reason=f"acknowledged at offset {base_offset}, but the records before it need "
                f"offsets up to {room - 1}: the partition lost records or was recreated",
            )
        del self._in_flight[: at + 1]
        if self._lost:
            self._lost = [f for f in self._lost if not _precedes(f, flight)]
        self.acknowledged = True
        self._last_acknowledged_ms = now
        if base_offset >= 0:
            self._last_offset = base_offset + flight.record_count - 1
        if not earlier:
            return _COMPLETED
        return Verdict(Action.COMPLETE, tuple(f.batch for f in earlier))


class _ByPartition(dict[TopicPartition, PartitionSequences[ProducerBatch]]):
    """A dict, because it is read several times for each batch."""

    __slots__ = ("_max_in_flight",)

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight

    def __missing__(self, tp: TopicPartition) -> PartitionSequences[ProducerBatch]:
        sequences = self[tp] = PartitionSequences(self._max_in_flight)
        return sequences


class TxnPartitionMap:
    """The sequences of one producer id and epoch on all its partitions (Java's class of that name).
    ``in_flight`` counts unresolved batches with a sequence.
    """

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
