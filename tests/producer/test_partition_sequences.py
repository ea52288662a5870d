"""Rule 5.3 of the design: the table of answers, race by race, and against a model of a broker.

The model keeps what Kafka's ProducerStateManager keeps: the last sequence and the last five
batches of a producer; a producer that it does not know may begin with any sequence; a restart
leaves only the last batch. Two brokers, of which at most one leads; connections answer in order,
may die with requests that are still processed later; halves of a batch that is too large.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.producer.transaction.partition_sequences import (
    ACTIONS,
    MAX_IN_FLIGHT,
    Action,
    Answer,
    PartitionSequences,
    Situation,
)
from spark_kafka_sink.records.record_batch import increment_sequence

SEQUENCES = 2**31


class Sequenced:
    """Drives one PartitionSequences with batches named by letters, of one record each."""

    def __init__(self, next_sequence: int = 0) -> None:
        self.sequences: PartitionSequences[str] = PartitionSequences(next_sequence=next_sequence)

    def send(self, name: str, count: int = 1) -> None:
        assert self.sequences.can_send_new()
        self.sequences.take(name, count)

    def establish(self) -> None:
        self.send("first")
        assert self.answer("first", Answer.ACKNOWLEDGED, 0) == (Action.COMPLETE, ())

    def answer(self, name: str, answer: Answer, offset: int = -1) -> tuple[Action, tuple[str, ...]]:
        verdict = self.sequences.answer(name, answer, offset)
        return verdict.action, verdict.proven


def test_the_table_has_an_action_for_every_situation_and_answer() -> None:
    assert set(ACTIONS) == {(s, a) for s in Situation for a in Answer}


def test_the_first_batch_travels_alone_until_it_is_acknowledged() -> None:
    one = Sequenced()
    one.send("a")
    assert not one.sequences.can_send_new()
    assert one.answer("a", Answer.UNCLEAR) == (Action.RESEND, ())
    assert not one.sequences.can_send_new()
    one.sequences.sent("a")
    one.answer("a", Answer.ACKNOWLEDGED, 0)
    one.send("b")
    assert one.sequences.can_send_new()


def test_five_are_in_flight_with_sequences_0_to_4_and_a_sixth_waits() -> None:
    """SenderTest#testIdempotenceWithMultipleInflights."""
    one = Sequenced()
    one.establish()
    taken = []
    for name in ("a", "b", "c", "d", "e"):
        taken.append(one.sequences.next_sequence)
        one.send(name)
    assert taken == [1, 2, 3, 4, 5]
    assert len(one.sequences) == MAX_IN_FLIGHT
    assert not one.sequences.can_send_new()


def test_out_of_order_before_any_acknowledgement_fails_the_attempt() -> None:
    one = Sequenced()
    one.send("a")
    verdict = one.sequences.answer("a", Answer.OUT_OF_ORDER)
    assert verdict.action is Action.FAIL
    assert "acknowledged" in (verdict.reason or "")


def test_batches_behind_a_refused_one_go_again_in_order_one_at_a_time() -> None:
    """SenderTest#testIdempotenceWithMultipleInflightsRetriedInOrder: the first of three fails
    retriably, the others are OUT_OF_ORDER.
    """
    one = Sequenced()
    one.establish()
    for name in ("a", "b", "c"):
        one.send(name)
    assert one.answer("a", Answer.UNCLEAR) == (Action.RESEND, ())
    assert one.answer("b", Answer.OUT_OF_ORDER) == (Action.RESEND, ())
    assert one.answer("c", Answer.OUT_OF_ORDER) == (Action.RESEND, ())
    for sequence, name in enumerate(("a", "b", "c"), start=1):
        assert one.sequences.first_sequence == sequence
        assert not one.sequences.can_send_new()
        one.sequences.sent(name)
        assert one.answer(name, Answer.ACKNOWLEDGED, sequence) == (Action.COMPLETE, ())
    assert one.sequences.can_send_new()


