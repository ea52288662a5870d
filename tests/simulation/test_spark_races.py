"""The races of exactly-once that have names, each played out step by step."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import (
    CommitError,
    SupersededError,
)
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.spark_world import PREFIX, QUERY, TIMEOUT_MS


def test_a_stalled_init_producer_id_hurts_no_other_attempt(scene: Scene) -> None:
    """Attempt 0 stalls in InitProducerId, attempt 1 prepares, then the first one's request comes
    through: on the coordinator it meets an id of its own.
    """
    run = scene.run("run-0")
    plan = scene.plan(run)
    stalled = scene.control.delay(ApiKey.INIT_PRODUCER_ID, 15_000)
    first = scene.launch(run, 0, 0, 0, plan)
    scene.scheduler.sleep(3_000)
    assert stalled.fired
    second = scene.attempt_of(run, 0, 0, 1, plan)
    assert not first.over
    # The stalled one gets its id, writes and prepares, after the check and before EndTxn ends.
    scene.wait(lambda: first.over)
    assert scene.commit(run, 0, plan, [second]) is Commit.COMMITTED
    assert scene.open_ids() == [], "the loser's transaction is swept"
    scene.ends_with(0)


@VERSIONS
def test_a_superseded_driver_does_not_stop_its_successor(scene: Scene) -> None:
    """It opens the log, and so fences the other's session, in the middle of the other's commit."""
    old, new = scene.taken_over()
    looks = scene.control.delay(ApiKey.DESCRIBE_TRANSACTIONS, 3_000)
    late, told = scene.beside(new.run.process, lambda: scene.commit(*new))
    scene.wait(lambda: looks.fired)
    with pytest.raises(SupersededError, match="run run-1"):
        scene.commit(*old)
    assert not told
    scene.wait(lambda: late.done)
    assert told == [Commit.COMMITTED]
    scene.ends_with(0, 1, 2)


@pytest.mark.parametrize(
    ("number", "query"),
    [(0, "query-1"), (0, QUERY), (4, QUERY)],
    ids=["deleted", "restored", "copied"],
)
def test_another_checkpoint_is_an_error_naming_both_batches(
    scene: Scene, number: int, query: str
) -> None:
    """Where Spark starts again at batch 0, to drop it would lose rows."""
    run = scene.run("run-0")
    for done in range(3):
        scene.batch(run, done)
    again = scene.run("run-1")
    with pytest.raises(
        CommitError, match=rf"at batch 2 of query query-0.*batch {number}"
    ) as caught:
        scene.commit(again, number, scene.plan(again), [], query=query)
    assert "kprod txn reset orders" in str(caught.value)


@pytest.mark.life(tasks=3, new_worker=0.0)
def test_evicting_a_warm_producer_leaves_its_transaction_alone(scene: Scene) -> None:
    """Three tasks in one worker, two places for warm producers: one goes before the commit."""
    run = scene.run("run-0")
    plan = scene.plan(run)
    messages = [scene.attempt_of(run, 0, task, 0, plan) for task in range(3)]
    worker = run.workers[0]
    assert len(run.workers) == 1
    assert len(worker.kept.warm) == 2
    assert len(scene.open_ids()) == 3
    worker.kept.warm.close()
    scene.scheduler.sleep(5_000)
    assert len(scene.open_ids()) == 3
    assert scene.commit(run, 0, plan, messages) is Commit.COMMITTED
    scene.ends_with_tasks((0, 0), (0, 1), (0, 2))


@VERSIONS
@pytest.mark.life(tasks=2)
def test_a_batch_that_a_broker_aborted_by_time_is_aborted_whole(scene: Scene) -> None:
    """One of two transactions timed out: of the other nothing may be seen either."""
    run = scene.run("run-0")
    plan = scene.plan(run)
    old = scene.write(run, 0, plan, tasks=1)
    scene.scheduler.sleep(TIMEOUT_MS + 15_000)
    late = scene.attempt_of(run, 0, 1, 0, plan)
    with pytest.raises(CommitError, match=r"1 of 2 transactions are not open any more"):
        scene.commit(run, 0, plan, [*old, late])
    assert scene.open_ids() == []
    scene.ends_with()


@pytest.mark.life(new_worker=0.0)
def test_a_stream_crosses_the_last_epoch_of_its_producer_ids(scene: Scene) -> None:
    """Epochs end at 32 767: completing a transaction near it goes on under a new producer id."""
    run = scene.run("run-0")
    for number in range(2):  # (the first one takes over: the next has ids of its own)
        scene.batch(run, number)
    for transaction in scene.cluster.transactions.transactions.values():
        transaction.epoch = 32_755
        transaction.last_epoch = -1
    for log in scene.cluster.logs.values():
        log.producers.clear()
    identities = {i: t.producer_id for i, t in scene.cluster.transactions.transactions.items()}
    for number in range(2, 14):
        assert scene.batch(run, number) is Commit.COMMITTED
    renewed = [
        i
        for i, t in scene.cluster.transactions.transactions.items()
        if i in identities and t.producer_id != identities[i]
    ]
    assert log_id(PREFIX) in renewed
    assert any(i.startswith(f"{PREFIX}~run-0") for i in renewed)
    scene.ends_with(*range(14))


@pytest.mark.life(tasks=3, rows=2, new_worker=0.0)
def test_a_stream_needs_no_more_ids_than_twice_its_tasks(scene: Scene) -> None:
    run = scene.run("run-0")
    for number in range(12):
        assert scene.batch(run, number) is Commit.COMMITTED
    ids = [i for i in scene.cluster.transactions.transactions if f"{PREFIX}~run-0~" in i]
    assert len(ids) <= 2 * scene.life.tasks
