"""A partition without a leader: Kafka 4.3.1 drops the markers of what is ended meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from spark_kafka_sink.admin.transaction_description import TransactionDescription
from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    KafkaTimeoutError,
    RefusedError,
)
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.committer import Commit
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.edge_scene import EdgeScene
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, TIMEOUT_MS, TOPIC, Run, SparkLife
from tests.simulation.test_edges_operators import by_hand

VERSIONS = pytest.mark.parametrize("version", [1, 2])
AWAY_MS = 4_000


def lose_leader(scene: EdgeScene, back_ms: int, of: TransactionDescription | None = None) -> None:
    """Of a partition with rows, or of the first one of a transaction; for ``back_ms``."""
    cluster = scene.cluster
    cluster.drops_markers = True
    if of is not None:
        topic, partitions = of.partitions[0]
        tp = TopicPartition(topic, partitions[0])
    else:
        tp = next(tp for tp, log in cluster.logs.items() if tp.topic == TOPIC and log.batches)
    leader = cluster.logs[tp].leader
    cluster.move_leader(tp, -1)
    cluster.at(cluster.now + back_ms, lambda: cluster.move_leader(tp, leader))


def first_batch(scene: EdgeScene) -> tuple[Run, TransactionPlan, list[TaskCommitMessage]]:
    """Planned and written."""
    run = scene.run("run-0")
    plan = scene.plan(run)
    return run, plan, scene.write(run, 0, plan)


def speculative_pair(
    scene: EdgeScene, run: Run, plan: TransactionPlan
) -> tuple[TaskCommitMessage, TaskCommitMessage]:
    """Two attempts of the first task of batch 1, which have both prepared."""
    first, second = (scene.launch(run, 1, 0, attempt, plan) for attempt in (0, 1))
    scene.scheduler.block(lambda: first.over and second.over, NEVER)
    assert first.message is not None
    assert second.message is not None
    return first.message, second.message


def both_tasks_are_visible(play: Callable[[EdgeScene], None], version: int) -> None:
    """Of batch 0, each once, when all is over."""
    scene = EdgeScene.of(play, SparkLife(1, tasks=2, transaction_version=version))
    assert {(batch, task) for batch, task, _ in scene.visible()} == {(0, 0), (0, 1)}


@VERSIONS
def test_a_commit_waits_for_a_leader(version: int) -> None:
    def play(scene: EdgeScene) -> None:
        run, plan, messages = first_batch(scene)
        lose_leader(scene, AWAY_MS)
        begun = scene.scheduler.now_ms()
        assert scene.commit(run, 0, plan, messages) is Commit.COMMITTED
        assert AWAY_MS <= scene.scheduler.now_ms() - begun < AWAY_MS + 2_000

    both_tasks_are_visible(play, version)


@VERSIONS
def test_a_commit_without_a_leader_decides_nothing(version: int) -> None:
    """It is said, and the next start writes the batch again."""

    def play(scene: EdgeScene) -> None:
        run, plan, messages = first_batch(scene)
        lose_leader(scene, 2 * TIMEOUT_MS)
        with pytest.raises(CommitError, match="1 of its partitions have no leader"):
            scene.commit(run, 0, plan, messages)
        assert scene.batches() == set()
        scene.scheduler.sleep(2 * TIMEOUT_MS)
        scene.batch(scene.run("run-1"), 0)

    both_tasks_are_visible(play, version)


@VERSIONS
def test_the_next_start_waits_for_a_leader(version: int) -> None:
    def play(scene: EdgeScene) -> None:
        run, plan, messages = first_batch(scene)
        scene.decides_and_dies(run, 0, plan, messages)
        lose_leader(scene, AWAY_MS)
        begun = scene.scheduler.now_ms()
        scene.plan(scene.run("run-1"))
        assert scene.scheduler.now_ms() - begun >= AWAY_MS

    both_tasks_are_visible(play, version)


@VERSIONS
def test_a_decision_whose_leader_stays_away_is_undone_or_told(version: int) -> None:
    """Never committed in part, or without its markers."""

    def play(scene: EdgeScene) -> None:
        run, plan, messages = first_batch(scene)
        scene.decides_and_dies(run, 0, plan, messages)
        lose_leader(scene, 3 * TIMEOUT_MS)
        with pytest.raises(CommitOutcomeUnknownError):
            scene.plan(scene.run("run-1"))
        assert scene.open_ids()
        assert scene.batches() == set()
        scene.scheduler.sleep(3 * TIMEOUT_MS)
        scene.batch(scene.run("run-2"), 0)

    both_tasks_are_visible(play, version)


@VERSIONS
@pytest.mark.parametrize("lost", [True, False])
def test_a_commit_by_hand_looks_for_markers_that_a_driver_lost(lost: bool, version: int) -> None:
    """It had ended all of them: coordinators do not know the partitions any more."""

    def play(scene: EdgeScene) -> None:
        run, plan, messages = first_batch(scene)
        scene.decides_and_dies(run, 0, plan, messages)
        tp = next(tp for tp, log in scene.cluster.logs.items() if tp.topic == TOPIC and log.batches)
        scene.cluster.markerless = {tp} if lost else set()
        with by_hand(scene, scene.run("operator")) as operator:
            decision = operator.plan_commit(PREFIX).state.decision
            assert decision is not None
            with scene.driver_side(run) as driver:
                client = driver.client
                client.end(decision.transactions, committed=True, deadline_ms=client.deadline())
            scene.scheduler.sleep(1_000)
            report = operator.plan_commit(PREFIX)
            assert not any(one.found.partitions for one in report.transactions)
            if lost:
                with pytest.raises(KafkaTimeoutError, match="its rows in 1 partitions"):
                    operator.commit(report)
            else:
                assert operator.commit(report).committed

    EdgeScene.of(play, SparkLife(1, tasks=2, transaction_version=version))


@VERSIONS
def test_a_commit_by_hand_near_the_time_out_waits_for_a_leader(version: int) -> None:
    """The leader does not come back in time: brokers abort all, and the batch is written again."""

    def play(scene: EdgeScene) -> None:
        run, plan, messages = first_batch(scene)
        scene.decides_and_dies(run, 0, plan, messages)
        lose_leader(scene, 3 * TIMEOUT_MS)
        undone = False
        for attempt in range(12):
            with (
                suppress(CommitOutcomeUnknownError),
                by_hand(scene, scene.run(f"operator-{attempt}")) as operator,
            ):
                undone = not operator.commit(operator.plan_commit(PREFIX)).committed
            if undone:
                break
        assert undone
        assert scene.batches() == set()

    EdgeScene.of(play, SparkLife(1, tasks=2, transaction_version=version))


@VERSIONS
def test_the_rest_of_a_decision_waits_for_its_leader(version: int) -> None:
    """Its driver died behind the first EndTxn."""

    def play(scene: EdgeScene) -> None:
        run, plan, messages = first_batch(scene)
        scene.decides_and_dies(run, 0, plan, messages)
        with scene.driver_side(run) as driver, by_hand(scene, scene.run("operator")) as operator:
            decision = operator.plan_commit(PREFIX).state.decision
            assert decision is not None
            deadline = driver.client.deadline()
            first, second = decision.transactions
            driver.client.end([first], committed=True, deadline_ms=deadline)
            scene.scheduler.sleep(500)
            found = driver.client.describe([second.transactional_id], deadline)
        lose_leader(scene, AWAY_MS, of=found[second.transactional_id])
        begun = scene.scheduler.now_ms()
        scene.plan(scene.run("run-1"))
        assert scene.scheduler.now_ms() - begun >= AWAY_MS

    both_tasks_are_visible(play, version)


@VERSIONS
def test_an_abort_leaves_open_what_has_no_leader(version: int) -> None:
    """Its marker would be dropped, and nothing behind it be visible. The next start ends it."""

    def play(scene: EdgeScene) -> None:
        run, plan, messages = first_batch(scene)
        lose_leader(scene, TIMEOUT_MS // 2)
        with pytest.raises(CommitError, match="1 of its partitions have no leader"):
            scene.commit(run, 0, plan, messages)
        scene.abort(run, 0, plan, messages)
        assert scene.open_ids()
        scene.scheduler.sleep(TIMEOUT_MS // 2)
        scene.batch(scene.run("run-1"), 0)

    both_tasks_are_visible(play, version)


@VERSIONS
def test_an_abort_looks_for_leaders_while_coordinators_load(version: int) -> None:
    """A broker that is lost was coordinator and leader: the next coordinator takes seconds."""

    def play(scene: EdgeScene) -> None:
        run, plan, messages = first_batch(scene)
        lose_leader(scene, TIMEOUT_MS // 2)
        for message in messages:
            assert message.prepared is not None
            one = message.prepared.transactional_id
            node = scene.cluster.coordinator_of(one)
            scene.cluster.move_coordinator(one, node, loading_ms=AWAY_MS)
        begun = scene.scheduler.now_ms()
        scene.abort(run, 0, plan, messages)
        assert scene.scheduler.now_ms() - begun >= AWAY_MS
        assert scene.open_ids()
        scene.scheduler.sleep(TIMEOUT_MS // 2)
        scene.batch(scene.run("run-1"), 0)

    both_tasks_are_visible(play, version)


@VERSIONS
def test_an_abort_ends_nothing_that_it_can_not_look_at(version: int) -> None:
    """The coordinator hangs, and has led a partition."""

    def play(scene: EdgeScene) -> None:
        run, plan, messages = first_batch(scene)
        lose_leader(scene, 2 * TIMEOUT_MS)
        fault = scene.cluster.control.drop(ApiKey.DESCRIBE_TRANSACTIONS, FOREVER, processed=False)
        with pytest.raises(KafkaTimeoutError, match="DescribeTransactions"):
            scene.abort(run, 0, plan, messages)
        assert fault.fired
        scene.cluster.control.clear()
        assert len(scene.open_ids()) == 2
        scene.scheduler.sleep(2 * TIMEOUT_MS)
        scene.batch(scene.run("run-1"), 0)

    both_tasks_are_visible(play, version)


@VERSIONS
def test_a_decision_waits_for_the_leader_of_its_log(version: int) -> None:
    """Without its marker it would count as aborted, and the next start write the batch again."""

    def play(scene: EdgeScene) -> None:
        cluster, run = scene.cluster, scene.run("run-0")
        scene.batch(run, 0)
        tp = next(tp for tp, log in cluster.logs.items() if tp.topic == LOG_TOPIC and log.batches)
        plan = scene.plan(run)
        messages = scene.write(run, 1, plan)
        ids = {m.prepared.transactional_id for m in messages if m.prepared}
        cluster.drops_markers, leader, lost = True, cluster.logs[tp].leader, list[int]()

        def loses(request: Request) -> bool:
            if not lost and ids & set(request.body.transactional_ids):
                lost.append(cluster.now)
                cluster.move_leader(tp, -1)
                cluster.at(cluster.now + AWAY_MS, lambda: cluster.move_leader(tp, leader))
            return False

        cluster.control.delay(ApiKey.DESCRIBE_TRANSACTIONS, 1, FOREVER, where=loses)
        assert scene.commit(run, 1, plan, messages) is Commit.COMMITTED
        assert scene.scheduler.now_ms() - lost[0] >= AWAY_MS
        assert scene.plan(scene.run("run-1")).state.last_done == 1

    scene = EdgeScene.of(play, SparkLife(1, tasks=2, transaction_version=version))
    assert scene.batches() == {0, 1}


@VERSIONS
def test_a_batch_is_not_resolved_as_done_without_a_leader(version: int) -> None:
    """Of three transactions one is committed, one is lost, and one has no leader."""

    def play(scene: EdgeScene) -> None:
        run, plan, messages = first_batch(scene)
        scene.decides_and_dies(run, 0, plan, messages)
        with scene.driver_side(run) as driver, by_hand(scene, scene.run("operator")) as operator:
            decision = operator.plan_commit(PREFIX).state.decision
            assert decision is not None
            client, (kept, lost, last) = driver.client, decision.transactions
            client.end([kept], committed=True, deadline_ms=client.deadline())
            client.end([lost], committed=False, deadline_ms=client.deadline())
            scene.scheduler.sleep(500)
            found = client.describe([last.transactional_id], client.deadline())
            session = CommitLog(client, LOG_TOPIC).open(PREFIX, client.deadline())
            state = session.state.partly_lost([lost.transactional_id])
            session.write(state, client.deadline())
            lose_leader(scene, AWAY_MS, of=found[last.transactional_id])
            with pytest.raises(RefusedError, match="can't be committed"):
                operator.resolve(operator.plan_resolve(PREFIX, 0, done=True))
            assert scene.open_ids() == [last.transactional_id]
            scene.scheduler.sleep(AWAY_MS)
            operator.resolve(operator.plan_resolve(PREFIX, 0, done=True))

    scene = EdgeScene.of(play, SparkLife(1, tasks=3, transaction_version=version))
    assert len({(batch, task) for batch, task, _ in scene.visible()}) == 2
