"""What the commit log says is read whole, from the true leader, and waits for no other client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    ErrorCode,
    KafkaError,
    SupersededError,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.partitioning.murmur2 import murmur2_of
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState, Decision
from spark_kafka_sink.transactions.committer import Commit
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.fakes.fake_cluster import api_fetch, api_list_offsets
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.fakes.fake_cluster.partition_log import PartitionLog
from tests.simulation.edge_scene import EdgeScene
from tests.simulation.spark_scene import Scene, of_the_log
from tests.simulation.spark_tasks import producer_of
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, TIMEOUT_MS, Run, SparkLife

#: What a healthy step may take, in simulated milliseconds.
SOON_MS = 2_000


def log_partition(key: str) -> int:
    """Where the log keeps ``key``."""
    return (murmur2_of(key.encode()) & 0x7FFFFFFF) % 16


#: A key that has its place beside ours.
NEIGHBOUR = next(
    key
    for key in (f"neighbour{i}" for i in range(1_000))
    if log_partition(key) == log_partition(PREFIX)
)


# -- a deposed leader ------------------------------------------------------------------------------


class _DeposedLog:
    """A partition as it was, for readers."""

    def __init__(self, log: PartitionLog, end: int) -> None:
        self._log, self.end = log, end
        self.batches = [batch for batch in log.batches if batch.last_offset < end]
        self.last_stable_offset = min(end, log.last_stable_offset)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class _DeposedView:
    """The cluster as a leader sees it that doesn't know that it is deposed."""

    def __init__(self, scene: EdgeScene, logs: dict[Any, Any]) -> None:
        self._cluster = scene.cluster
        self.logs = {**scene.cluster.logs, **logs}

    def log_at(self, _: int, tp: Any) -> Any:
        return self.logs.get(tp)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


@contextmanager
def deposed(scene: EdgeScene, ends: dict[Any, int]) -> Iterator[list[int]]:
    """Readers of the log's topic meet a broker that is cut off from its peers, and answers with the
    high watermarks ``ends``, until a Produce was refused there: then metadata is fresh. The list
    gets an entry for each request that was answered so.
    """
    answered: list[int] = []
    view = _DeposedView(
        scene, {tp: _DeposedLog(scene.cluster.logs[tp], e) for tp, e in ends.items()}
    )
    refused = scene.cluster.control.answer(
        ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, topic=LOG_TOPIC
    )

    def through(handle: Callable[..., Any]) -> Callable[..., Any]:
        def handler(cluster: Any, node: int, request: Request) -> Any:
            if refused.fired:
                return handle(cluster, node, request)
            answered.append(request.api)
            return handle(view, node, request)

        return handler

    with (
        patch.object(api_fetch, "handle", through(api_fetch.handle)),
        patch.object(api_list_offsets, "handle", through(api_list_offsets.handle)),
    ):
        yield answered
    scene.cluster.control.clear()


@pytest.mark.parametrize("version", [1, 2])
def test_reading_at_a_deposed_leader_doubles_no_batch(version: int) -> None:
    """The driver before decided batch 1 at the new leader and died before Spark noted it."""
    told: list[object] = []

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        scene.scheduler.sleep(1_000)
        ends = {tp: log.end for tp, log in scene.cluster.logs.items() if tp.topic == LOG_TOPIC}
        scene.batch(run, 1)
        scene.scheduler.sleep(1_000)
        run.process.kill()
        again = scene.run("run-1")
        with deposed(scene, ends) as answered:
            try:
                told.append(scene.batch(again, 1))
            except KafkaError as error:
                told.append(error)
        assert answered
        if told[0] is not Commit.ALREADY_DONE:
            assert scene.batch(scene.run("run-2"), 1) is Commit.ALREADY_DONE
        assert scene.batch(scene.run("run-3"), 2) is Commit.COMMITTED
        assert scene.open_ids() == []

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert told[0] is not Commit.COMMITTED
    assert scene.batches() == {0, 1, 2}  # each row once


