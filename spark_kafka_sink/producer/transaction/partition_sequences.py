"""Assigns sequence numbers to the batches of a partition, and decides the action for a batch after
each response.

* :class:`PartitionSequences`: the sequence numbers of one partition.
* :data:`ACTIONS`: the table of the actions, by situation and response.
* :class:`TxnPartitionMap`: the :class:`PartitionSequences` of all partitions. ``BatchDrainer`` and
  ``Sender`` use it through the transaction manager.

Only the network thread uses these classes, so there is no lock.

These words describe a batch that has a sequence number:

* *unresolved*: the batch has no outcome yet.
* *waits for proof*: the response OUT_OF_ORDER_SEQUENCE_NUMBER (here: OUT_OF_ORDER) leaves open
  whether the batch is in the log. The acknowledgement of a later batch would prove that the waiting
  batch is in the log.
* *lost*: the batch has failed, but may be in the log, or a broker may still append it.

``docs/design/sequences.md`` has the rules that prevent gaps and duplicates.
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

# For each producer id and partition, a broker (``ProducerStateManager``) keeps the last sequence
# number and the last five batches. It handles a batch by these rules:
#
# * If the batch equals one of the five batches, the broker acknowledges it again.
# * If the batch continues the last sequence number, the broker appends it.
# * For any other batch, the broker returns OUT_OF_ORDER.
# * If the broker does not know the producer, it accepts *any* first sequence number.
#
# After a clean restart, the broker remembers only the last batch. An older batch that is sent again
# then gets OUT_OF_ORDER although it is in the log.
#
# In the comments below, A, B, C and D are batches of one partition, in this order.

#: A broker remembers five batches of a producer on a partition; no more may be in flight.
MAX_IN_FLIGHT = 5

#: A partition without an acknowledgement for this long is treated as if its broker had lost this
#: producer's state: the next batch is sent alone. Far below any sensible producer.id.expiration.ms.
ACK_EXPIRY_MS = 60_000

_SEQUENCES = 2**31

BatchT = TypeVar("BatchT")


class Answer(Enum):
    """The kinds of responses to a batch. :data:`ACTIONS` has the action for each :class:`Situation`
    and each kind.
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
    """The situation of a batch on its partition when its response arrives."""

    FIRST = "no batch of this producer is acknowledged on the partition yet"
    HEAD = "it was sent with no unresolved batch before it"
    BEHIND = "it was sent with unresolved batches before it"
    SETTLED = "a later acknowledgement already proved it"
    FAILED = "an earlier batch of the partition failed permanently"
    MOVING = "a batch of ``send`` failed permanently: the partition moves on to the next epoch"

    __hash__ = object.__hash__  # as above


class Action(Enum):
    """The action for a batch after its response. ``Sender`` performs the action."""

    COMPLETE = "complete it, and the batches that it proves"
    RESEND = "requeue it"
    AWAIT_PROOF = "keep it; a later acknowledgement proves it, or the attempt fails"
    MOVE = "keep it; it is sent again under the next epoch"
    FAIL = "it fails, and the attempt with it unless it is of ``send``"
    IGNORE = "nothing: it is done"


#: Answers after which a batch may be in the log.
UNCLEAR_ANSWERS = frozenset({Answer.UNCLEAR, Answer.LOST})

_FIRST, _HEAD, _BEHIND, _SETTLED, _FAILED, _MOVING = Situation

