"""Assigns the sequence numbers of a producer on its partitions, and determines what happens to a
batch after each response.

Owns: the next sequence; the batches that have a sequence and are unresolved; the check whether a
batch may be sent now; the one table (:data:`ACTIONS`) from situation and answer to action. Never:
bytes, clocks, sockets, backoff, a lock, because only the sender thread uses this class.
:class:`TxnPartitionMap` keeps one instance for each partition. The accumulator calls it (through
the transaction manager) at drain, and the sender calls it for every response.

The broker (``ProducerStateManager``) keeps, for each producer id and partition, the last sequence
and the last five batches. A batch that equals one of the five is acknowledged again. A batch that
continues the last sequence is appended. Any other batch is OUT_OF_ORDER. If the producer is
**unknown** to the broker, the broker accepts *any* first sequence. After a clean restart the broker
remembers only the last batch, so an older duplicate is OUT_OF_ORDER although it is in the log.

The rules, each with the race that it prevents. A, B, C and D are batches of one partition, in this
order:

* **The first batch is sent alone until it is acknowledged.** Race: on a new topic, A and B are sent
  one after the other. The broker answers A with NOT_LEADER_OR_FOLLOWER, and has become the leader
  when B arrives. The producer is unknown to the broker, so the broker accepts B. B then precedes A
  in the log, and A is always OUT_OF_ORDER. With the rule, A is resent alone until it is appended.
  After that, the broker knows the producer.
* **After the first acknowledgement, each acknowledgement proves that all earlier batches are in the
  log**, because a broker that knows the producer appends B only after A. So A need not be resent if
  its response is lost. The acknowledged offset must leave enough offsets for the earlier batches.
  Otherwise the broker has lost this producer's state (topic recreated, log truncated by an unclean
  election), and the attempt fails.
* **Batches with a sequence are resent in order, one at a time, before any new batch.** Race: A gets
  NOT_LEADER_OR_FOLLOWER. B and C get OUT_OF_ORDER, because A is missing in the log. B and C are not
  at fault, and are resent after A.
* **OUT_OF_ORDER counts only for a batch that was sent with no unresolved batch before it.** Race:
  the old leader rejects A, and its rejection of B is still in flight. A is sent to the new leader
  and acknowledged. Then the old OUT_OF_ORDER for B arrives, when B is the first unresolved batch.
  This response proves nothing, because this copy of B was sent while A was unresolved. B is resent,
  and the response to the new copy counts.
* **OUT_OF_ORDER for such a batch A is a doubt, not yet a failure.** All batches before A are in the
  log, so the broker's last sequence must be beyond A: A is a duplicate, older than the broker
  remembers. Race: A to D are appended, their responses are lost, and the broker restarts and
  remembers only D. A is resent and gets OUT_OF_ORDER, as do B and C. D is resent and acknowledged,
  which proves A, B and C. If all batches with a sequence end up in doubt, nothing can prove them,
  and the attempt fails. No new batch is sent meanwhile, because a broker that has lost this
  producer's state could accept it.
* **OUT_OF_ORDER before any acknowledgement fails the attempt**, because the state of the log is
  unknown.
* **After a permanently failed batch, no batch can follow under its epoch.** A transactional
  producer can then only abort (nothing is renumbered, rule R2). Each batch after the gap fails with
  its next response, unless this is an acknowledgement. A batch that failed without a definite
  response is *lost*: it may be in the log, or may still be appended. A later acknowledgement, or
  its own late response, resolves it.
* **After a failed batch of ``send``, the partition moves on to the next epoch**, where sequences
  begin at 0. Other partitions keep their epoch. (A broker other than Kafka may keep one epoch for
  all partitions of a producer. It then rejects the older epoch, and those partitions move on, too.)
  Batches that are certainly not in the log take sequences of the next epoch, before any new batch.
  Example: A is rejected, and B and C get OUT_OF_ORDER, because A is missing. No batch takes a new
  sequence before every batch of the old epoch has its outcome. Example: B has no response, so B is
  sent again with its old sequence, and the response decides whether B is in the log.

In two cases a batch of the partition fails as well, because it could be written twice:

* *At large*: the connections with A and B are lost. A expires. B is sent again and gets
  OUT_OF_ORDER. The old copies may still arrive: A is appended, and then B.
* *Forgotten*: A and B are appended, both responses are lost, and the broker restarts and remembers
  only B. B expires. A is sent again and gets OUT_OF_ORDER, although it is in the log.

(``docs/design/sequences.md`` has the table.)

A split (MESSAGE_TOO_LARGE, rule R7) replaces the batch by its halves. They keep its sequence range
and are sent one after the other, before the later batches. The later batches get OUT_OF_ORDER
meanwhile, and are resent unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import NO_PRODUCER_ID, ProducerIdAndEpoch
from spark_kafka_sink.records.record_batch import NO_SEQUENCE

#: A broker remembers five batches of a producer on a partition; no more may be in flight.
MAX_IN_FLIGHT = 5

#: A partition without an acknowledgement for this long is treated as if its broker had lost this
#: producer's state: the next batch is sent alone. Far below any sensible producer.id.expiration.ms.
ACK_EXPIRY_MS = 60_000

_SEQUENCES = 2**31

BatchT = TypeVar("BatchT")


class Answer(Enum):
    """The kinds of outcomes of a Produce request for a batch that the sequence logic
    distinguishes.
    """

    ACKNOWLEDGED = "NONE or DUPLICATE_SEQUENCE_NUMBER"
    OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    UNKNOWN_PRODUCER = "UNKNOWN_PRODUCER_ID (brokers before 2.5)"
    UNCLEAR = "a retriable error"
    LOST = "no response: a disconnect, a timeout"
    INVALID = "an error of the batch's content, which every copy of it gets"
    OLD_EPOCH = "INVALID_PRODUCER_EPOCH"
    REFUSED = "any other error"

    # Enum's is a Python function, and :data:`ACTIONS` is read for each batch.
    __hash__ = object.__hash__


class Situation(Enum):
    """The situation of a batch when its response arrives."""

    FIRST = "no batch of this producer is acknowledged on the partition yet"
    HEAD = "it was sent with no unresolved batch before it"
    BEHIND = "it was sent with unresolved batches before it"
    SETTLED = "a later acknowledgement already proved it"
    FAILED = "an earlier batch of the partition failed permanently"
    MOVING = "a batch of ``send`` failed permanently: the partition moves on to the next epoch"

    __hash__ = object.__hash__  # as above


class Action(Enum):
    """The sender's action for a batch after its response."""

    COMPLETE = "complete it, and the batches that it proves"
    RESEND = "requeue it"
    AWAIT_PROOF = "keep it; a later acknowledgement proves it, or the attempt fails"
    MOVE = "keep it; it is sent again under the next epoch"
    FAIL = "it fails, and the attempt with it unless it is of ``send``"
    IGNORE = "nothing: it is done"


