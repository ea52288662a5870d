"""What the commit log says is read whole, from the true leader, and waits for no other client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from spark_kafka_sink.base.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    ErrorCode,
    KafkaError,
    SupersededError,
)
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.partitioning.murmur2 import murmur2_of
from spark_kafka_sink.transactions.commit_state import Decision
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.fakes.fake_cluster import api_fetch, api_list_offsets
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.fakes.fake_cluster.partition_log import PartitionLog
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.scene_requests import of_the_log
from tests.simulation.spark_tasks import producer_of
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, TIMEOUT_MS, Run

pytestmark = VERSIONS
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

    def __init__(self, scene: Scene, logs: dict[Any, Any]) -> None:
        self._cluster = scene.cluster
        self.logs = {**scene.cluster.logs, **logs}

    def log_at(self, _: int, tp: Any) -> Any:
        return self.logs.get(tp)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


@contextmanager
def deposed(scene: Scene, ends: dict[Any, int]) -> Iterator[list[int]]:
    """Readers of the log's topic meet a broker that is cut off from its peers, and answers with the
    high watermarks ``ends``, until a Produce was refused there: then metadata is fresh. The list
    gets an entry for each request that was answered so.
    """
    answered: list[int] = []
    view = _DeposedView(
        scene, {tp: _DeposedLog(scene.cluster.logs[tp], e) for tp, e in ends.items()}
    )
    refused = scene.control.answer(
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
    scene.control.clear()


def ends_of_the_log(scene: Scene) -> dict[Any, int]:
    """Of each partition, once the markers are there."""
    scene.scheduler.sleep(1_000)
    return {tp: log.end for tp, log in scene.cluster.logs.items() if tp.topic == LOG_TOPIC}


def test_reading_at_a_deposed_leader_doubles_no_batch(scene: Scene) -> None:
    """The driver before decided batch 1 at the new leader and died before Spark noted it."""
    run, again = scene.run("run-0"), scene.run("run-1")
    scene.batch(run, 0)
    ends = ends_of_the_log(scene)
    scene.batch(run, 1)
    scene.scheduler.sleep(1_000)
    run.process.kill()
    with deposed(scene, ends) as answered:
        (how,) = scene.at_once(again, lambda: scene.batch(again, 1))
    assert answered
    assert how is not Commit.COMMITTED
    if how is not Commit.ALREADY_DONE:
        assert scene.batch(scene.run("run-2"), 1) is Commit.ALREADY_DONE
    assert scene.batch(scene.run("run-3"), 2) is Commit.COMMITTED
    assert scene.open_ids() == []
    scene.ends_with(0, 1, 2)


def test_a_superseded_driver_stops_also_at_a_deposed_leader(scene: Scene) -> None:
    old, new = scene.run("run-0"), scene.run("run-1")
    scene.batch(old, 0)
    plan = scene.plan(old)
    ends = ends_of_the_log(scene)
    assert scene.batch(new, 1) is Commit.COMMITTED
    messages = scene.write(old, 1, plan)  # its tasks were slow
    with deposed(scene, ends) as answered, pytest.raises(SupersededError, match="run run-1"):
        scene.commit(old, 1, plan, messages)
    assert answered
    assert scene.batch(new, 2) is Commit.COMMITTED
    scene.ends_with(0, 1, 2)


@pytest.mark.parametrize("known", ["nothing", "another owner", "an older batch"])
def test_a_commit_at_a_deposed_leader_is_not_refused(scene: Scene, known: str) -> None:
    """What it doesn't know there is neither lost, nor another run's, nor left out."""
    old, run = scene.run("run-0"), scene.run("run-1")
    ends: dict[Any, int] = {}
    for number in range(2):
        scene.batch(old if number == 0 else run, number)
        if number == 0 or known == "an older batch":
            ends = ends_of_the_log(scene)
    assert scene.batch(run, 2) is Commit.COMMITTED
    written = scene.written(run, 3)
    with deposed(scene, dict.fromkeys(ends, 0) if known == "nothing" else ends) as answered:
        assert scene.commit(*written) is Commit.COMMITTED
    assert answered
    assert scene.open_ids() == []
    scene.ends_with(0, 1, 2, 3)


def test_a_stream_that_starts_at_a_deposed_leader_goes_on(scene: Scene) -> None:
    """The state that planning reads there is older: that no batch is left out is for the commit."""
    scene.batch(scene.run("run-0"), 0)
    ends = ends_of_the_log(scene)
    scene.batch(scene.run("run-0"), 1)
    scene.batch(scene.run("run-0"), 2)
    with deposed(scene, ends) as answered:
        assert scene.batch(scene.run("run-1"), 3) is Commit.COMMITTED
    assert answered
    scene.ends_with(0, 1, 2, 3)


@pytest.mark.parametrize("is_partial", [False, True])
def test_a_plan_at_a_deposed_leader_is_not_refused(
    scene: Scene, version: int, is_partial: bool
) -> None:
    """There a batch that is resolved is PARTIAL, or decided with ids that have other transactions
    since.
    """
    run = scene.run("run-0")
    scene.batch(run, 0)
    one = PreparedTransaction(f"{PREFIX}~run-0~g1.0123~0", 4711, 0, version)
    scene.change_log(PREFIX, lambda state: state.decided(Decision(1, (one,))))
    if is_partial:
        scene.change_log(PREFIX, lambda state: state.partly_lost([one.transactional_id]))
    ends = ends_of_the_log(scene)
    scene.change_log(PREFIX, lambda state: state.resolved(done=True))
    with deposed(scene, ends) as answered:
        assert scene.plan(scene.run("run-1")).state.last_done == 1
    assert answered


def test_a_job_at_a_deposed_leader_is_not_refused(scene: Scene) -> None:
    """There its key has the versions of before an operator's reset."""
    scene.version_of_job(scene.run("run-1"), 1)
    scene.version_of_job(scene.run("run-9"), 9)
    ends = ends_of_the_log(scene)
    scene.change_log(f"{PREFIX}~app", lambda state: state.forgotten(1))
    with deposed(scene, ends) as answered:
        scene.version_of_job(scene.run("run-3"), 3)
    assert answered
    scene.ends_with(1, 3, 9)


