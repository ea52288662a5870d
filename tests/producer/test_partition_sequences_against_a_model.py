"""PartitionSequences against a model of brokers (rule R3).

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
    Action,
    Answer,
    PartitionSequences,
)


@dataclass(eq=False)
class Batch:
    first: int  # sequence of its first record, which is also the record's name
    count: int
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


class PartitionAndModel:
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
        assert self.sequences.assign_sequence(batch, count) == batch.first
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
def test_what_is_acknowledged_is_in_the_log_once_and_in_order(
    script: list[tuple[str, int]],
) -> None:
    world = PartitionAndModel()
    world.leader = 0
    for what, number in script:
        world.step(what, number)
    world.check_the_end()


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_the_same_holds_over_long_lives(seed: int) -> None:
    """Hypothesis finds short stories; doubts need long ones (several batches, cut, restart)."""
    fate = random.Random(seed)
    world = PartitionAndModel()
    for _ in range(400):
        if fate.random() < 0.9:
            world.step(fate.choice(FAIR), fate.randrange(6))
        else:
            world.step(fate.choice(WORDS), fate.randrange(8))
        if world.leader is None and fate.random() < 0.2:
            world.leader = fate.randrange(2)
    world.check_the_end()