def test_a_later_acknowledgement_proves_the_earlier_batches() -> None:
    """SenderTest#testCorrectHandlingOfOutOfOrderResponses: the second is
    acknowledged, the first's answer was lost.
    """
    one = Sequenced()
    one.establish()
    for name in ("a", "b", "c"):
        one.send(name)
    one.answer("a", Answer.UNCLEAR)
    assert one.answer("c", Answer.ACKNOWLEDGED, 3) == (Action.COMPLETE, ("a", "b"))
    assert one.answer("b", Answer.UNCLEAR) == (Action.IGNORE, ())
    assert len(one.sequences) == 0


def test_a_stale_out_of_order_of_a_batch_that_left_behind_another_is_no_doubt() -> None:
    one = Sequenced()
    one.establish()
    one.send("a")
    one.send("b")
    one.answer("a", Answer.UNCLEAR)
    one.sequences.sent("a")
    one.answer("a", Answer.ACKNOWLEDGED, 1)
    assert one.answer("b", Answer.OUT_OF_ORDER) == (Action.RESEND, ())
    one.sequences.sent("b")
    assert one.answer("b", Answer.ACKNOWLEDGED, 2) == (Action.COMPLETE, ())


def test_doubted_batches_are_proven_by_what_was_in_flight_behind_them() -> None:
    """Hazard H3, as seen on a real broker: 0, 10, 20, 30 resent after a restart: 45, 45, ok, ok."""
    one = Sequenced()
    one.establish()
    for name in ("a", "b", "c", "d"):
        one.send(name, 10)
    for name in ("a", "b", "c", "d"):
        one.answer(name, Answer.UNCLEAR)
    for name in ("a", "b"):
        one.sequences.sent(name)
        assert one.answer(name, Answer.OUT_OF_ORDER) == (Action.AWAIT_PROOF, ())
        assert not one.sequences.can_send_new()
    assert one.sequences.first_sequence == 21
    one.sequences.sent("c")
    assert one.answer("c", Answer.ACKNOWLEDGED, 21) == (Action.COMPLETE, ("a", "b"))
    one.sequences.sent("d")
    assert one.answer("d", Answer.ACKNOWLEDGED, 31) == (Action.COMPLETE, ())


def test_the_attempt_fails_when_nothing_can_prove_what_is_doubted() -> None:
    one = Sequenced()
    one.establish()
    one.send("a")
    one.send("b")
    assert one.answer("a", Answer.OUT_OF_ORDER) == (Action.AWAIT_PROOF, ())
    assert one.answer("b", Answer.OUT_OF_ORDER) == (Action.RESEND, ())
    one.sequences.sent("b")
    verdict = one.sequences.answer("b", Answer.OUT_OF_ORDER)
    assert verdict.action is Action.FAIL
    assert verdict.reason is not None


def test_an_acknowledged_offset_without_room_for_the_earlier_records_proves_nothing() -> None:
    """A topic that was created anew accepts any first sequence, from offset 0."""
    one = Sequenced()
    one.send("first", 100)
    one.answer("first", Answer.ACKNOWLEDGED, 0)
    one.send("a", 10)
    one.send("b", 10)
    one.answer("a", Answer.UNCLEAR)
    verdict = one.sequences.answer("b", Answer.ACKNOWLEDGED, 0)
    assert verdict.action is Action.FAIL
    assert "offset 0" in (verdict.reason or "")


def test_unknown_producer_id_fails_unless_others_were_unanswered_before() -> None:
    one = Sequenced()
    one.establish()
    one.send("a")
    one.send("b")
    one.answer("a", Answer.UNCLEAR)
    assert one.answer("b", Answer.UNKNOWN_PRODUCER) == (Action.RESEND, ())
    one.sequences.sent("a")
    assert one.answer("a", Answer.UNKNOWN_PRODUCER)[0] is Action.FAIL


def test_the_pieces_of_a_split_take_the_whole_batchs_place_and_sequences() -> None:
    """SenderTest#testIdempotentSplitBatchAndSend: two batches at s and s+1, and the next sequence
    is unchanged.
    """
    one = Sequenced()
    one.establish()
    one.send("whole", 2)
    one.send("later")
    one.sequences.remove("whole")
    one.sequences.add("half 2", 2, 1)
    one.sequences.add("half 1", 1, 1)
    assert one.sequences.next_sequence == 4
    assert one.answer("later", Answer.OUT_OF_ORDER) == (Action.RESEND, ())
    for name, sequence in (("half 1", 1), ("half 2", 2), ("later", 3)):
        assert one.sequences.first_sequence == sequence
        one.sequences.sent(name)
        assert one.answer(name, Answer.ACKNOWLEDGED, sequence) == (Action.COMPLETE, ())


