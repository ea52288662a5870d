"""A decision lives no longer than what it decides on, heals by itself, and is never hidden."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from unittest.mock import patch

import pytest

from spark_kafka_sink.base.errors import (
    CommitOutcomeUnknownError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    PartialCommitError,
)
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.lease import margin_ms
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.fakes.fake_cluster.transaction_coordinator import TransactionCoordinator
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.scene_requests import ends_data, of_data, of_id, of_the_log
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, TIMEOUT_MS

BOTH_TASKS = ((0, 0), (0, 1))


@pytest.fixture
def scene(scene: Scene) -> Scene:
    """max.block.ms as it is shipped, above the margin of these transactions."""
    scene.changes = {"max_block_ms": 60_000}
    return scene


def ends_the_log(request: Request) -> bool:
    return request.api == ApiKey.END_TXN and of_the_log(request)


def begins_the_log(request: Request) -> bool:
    """The log's transaction: with version 1 a request of its own goes before Produce."""
    if request.api == ApiKey.ADD_PARTITIONS_TO_TXN:
        return bool(request.body.v3_and_below_transactional_id == log_id(PREFIX))
    return request.api == ApiKey.PRODUCE and request.body.topic_data[0].name == LOG_TOPIC


def looks(request: Request) -> bool:
    return request.api in (ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS)


@VERSIONS
@pytest.mark.parametrize("step", [looks, begins_the_log, ends_the_log])
@pytest.mark.life(tasks=2)
def test_a_frozen_driver_decides_nothing_that_is_too_old(
    scene: Scene, step: Callable[[Request], bool]
) -> None:
    """SIGSTOP, a machine that is moved, CPU throttling: before any request of a commit."""
    run = scene.run("run-0")
    written = scene.written(run, 0)
    scene.scheduler.sleep(20_000)
    frozen = scene.before_send(run, step, lambda: scene.scheduler.sleep(55_000))
    with pytest.raises(KafkaError) as caught:
        scene.commit(*written)
    assert frozen
    assert not isinstance(caught.value, PartialCommitError)
    scene.abort(*written)
    assert scene.open_ids() == []
    assert scene.visible() == set()
    assert scene.batch(scene.run("run-1"), 0) is Commit.COMMITTED
    scene.ends_with_tasks(*BOTH_TASKS)


@VERSIONS
@pytest.mark.life(tasks=2)
def test_a_frozen_driver_says_that_nothing_is_visible(scene: Scene) -> None:
    """It was stopped between its check and its decision, for longer than it may take."""
    run = scene.run("run-0")
    written = scene.written(run, 0)
    frozen = scene.before_send(run, looks, lambda: scene.scheduler.sleep(20_000))
    with pytest.raises(
        KafkaTimeoutError, match="batch 0 of 'orders' was not decided in time, and nothing of it"
    ):
        scene.commit(*written)
    assert frozen
    assert scene.visible() == set()


@VERSIONS
@pytest.mark.life(tasks=2)
def test_a_log_without_coordinator_decides_nothing_too_old(scene: Scene) -> None:
    """For 45 s, a fail-over; the data's coordinators are there."""
    abort_timed_out = TransactionCoordinator.abort_timed_out
    written = scene.written(scene.run("run-0"), 0)
    scene.scheduler.sleep(TIMEOUT_MS - margin_ms(TIMEOUT_MS) - 3_000)
    away = [True]

    def abort_but_the_logs(self: TransactionCoordinator, now: int, **known: object) -> None:
        held = self.transactions.get(log_id(PREFIX)) if away else None
        begun = None if held is None else held.start_ms
        if held is not None:
            held.start_ms = now
        abort_timed_out(self, now, **known)  # type: ignore[arg-type]
        if held is not None and begun is not None:
            held.start_ms = begun

    gone = scene.coordinators_load(of_the_log)

    def back() -> None:
        gone.stop()
        scene.timeline.after(9_000, away.clear)

    scene.timeline.after(45_000, back)
    with patch.object(TransactionCoordinator, "abort_timed_out", abort_but_the_logs):
        with pytest.raises(KafkaError) as caught:
            scene.commit(*written)
        scene.scheduler.sleep(60_000)
    assert gone.fired
    assert not isinstance(caught.value, PartialCommitError)
    assert scene.visible() == set()
    assert scene.batch(scene.run("run-1"), 0) is Commit.COMMITTED
    scene.ends_with_tasks(*BOTH_TASKS)