@pytest.mark.parametrize("version", [1, 2])
def test_a_superseded_driver_stops_also_at_a_deposed_leader(
    version: int,
) -> None:
    def play(scene: EdgeScene) -> None:
        old, new = scene.run("run-0"), scene.run("run-1")
        scene.batch(old, 0)
        plan_old = scene.plan(old)
        ends = {tp: log.end for tp, log in scene.cluster.logs.items() if tp.topic == LOG_TOPIC}
        assert scene.batch(new, 1) is Commit.COMMITTED
        messages_old = scene.write(old, 1, plan_old)  # its tasks were slow
        with deposed(scene, ends) as answered, pytest.raises(SupersededError, match="run run-1"):
            scene.commit(old, 1, plan_old, messages_old)
        assert answered
        assert scene.batch(new, 2) is Commit.COMMITTED

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1, 2}


def _ends(scene: EdgeScene) -> dict[Any, int]:
    return {tp: log.end for tp, log in scene.cluster.logs.items() if tp.topic == LOG_TOPIC}


@pytest.mark.parametrize("known", ["nothing", "another owner", "an older batch"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_at_a_deposed_leader_is_not_refused(version: int, known: str) -> None:
    """What it doesn't know there is neither lost, nor another run's, nor left out."""

    def play(scene: EdgeScene) -> None:
        old, run = scene.run("run-0"), scene.run("run-1")
        ends: dict[Any, int] = {}
        for number in range(2):
            scene.batch(old if number == 0 else run, number)
            scene.scheduler.sleep(1_000)
            if number == 0 or known == "an older batch":
                ends = _ends(scene)
        last = scene.batch(run, 2)
        assert last is Commit.COMMITTED
        plan = scene.plan(run)
        messages = scene.write(run, 3, plan)
        with deposed(scene, dict.fromkeys(ends, 0) if known == "nothing" else ends) as answered:
            assert scene.commit(run, 3, plan, messages) is Commit.COMMITTED
        assert answered
        assert scene.open_ids() == []

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1, 2, 3}


@pytest.mark.parametrize("version", [1, 2])
def test_a_stream_that_starts_at_a_deposed_leader_goes_on(version: int) -> None:
    """The state that planning reads there is older: that no batch is left out is for the commit."""

    def play(scene: EdgeScene) -> None:
        scene.batch(scene.run("run-0"), 0)
        scene.scheduler.sleep(1_000)
        ends = _ends(scene)
        scene.batch(scene.run("run-0"), 1)
        scene.batch(scene.run("run-0"), 2)
        with deposed(scene, ends) as answered:
            assert scene.batch(scene.run("run-1"), 3) is Commit.COMMITTED
        assert answered

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1, 2, 3}


def _write(scene: EdgeScene, key: str, change: Callable[[CommitState], CommitState]) -> None:
    """Change the state of ``key``, as an operator does."""
    with scene.driver_side(scene.run("operator")) as driver:
        session = CommitLog(driver.client, LOG_TOPIC).open(key, driver.client.deadline())
        session.write(change(session.state), driver.client.deadline())
    scene.scheduler.sleep(1_000)


@pytest.mark.parametrize("is_partial", [False, True])
@pytest.mark.parametrize("version", [1, 2])
def test_a_plan_at_a_deposed_leader_is_not_refused(version: int, is_partial: bool) -> None:
    """There a batch that is resolved is PARTIAL, or decided with ids that have other transactions
    since.
    """

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        one = PreparedTransaction(f"{PREFIX}~run-0~g1.0123~0", 4711, 0, version)
        _write(scene, PREFIX, lambda state: state.decided(Decision(1, (one,))))
        if is_partial:
            _write(scene, PREFIX, lambda state: state.partly_lost([one.transactional_id]))
        ends = _ends(scene)
        _write(scene, PREFIX, lambda state: state.resolved(done=True))
        with deposed(scene, ends) as answered:
            assert scene.plan(scene.run("run-1")).state.last_done == 1
        assert answered

    EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))