def test_sequences_wrap_to_0_and_pieces_keep_their_order_across_it() -> None:
    """TransactionManagerTest#testSequenceNumberOverflow."""
    assert increment_sequence(SEQUENCES - 1, 1) == 0
    assert increment_sequence(SEQUENCES - 6, 10) == 4
    one = Sequenced(next_sequence=SEQUENCES - 1)
    one.establish()
    one.send("a", 2)
    assert one.sequences.next_sequence == 2
    one = Sequenced(next_sequence=SEQUENCES - 2)
    one.establish()
    one.send("whole", 3)
    one.sequences.remove("whole")
    one.sequences.add("half 2", 0, 2)
    one.sequences.add("half 1", SEQUENCES - 1, 1)
    assert one.sequences.first_sequence == SEQUENCES - 1


def test_a_partition_that_was_idle_for_long_sends_one_batch_alone_again() -> None:
    one = Sequenced()
    one.send("a")
    one.sequences.answer("a", Answer.ACKNOWLEDGED, 0, now=1_000)
    one.sequences.expire_acks(before_ms=1_000)
    assert one.sequences.acknowledged
    one.sequences.expire_acks(before_ms=1_001)
    one.send("b")
    assert not one.sequences.can_send_new()


# ---- against a model of brokers ------------------------------------------------------------------


@dataclass(eq=False)
class Batch:
    first: int  # sequence of its first record, which is also the record's name
    count: int
    queued: bool = False
    acknowledged: bool = False

    @property
    def records(self) -> range:
        return range(self.first, self.first + self.count)


class Connection:
    """Requests in, answers out, both in order."""

    def __init__(self) -> None:
        self.requests: deque[Batch] = deque()
        self.answers: deque[tuple[Batch, Answer, int]] = deque()

    def unanswered(self) -> list[Batch]:
        return [batch for batch, _, _ in self.answers] + list(self.requests)


class PartitionLog:
    """One partition's log as a broker keeps it for one producer id (Kafka's ProducerStateManager).

    ``records`` are the sequence numbers in the order of their offsets. The last sequence and the
    last five batches are remembered; a producer that is not known may begin with any sequence.
    """

    def __init__(self) -> None:
        self.records: list[int] = []
        self.last: int | None = None
        self.window: deque[tuple[int, int, int]] = deque(maxlen=5)

    def append(self, first: int, count: int) -> tuple[Answer, int]:
        """The answer to ``count`` records from sequence ``first``, and their base offset."""
        end = first + count - 1
        for known_first, known_end, offset in self.window:
            if (known_first, known_end) == (first, end):
                return Answer.ACKNOWLEDGED, offset
        if self.last is not None and first != self.last + 1:
            return Answer.OUT_OF_ORDER, -1
        offset = len(self.records)
        self.records.extend(range(first, first + count))
        self.last = end
        self.window.append((first, end, offset))
        return Answer.ACKNOWLEDGED, offset

    def restart(self) -> None:
        """A clean restart: the snapshot holds each producer's last batch only."""
        while len(self.window) > 1:
            self.window.popleft()


#: A batch of more records than this is refused as too large.
TOO_LARGE = 4


