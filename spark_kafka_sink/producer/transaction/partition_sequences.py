"""The sequence numbers of one producer id on one partition, and what each answer to them means.

Owns: which sequence the next batch takes, which batches have one and no final answer yet, whether
a batch may leave now, and the one table (:data:`ACTIONS`) from (situation, answer) to action.
Never: bytes, clocks, sockets, backoff; ``transaction_manager.py`` keeps one of these for each
partition, ``record_accumulator.py`` asks it at drain, ``sender.py`` at every answer.

What the broker does (``ProducerStateManager``): for each producer id and partition it keeps the
last sequence and its last five batches. A batch that equals one of the five is answered with
success again; one that continues the last sequence is appended; any other is OUT_OF_ORDER. A
producer that it does **not know** may begin with *any* sequence. After a clean restart only the
last batch is remembered, so an older duplicate is OUT_OF_ORDER although it is in the log.

The rules, each with the race that it closes:

* **The first batch travels alone until it is acknowledged.** Fresh topic: A is answered
  NOT_LEADER_OR_FOLLOWER, B, sent right behind A, reaches the broker when it has become leader. It
  does not know the producer, so it accepts B; A then is out of order for ever, and B before A
  in the log. Alone, A is simply sent again until it is in; then the broker knows the producer.
* **A later acknowledgement proves the earlier batches**, once there was a first one: a broker that
  knows the producer appends B only behind A. So A's lost answer needs no resend. The
  acknowledged offset must leave room for them; if not, the broker has forgotten this producer
  (topic created anew, log truncated by an unclean election), and the attempt fails.
* **What has a sequence is resent in order, one at a time, before anything new.** A is answered
  NOT_LEADER; B and C behind it OUT_OF_ORDER, because A is missing: B and C are not at fault, and go
  again after A.
* **OUT_OF_ORDER counts only against a batch that left with nothing unanswered before it.** A is
  refused by old leader 1, B's refusal by 1 is still on its way; A is sent to new leader 2 and
  acknowledged; now B's old OUT_OF_ORDER arrives, and B is the first without an answer. It says
  nothing: B left behind A. B is sent again, and that answer counts.
* **OUT_OF_ORDER against such a batch is a doubt, not yet a failure.** All before A is in the log,
  so the broker's last sequence is beyond A: A is a duplicate older than the broker remembers (A to
  D were appended, their answers lost, the broker restarted and remembers D only). B, C, D are sent
  again in order; D is answered with success and proves A, B, C. If all that have a sequence end in
  doubt, nothing can prove them, and the attempt fails. Nothing new is sent meanwhile: it could be
  accepted by a broker that has forgotten us.
* **OUT_OF_ORDER before any acknowledgement fails the attempt**: nothing is known of that log.

* **Behind a batch that failed for good nothing can follow.** Only a transactional producer lives on
  then, to abort (nothing is renumbered, rule R2): what is behind the hole fails with its
  next answer, unless that is an acknowledgement. A batch that failed without a clear answer is
  *lost*: it may be in the log, or may still come there, until a later acknowledgement or its own
  late answer settles it.

A split (MESSAGE_TOO_LARGE, rule R7) puts the halves in the whole's place: they keep its
range of sequences and go, one after the other, before the later batches, which were or will be
answered OUT_OF_ORDER and go again unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from spark_kafka_sink.records.record_batch import NO_SEQUENCE

#: A broker remembers five batches of a producer on a partition; more must not be unanswered.
MAX_IN_FLIGHT = 5

_SEQUENCES = 2**31

BatchT = TypeVar("BatchT")


class Answer(Enum):
    """What came back for a batch, as far as sequences care."""

    ACKNOWLEDGED = "NONE or DUPLICATE_SEQUENCE_NUMBER"
    OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    UNKNOWN_PRODUCER = "UNKNOWN_PRODUCER_ID (brokers before 2.5)"
    UNCLEAR = "a retriable error, a disconnect, a time-out"
    REFUSED = "any other error"

    # Enum's own is a function of Python's, and :data:`ACTIONS` is asked for each batch.
    __hash__ = object.__hash__


class Situation(Enum):
    """Where the answered batch stood."""

    FIRST = "nothing of this producer is acknowledged on the partition yet"
    HEAD = "it left with nothing unanswered before it"
    BEHIND = "it left with others unanswered before it"
    SETTLED = "a later acknowledgement proved it already"
    BROKEN = "an earlier batch of the partition failed for good"

    __hash__ = object.__hash__  # as above


class Action(Enum):
    """What the sender does with the batch."""

    COMPLETE = "complete it, and those that it proves"
    RESEND = "queue it again"
    AWAIT_PROOF = "keep it; a later acknowledgement proves it, or the attempt fails"
    FAIL = "the attempt fails"
    IGNORE = "nothing: it is done"


_FIRST, _HEAD, _BEHIND, _SETTLED, _BROKEN = Situation

#: The whole of rule R3 about answers.
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
    **{(_BROKEN, answer): Action.FAIL for answer in Answer},
    (_BROKEN, Answer.ACKNOWLEDGED): Action.COMPLETE,
}


@dataclass(frozen=True, slots=True)
class Verdict(Generic[BatchT]):
    """``proven`` are earlier batches to complete with an unknown offset, in order.

    ``reason`` says why, when the action is FAIL for what the sequences tell.
    """

    action: Action
    proven: tuple[BatchT, ...] = ()
    reason: str | None = None


#: How nearly every batch ends.
_COMPLETED: Verdict[Any] = Verdict(Action.COMPLETE)


class _Place(Enum):
    SENT = "on its way, unanswered"
    QUEUED = "waits to be sent again"
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
    """Sequence state of one (producer id, epoch) on one partition. One thread, the sender's."""

    __slots__ = (
        "_in_flight",
        "_last_acknowledged_ms",
        "_last_offset",
        "_lost",
        "_max_in_flight",
        "acknowledged",
        "broken",
        "next_sequence",
    )

    def __init__(self, max_in_flight: int = MAX_IN_FLIGHT, next_sequence: int = 0) -> None:
        self.next_sequence = next_sequence
        #: True once the broker is known to know this producer.
        self.acknowledged = False
        #: True once a batch failed for good: the next sequence will never be accepted.
        self.broken = False
        self._max_in_flight = min(max_in_flight, MAX_IN_FLIGHT)
        self._in_flight: list[_InFlight[BatchT]] = []
        self._lost: list[_InFlight[BatchT]] = []
        self._last_offset = -1
        self._last_acknowledged_ms = 0

    def __len__(self) -> int:
        """How many batches have a sequence and no final answer."""
        return len(self._in_flight)

    @property
    def first_sequence(self) -> int:
        """The lowest sequence without an answer, those in doubt left out, or NO_SEQUENCE.

        Of all that wait to be sent again, only the batch with this one may leave.
        """
        for flight in self._in_flight:
            if flight.place is not _Place.AWAITING_PROOF:
                return flight.base_sequence
        return NO_SEQUENCE

    def can_send_new(self) -> bool:
        """May a batch that has no sequence yet leave now?"""
        if self.broken:
            return False
        if not self._in_flight:
            return True
        if not self.acknowledged or len(self._in_flight) >= self._max_in_flight:
            return False
        for flight in self._in_flight:
            if flight.place is not _Place.SENT or flight.resent:
                return False
        return True

    def take(self, batch: BatchT, record_count: int) -> int:
        """The sequence of a new batch of ``record_count`` records, which leaves now."""
        sequence = self.next_sequence
        self.next_sequence = (sequence + record_count) % _SEQUENCES
        head = not self._in_flight
        self._in_flight.append(_InFlight(batch, sequence, record_count, _Place.SENT, head))
        return sequence

    def add(self, batch: BatchT, base_sequence: int, record_count: int) -> None:
        """Track a piece of a split: it takes its place by its sequence, and waits to be sent."""
        piece = _InFlight(batch, base_sequence, record_count, _Place.QUEUED, left_as_head=True)
        piece.resent = True
        at = 0
        while at < len(self._in_flight) and _precedes(self._in_flight[at], piece):
            at += 1
        self._in_flight.insert(at, piece)

    def remove(self, batch: BatchT) -> None:
        """Forget a batch that is split; its pieces are added next."""
        self._in_flight = [f for f in self._in_flight if f.batch is not batch]

    def sent(self, batch: BatchT) -> None:
        """``batch`` leaves; only one that was queued again changes, and it leaves as the head."""
        for flight in self._in_flight:
            if flight.batch is batch and flight.place is _Place.QUEUED:
                flight.place = _Place.SENT
                flight.left_as_head = flight.resent = True

    def answer(
        self, batch: BatchT, answer: Answer, base_offset: int = -1, now: int = 0
    ) -> Verdict[BatchT]:
        """Judge an answer and change the state by it. ``base_offset`` is -1 when unknown."""
        for at, flight in enumerate(self._in_flight):  # noqa: B007 - behind the loop it is used
            if flight.batch is batch:
                break
        else:
            return Verdict(Action.IGNORE)
        if self.broken:
            situation = Situation.BROKEN
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
        elif answer is Answer.OUT_OF_ORDER and not self.broken:
            reason = "nothing of this producer was acknowledged on the partition before"
            return Verdict(Action.FAIL, reason=reason)
        return Verdict(action)

    def fail(self, batch: BatchT, *, unclear: bool) -> tuple[BatchT, ...]:
        """``batch`` has failed for good. Returns those that fail with it: all in doubt.

        ``unclear``: no answer told what became of it. Those in doubt are unclear by themselves.
        """
        self.broken = True
        gone = [f for f in self._in_flight if f.batch is batch or f.place is _Place.AWAITING_PROOF]
        self._in_flight = [f for f in self._in_flight if f not in gone]
        self._lost += [f for f in gone if unclear or f.batch is not batch]
        return tuple(f.batch for f in gone if f.batch is not batch)

    def resolve(self, batch: BatchT) -> None:
        """The late answer of a lost batch says for sure what became of it."""
        self._lost = [f for f in self._lost if f.batch is not batch]

    @property
    def has_unresolved(self) -> bool:
        """True while it is not known whether some failed batch is, or will be, in the log."""
        return bool(self._lost)

    def expire_acks(self, before_ms: int) -> None:
        """Forget that the broker knows us, when its last word is older than ``before_ms``.

        A broker forgets a producer that was idle for producer.id.expiration.ms. A warm producer
        that wakes up after long sends one batch alone again: one round trip, and safe.
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
                f"offsets up to {room - 1}: the partition lost records or was created anew",
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
