"""A partition without a leader: Kafka 4.3.1 drops the markers of what is ended meanwhile."""

from __future__ import annotations

from contextlib import suppress

import pytest

from spark_kafka_sink.base.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    KafkaTimeoutError,
    RefusedError,
)
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, TIMEOUT_MS, TOPIC

AWAY_MS = 4_000
pytestmark = [VERSIONS, pytest.mark.life(tasks=2)]


def test_a_commit_waits_for_a_leader(scene: Scene) -> None:
    written = scene.first_batch()
    scene.lose_leader(AWAY_MS)
    begun = scene.scheduler.now
    assert scene.commit(*written) is Commit.COMMITTED
    assert AWAY_MS <= scene.scheduler.now - begun < AWAY_MS + 2_000
    scene.ends_with_tasks((0, 0), (0, 1))


def test_the_next_start_waits_for_a_leader(scene: Scene) -> None:
    written = scene.first_batch()
    scene.decides_and_dies(*written)
    scene.lose_leader(AWAY_MS)
    begun = scene.scheduler.now
    scene.plan(scene.run("run-1"))
    assert scene.scheduler.now - begun >= AWAY_MS
    scene.ends_with_tasks((0, 0), (0, 1))


def test_a_decision_whose_leader_stays_away_is_undone_or_told(scene: Scene) -> None:
    """Never committed in part, or without its markers."""
    written = scene.first_batch()
    scene.decides_and_dies(*written)
    scene.lose_leader(3 * TIMEOUT_MS)
    with pytest.raises(CommitOutcomeUnknownError):
        scene.plan(scene.run("run-1"))
    assert scene.open_ids()
    assert scene.batches() == set()
    scene.scheduler.sleep(3 * TIMEOUT_MS)
    scene.batch(scene.run("run-2"), 0)
    scene.ends_with_tasks((0, 0), (0, 1))


@pytest.mark.parametrize("lost", [True, False])
def test_a_commit_by_hand_looks_for_markers_that_a_driver_lost(scene: Scene, lost: bool) -> None:
    """It had ended all of them: coordinators do not know the partitions any more."""
    written = scene.first_batch()
    scene.decides_and_dies(*written)
    tp = next(tp for tp, log in scene.cluster.logs.items() if tp.topic == TOPIC and log.batches)
    scene.cluster.markerless = {tp} if lost else set()
    with scene.driver_side(written.run) as driver:
        client = driver.client
        client.end(written.prepared, committed=True, deadline_ms=client.deadline())
    scene.scheduler.sleep(1_000)
    with scene.by_hand() as operator:
        report = operator.plan_commit(PREFIX)
        assert not any(one.found.partitions for one in report.transactions)
        if lost:
            with pytest.raises(KafkaTimeoutError, match="its rows in 1 partitions"):
                operator.commit(report)
        else:
            assert operator.commit(report).committed


def test_a_commit_by_hand_near_the_time_out_waits_for_a_leader(scene: Scene) -> None:
    """The leader does not come back in time: brokers abort all, and the batch is written again."""
    written = scene.first_batch()
    scene.decides_and_dies(*written)
    scene.lose_leader(3 * TIMEOUT_MS)
    undone = False
    for _ in range(12):
        with suppress(CommitOutcomeUnknownError), scene.by_hand() as operator:
            undone = not operator.commit(operator.plan_commit(PREFIX)).committed
        if undone:
            break
    assert undone
    assert scene.batches() == set()


def test_the_rest_of_a_decision_waits_for_its_leader(scene: Scene) -> None:
    """Its driver died behind the first EndTxn."""
    written = scene.first_batch()
    scene.decides_and_dies(*written)
    first, second = written.prepared
    with scene.driver_side(written.run) as driver:
        deadline = driver.client.deadline()
        driver.client.end([first], committed=True, deadline_ms=deadline)
        scene.scheduler.sleep(500)
        found = driver.client.describe([second.transactional_id], deadline)
    scene.lose_leader(AWAY_MS, of=found[second.transactional_id])
    begun = scene.scheduler.now
    scene.plan(scene.run("run-1"))
    assert scene.scheduler.now - begun >= AWAY_MS
    scene.ends_with_tasks((0, 0), (0, 1))