@VERSIONS
@pytest.mark.parametrize("timed_out", [0, 1, 2])
@pytest.mark.life(tasks=2)
def test_an_uncommitted_decision_is_undone_by_the_next_start(scene: Scene, timed_out: int) -> None:
    """The driver dies behind DECIDED, before its first EndTxn, and is back when the brokers have
    aborted one, or both, of two transactions, or are about to: nothing is visible, so the batch is
    written again.
    """
    run = scene.run("run-0")
    plan = scene.plan(run)
    begun = scene.scheduler.now
    first = scene.attempt_of(run, 0, 0, 0, plan)
    if timed_out < 2:
        scene.scheduler.sleep(25_000)
    second = scene.attempt_of(run, 0, 1, 0, plan)
    scene.decides_and_dies(run, 0, plan, [first, second])
    after_ms = {0: TIMEOUT_MS - 3_000, 1: TIMEOUT_MS + 12_000, 2: 3 * TIMEOUT_MS}[timed_out]
    scene.scheduler.sleep(begun + after_ms - scene.scheduler.now)
    assert len(scene.open_ids()) == 2 - timed_out
    again = scene.run("run-1")
    # What is open when it looks may have timed out when it ends it.
    scene.before_send(again, ends_data, lambda: scene.scheduler.sleep(15_000))
    assert scene.batch(again, 0) is Commit.COMMITTED
    assert scene.open_ids() == []
    assert scene.batch(again, 1) is Commit.COMMITTED
    scene.ends_with_tasks(*BOTH_TASKS, (1, 0), (1, 1))


@VERSIONS
@pytest.mark.life(tasks=2)
def test_a_partly_committed_and_partly_lost_batch_stays_an_error(scene: Scene) -> None:
    """Death between the first and the last EndTxn, and an absence longer than the time-out."""
    run = scene.run("run-0")
    written = scene.written(run, 0)
    last = written.ids[1]
    silent = scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=of_id(last))
    run.process.start(lambda: scene.commit(*written), "commit")
    scene.wait(lambda: silent.fired and scene.visible())
    run.process.kill()
    scene.control.clear()
    scene.scheduler.sleep(2 * TIMEOUT_MS)
    with pytest.raises(PartialCommitError, match="committed in part") as caught:
        scene.plan(scene.run("run-1"))
    assert caught.value.transactional_ids == (last,)
    scene.ends_with_tasks((0, 0))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    ],
)
@pytest.mark.life(tasks=3)
def test_an_error_after_the_decision_says_it_is_decided(scene: Scene, code: ErrorCode) -> None:
    """Rights are removed between the first and the second EndTxn: part of the batch is visible."""
    run = scene.run("run-0")
    written = scene.written(run, 0)
    refused = scene.control.answer(ApiKey.END_TXN, code, FOREVER, where=of_data, nth=2)
    with pytest.raises(CommitOutcomeUnknownError, match="decided") as caught:
        scene.commit(*written)
    assert refused.fired
    assert set() < set(caught.value.transactional_ids) <= set(written.ids)
    scene.abort(*written)
    scene.control.clear()
    # With the rights back, the next start ends it.
    again = scene.written(scene.run("run-1"), 0)
    assert again.plan.state.last_done == 0
    assert scene.commit(*again) is Commit.ALREADY_DONE
    scene.ends_with_tasks((0, 0), (0, 1), (0, 2))


@pytest.mark.life(transaction_version=1)
def test_with_version_1_what_was_committed_is_never_called_lost(scene: Scene) -> None:
    """The task's first AddPartitionsToTxn was lost and asked again, and arrives after the commit:
    it opens a transaction under the same epoch, which times out meanwhile.
    """
    run = scene.run("run-0")
    scene.batch(run, 0)
    written = scene.written(run, 1)
    (ours,) = written.prepared
    hit, identity = ours.transactional_id, (ours.producer_id, ours.producer_epoch)
    coordinator = scene.cluster.transactions
    found = coordinator.find(hit)
    assert found is not None
    partitions = set(found.partitions)
    noted = scene.control.drop(ApiKey.PRODUCE, FOREVER, processed=False, topic=LOG_TOPIC, nth=2)
    run.process.start(lambda: scene.commit(*written), "commit")
    scene.wait(lambda: noted.fired)
    run.process.kill()
    scene.control.clear()
    scene.scheduler.sleep(1_000)
    assert scene.batches() == {0, 1}
    late = coordinator.add_partitions(hit, identity, partitions, scene.cluster.now, version=1)
    assert late is ErrorCode.NONE
    scene.cluster.schedule_abort_scan()
    scene.scheduler.sleep(2 * TIMEOUT_MS)
    with suppress(CommitOutcomeUnknownError):  # loud, and never "lost": that may be, too
        scene.plan(scene.run("run-1"))
    scene.ends_with(0, 1)


def test_an_expired_decision_has_a_hint_that_ends_it(scene: Scene) -> None:
    """The coordinators have forgotten the transactions (transactional.id.expiration.ms): starting
    again finds out nothing.
    """
    written = scene.written(scene.run("run-0"), 0)
    scene.decides_and_dies(*written)
    scene.scheduler.sleep(2 * TIMEOUT_MS)
    for one in written.ids:
        scene.cluster.transactions.expire(one)
    with pytest.raises(KafkaError) as caught:
        scene.plan(scene.run("run-1"))
    assert f"kprod txn resolve {PREFIX} --batch 0" in str(caught.value)
