"""The sender, transaction after transaction, over brokers and a coordinator that fail by seeds.

At the end of every life: what a commit that returned wrote is committed, each record once and in
order; nothing else is; no partition has a transaction open.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.transaction_manager import State
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.fakes.sender_world import TP0, TP1, TP2, cluster_of
from tests.fakes.simulated_transactions import Record, SimulatedTransactions
from tests.fakes.transaction_world import TransactionWorld

TPS = (TP0, TP1, TP2)


class Life:
    """One producer; ``expected`` holds what was committed, by what its batches were sent as."""

    def __init__(self, seed: int, version: int, *, verifies: bool, short: bool) -> None:
        self.fate = random.Random(-seed)
        times = {"delivery_timeout_ms": 400, "request_timeout_ms": 300} if short else {}
        self.world = TransactionWorld(
            version, linger_ms=0, **({"delivery_timeout_ms": 10**8} | times)
        )
        world = self.world
        self.brokers = SimulatedTransactions(
            world.clock, world.metadata, cluster_of([1, 1, 2]), seed, version, verifies=verifies
        )
        world.replace_client(self.brokers)
        self.expected: dict[TopicPartition, list[Record]] = {tp: [] for tp in TPS}
        self.ends: Counter[str] = Counter()

    def rounds(self, until: object, most: int = 20_000) -> None:
        for _ in range(most):
            if until():  # type: ignore[operator]
                return
            self.world.round()
            if self.world.sender.fatal_error is not None:
                raise self.world.sender.fatal_error
        raise AssertionError(f"it never ends: {self.world.state}")

    def end(self, *, commit: bool) -> None:
        manager = self.world.manager
        result = manager.begin_commit() if commit else manager.begin_abort()
        self.rounds(lambda: result.is_completed)
        result.await_(self.world.clock, NEVER)

    def transaction(self) -> None:
        world, manager, fate = self.world, self.world.manager, self.fate
        manager.begin_transaction()
        batches: list[ProducerBatch] = []
        try:
            for _ in range(fate.randint(0, 12)):
                batches.append(world.send(fate.choice(TPS), fate.randint(1, 6)))
                for _ in range(fate.randint(0, 3)):
                    world.round()
                    if world.sender.fatal_error is not None:
                        raise world.sender.fatal_error
            if fate.random() < 0.3:
                self.end(commit=False)
                self.ends["aborted"] += 1
                return
            self.end(commit=True)
        except KafkaError:
            if world.state is not State.ABORTABLE_ERROR:
                raise
            self.ends["failed"] += 1
            self.end(commit=False)
            return
        self.ends["committed"] += 1
        count: Counter[TopicPartition] = Counter()
        epochs = {batch.producer_epoch for batch in batches}
        assert len(epochs) <= 1
        for batch in batches:
            # A split batch ends in pieces that we don't see; what they cover we know.
            assert batch.error is None
            count[batch.tp] += batch.record_count
        for tp, records in count.items():
            self.expected[tp] += [(min(epochs), sequence) for sequence in range(records)]

    def live(self, transactions: int) -> None:
        init = self.world.manager.initialize_transactions()
        self.rounds(lambda: init.is_completed)
        self.world.check_done(init)
        for _ in range(transactions):
            self.transaction()
        self.brokers.calm = True
        self.rounds(lambda: not self.brokers.coordinator.state.startswith("prepare"))
        for _ in range(20):
            self.brokers.work_on_everything_late()
        for tp, log in self.brokers.transactions.items():
            assert not log.open, f"{tp} has an open transaction: {log.open}"
            assert log.committed == self.expected[tp]
        assert self.world.memory_in_use == 0


def lives(seeds: range, version: int, *, verifies: bool, short: bool) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        life = Life(seed, version, verifies=verifies, short=short)
        try:
            life.live(8)
        except BaseException as error:
            error.add_note(f"seed {seed}, version {version}, short {short}")
            raise
        seen.update(life.brokers.faults)
        seen.update(life.ends)
    return seen


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("short", [False, True], ids=["patient", "batches expire"])
def test_what_is_committed_is_there_and_nothing_else_ever_is(version: int, short: bool) -> None:
    seen = lives(range(40), version, verifies=True, short=short)
    for fault in (
        *("cut", "leader moves", "restart", "coordinator moves", "coordinator loads"),
        *("refused for good", "late", "a dead connection's request is worked on"),
        *("committed", "aborted", "failed"),
    ):
        assert seen[fault] > 0, fault


def test_brokers_that_verify_nothing_are_left_no_open_transaction() -> None:
    """Before Kafka 3.6: only the fence keeps a late batch from opening one (exactly-once.md)."""
    seen = lives(range(60), 1, verifies=False, short=True)
    assert seen["failed"] > 0
    assert seen["a dead connection's request is worked on"] > 0