def test_a_log_that_is_lost_is_refused_and_stays_empty(scene: Scene) -> None:
    """The write that shows that it is lost is aborted."""
    written = scene.second_batch()
    scene.cluster.delete_topic(LOG_TOPIC)
    with pytest.raises(CommitError, match="has lost the state of 'orders'"):
        scene.commit(*written)
    assert scene.plan(written.run).state.generation == 0


# -- strangers -------------------------------------------------------------------------------------


def begin_as_neighbour(scene: Scene, run: Run) -> None:
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
    scene.wait(lambda: turn.done)
    run.process.kill()
    (log,) = (
        log
        for tp, log in scene.cluster.logs.items()
        if (tp.topic, tp.partition) == (LOG_TOPIC, log_partition(PREFIX))
    )
    assert log.last_stable_offset < log.end


def test_a_neighbours_open_transaction_in_the_log_delays_no_one(scene: Scene) -> None:
    run = scene.run("run-0")
    scene.batch(run, 0)
    begin_as_neighbour(scene, scene.run("neighbour"))
    for step in (
        lambda: scene.plan(run),
        lambda: scene.batch(run, 1),
        lambda: scene.abort(*scene.written(run, 2)),
        lambda: scene.batch(scene.run("run-1"), 2),
    ):
        begun = scene.scheduler.now
        step()
        assert scene.scheduler.now - begun < SOON_MS
    scene.ends_with(0, 1, 2)


# -- a write whose end is not clear ----------------------------------------------------------------


def test_a_decision_answered_not_coordinator_is_unclear(scene: Scene) -> None:
    """A coordinator that loses its partition after the append says NOT_COORDINATOR, and the record
    survives the fail-over.
    """
    written = scene.second_batch()
    moved = scene.control.answer(
        ApiKey.END_TXN, ErrorCode.NOT_COORDINATOR, FOREVER, where=of_the_log, processed=True
    )
    scene.timeline.after(40_000, scene.control.clear)
    with suppress(CommitOutcomeUnknownError):  # and no other error
        assert scene.commit(*written) is not Commit.EMPTY
    assert moved.fired
    scene.scheduler.sleep(TIMEOUT_MS)
    scene.abort(*written)
    assert scene.plan(scene.run("run-1")).state.last_done == 1
    scene.ends_with(0, 1)


@pytest.mark.parametrize("away_ms", [10_000, 25_000, 40_000])
def test_a_commit_waits_for_a_log_below_min_insync_replicas(scene: Scene, away_ms: int) -> None:
    scene.changes = {"max_block_ms": 60_000, "transaction_timeout_ms": 900_000}  # as shipped
    scene.batch(scene.run("run-0"), 0)
    written = scene.written(scene.run("run-1"), 1)
    logs = [log for tp, log in scene.cluster.logs.items() if tp.topic == LOG_TOPIC]
    for log in logs:
        log.min_isr, log.isr = 2, {log.leader}

    def back() -> None:
        for log in logs:
            log.isr = set(log.replicas)

    scene.timeline.after(away_ms, back)
    assert scene.commit(*written) is Commit.COMMITTED
    scene.ends_with(0, 1)


# -- the topic of the log --------------------------------------------------------------------------


def test_a_query_whose_commit_log_was_deleted_says_so(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Under a query that runs: what protects it from doubling a batch is gone."""
    told: list[str] = []
    run = scene.run("run-0")
    for number in range(3):
        scene.batch(run, number)
    scene.cluster.delete_topic(LOG_TOPIC)
    caplog.clear()
    try:
        scene.batch(run, 3)
    except KafkaError as error:
        told.append(error.message)
    told += [r.getMessage() for r in caplog.records if r.levelname in ("WARNING", "ERROR")]
    assert any(f"'{PREFIX}'" in text and "commit log" in text for text in told), told


@pytest.mark.parametrize("code", [ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION])
def test_a_plain_compacted_log_is_created_where_configs_fail(scene: Scene, code: ErrorCode) -> None:
    """Managed clusters allow no small segments."""

    def with_segments(request: Request) -> bool:
        return any("segment" in c.name for topic in request.body.topics for c in topic.configs)

    refused = scene.control.answer(ApiKey.CREATE_TOPICS, code, FOREVER, where=with_segments)
    assert scene.batch(scene.run("run-0"), 0) is Commit.COMMITTED
    assert refused.fired
    assert scene.cluster.topics[LOG_TOPIC].configs["cleanup.policy"] == "compact"
    scene.ends_with(0)


@pytest.mark.life(tasks=2)
def test_an_abort_at_a_deposed_leader_ends_nothing_decided(scene: Scene) -> None:
    """There the log is behind the abort's own plan: its run has not taken over yet."""
    scene.batch(scene.run("run-0"), 0)
    ends = ends_of_the_log(scene)
    run = scene.run("run-1")
    scene.batch(run, 1)
    written = scene.written(run, 2)
    scene.decides_and_dies(*written)
    with deposed(scene, ends) as answered:
        assert scene.abort(*written._replace(run=scene.run("run-1"))) == ()
    assert answered
    assert len(scene.open_ids()) == 2
    assert scene.batch(scene.run("run-2"), 2) is Commit.ALREADY_DONE
    scene.ends_with(0, 1, 2)