#: Answers after which a batch may be in the log.
UNCLEAR_ANSWERS = frozenset({Answer.UNCLEAR, Answer.LOST})

_FIRST, _HEAD, _BEHIND, _SETTLED, _FAILED, _MOVING = Situation

#: Rule R3 for responses, complete.
ACTIONS: dict[tuple[Situation, Answer], Action] = {
    **{(situation, Answer.ACKNOWLEDGED): Action.COMPLETE for situation in Situation},
    **{(situation, Answer.INVALID): Action.FAIL for situation in Situation},
    **{(situation, Answer.REFUSED): Action.FAIL for situation in Situation},
    **{(situation, Answer.OLD_EPOCH): Action.FAIL for situation in Situation},
    **{
        (situation, answer): Action.RESEND
        for situation in (_FIRST, _HEAD, _BEHIND, _MOVING)
        for answer in UNCLEAR_ANSWERS
    },
    (_FIRST, Answer.OUT_OF_ORDER): Action.FAIL,
    (_FIRST, Answer.UNKNOWN_PRODUCER): Action.FAIL,
    (_HEAD, Answer.OUT_OF_ORDER): Action.AWAIT_PROOF,
    (_HEAD, Answer.UNKNOWN_PRODUCER): Action.FAIL,
    (_BEHIND, Answer.OUT_OF_ORDER): Action.RESEND,
    (_BEHIND, Answer.UNKNOWN_PRODUCER): Action.RESEND,
    (_MOVING, Answer.OUT_OF_ORDER): Action.MOVE,
    (_MOVING, Answer.UNKNOWN_PRODUCER): Action.MOVE,
    (_MOVING, Answer.OLD_EPOCH): Action.MOVE,
    **{(_SETTLED, answer): Action.IGNORE for answer in Answer},
    **{(_FAILED, answer): Action.FAIL for answer in Answer if answer is not Answer.ACKNOWLEDGED},
}