@pytest.mark.parametrize("away_ms", [TIMEOUT_MS // 2, 2 * TIMEOUT_MS])
def test_without_a_leader_nothing_is_decided_or_aborted(scene: Scene, away_ms: int) -> None:
    """A marker would be dropped, and nothing behind it be visible. It is said, and the next start
    ends what is open, and writes the batch again.
    """
    written = scene.first_batch()
    scene.lose_leader(away_ms)
    with pytest.raises(CommitError, match="1 of its partitions have no leader"):
        scene.commit(*written)
    assert scene.batches() == set()
    scene.abort(*written)
    assert scene.open_ids()
    scene.scheduler.sleep(away_ms)
    scene.batch(scene.run("run-1"), 0)
    scene.ends_with_tasks((0, 0), (0, 1))


def test_an_abort_looks_for_leaders_while_coordinators_load(scene: Scene) -> None:
    """A broker that is lost was coordinator and leader: the next coordinator takes seconds."""
    written = scene.first_batch()
    scene.lose_leader(TIMEOUT_MS // 2)
    for one in written.ids:
        node = scene.cluster.coordinator_of(one)
        scene.cluster.move_coordinator(one, node, loading_ms=AWAY_MS)
    begun = scene.scheduler.now
    scene.abort(*written)
    assert scene.scheduler.now - begun >= AWAY_MS
    assert scene.open_ids()
    scene.scheduler.sleep(TIMEOUT_MS // 2)
    scene.batch(scene.run("run-1"), 0)
    scene.ends_with_tasks((0, 0), (0, 1))


def test_an_abort_ends_nothing_that_it_can_not_look_at(scene: Scene) -> None:
    """The coordinator hangs, and has led a partition."""
    written = scene.first_batch()
    scene.lose_leader(2 * TIMEOUT_MS)
    fault = scene.control.drop(ApiKey.DESCRIBE_TRANSACTIONS, FOREVER, processed=False)
    with pytest.raises(KafkaTimeoutError, match="DescribeTransactions"):
        scene.abort(*written)
    assert fault.fired
    scene.control.clear()
    assert len(scene.open_ids()) == 2
    scene.scheduler.sleep(2 * TIMEOUT_MS)
    scene.batch(scene.run("run-1"), 0)
    scene.ends_with_tasks((0, 0), (0, 1))


def test_a_decision_waits_for_the_leader_of_its_log(scene: Scene) -> None:
    """Without its marker it would count as aborted, and the next start write the batch again."""
    cluster, written = scene.cluster, scene.second_batch()
    tp = next(tp for tp, log in cluster.logs.items() if tp.topic == LOG_TOPIC and log.batches)
    ids = set(written.ids)
    cluster.drops_markers, leader, lost = True, cluster.logs[tp].leader, list[int]()

    def loses(request: Request) -> bool:
        if not lost and ids & set(request.body.transactional_ids):
            lost.append(cluster.now)
            cluster.move_leader(tp, -1)
            cluster.at(cluster.now + AWAY_MS, lambda: cluster.move_leader(tp, leader))
        return False

    cluster.control.delay(ApiKey.DESCRIBE_TRANSACTIONS, 1, FOREVER, where=loses)
    assert scene.commit(*written) is Commit.COMMITTED
    assert scene.scheduler.now - lost[0] >= AWAY_MS
    assert scene.plan(scene.run("run-1")).state.last_done == 1
    scene.ends_with(0, 1)


@pytest.mark.life(tasks=3)
def test_a_batch_is_not_resolved_as_done_without_a_leader(scene: Scene) -> None:
    """Of three transactions one is committed, one is lost, and one has no leader."""
    written = scene.first_batch()
    scene.decides_and_dies(*written)
    kept, lost, last = written.prepared
    with scene.driver_side(written.run) as driver, scene.by_hand() as operator:
        client = driver.client
        client.end([kept], committed=True, deadline_ms=client.deadline())
        client.end([lost], committed=False, deadline_ms=client.deadline())
        scene.scheduler.sleep(500)
        found = client.describe([last.transactional_id], client.deadline())
        session = CommitLog(client, LOG_TOPIC).open(PREFIX, client.deadline())
        state = session.state.partly_lost([lost.transactional_id])
        session.write(state, client.deadline())
        scene.lose_leader(AWAY_MS, of=found[last.transactional_id])
        with pytest.raises(RefusedError, match="can't be committed"):
            operator.resolve(operator.plan_resolve(PREFIX, 0, done=True))
        assert scene.open_ids() == [last.transactional_id]
        scene.scheduler.sleep(AWAY_MS)
        operator.resolve(operator.plan_resolve(PREFIX, 0, done=True))
    scene.ends_with_tasks((0, 0), (0, 2))
