"""A batch's report in the decision of its batch: there if and only if the batch is, and once."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import ApiError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_state import Payload
from spark_kafka_sink.transactions.driver_transactions import TopicRecord, write_record
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.ownership import Owner
from spark_kafka_sink.transactions.results import Commit
from tests.real_kafka import RealKafka, consume_topic
from tests.transactions.committing_world import LOG_TOPIC, CommittingWorld

KEY = "p"
REPORTS = "reports"
#: Requests of one commit with one task's transaction, and some.
MOST_REQUESTS = 60
pytestmark = pytest.mark.simulated


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def world(request: pytest.FixtureRequest) -> CommittingWorld:
    return new_world(request.param)


def new_world(version: int) -> CommittingWorld:
    found = CommittingWorld(transaction_version=version)
    found.cluster.create_topic(REPORTS, 1)
    return found


def owner(driver: ExactlyOnceDriver, run: str) -> Owner:
    """As planned now."""
    state = driver.plan(KEY)
    return Owner(KEY, run, "query", state.generation)


def batch(
    world: CommittingWorld, run: str, report: bytes, number: int = 0, value: str = "a"
) -> Batch:
    prepared = world.prepared(f"{KEY}~{run}~g0.w{number}~0", value)
    record = TopicRecord(REPORTS, report)
    return Batch(number, (prepared,), Payload(1, 1, "t"), report=record)


def reports(world: CommittingWorld) -> list[bytes | None]:
    """To consumers that read committed, once the markers are there."""
    world.scheduler.sleep(200)
    return world.cluster.logs[TopicPartition(REPORTS, 0)].values(committed=True)


class KilledError(BaseException):
    """The driver's process is gone: nothing handles it, and nothing is sent any more."""


class DyingClient:
    """A network client whose process is killed instead of sending the request after ``left``."""

    def __init__(self, client: Any, left: int) -> None:
        self._client = client
        self._left = left

    def send(self, request: Any, now: int) -> None:
        if self._left == 0:
            raise KilledError
        self._left -= 1
        self._client.send(request, now)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def commit_until_killed(world: CommittingWorld, mine: Owner, first: Batch, requests: int) -> bool:
    """Whether the commit was over before."""

    def new_client(config: ProducerConfig, metadata: Any, clock: Any) -> Any:
        return DyingClient(world.new_client(config, metadata, clock), requests)

    driver = ExactlyOnceDriver(
        world.config, LOG_TOPIC, clock=world.scheduler, new_client=new_client
    )
    try:
        assert driver.commit(mine, first) is Commit.COMMITTED
    except KilledError:
        return False
    driver.close()
    return True


def test_each_batch_has_its_report_and_a_replay_has_none(world: CommittingWorld) -> None:
    with world.driver() as driver:
        for number, value in enumerate("abc"):
            mine = owner(driver, "run")
            written = batch(world, "run", f"report {value}".encode(), number, value)
            assert driver.commit(mine, written) is Commit.COMMITTED
        mine = owner(driver, "run")
        again = batch(world, "run", b"report again", 2, "c")
        assert driver.commit(mine, again) is Commit.ALREADY_DONE
    assert world.visible() == ["a", "b", "c"]
    assert reports(world) == [b"report a", b"report b", b"report c"]


def test_a_commit_that_waits_for_a_leader_has_one_report(
    world: CommittingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An abort of the first one would lose its marker: the second one's would commit both."""
    cluster, tp = world.cluster, TopicPartition(REPORTS, 0)
    cluster.drops_markers = True
    looked: list[int] = []
    leaderless = TransactionClient.leaderless

    def lost_before(client: TransactionClient, *given: Any, **more: Any) -> Any:
        looked.append(cluster.now)
        if len(looked) == 1:
            leader = cluster.logs[tp].leader
            cluster.move_leader(tp, -1)
            cluster.at(cluster.now + 4_000, lambda: cluster.move_leader(tp, leader))
        return leaderless(client, *given, **more)

    monkeypatch.setattr(TransactionClient, "leaderless", lost_before)
    with world.driver() as driver:
        mine = owner(driver, "run")
        written = batch(world, "run", b"report a")
        assert driver.commit(mine, written) is Commit.COMMITTED
    assert looked[-1] - looked[0] >= 4_000
    assert world.visible() == ["a"]
    assert reports(world) == [b"report a"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_killed_at_any_request_leaves_one_report(version: int) -> None:
    """Behind DECIDED it is the report of the dead driver, before it that of the next attempt."""
    whose: list[bytes | None] = []

    def life(requests: int) -> bool:
        world = new_world(version)
        over: list[bool] = []

        def body() -> None:
            with world.driver() as planning:
                mine = owner(planning, "run")
            over.append(commit_until_killed(world, mine, batch(world, "run", b"first"), requests))
            with world.driver() as later:
                mine = owner(later, "run-2")
                if later.plan(KEY).last_done < 0:
                    again = batch(world, "run-2", b"again")
                    assert later.commit(mine, again) is Commit.COMMITTED
            assert world.visible() == ["a"]
            (told,) = reports(world)
            whose.append(told)

        world.run(body)
        return over[0]

    lives = next(n for n in range(MOST_REQUESTS) if life(n))
    killed = whose[:lives]
    assert killed == sorted(killed), "first 'again', and from the decision on 'first'"
    assert {b"again", b"first"} <= set(killed), "deaths on both sides of the decision"


def test_a_batch_that_is_not_decided_has_no_report(world: CommittingWorld) -> None:
    with world.driver() as driver:
        mine = owner(driver, "run")
        written = batch(world, "run", b"first")
        commit_until_killed(world, mine, written, requests=12)
        driver.abort(mine, 0, written.transactions, tasks_may_run=False)
    assert world.visible() == []
    assert reports(world) == []


def test_a_record_by_itself_is_visible_at_once(world: CommittingWorld) -> None:
    with world.driver() as driver:
        write_record(driver.client, TopicRecord(REPORTS, b"failed"), driver.client.deadline())
    assert reports(world) == [b"failed"]


@pytest.mark.broker
def test_a_broker_takes_both_kinds_and_a_missing_topic_fails(kafka: RealKafka) -> None:
    config = ProducerConfig.parse({"bootstrap.servers": kafka.bootstrap, "max.block.ms": "2000"})
    topic = kafka.unique_topic("reports", 1)
    key = topic.replace("-", "")
    with ExactlyOnceDriver(config, "__kprod_commits") as driver:
        for number in (0, 1):
            state = driver.plan(key)
            mine = Owner(key, "run", "query", state.generation)
            record = TopicRecord(topic, f"batch {number}".encode())
            assert driver.commit(mine, Batch(number, (), Payload(), report=record))
            write_record(driver.client, TopicRecord(topic, b"alone"), driver.client.deadline())
        state = driver.plan(key)
        mine = Owner(key, "run", "query", state.generation)
        missing = TopicRecord(f"{topic}-missing", b"")
        with pytest.raises((ApiError, TimeoutError)):
            driver.commit(mine, Batch(2, (), Payload(), report=missing))
        driver.abort(mine, 2, (), tasks_may_run=False)
    told = consume_topic(kafka.bootstrap, topic).values
    assert sorted(told) == [b"alone", b"alone", b"batch 0", b"batch 1"]
