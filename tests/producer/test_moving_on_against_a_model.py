"""A partition that moves on to another epoch, against a model of brokers (rule R3).

As ``test_partition_sequences_against_a_model.py``, for a producer of single records: batches that
brokers refuse for what they hold, or for no reason that lasts, and batches that expire, also in
flight. The others must be in the log once and in order, whatever copies arrive late.
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
    """``names`` are its records, numbered as they were handed over. A copy in flight is a tuple of
    epoch, first sequence and this batch: the batch may have others by the time it arrives.
    """

    names: range
    invalid: bool
    epoch: int = -1
    first: int = -1
    #: True: acknowledged; False: failed.
    outcome: bool | None = None

    @property
    def copy(self) -> tuple[int, int, Batch]:
        return self.epoch, self.first, self


Copy = tuple[int, int, Batch]


class Log:
    """One partition as a leader keeps it for one producer id (Kafka's ProducerStateManager)."""

    def __init__(self) -> None:
        self.records: list[int] = []
        self.epoch: int | None = None
        #: Of a broker that keeps one epoch for all partitions: the newest that another one has had.
        self.elsewhere = 0
        self.last = -1
        self.window: deque[tuple[int, int, int]] = deque(maxlen=5)

    def append(self, copy: Copy) -> tuple[Answer, int]:
        epoch, first, batch = copy
        if batch.invalid:
            return Answer.INVALID, -1
        end = first + len(batch.names) - 1
        if epoch < max(self.elsewhere, self.epoch or 0):
            return Answer.OLD_EPOCH, -1
        if epoch == self.epoch:
            for known_first, known_end, offset in self.window:
                if (known_first, known_end) == (first, end):
                    return Answer.ACKNOWLEDGED, offset
        wanted = self.last + 1 if epoch == self.epoch else 0
        if self.epoch is not None and first != wanted:
            return Answer.OUT_OF_ORDER, -1
        if epoch != self.epoch:
            self.window.clear()
        offset = len(self.records)
        self.records.extend(batch.names)
        self.epoch, self.last = epoch, end
        self.window.append((first, end, offset))
        return Answer.ACKNOWLEDGED, offset

    def restart(self) -> None:
        """A clean restart: the snapshot holds each producer's last batch only."""
        while len(self.window) > 1:
            self.window.popleft()


class Connection:
    def __init__(self) -> None:
        self.requests: deque[Copy] = deque()
        self.answers: deque[tuple[Batch, Answer, int]] = deque()

    def unanswered(self) -> list[Batch]:
        return [batch for batch, _, _ in self.answers] + [batch for _, _, batch in self.requests]


class SingleRecords:
    """One producer of single records, one partition, two brokers."""

    def __init__(self) -> None:
        self.log = Log()
        self.leader: int | None = 0
        self.connections = [Connection(), Connection()]
        self.ghosts: list[deque[Copy]] = []  # what dead connections had handed to a broker
        #: The producer's, and this partition's, which may be older.
        self.epoch = self.epoch_here = 0
        self.sequences: PartitionSequences[Batch] = PartitionSequences()
        self.queue: list[Batch] = []  # in order; those to be sent again have a sequence
        self.batches: list[Batch] = []
        self.told: list[int] = []
        self.produced = 0
        self.moves = 0
        self.only_invalid_fail = True

    # -- the client --

    def append(self, count: int, *, invalid: bool) -> None:
        batch = Batch(range(self.produced, self.produced + count), invalid)
        self.produced += count
        self.batches.append(batch)
        self.queue.append(batch)

    def send(self, node: int) -> None:
        if not self.queue:
            return
        batch, sequences = self.queue[0], self.sequences
        if batch.first >= 0:
            if sequences.first_sequence not in (-1, batch.first):
                return
            sequences.sent(batch)
        elif not sequences.can_send_new():
            return
        else:
            if not len(sequences) and self.epoch_here < self.epoch:
                self.begin_epoch()
            batch.epoch = self.epoch_here
            batch.first = self.sequences.assign_sequence(batch, len(batch.names))
        self.queue.remove(batch)
        self.connections[node].requests.append(batch.copy)

    def take_answer(self, batch: Batch, answer: Answer, offset: int) -> None:
        if batch.outcome is not None:
            self.sequences.answered_late(batch, answer)
            return
        if answer is Answer.OLD_EPOCH and self.epoch_here < self.epoch:
            self.sequences.leave_old_epoch()
        verdict = self.sequences.answer(batch, answer, offset)
        if verdict.action is Action.RESEND:
            self.requeue(batch)
        elif verdict.action is Action.COMPLETE:
            for done in (*verdict.proven, batch):
                self.complete(done)
        elif verdict.action is Action.FAIL:
            self.fail(batch)
        self.move_on()

    def requeue(self, batch: Batch) -> None:
        before = [other for other in self.queue if 0 <= other.first < batch.first]
        self.queue.insert(len(before), batch)

    def complete(self, batch: Batch) -> None:
        assert batch.outcome is None
        batch.outcome = True
        self.told += batch.names
        if batch in self.queue:
            self.queue.remove(batch)
        found = [name for name in self.log.records if name in batch.names]
        assert found == list(batch.names), "acknowledged, but not once and in order"

    def fail(self, batch: Batch) -> None:
        others = self.sequences.move_on(batch) if batch.first >= 0 else ()
        for one in (batch, *others):
            assert one.outcome is None
            one.outcome = False
            assert one.invalid or not self.only_invalid_fail, "an innocent batch fails"

    def move_on(self) -> None:
        if not self.sequences.moved:
            return
        again = self.sequences.unresolved
        self.queue = again + [batch for batch in self.queue if batch not in again]
        for batch in again:
            batch.epoch = batch.first = -1
        self.epoch = max(self.epoch, self.epoch_here + 1)
        self.begin_epoch()
        self.moves += 1

    def begin_epoch(self) -> None:
        self.sequences = PartitionSequences()
        self.epoch_here = self.epoch

    def move_elsewhere(self) -> None:
        """Another partition moves on, and the broker keeps one epoch for both."""
        self.only_invalid_fail = False
        self.epoch = max(self.epoch, self.epoch_here + 1)
        self.log.elsewhere = self.epoch

    def expire(self, count: int) -> None:
        """The oldest batches: first those that wait to be sent, then those in flight."""
        self.only_invalid_fail = False
        oldest = [batch for batch in self.batches if batch.outcome is None][:count]
        for batch in sorted(oldest, key=lambda batch: batch not in self.queue):
            if batch.outcome is not None:
                continue
            if batch in self.queue:
                self.queue.remove(batch)
            self.fail(batch)
        self.move_on()

    # -- the brokers --

    def process(self, node: int, forced: Answer | None = None) -> None:
        """``forced``: the answer in place of a success, after the append or (REFUSED) without."""
        connection = self.connections[node]
        if not connection.requests:
            return
        copy = connection.requests.popleft()
        if node != self.leader:
            answer, offset = Answer.UNCLEAR, -1  # NOT_LEADER_OR_FOLLOWER
        elif forced is Answer.REFUSED:
            self.only_invalid_fail = False
            answer, offset = forced, -1
        else:
            answer, offset = self.log.append(copy)
            if forced is not None and answer is not Answer.INVALID:
                answer, offset = forced, -1  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
        connection.answers.append((copy[2], answer, offset))

    def deliver(self, node: int) -> None:
        if self.connections[node].answers:
            self.take_answer(*self.connections[node].answers.popleft())

    def cut(self, node: int) -> None:
        dead = self.connections[node]
        self.connections[node] = Connection()
        if dead.requests:
            self.ghosts.append(deque(dead.requests))
        for batch in dead.unanswered():
            self.take_answer(batch, Answer.LOST, -1)

    def haunt(self, which: int) -> None:
        if self.ghosts and self.leader is not None:
            ghost = self.ghosts[which % len(self.ghosts)]
            self.log.append(ghost.popleft())
            if not ghost:
                self.ghosts.remove(ghost)

    def step(self, what: str, number: int) -> None:
        """``number`` 0 to 7; 6 and 7 choose the broker that does not lead."""
        node = (self.leader or 0) ^ (number >= 6)
        match what:
            case "append":
                self.append(1 + number % 3, invalid=False)
            case "invalid":
                self.append(1, invalid=True)
            case "send":
                self.send(node)
            case "process":
                self.process(node)
            case "deliver":
                self.deliver(node)
            case "unclear":
                self.process(node, Answer.UNCLEAR)
            case "refuse":
                self.process(node, Answer.REFUSED)
            case "cut":
                self.cut(node)
            case "haunt":
                self.haunt(number)
            case "restart":
                self.log.restart()
            case "lead":
                self.leader = node ^ 1
            case "elsewhere":
                self.move_elsewhere()
            case "expire":
                self.expire(1 + number % 3)

    def check_the_end(self) -> None:
        for _ in range(10_000):
            self.send(self.leader or 0)
            for node in (0, 1):
                self.process(node)
                self.deliver(node)
            if not self.queue and not len(self.sequences):
                break
        else:
            pytest.fail("the producer never came to an end")
        while self.ghosts:
            self.haunt(0)
        found = self.log.records
        assert len(found) == len(set(found)), f"written twice: {found}"
        assert all(batch.outcome is not None for batch in self.batches)
        assert self.told == sorted(self.told), f"acknowledged out of order: {self.told}"
        told = set(self.told)
        assert [name for name in found if name in told] == self.told


WORDS = [
    *["append"] * 8,
    *["send"] * 10,
    *["process"] * 8,
    *["deliver"] * 8,
    *["invalid"] * 3,
    *["unclear", "cut", "haunt"] * 2,
    *["restart", "lead", "refuse", "expire", "elsewhere"],
]
#: Nothing is refused for a reason that passes, and nothing expires: only what is invalid may fail.
PATIENT = [word for word in WORDS if word not in ("refuse", "expire", "elsewhere")]


#: Each begins with a batch that is acknowledged. Without the rule that it shows, a batch is written
#: twice (or, in the last one, an innocent batch fails).
ESTABLISHED = ["append", "send", "process", "deliver"]
TWO_IN_FLIGHT = [*ESTABLISHED, *["append"] * 2, *["send"] * 2]
TWICE = {
    "at large": [
        *[*TWO_IN_FLIGHT, "cut", "expire"],
        *["send", "process", "deliver", "haunt", "haunt"],
    ],
    "expired in flight": [
        *[*TWO_IN_FLIGHT, "expire", "cut"],
        *["send", "process", "deliver", "haunt", "haunt"],
    ],
    "forgotten": [
        *[*TWO_IN_FLIGHT, "append", "send"],
        *["unclear"] * 3,
        *["deliver"] * 3,
        *["restart", "expire"],
        *["send", "process", "deliver", "send", "refuse", "deliver"],
    ],
    "forgotten, and to be proven": [
        *TWO_IN_FLIGHT,
        *["unclear"] * 2,
        *["deliver"] * 2,
        "restart",
        *["send", "process", "deliver", "send", "refuse", "deliver"],
    ],
    "an old epoch after an append": [
        *TWO_IN_FLIGHT,
        *["unclear", "deliver", "elsewhere"],
        *["process", "deliver", "send", "process", "deliver"],
    ],
    "not decided yet": [
        *[*ESTABLISHED, "invalid", "append", "send", "send"],
        *["process", "deliver", "process", "cut"],
    ],
}


@pytest.mark.parametrize("script", TWICE.values(), ids=TWICE)
def test_no_batch_takes_a_new_sequence_while_it_may_be_in_the_log(script: list[str]) -> None:
    world = SingleRecords()
    for what in script:
        world.step(what, 0)
    world.check_the_end()


def scripts(words: list[str]) -> st.SearchStrategy[list[tuple[str, int]]]:
    return st.lists(st.tuples(st.sampled_from(words), st.integers(0, 7)), max_size=100)


@settings(max_examples=300, deadline=None)
@given(scripts(WORDS) | scripts(PATIENT))
def test_after_a_failed_batch_the_others_are_there_once_and_in_order(
    script: list[tuple[str, int]],
) -> None:
    world = SingleRecords()
    for what, number in script:
        world.step(what, number)
    world.check_the_end()


@pytest.mark.parametrize("words", [WORDS, PATIENT], ids=["whatever happens", "only invalid fail"])
def test_the_same_holds_over_many_moves(words: list[str]) -> None:
    moves = 0
    for seed in range(150):
        fate = random.Random(seed)
        world = SingleRecords()
        for _ in range(400):
            fair = ("append", "send", "send", "process", "deliver")
            world.step(fate.choice(fair if fate.random() < 0.8 else words), fate.randrange(8))
        world.check_the_end()
        moves += world.moves
    assert moves > 500
