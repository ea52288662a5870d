"""A batch's report in the decision of its batch: there if and only if the batch is, and once."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import ApiError, CommitError, ErrorCode
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_state import Payload
from spark_kafka_sink.transactions.driver_transactions import TopicRecord, write_record
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.ownership import Owner
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.real_kafka import RealKafka, consume_topic
from tests.simulation.scene import Scene, scene_of
from tests.waiting import PATIENCE

KEY = "p"
REPORTS = "reports"
#: Requests of one commit with one task's transaction, and some.
MOST_REQUESTS = 60


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def scene(scene: Scene) -> Scene:
    scene.cluster.create_topic(REPORTS, 1)
    return scene


def owner(driver: ExactlyOnceDriver, run: str) -> Owner:
    """As planned now."""
    state = driver.plan(KEY)
    return Owner(KEY, run, "query", state.generation)


def batch(scene: Scene, run: str, report: bytes, number: int = 0, value: str = "a") -> Batch:
    prepared = scene.prepared(f"{KEY}~{run}~g0.w{number}~0", value)
    record = TopicRecord(REPORTS, report)
    return Batch(number, (prepared,), Payload(1, 1, "t"), report=record)


def reports(scene: Scene, *, committed: bool = True) -> list[bytes | None]:
    """As consumers read them once the markers are there, of decided batches or of all."""
    scene.scheduler.sleep(200)
    return scene.cluster.logs[TopicPartition(REPORTS, 0)].values(committed=committed)


def commit_until_killed(scene: Scene, mine: Owner, first: Batch, requests: int) -> bool:
    """Whether the commit was over before its process was killed at its next request after these."""
    run, left = scene.run("killed"), iter(range(requests))

    def sends(_: Request) -> None:
        if next(left, None) is None:
            run.process.kill()
            scene.wait(lambda: False)

    run.process.before_send.append(sends)
    driver = scene.driver(run)
    commit, ends = scene.beside(run.process, lambda: driver.commit(mine, first))
    scene.wait(lambda: commit.done)
    if run.process.dead:
        return False
    assert ends == [Commit.COMMITTED]
    driver.close()
    return True


def test_each_batch_has_its_report_and_a_replay_has_none(scene: Scene) -> None:
    with scene.driver() as driver:
        for number, value in enumerate("abc"):
            mine = owner(driver, "run")
            written = batch(scene, "run", f"report {value}".encode(), number, value)
            assert driver.commit(mine, written) is Commit.COMMITTED
        mine = owner(driver, "run")
        again = batch(scene, "run", b"report again", 2, "c")
        assert driver.commit(mine, again) is Commit.ALREADY_DONE
    assert scene.values() == ["a", "b", "c"]
    assert reports(scene) == [b"report a", b"report b", b"report c"]


def test_a_commit_that_waits_for_a_leader_has_one_report(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An abort of the first one would lose its marker: the second one's would commit both."""
    cluster, tp = scene.cluster, TopicPartition(REPORTS, 0)
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
    with scene.driver() as driver:
        mine = owner(driver, "run")
        written = batch(scene, "run", b"report a")
        assert driver.commit(mine, written) is Commit.COMMITTED
    assert looked[-1] - looked[0] >= 4_000
    assert scene.values() == ["a"]
    assert reports(scene) == [b"report a"]


def test_a_search_for_an_id_ends_and_a_new_run_commits(scene: Scene) -> None:
    """A broker that shows each id of a run's reports as used."""

    def of_its_report(request: Request) -> bool:
        ids = getattr(request.body, "transactional_ids", ())
        return any("~run~" in i and ".report" in i for i in ids)

    final = ErrorCode.INVALID_REQUEST
    fault = scene.control.answer(ApiKey.DESCRIBE_TRANSACTIONS, final, FOREVER, where=of_its_report)
    with scene.driver() as driver, pytest.raises(CommitError, match="as used and not committed"):
        driver.commit(owner(driver, "run"), batch(scene, "run", b"report a"))
    assert fault.fired >= 10
    assert scene.values() == []
    with scene.driver() as driver:
        mine = owner(driver, "new")
        assert driver.commit(mine, batch(scene, "new", b"report b")) is Commit.COMMITTED
    assert reports(scene) == [b"report b"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_killed_at_any_request_leaves_one_report(version: int) -> None:
    """Behind DECIDED it is the report of the dead driver, before it that of the next attempt."""
    whose: list[bytes | None] = []

    def life(requests: int) -> bool:
        scene = scene_of(version)
        scene.cluster.create_topic(REPORTS, 1)

        def body() -> bool:
            with scene.driver() as planning:
                mine = owner(planning, "run")
            is_over = commit_until_killed(scene, mine, batch(scene, "run", b"first"), requests)
            with scene.driver() as later:
                mine = owner(later, "run-2")
                if later.plan(KEY).last_done < 0:
                    again = batch(scene, "run-2", b"again")
                    assert later.commit(mine, again) is Commit.COMMITTED
            assert scene.values() == ["a"]
            (told,) = reports(scene)
            whose.append(told)
            return is_over

        return scene.perform(body)

    lives = next(n for n in range(MOST_REQUESTS) if life(n))
    killed = whose[:lives]
    assert killed == sorted(killed), "first 'again', and from the decision on 'first'"
    assert {b"again", b"first"} <= set(killed), "deaths on both sides of the decision"


def test_a_batch_that_is_not_decided_has_no_report(scene: Scene) -> None:
    with scene.driver() as driver:
        mine = owner(driver, "run")
        written = batch(scene, "run", b"first")
        commit_until_killed(scene, mine, written, requests=20)
        assert reports(scene, committed=False) == [b"first"]
        driver.abort(mine, 0, written.transactions, tasks_may_run=False)
    assert scene.values() == []
    assert reports(scene) == []


def test_a_record_by_itself_is_visible_at_once(scene: Scene) -> None:
    with scene.driver() as driver:
        write_record(driver.client, TopicRecord(REPORTS, b"failed"), driver.client.deadline())
    assert reports(scene) == [b"failed"]


@pytest.mark.broker
def test_a_broker_takes_both_kinds_and_a_missing_topic_fails(kafka: RealKafka) -> None:
    given = {"bootstrap.servers": kafka.bootstrap, "max.block.ms": int(2_000 * PATIENCE)}
    config = parse_producer_config(given)
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