#: The action for each situation and response (DESIGN.md, rule R3). The table is complete.
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
    # Before any acknowledgement, the state of the log is unknown.
    (_FIRST, Answer.OUT_OF_ORDER): Action.FAIL,
    (_FIRST, Answer.UNKNOWN_PRODUCER): Action.FAIL,
    # All batches before this batch are in the log, or wait for proof themselves. So if the broker
    # still knows the producer, its last sequence number is higher than that of this batch. Then
    # this batch is in the log, and is older than the batches that the broker remembers. An example:
    #
    # 1. A to D are appended, and their responses are lost.
    # 2. The broker restarts, and remembers only D.
    # 3. A is sent again and gets OUT_OF_ORDER, as do B and C. They wait for proof.
    # 4. D is sent again and acknowledged, which proves that A, B and C are in the log.
    #
    # If all unresolved batches wait for proof, no acknowledgement can prove them, and the attempt
    # fails. No new batch is sent meanwhile, because a broker that has lost the state of this
    # producer could accept it.
    (_HEAD, Answer.OUT_OF_ORDER): Action.AWAIT_PROOF,
    (_HEAD, Answer.UNKNOWN_PRODUCER): Action.FAIL,
    # OUT_OF_ORDER counts only for a batch that was sent when all earlier batches had a definite
    # response. An example in which it does not count:
    #
    # 1. A and B are sent to the old leader. It rejects A, and its response to B is still on the
    #    way.
    # 2. A is sent to the new leader, and is acknowledged.
    # 3. The old leader's OUT_OF_ORDER for B arrives. It proves nothing, because B was sent while A
    #    was in flight. So B is sent again, and the next response to B counts.
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
    """The result of :meth:`PartitionSequences.answer`: the action for a batch after a response.

    * ``proven``: earlier batches that the acknowledgement has proved to be in the log. The sender
      completes them in this order, with an unknown offset.
    * ``reason``: explains a failure, for the action FAIL. None if the error code explains it.
    """

    action: Action
    proven: tuple[BatchT, ...] = ()
    reason: str | None = None


#: The verdict for nearly every batch.
_COMPLETED: Verdict[Any] = Verdict(Action.COMPLETE)


class _Place(Enum):
    """The place of a batch that has a sequence number and no outcome yet.

    * SENT: the batch is in flight.
    * QUEUED: the batch is in its queue, and waits to be sent again.
    * AWAITING_PROOF: the batch is in no queue, and waits for proof that it is in the log.
    * MOVING: the batch is in no queue, and waits for the next producer epoch.
    """

    SENT = "in flight"
    QUEUED = "waits to be resent"
    AWAITING_PROOF = "waits for proof"
    MOVING = "waits for the next epoch"


@dataclass(slots=True, eq=False)
class _InFlight(Generic[BatchT]):
    """A batch that has a sequence number and no outcome yet. Each time the batch is sent, one more
    copy of the batch may reach a broker.

    * ``sent_as_head``: True if no earlier batch of the partition was in flight when this batch was
      last sent.
    * ``resent``: True if the batch was sent again, or was split from a batch that was sent.
    * ``may_be_in_log``: True if a copy may already be in the log, because a response left this
      open, or did not arrive.
    * ``has_unanswered_copy``: True if at least one copy got no response. A broker may append this
      copy later.
    """

    batch: BatchT
    base_sequence: int
    record_count: int
    place: _Place
    sent_as_head: bool
    resent: bool = False
    may_be_in_log: bool = False
    has_unanswered_copy: bool = False

    @property
    def at_large(self) -> bool:
        """True if a copy of the batch may still arrive at a broker, which may then append it."""
        return self.has_unanswered_copy or self.place is _Place.SENT

    def answered(self, answer: Answer) -> None:
        """Stores the response ``answer`` to the batch, and sets the place of the batch to QUEUED.
        If the batch must wait outside of its queue, the caller changes the place.
        """
        self.place = _Place.QUEUED
        if answer is Answer.LOST:
            self.has_unanswered_copy = self.may_be_in_log = True
        elif answer is Answer.UNCLEAR:
            self.may_be_in_log = True
        elif answer is Answer.INVALID:
            self.has_unanswered_copy = self.may_be_in_log = False


_TO_BE_ANSWERED = frozenset({_Place.SENT, _Place.QUEUED})


def _precedes(one: _InFlight[BatchT], other: _InFlight[BatchT]) -> bool:
    """Returns True if the sequence number of ``one`` comes before the sequence number of ``other``.
    The result is right only for two batches that were unresolved at the same time.
    """
    # After the largest number, sequence numbers begin at 0 again. The numbers of two batches that
    # were unresolved at the same time differ by less than half of the range. So a larger difference
    # shows that the numbers have begun again.
    return (other.base_sequence - one.base_sequence) % _SEQUENCES < _SEQUENCES // 2