@pytest.mark.parametrize("version", [1, 2])
def test_a_job_at_a_deposed_leader_is_not_refused(version: int) -> None:
    """There its key has the versions of before an operator's reset."""

    def play(scene: EdgeScene) -> None:
        def job(number: int) -> None:
            options = scene.options(txnAppId="nightly", txnVersion=number)
            scene.job(scene.run(f"run-{number}"), options, number)

        job(1)
        job(9)
        scene.scheduler.sleep(1_000)
        ends = _ends(scene)
        _write(scene, f"{PREFIX}~nightly", CommitState.forgotten)
        with deposed(scene, ends) as answered:
            job(3)
        assert answered

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {1, 3, 9}


@pytest.mark.parametrize("version", [1, 2])
def test_a_log_that_is_lost_is_refused_and_stays_empty(version: int) -> None:
    """The write that shows that it is lost is aborted."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        plan = scene.plan(run)
        messages = scene.write(run, 1, plan)
        scene.cluster.delete_topic(LOG_TOPIC)
        with pytest.raises(CommitError, match="has lost the state of 'orders'"):
            scene.commit(run, 1, plan, messages)
        assert scene.plan(run).state.generation == 0

    EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))


# -- strangers -------------------------------------------------------------------------------------


def begin_as_neighbour(scene: EdgeScene, run: Run) -> None:
    """A driver of another key in our partition of the log dies in the middle of its decision."""

    def write() -> None:
        config = replace(
            scene.config("neighbour"),
            transactional_id=log_id(NEIGHBOUR),
            transaction_timeout_ms=30_000,
        )
        producer = producer_of(run.process, config)
        producer.init_transactions()
        producer.begin_transaction()
        record = ProducerRecord(LOG_TOPIC, b"{}", NEIGHBOUR.encode(), log_partition(NEIGHBOUR))
        producer.send(record)
        producer.flush()

    turn = run.process.start(write, "commit")
    scene.scheduler.block(lambda: turn.done, NEVER)
    run.process.kill()
    (log,) = (
        log
        for tp, log in scene.cluster.logs.items()
        if (tp.topic, tp.partition) == (LOG_TOPIC, log_partition(PREFIX))
    )
    assert log.last_stable_offset < log.end


@pytest.mark.parametrize("version", [1, 2])
def test_a_neighbours_open_transaction_in_the_log_delays_no_one(version: int) -> None:
    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        begin_as_neighbour(scene, scene.run("neighbour"))
        for step in (
            lambda: scene.plan(run),
            lambda: scene.batch(run, 1),
            lambda: scene.abort(run, 2, *_written(scene, run, 2)),
            lambda: scene.batch(scene.run("run-1"), 2),
        ):
            begun = scene.scheduler.now
            step()
            assert scene.scheduler.now - begun < SOON_MS

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1, 2}


def _written(scene: EdgeScene, run: Run, number: int) -> tuple[Any, Any]:
    plan = scene.plan(run)
    return plan, scene.write(run, number, plan)


# -- a write whose end is not clear ----------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_a_log_write_with_lost_answers_is_settled_in_the_commit(
    version: int,
) -> None:
    """The log's EndTxn is done, its answers are lost for longer than max.block.ms."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        plan = scene.plan(run)
        messages = scene.write(run, 1, plan)
        lost = scene.cluster.control.drop(ApiKey.END_TXN, FOREVER, where=of_the_log)
        scene.timeline.after(22_000, scene.cluster.control.clear)
        assert scene.commit(run, 1, plan, messages) is Commit.COMMITTED
        assert lost.fired
        assert scene.batch(run, 2) is Commit.COMMITTED

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1, 2}


@pytest.mark.parametrize("version", [1, 2])
def test_a_decision_answered_not_coordinator_is_unclear(
    version: int,
) -> None:
    """A coordinator that loses its partition after the append says NOT_COORDINATOR, and the record
    survives the fail-over.
    """

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        plan = scene.plan(run)
        messages = scene.write(run, 1, plan)
        moved = scene.cluster.control.answer(
            ApiKey.END_TXN, ErrorCode.NOT_COORDINATOR, FOREVER, where=of_the_log, processed=True
        )
        scene.timeline.after(40_000, scene.cluster.control.clear)
        with suppress(CommitOutcomeUnknownError):  # and no other error
            assert scene.commit(run, 1, plan, messages) is not Commit.EMPTY
        assert moved.fired
        scene.scheduler.sleep(TIMEOUT_MS)
        scene.abort(run, 1, plan, messages)
        again = scene.run("run-1")
        assert scene.plan(again).state.last_done == 1

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1}