class World:
    """One producer, one partition, two brokers."""

    def __init__(self) -> None:
        self.log = PartitionLog()
        self.leader: int | None = None  # a fresh topic: nobody leads yet
        self.connections = [Connection(), Connection()]
        self.ghosts: list[deque[Batch]] = []  # what dead connections had handed to a broker
        self.sequences: PartitionSequences[Batch] = PartitionSequences()
        self.queue: list[Batch] = []  # to be sent again
        self.batches: list[Batch] = []
        self.produced = 0

    # -- the client --

    def send_new(self, count: int, node: int) -> None:
        if self.queue or not self.sequences.can_send_new():
            return
        batch = Batch(self.sequences.next_sequence, count)
        assert self.sequences.take(batch, count) == batch.first
        self.batches.append(batch)
        self.produced += count
        self.connections[node].requests.append(batch)

    def resend(self, node: int) -> None:
        for batch in self.queue:
            if batch.first == self.sequences.first_sequence:
                self.queue.remove(batch)
                self.sequences.sent(batch)
                self.connections[node].requests.append(batch)
                return

    def take_answer(self, batch: Batch, answer: Answer, offset: int) -> None:
        if answer is Answer.REFUSED:
            self.split(batch)
            return
        verdict = self.sequences.answer(batch, answer, offset)
        # No broker of this world loses what it acknowledged: nothing may fail.
        assert verdict.action is not Action.FAIL, verdict.reason
        if verdict.action is Action.RESEND:
            self.queue.append(batch)
        elif verdict.action is Action.COMPLETE:
            for done in (*verdict.proven, batch):
                assert not done.acknowledged
                done.acknowledged = True
                if done in self.queue:
                    self.queue.remove(done)
                found = [r for r in self.log.records if r in done.records]
                assert found == list(done.records), "acknowledged, but not once and in order"

    def split(self, batch: Batch) -> None:
        if batch.acknowledged:
            return
        half = batch.count // 2
        pieces = [Batch(batch.first, half), Batch(batch.first + half, batch.count - half)]
        self.batches.remove(batch)
        self.batches += pieces
        self.sequences.remove(batch)
        for piece in pieces:
            self.sequences.add(piece, piece.first, piece.count)
            self.queue.append(piece)

    # -- the brokers --

    def judge(self, batch: Batch, node: int) -> tuple[Answer, int]:
        if node != self.leader:
            return Answer.UNCLEAR, -1  # NOT_LEADER_OR_FOLLOWER
        if batch.count > TOO_LARGE:
            return Answer.REFUSED, -1  # MESSAGE_TOO_LARGE
        return self.log.append(batch.first, batch.count)

    def process(self, node: int, *, unclear: bool = False) -> None:
        connection = self.connections[node]
        if connection.requests:
            batch = connection.requests.popleft()
            answer, offset = self.judge(batch, node)
            if unclear and answer is not Answer.REFUSED:
                answer, offset = Answer.UNCLEAR, -1  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
            connection.answers.append((batch, answer, offset))

    def refuse(self, node: int) -> None:
        """NOT_ENOUGH_REPLICAS: looked at, not appended."""
        connection = self.connections[node]
        if connection.requests:
            connection.answers.append((connection.requests.popleft(), Answer.UNCLEAR, -1))

    def deliver(self, node: int) -> None:
        if self.connections[node].answers:
            self.take_answer(*self.connections[node].answers.popleft())

    def cut(self, node: int) -> None:
        """The connection dies: no answer arrives, but the broker may work on what it has read."""
        dead = self.connections[node]
        self.connections[node] = Connection()
        if dead.requests:
            self.ghosts.append(deque(dead.requests))
        for batch in dead.unanswered():
            self.take_answer(batch, Answer.UNCLEAR, -1)

    def haunt(self, which: int) -> None:
        if self.ghosts and self.leader is not None:
            ghost = self.ghosts[which % len(self.ghosts)]
            self.judge(ghost.popleft(), self.leader)
            if not ghost:
                self.ghosts.remove(ghost)

    # -- everything heals --

    def heal(self) -> None:
        self.leader = 0
        for _ in range(10_000):
            for node in (0, 1):
                self.process(node)
                self.deliver(node)
            self.resend(0)
            if not len(self.sequences):
                return
        pytest.fail("the producer never came to an end")

    def step(self, what: str, number: int) -> None:
        """``number`` 0 to 7; 6 and 7 choose the broker that does not lead."""
        node = (self.leader or 0) ^ (number >= 6)
        match what:
            case "send":
                self.send_new(1 + number, node)
            case "resend":
                self.resend(node)
            case "process":
                self.process(node)
            case "deliver":
                self.deliver(node)
            case "unclear":
                self.process(node, unclear=True)
            case "refuse":
                self.refuse(node)
            case "cut":
                self.cut(node)
            case "haunt":
                self.haunt(number)
            case "restart":
                self.log.restart()
            case "lead":
                self.leader = node ^ 1
            case _:
                self.leader = None

    def check_the_end(self) -> None:
        self.heal()
        assert all(batch.acknowledged for batch in self.batches)
        assert self.log.records == list(range(self.produced))