class PartitionSequences(Generic[BatchT]):
    """The sequence numbers of one partition under one producer id and epoch. Only the network
    thread uses an object of this class.
    """

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
        #: True after the first acknowledgement, because the broker then knows this producer.
        self.acknowledged = False
        #: True after a batch has failed permanently. The broker then never accepts the next
        #: sequence number.
        self.failed = False
        #: True after a batch of ``send`` has failed permanently. The partition then changes to the
        #: next epoch.
        self.moving = False
        #: The producer id and epoch of the sequence numbers. NO_PRODUCER_ID before the first
        #: sequence number.
        self.producer = NO_PRODUCER_ID
        self._max_in_flight = min(max_in_flight, MAX_IN_FLIGHT)
        self._in_flight: list[_InFlight[BatchT]] = []
        #: The failed batches: ``_lost`` has the batches that may be in the log, and ``_refused``
        #: the batches that are not in the log.
        self._lost: list[_InFlight[BatchT]] = []
        self._refused: list[_InFlight[BatchT]] = []
        self._last_offset = -1
        self._last_acknowledged_ms = 0

    def __len__(self) -> int:
        """The number of batches that have a sequence number and no outcome yet."""
        return len(self._in_flight)

    @property
    def first_sequence(self) -> int:
        """The lowest sequence number of the batches that are in flight or wait to be sent again.
        NO_SEQUENCE if there is no such batch.

        If batches wait to be sent again, only the batch with this sequence number can be sent.
        """
        for flight in self._in_flight:
            if flight.place in _TO_BE_ANSWERED:
                return flight.base_sequence
        return NO_SEQUENCE

    def can_send_new(self) -> bool:
        """True if a batch that has no sequence number yet can be sent now."""
        if self.failed:
            return False
        if not self._in_flight:
            return True
        # Until the first acknowledgement, a batch is sent alone. This prevents the following race
        # on a new topic:
        #
        # 1. A and B are sent. The broker returns NOT_LEADER_OR_FOLLOWER for A.
        # 2. The broker becomes the leader. It does not know the producer, so it accepts B.
        # 3. B is in the log before A, and A always gets OUT_OF_ORDER.
        if not self.acknowledged or len(self._in_flight) >= self._max_in_flight:
            return False
        # Batches with a sequence number are sent again in order, one at a time, before any new
        # batch. For example, A gets NOT_LEADER_OR_FOLLOWER. Then B and C get OUT_OF_ORDER, because
        # A is missing in the log, and are sent again after A.
        for flight in self._in_flight:
            if flight.place is not _Place.SENT or flight.resent:
                return False
        return True

    def assign_sequence(self, batch: BatchT, record_count: int) -> int:
        """Returns the sequence number for ``batch``, a new batch that is sent now. ``record_count``
        is the number of records of the batch.
        """
        sequence = self.next_sequence
        self.next_sequence = (sequence + record_count) % _SEQUENCES
        head = not self._in_flight
        self._in_flight.append(_InFlight(batch, sequence, record_count, _Place.SENT, head))
        return sequence

    def add(self, batch: BatchT, base_sequence: int, record_count: int) -> None:
        """Adds a batch that was split from another batch. It has a sequence number and waits to be
        sent.
        """
        # The parts of a split batch keep its sequence numbers (DESIGN.md, rule R7), and are sent
        # one after the other, before the later batches. Meanwhile the later batches get
        # OUT_OF_ORDER, and are sent again unchanged.
        split_batch = _InFlight(
            batch, base_sequence, record_count, _Place.QUEUED, sent_as_head=True
        )
        split_batch.resent = True
        at = 0
        while at < len(self._in_flight) and _precedes(self._in_flight[at], split_batch):
            at += 1
        self._in_flight.insert(at, split_batch)

    def remove(self, batch: BatchT) -> None:
        """Removes a batch that was split. The caller then adds the two new batches by
        :meth:`add`.
        """
        self._in_flight = [f for f in self._in_flight if f.batch is not batch]

    def sent(self, batch: BatchT) -> None:
        """Notes that ``batch``, which already has a sequence number, is sent now. The caller has
        checked that no earlier batch of the partition is in flight or must be sent again.
        """
        for flight in self._in_flight:
            if flight.batch is batch and flight.place is _Place.QUEUED:
                flight.place = _Place.SENT
                flight.sent_as_head = flight.resent = True

    def answer(
        self, batch: BatchT, answer: Answer, base_offset: int = -1, now: int = 0
    ) -> Verdict[BatchT]:
        """Handles a response to ``batch``, and returns the action for the batch. ``base_offset`` is
        the acknowledged offset, or -1 if it is unknown. ``now`` is the time in monotonic ms.
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
            situation = Situation.HEAD if flight.sent_as_head else Situation.BEHIND
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
            is_unclear = answer is Answer.OLD_EPOCH and flight.may_be_in_log
            if is_unclear or self._may_be_written_twice(flight):
                return Verdict(Action.FAIL, reason=_MAY_BE_WRITTEN)
            flight.place = _Place.MOVING
        elif action is Action.FAIL and answer is Answer.OUT_OF_ORDER and not self.failed:
            reason = "no batch of this producer was acknowledged on the partition before"
            return Verdict(Action.FAIL, reason=reason)
        elif action is Action.FAIL and flight.may_be_in_log and answer not in UNCLEAR_ANSWERS:
            return Verdict(Action.FAIL, reason=_EARLIER_COPY)
        return Verdict(action)

    def leave_old_epoch(self) -> bool:
        """Begins the change of the partition to the next epoch, because a broker rejects the old
        epoch. Called if no batch of the partition has failed.

        Returns False, and changes nothing, if a batch waits for proof that it is in the log. Only
        an acknowledgement in the old epoch can give this proof.
        """
        if any(f.place is _Place.AWAITING_PROOF for f in self._in_flight):
            return False
        self.failed = self.moving = True
        return True

    def move_on(self, batch: BatchT) -> tuple[BatchT, ...]:
        """Begins the change of the partition to the next epoch, because ``batch`` has failed
        permanently. Called only if all records of ``batch`` were appended by ``send``: a failed
        batch with rows of ``send_columns`` makes the whole producer fail.

        Returns the other batches of the partition that must also fail, because they could be in the
        log twice after the change.
        """
        # In the next epoch, sequence numbers begin at 0. Other partitions keep their epoch. (A
        # broker other than Kafka may have one epoch for all partitions of a producer:
        # ``leave_old_epoch``.) Batches that are certainly not in the log get sequence numbers of
        # the next epoch, before any new batch. No batch gets one before every batch of the old
        # epoch has its outcome. For example, A is rejected, B has no response, and C gets
        # OUT_OF_ORDER. B is sent again with its old sequence number, and the response decides
        # whether B is in the log.
        self.failed = self.moving = True
        before = self._in_flight
        failed = [f for f in before if f.batch is batch]
        while failed:  # each of them may leave others in doubt
            self._in_flight = [f for f in self._in_flight if f not in failed]
            for flight in failed:
                is_lost = flight.may_be_in_log or flight.at_large
                (self._lost if is_lost else self._refused).append(flight)
            failed = [f for f in self._in_flight if self._fails_too(f)]
        return tuple(f.batch for f in before if f not in self._in_flight and f.batch is not batch)

    def _fails_too(self, flight: _InFlight[BatchT]) -> bool:
        """Returns True if the batch ``flight`` must also fail, after another batch of the partition
        has failed. These are the cases:

        1. ``flight`` waits for the acknowledgement of a later batch, and a copy of ``flight`` may
           be in the log: True.
        2. ``flight`` waits for this acknowledgement, and no copy can be in the log: ``flight`` now
           waits for the next epoch. Case 3 or 4 follows.
        3. ``flight`` waits for the next epoch, and could be in the log twice after it is sent
           again: True.
        4. All other cases: False.
        """
        if flight.place is _Place.AWAITING_PROOF:
            # Batches after the failed one are not accepted any more, so nothing proves this one.
            if flight.may_be_in_log:
                return True
            flight.place = _Place.MOVING
        return flight.place is _Place.MOVING and self._may_be_written_twice(flight)

    def _may_be_written_twice(self, flight: _InFlight[BatchT]) -> bool:
        """Returns True if the batch ``flight`` could be in the log twice after it is sent with a
        new sequence number. There are two such cases:

        * An earlier batch has failed, and a broker may still append copies of both batches.
        * A later batch has failed, but may be in the log (now or later), and a copy of ``flight``
          may be in the log.
        """
        for lost in self._lost:
            if _precedes(lost, flight):
                # At large. An example in which A is lost, and this batch is B: A and B are sent,
                # and their connections are lost. A expires. B is sent again and gets OUT_OF_ORDER.
                # The first copies of A and B may still arrive at the broker, which would append
                # both.
                if lost.at_large and flight.at_large:
                    return True
            elif flight.may_be_in_log:
                # Forgotten. An example in which B is lost, and this batch is A: both are appended,
                # and both responses are lost. The broker restarts and remembers only B. B expires.
                # A is sent again and gets OUT_OF_ORDER, although it is in the log.
                return True
        return False

    @property
    def moved(self) -> bool:
        """True if the partition can change to the next epoch now, because no batch needs its old
        sequence number any more.
        """
        if not self.moving:
            return False
        for flight in self._in_flight:
            if flight.place is _Place.QUEUED and not flight.may_be_in_log:
                continue  # no copy of it is in the log, and none is on its way
            if flight.place is not _Place.MOVING:
                return False
        return True

    @property
    def unresolved(self) -> list[BatchT]:
        """The batches that have a sequence number and no outcome yet, in the order of their
        sequence numbers.
        """
        return [flight.batch for flight in self._in_flight]

    def answered_late(self, batch: BatchT, answer: Answer) -> None:
        """Handles the response to a batch that has already failed, for example because it expired
        in flight.

        The batch stays failed, even after an acknowledgement. But the response may show that the
        batch can't be in the log, now or later. Then this method removes the batch from the *lost*
        batches: the failed batches that may be in the log, or that a broker may still append.
        """
        for flight in self._lost:
            if flight.batch is batch:
                flight.answered(answer)
                flight.may_be_in_log |= answer is Answer.ACKNOWLEDGED
        self._refused += [f for f in self._lost if not f.may_be_in_log and not f.at_large]
        self._lost = [f for f in self._lost if f.may_be_in_log or f.at_large]

    def fail(self, batch: BatchT, *, unclear: bool) -> tuple[BatchT, ...]:
        """Notes that ``batch`` has failed permanently. ``unclear`` is True if it may nevertheless
        be in the log.

        Returns the other batches that also fail: all batches of the partition that wait for proof
        that they are in the log.
        """
        # No later batch can be sent with the same epoch. A transactional producer can only abort,
        # because batches never get a new sequence number within a transaction (DESIGN.md, rule R2).
        # Each later batch fails with its next response if this response is no acknowledgement. So
        # the batches that wait for the acknowledgement of a later batch fail as well.
        self.failed = True
        gone = [f for f in self._in_flight if f.batch is batch or f.place is _Place.AWAITING_PROOF]
        self._in_flight = [f for f in self._in_flight if f not in gone]
        self._lost += [f for f in gone if unclear or f.batch is not batch]
        return tuple(f.batch for f in gone if f.batch is not batch)

    def resolve(self, batch: BatchT) -> None:
        """Removes ``batch`` from the *lost* batches: the failed batches that may be in the log, or
        that a broker may still append. Called after a late response has shown whether ``batch`` is
        in the log.
        """
        self._lost = [f for f in self._lost if f.batch is not batch]

    @property
    def has_unresolved(self) -> bool:
        """True if there is a lost batch. A lost batch has failed, but may be in the log, or a
        broker may still append it.
        """
        return bool(self._lost)

    def expire_acks(self, before_ms: int) -> None:
        """Assumes that the broker does not know this producer any more, if every batch has its
        outcome and the last acknowledgement was before ``before_ms``. The next batch is then sent
        alone until it is acknowledged, like the first batch of a new producer.
        """
        # A broker forgets a producer that was idle for producer.id.expiration.ms. If the broker
        # still knows this producer, this costs only one round trip.
        if not self._in_flight and self._last_acknowledged_ms < before_ms:
            self.acknowledged = False

    def _acknowledge(self, at: int, base_offset: int, now: int) -> Verdict[BatchT]:
        # A broker that knows the producer appends a batch only after all earlier batches. So this
        # acknowledgement proves that they are in the log, even if their responses were lost. As a
        # check, the log must have enough offsets for their records. If not, the broker has lost the
        # state of this producer: the topic was recreated, or an unclean leader election has
        # truncated the log.
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
        # The acknowledgement also shows that earlier lost batches are in the log.
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
    """A dict of the sequence numbers by topic partition. Reading a missing partition creates its
    entry.
    """

    # A subclass of dict for speed: the dict is read several times for each batch.
    __slots__ = ("_max_in_flight",)

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight

    def __missing__(self, tp: TopicPartition) -> PartitionSequences[ProducerBatch]:
        sequences = self[tp] = PartitionSequences(self._max_in_flight)
        return sequences


class TxnPartitionMap:
    """The sequence numbers of a producer on all its partitions (Java's TxnPartitionMap).

    ``in_flight`` is the number of batches that have a sequence number and no outcome yet.
    """

    __slots__ = ("_next_expiry_ms", "in_flight", "moving", "of")

    def __init__(self, max_in_flight: int) -> None:
        #: The sequence numbers of each partition. Reading a missing partition creates its entry.
        self.of = _ByPartition(max_in_flight)
        #: The partitions that are changing to the next epoch. The change of a partition ends when
        #: all its batches have their outcomes.
        self.moving: dict[TopicPartition, None] = {}
        self._next_expiry_ms = 0
        self.in_flight = 0

    def begin(
        self, tp: TopicPartition, producer: ProducerIdAndEpoch
    ) -> PartitionSequences[ProducerBatch]:
        """The sequence numbers of the partition ``tp``, for a batch that gets its sequence number
        now. ``producer`` is the current producer id and epoch.

        If the partition has an older id or epoch, there are two cases (Java's
        ``maybeUpdateProducerIdAndEpoch``):

        * Without unresolved batches, the partition changes to ``producer``, and begins at sequence
          number 0.
        * With unresolved batches, the partition keeps the older id and epoch.
        """
        sequences = self.of[tp]
        if sequences.producer is not producer and not len(sequences):
            if sequences.producer.is_valid:
                del self.of[tp]
                sequences = self.of[tp]
            sequences.producer = producer
        return sequences

    def reset(self) -> None:
        """Begins the sequence numbers of all partitions at 0 again, because the producer id or
        epoch has changed. Raises IllegalStateError if a batch has no outcome yet.
        """
        if self.in_flight:
            raise IllegalStateError(
                f"the producer's epoch changed while {self.in_flight} batches were in flight"
            )
        self.of.clear()

    def add(self, batch: ProducerBatch) -> None:
        """Adds a batch that was split from another batch, and that has a sequence number."""
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
        """Finds the partitions that can change to the next epoch now, and forgets their old
        sequence numbers. Returns the unresolved batches of these partitions. The caller sends these
        batches again with new sequence numbers.
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
        """True if a partition has a lost batch. A lost batch has failed, but may be in the log, or
        a broker may still append it.
        """
        return any(sequences.has_unresolved for sequences in self.of.values())

    def expire_acks(self, now: int) -> None:
        """Calls :meth:`PartitionSequences.expire_acks` for all partitions whose last
        acknowledgement is older than ACK_EXPIRY_MS. Most calls do nothing: the partitions are
        checked only four times within ACK_EXPIRY_MS.
        """
        if now < self._next_expiry_ms:
            return
        self._next_expiry_ms = now + ACK_EXPIRY_MS // 4
        for sequences in self.of.values():
            sequences.expire_acks(now - ACK_EXPIRY_MS)