@pytest.mark.parametrize("away_ms", [10_000, 25_000, 40_000])
@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_waits_for_a_log_below_min_insync_replicas(
    version: int, away_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Scene.config

    def config(self: Scene, client_id: str) -> ProducerConfig:
        here = given(self, client_id)
        return replace(here, max_block_ms=60_000, transaction_timeout_ms=900_000)  # as shipped

    monkeypatch.setattr(Scene, "config", config)

    def play(scene: EdgeScene) -> None:
        scene.batch(scene.run("run-0"), 0)
        run = scene.run("run-1")
        plan = scene.plan(run)
        messages = scene.write(run, 1, plan)
        logs = [log for tp, log in scene.cluster.logs.items() if tp.topic == LOG_TOPIC]
        for log in logs:
            log.min_isr, log.isr = 2, {log.leader}

        def back() -> None:
            for log in logs:
                log.isr = set(log.replicas)

        scene.timeline.after(away_ms, back)
        assert scene.commit(run, 1, plan, messages) is Commit.COMMITTED

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1}


# -- the topic of the log --------------------------------------------------------------------------


def test_a_query_whose_commit_log_was_deleted_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Under a query that runs: what protects it from doubling a batch is gone."""
    told: list[str] = []

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        for number in range(3):
            scene.batch(run, number)
        scene.cluster.delete_topic(LOG_TOPIC)
        caplog.clear()
        try:
            scene.batch(run, 3)
        except KafkaError as error:
            told.append(error.message)

    EdgeScene.of(play)
    told += [r.getMessage() for r in caplog.records if r.levelname in ("WARNING", "ERROR")]
    assert any(f"'{PREFIX}'" in text and "commit log" in text for text in told), told


@pytest.mark.parametrize("code", [ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION])
def test_a_plain_compacted_log_is_created_where_configs_fail(
    code: ErrorCode,
) -> None:
    """Managed clusters allow no small segments."""

    def with_segments(request: Request) -> bool:
        return any("segment" in c.name for topic in request.body.topics for c in topic.configs)

    def play(scene: EdgeScene) -> None:
        refused = scene.cluster.control.answer(
            ApiKey.CREATE_TOPICS, code, FOREVER, where=with_segments
        )
        assert scene.batch(scene.run("run-0"), 0) is Commit.COMMITTED
        assert refused.fired
        assert scene.cluster.topics[LOG_TOPIC].configs["cleanup.policy"] == "compact"

    scene = EdgeScene.of(play)
    assert scene.batches() == {0}


@pytest.mark.parametrize("version", [1, 2])
def test_an_abort_at_a_deposed_leader_ends_nothing_decided(version: int) -> None:
    """There the log is behind the abort's own plan: its run has not taken over yet."""

    def play(scene: EdgeScene) -> None:
        scene.batch(scene.run("run-0"), 0)
        scene.scheduler.sleep(1_000)
        ends = {tp: log.end for tp, log in scene.cluster.logs.items() if tp.topic == LOG_TOPIC}
        run = scene.run("run-1")
        scene.batch(run, 1)
        plan = scene.plan(run)
        messages = scene.write(run, 2, plan)
        scene.decides_and_dies(run, 2, plan, messages)
        with deposed(scene, ends) as answered:
            assert scene.abort(scene.run("run-1"), 2, plan, messages) == ()
        assert answered
        assert len(scene.open_ids()) == 2
        assert scene.batch(scene.run("run-2"), 2) is Commit.ALREADY_DONE

    assert EdgeScene.of(play, SparkLife(1, tasks=2, transaction_version=version)).batches() == {
        0,
        1,
        2,
    }