@dataclass(frozen=True, slots=True)
class Verdict(Generic[BatchT]):
    """The next action for a batch after a response.

    ``proven`` are earlier batches that must now be completed, with an unknown offset and in this
    order. ``reason`` explains why the sequences require the action FAIL.
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
    MOVING = "waits for the next epoch"


@dataclass(slots=True, eq=False)
class _InFlight(Generic[BatchT]):
    """A batch with a sequence and without an outcome. Each send of the batch makes a copy.

    ``in_doubt`` is true if a copy may be in the log, although the batch is not acknowledged.
    ``unanswered`` is true if a copy got no response, so that the broker may even append the copy
    later.
    """

    batch: BatchT
    base_sequence: int
    record_count: int
    place: _Place
    left_as_head: bool
    resent: bool = False
    in_doubt: bool = False
    unanswered: bool = False

    @property
    def at_large(self) -> bool:
        """True if a copy of the batch may still be appended."""
        return self.unanswered or self.place is _Place.SENT

    def answered(self, answer: Answer) -> None:
        """Records the outcome ``answer`` of the copy that was in flight. ``answer`` is not an
        acknowledgement.
        """
        self.place = _Place.QUEUED
        if answer is Answer.LOST:
            self.unanswered = self.in_doubt = True
        elif answer is Answer.UNCLEAR:
            self.in_doubt = True
        elif answer is Answer.INVALID:
            self.unanswered = self.in_doubt = False


_TO_BE_ANSWERED = frozenset({_Place.SENT, _Place.QUEUED})


def _precedes(one: _InFlight[BatchT], other: _InFlight[BatchT]) -> bool:
    """True if ``one`` has a lower sequence than ``other``, where 0 follows the largest sequence.
    Both are in flight together.
    """
    return (other.base_sequence - one.base_sequence) % _SEQUENCES < _SEQUENCES // 2


class PartitionSequences(Generic[BatchT]):
    """The sequences of one producer id and epoch on one partition. Only for the sender thread."""

    __slots__ = (
        "_in_flight",
        "_last_acknowledged_ms",
        "_last_offset",
        "_lost",
        "_max_in_flight",
        "_refused",
        "acknowledged",
        "failed",
        "moving",
        "next_sequence",
        "producer",
    )

    def __init__(self, max_in_flight: int = MAX_IN_FLIGHT, next_sequence: int = 0) -> None:
        self.next_sequence = next_sequence
        #: True once the broker knows this producer.
        self.acknowledged = False
        #: True once a batch failed permanently: the next sequence will never be accepted.
        self.failed = False
        #: True once that was a batch of ``send``, which fails alone.
        self.moving = False
        #: The identity of these sequences, from the first one on.
        self.producer = NO_PRODUCER_ID
        self._max_in_flight = min(max_in_flight, MAX_IN_FLIGHT)
        self._in_flight: list[_InFlight[BatchT]] = []
        #: Batches that failed: those that may be in the log, and those that are not.
        self._lost: list[_InFlight[BatchT]] = []
        self._refused: list[_InFlight[BatchT]] = []
        self._last_offset = -1
        self._last_acknowledged_ms = 0

    def __len__(self) -> int:
        """The number of unresolved batches with a sequence."""
        return len(self._in_flight)

    @property
    def first_sequence(self) -> int:
        """The lowest sequence of a batch that is in flight or waits to be resent. NO_SEQUENCE if
        there is no such batch.

        While batches wait to be resent, only the batch with this sequence may be sent.
        """
        for flight in self._in_flight:
            if flight.place in _TO_BE_ANSWERED:
                return flight.base_sequence
        return NO_SEQUENCE

    def can_send_new(self) -> bool:
        """True if a batch without a sequence may be sent now."""
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
        """Assigns the next sequence to a new batch of ``record_count`` records, which is sent
        now.
        """
        sequence = self.next_sequence
        self.next_sequence = (sequence + record_count) % _SEQUENCES
        head = not self._in_flight
        self._in_flight.append(_InFlight(batch, sequence, record_count, _Place.SENT, head))
        return sequence

    def add(self, batch: BatchT, base_sequence: int, record_count: int) -> None:
        """Adds a split batch that waits to be resent, in the order of the sequences."""
        split_batch = _InFlight(
            batch, base_sequence, record_count, _Place.QUEUED, left_as_head=True
        )
        split_batch.resent = True
        at = 0
        while at < len(self._in_flight) and _precedes(self._in_flight[at], split_batch):
            at += 1
        self._in_flight.insert(at, split_batch)

    def remove(self, batch: BatchT) -> None:
        """Removes a batch that was split. The caller then adds the split batches."""
        self._in_flight = [f for f in self._in_flight if f.batch is not batch]

    def sent(self, batch: BatchT) -> None:
        """Records that ``batch`` is sent. Only the state of a requeued batch changes. Such a batch
        is sent when it is the first unresolved batch.
        """
        for flight in self._in_flight:
            if flight.batch is batch and flight.place is _Place.QUEUED:
                flight.place = _Place.SENT
                flight.left_as_head = flight.resent = True

    def answer(
        self, batch: BatchT, answer: Answer, base_offset: int = -1, now: int = 0
    ) -> Verdict[BatchT]:
        """Updates the state after a response to ``batch``, and returns the action. ``base_offset``
        is -1 if unknown.
        """
        for at, flight in enumerate(self._in_flight):  # noqa: B007 - used after the loop
            if flight.batch is batch:
                break
        else:
            return Verdict(Action.IGNORE)
        if self.failed:
            situation = Situation.MOVING if self.moving else Situation.FAILED
        elif not self.acknowledged:
            situation = Situation.FIRST
        else:
            situation = Situation.HEAD if flight.left_as_head else Situation.BEHIND
        action = ACTIONS[situation, answer]
        if action is Action.COMPLETE:
            return self._acknowledge(at, base_offset, now)
        flight.answered(answer)
        if action is Action.AWAIT_PROOF:
            flight.place = _Place.AWAITING_PROOF
            if all(f.place is _Place.AWAITING_PROOF for f in self._in_flight):
                return Verdict(Action.FAIL, reason="no later batch was accepted to prove it")
        elif action is Action.MOVE:
            # A broker compares epochs first: of an earlier copy, OLD_EPOCH shows nothing.
            in_doubt = answer is Answer.OLD_EPOCH and flight.in_doubt
            if in_doubt or self._may_be_written_twice(flight):
                return Verdict(Action.FAIL, reason=_MAY_BE_WRITTEN)
            flight.place = _Place.MOVING
        elif action is Action.FAIL and answer is Answer.OUT_OF_ORDER and not self.failed:
            reason = "no batch of this producer was acknowledged on the partition before"
            return Verdict(Action.FAIL, reason=reason)
        elif action is Action.FAIL and flight.in_doubt and answer not in UNCLEAR_ANSWERS:
            return Verdict(Action.FAIL, reason=_EARLIER_COPY)
        return Verdict(action)

    def leave_old_epoch(self) -> bool:
        """Moves the partition on to the next epoch, because a broker rejects the old epoch. Called
        when no batch has failed.

        Returns False, and changes nothing, while the outcome of a batch is unclear. Such a batch
        needs a later acknowledgement in the same epoch, which proves that the batch was written.
        """
        if any(f.place is _Place.AWAITING_PROOF for f in self._in_flight):
            return False
        self.failed = self.moving = True
        return True

    def move_on(self, batch: BatchT) -> tuple[BatchT, ...]:
        """Moves the partition on to the next epoch, after ``batch`` failed permanently. ``batch``
        has records of ``send``.

        Returns the other batches that must also fail, because they might be written twice.
        """
        self.failed = self.moving = True
        before = self._in_flight
        failed = [f for f in before if f.batch is batch]
        while failed:  # each of them may leave others in doubt
            self._in_flight = [f for f in self._in_flight if f not in failed]
            for flight in failed:
                in_doubt = flight.in_doubt or flight.at_large
                (self._lost if in_doubt else self._refused).append(flight)
            failed = [f for f in self._in_flight if self._fails_too(f)]
        return tuple(f.batch for f in before if f not in self._in_flight and f.batch is not batch)

    def _fails_too(self, flight: _InFlight[BatchT]) -> bool:
        """True if the batch ``flight``, which waits, must also fail because another batch of the
        partition has failed.
        """
        if flight.place is _Place.AWAITING_PROOF:
            # Batches after the failed one are not accepted any more, so nothing proves this one.
            if flight.in_doubt:
                return True
            flight.place = _Place.MOVING
        return flight.place is _Place.MOVING and self._may_be_written_twice(flight)

    def _may_be_written_twice(self, flight: _InFlight[BatchT]) -> bool:
        """True if a batch that got OUT_OF_ORDER may be in the log under its old sequence, or may
        still be appended.
        """
        for lost in self._lost:
            if _precedes(lost, flight):
                # A lost batch may still be appended, and after it the old copy of this batch.
                if lost.at_large and flight.at_large:
                    return True
            elif flight.in_doubt:
                # Both may be in the log, and only what is lost was remembered by the broker.
                return True
        return False

    @property
    def moved(self) -> bool:
        """True if no batch needs its old sequence any more, so that the next epoch can begin."""
        if not self.moving:
            return False
        for flight in self._in_flight:
            if flight.place is _Place.QUEUED and not flight.in_doubt:
                continue  # no copy of it is in the log, and none is on its way
            if flight.place is not _Place.MOVING:
                return False
        return True

    @property
    def unresolved(self) -> list[BatchT]:
        """The batches that have a sequence and no outcome, in order."""
        return [flight.batch for flight in self._in_flight]

    def answered_late(self, batch: BatchT, answer: Answer) -> None:
        """Handles the late response to a batch that failed in flight, while the partition moves on.

        If the response is an acknowledgement, the batch has still failed for its caller. But the
        acknowledgement also proves that earlier batches are in the log.
        """
        for flight in self._lost:
            if flight.batch is batch:
                flight.answered(answer)
                flight.in_doubt |= answer is Answer.ACKNOWLEDGED
        self._refused += [f for f in self._lost if not f.in_doubt and not f.at_large]
        self._lost = [f for f in self._lost if f.in_doubt or f.at_large]

    def fail(self, batch: BatchT, *, unclear: bool) -> tuple[BatchT, ...]:
        """Records that ``batch`` failed permanently. Returns the other batches that also fail: all
        batches whose outcome is unclear.

        ``unclear`` is true if the outcome of ``batch`` is unknown.
        """
        self.failed = True
        gone = [f for f in self._in_flight if f.batch is batch or f.place is _Place.AWAITING_PROOF]
        self._in_flight = [f for f in self._in_flight if f not in gone]
        self._lost += [f for f in gone if unclear or f.batch is not batch]
        return tuple(f.batch for f in gone if f.batch is not batch)

    def resolve(self, batch: BatchT) -> None:
        """Removes a lost batch, because its late response is definite."""
        self._lost = [f for f in self._lost if f.batch is not batch]

    @property
    def has_unresolved(self) -> bool:
        """True while a failed batch may be in the log, or may still be appended."""
        return bool(self._lost)

    def expire_acks(self, before_ms: int) -> None:
        """Assumes that the broker has lost this producer's state, if the last acknowledgement is
        older than ``before_ms``.

        A broker removes a producer that was idle for producer.id.expiration.ms. After this call, a
        warm producer that was idle for long sends one batch alone again. That is safe, and costs
        one round trip.
        """
        if not self._in_flight and self._last_acknowledged_ms < before_ms:
            self.acknowledged = False

    def _acknowledge(self, at: int, base_offset: int, now: int) -> Verdict[BatchT]:
        flight, earlier = self._in_flight[at], self._in_flight[:at]
        room = self._last_offset + 1
        for before in earlier:
            room += before.record_count
        if earlier and self._last_offset >= 0 and 0 <= base_offset < room:
            # It is in the log, whatever is missing before it.
            flight.answered(Answer.UNCLEAR)
            return Verdict(
                Action.FAIL,
                reason=f"acknowledged at offset {base_offset}, but the records before it need "
                f"offsets up to {room - 1}: the partition lost records or was recreated",
            )
        if earlier and any(_precedes(refused, flight) for refused in self._refused):
            flight.answered(Answer.UNCLEAR)
            return Verdict(Action.FAIL, reason=_IN_SPITE_OF_A_GAP)
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


_MAY_BE_WRITTEN = (
    "it is not known whether it is, or will be, in the log: a batch before it, or after it, failed "
    "without a definite answer"
)
_EARLIER_COPY = "an earlier attempt had no definite answer: it may be in the log"
_IN_SPITE_OF_A_GAP = (
    "acknowledged although a batch before it was refused: the partition lost records or was "
    "recreated"
)


class _ByPartition(dict[TopicPartition, PartitionSequences[ProducerBatch]]):
    """The sequences by partition. Reading a missing key creates them. The class is a dict for
    speed, because it is read several times for each batch.
    """

    __slots__ = ("_max_in_flight",)

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight

    def __missing__(self, tp: TopicPartition) -> PartitionSequences[ProducerBatch]:
        sequences = self[tp] = PartitionSequences(self._max_in_flight)
        return sequences


class TxnPartitionMap:
    """The sequences of a producer on all its partitions (Java's TxnPartitionMap). ``in_flight`` is
    the number of unresolved batches with a sequence.
    """

    __slots__ = ("_next_expiry_ms", "in_flight", "moving", "of")

    def __init__(self, max_in_flight: int) -> None:
        #: The sequences of each partition, created on first access.
        self.of = _ByPartition(max_in_flight)
        #: Partitions that move on to the next epoch, when their batches have their outcomes.
        self.moving: dict[TopicPartition, None] = {}
        self._next_expiry_ms = 0
        self.in_flight = 0

    def begin(
        self, tp: TopicPartition, producer: ProducerIdAndEpoch
    ) -> PartitionSequences[ProducerBatch]:
        """The sequences of ``tp``, for a batch that gets its sequence now. ``producer`` is the
        newest identity (producer id and epoch).

        The partition changes to this identity, unless it has unresolved batches of an older
        identity (Java's ``maybeUpdateProducerIdAndEpoch``).
        """
        sequences = self.of[tp]
        if sequences.producer is not producer and not len(sequences):
            if sequences.producer.is_valid:
                del self.of[tp]
                sequences = self.of[tp]
            sequences.producer = producer
        return sequences

    def reset(self) -> None:
        """Resets all sequences to 0 for a new identity. Raises IllegalStateError if a batch is in
        flight.
        """
        if self.in_flight:
            raise IllegalStateError(
                f"the producer's epoch changed while {self.in_flight} batches were in flight"
            )
        self.of.clear()

    def add(self, batch: ProducerBatch) -> None:
        """Adds a split batch, which has a sequence."""
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

    def move_on(self, batch: ProducerBatch) -> tuple[ProducerBatch, ...]:
        sequences = self.of[batch.tp]
        before = len(sequences)
        others = sequences.move_on(batch)
        self.in_flight -= before - len(sequences)
        self.moving[batch.tp] = None
        return others

    def leave_old_epoch(self, tp: TopicPartition) -> None:
        if self.of[tp].leave_old_epoch():
            self.moving[tp] = None

    def take_moved(self) -> list[ProducerBatch]:
        """Removes the partitions whose next epoch can begin, and returns their batches, which are
        sent again. These batches no longer have a sequence here.
        """
        taken: list[ProducerBatch] = []
        for tp in [tp for tp in self.moving if self.of[tp].moved]:
            taken += self.of[tp].unresolved
            del self.of[tp], self.moving[tp]
        self.in_flight -= len(taken)
        return taken

    def resolve(self, batch: ProducerBatch) -> None:
        self.of[batch.tp].resolve(batch)

    def answered_late(self, batch: ProducerBatch, answer: Answer) -> None:
        self.of[batch.tp].answered_late(batch, answer)

    @property
    def has_unresolved(self) -> bool:
        """True while a failed batch may be in the log, or may still be appended."""
        return any(sequences.has_unresolved for sequences in self.of.values())

    def expire_acks(self, now: int) -> None:
        """Expires acknowledgements that are older than ACK_EXPIRY_MS. Most calls do nothing,
        because the sequences are checked only a few times within ACK_EXPIRY_MS.
        """
        if now < self._next_expiry_ms:
            return
        self._next_expiry_ms = now + ACK_EXPIRY_MS // 4
        for sequences in self.of.values():
            sequences.expire_acks(now - ACK_EXPIRY_MS)