#: Each word as often as it shall happen, about.
WORDS = [
    *["send"] * 8,
    *["resend"] * 4,
    *["process"] * 8,
    *["deliver"] * 6,
    *["unclear"] * 2,
    *["cut"] * 2,
    *["haunt"] * 2,
    *["refuse", "restart", "lead", "nobody"],
]
FAIR = ("send", "send", "resend", "process", "deliver")

scripts = st.lists(st.tuples(st.sampled_from(WORDS), st.integers(0, 7)), max_size=100)


@settings(max_examples=200, deadline=None)
@given(scripts)
def test_what_is_called_acknowledged_is_in_the_log_once_and_in_order(
    script: list[tuple[str, int]],
) -> None:
    world = World()
    world.leader = 0
    for what, number in script:
        world.step(what, number)
    world.check_the_end()


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_the_same_holds_over_long_lives(seed: int) -> None:
    """Hypothesis finds short stories; doubts need long ones (several batches, cut, restart)."""
    fate = random.Random(seed)
    world = World()
    for _ in range(400):
        if fate.random() < 0.9:
            world.step(fate.choice(FAIR), fate.randrange(6))
        else:
            world.step(fate.choice(WORDS), fate.randrange(8))
        if world.leader is None and fate.random() < 0.2:
            world.leader = fate.randrange(2)
    world.check_the_end()


# ---- behind a batch that failed for good (a transactional producer lives on, to abort) -----------


def established() -> Sequenced:
    """A is acknowledged."""
    driver = Sequenced()
    driver.send("A")
    driver.sequences.answer("A", Answer.ACKNOWLEDGED, 0)
    return driver


def test_behind_a_failed_batch_only_acknowledgements_are_taken() -> None:
    """SenderTest#testIdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOfFutureBatchesIsAdjusted,
    in its place: nothing is renumbered.
    """
    for answer, action in (
        (Answer.ACKNOWLEDGED, Action.COMPLETE),
        (Answer.OUT_OF_ORDER, Action.FAIL),
        (Answer.UNCLEAR, Action.FAIL),
        (Answer.REFUSED, Action.FAIL),
    ):
        driver = established()
        driver.send("B")
        driver.send("C")
        assert driver.sequences.fail("B", unclear=False) == ()
        assert not driver.sequences.can_send_new()
        verdict = driver.sequences.answer("C", answer, 2)
        assert verdict.action is action
        assert verdict.reason is None
        assert not driver.sequences.can_send_new(), "the hole stays, whatever is answered"


def test_those_in_doubt_fail_with_it_and_are_lost() -> None:
    driver = established()
    driver.send("B")
    driver.send("C")
    assert driver.sequences.answer("B", Answer.OUT_OF_ORDER).action is Action.AWAIT_PROOF
    assert driver.sequences.fail("C", unclear=False) == ("B",)
    assert len(driver.sequences) == 0
    assert driver.sequences.has_unresolved, "B may be in the log"


def test_a_lost_batch_is_settled_by_its_own_answer_or_by_a_later_acknowledgement() -> None:
    """SenderTest#testUnresolvedSequencesAreNotFatal."""
    for settle in ("own", "later", "earlier"):
        driver = established()
        for name in ("B", "C", "D"):
            driver.send(name)
        driver.sequences.fail("C", unclear=True)
        assert driver.sequences.has_unresolved
        if settle == "own":
            driver.sequences.resolve("C")
        elif settle == "later":
            driver.sequences.answer("D", Answer.ACKNOWLEDGED, 3)
        else:
            driver.sequences.answer("B", Answer.ACKNOWLEDGED, 1)
        assert driver.sequences.has_unresolved is (settle == "earlier")


def test_a_clear_refusal_loses_nothing() -> None:
    driver = established()
    driver.send("B")
    driver.sequences.fail("B", unclear=False)
    assert not driver.sequences.has_unresolved
