"""The races of exactly-once that have names, each played out step by step."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    KafkaTimeoutError,
    PartialCommitError,
    SupersededError,
)
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.committer import Commit
from spark_kafka_sink.transactions.transactional_ids import TransactionalId, log_id
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.spark_scene import Scene, of_the_log
from tests.simulation.spark_world import PREFIX, TIMEOUT_MS, SparkLife


def test_a_stalled_init_producer_id_hurts_no_other_attempt() -> None:
    """Attempt 0 stalls in InitProducerId, attempt 1 prepares, then the first one's request comes
    through: on the coordinator it meets an id of its own.
    """

    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        stalled = scene.cluster.control.delay(ApiKey.INIT_PRODUCER_ID, 15_000)
        first = scene.launch(run, 0, 0, 0, plan)
        scene.scheduler.sleep(3_000)
        assert stalled.fired
        second = scene.launch(run, 0, 0, 1, plan)
        scene.scheduler.block(lambda: second.over, NEVER)
        assert second.message is not None
        assert not first.over
        # The stalled one gets its id, writes and prepares, after the check and before EndTxn ends.
        scene.scheduler.block(lambda: first.over, NEVER)
        assert scene.commit(run, 0, plan, [second.message]) is Commit.COMMITTED
        assert scene.open_ids() == [], "the loser's transaction is swept"

    scene = Scene.of(play)
    assert scene.batches() == {0}


def test_a_sweep_spares_a_query_whose_prefix_begins_with_ours() -> None:
    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        ours, theirs = (str(TransactionalId(p, "run-0", "w", 9)) for p in (PREFIX, f"{PREFIX}.eu"))
        for transactional_id in (ours, theirs):
            scene.begin_foreign(transactional_id)
        assert {ours, theirs} < set(scene.open_ids())
        scene.commit(run, 0, plan, messages)
        assert scene.open_ids() == [theirs]

    Scene.of(play)


def test_an_abort_after_an_unclear_decision_undoes_nothing() -> None:
    """The log's EndTxn is done, its answers are lost: Spark calls abort, and must not be obeyed."""

    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        lost = scene.cluster.control.drop(ApiKey.END_TXN, FOREVER, where=of_the_log)
        # Nor can the log be opened again to find out.
        shut = scene.cluster.control.drop(
            ApiKey.INIT_PRODUCER_ID, FOREVER, processed=False, where=of_the_log, nth=2
        )
        with pytest.raises(CommitOutcomeUnknownError, match="was decided is not known") as caught:
            scene.commit(run, 0, plan, messages)
        assert lost.fired
        assert shut.fired
        assert len(caught.value.transactional_ids) == 1
        scene.cluster.control.clear()
        assert scene.abort(run, 0, plan, messages) == ()
        # The next start finds the decision and ends it; its own tasks have nothing to write.
        again = scene.run("run-1")
        plan = scene.plan(again)
        assert plan.state.last_done == 0
        assert scene.commit(again, 0, plan, scene.write(again, 0, plan)) is Commit.ALREADY_DONE

    scene = Scene.of(play, SparkLife(1, tasks=1, transaction_version=2))
    assert scene.batches() == {0}


def test_an_unclear_decision_is_settled_inside_the_same_commit() -> None:
    """The log's EndTxn is done and its answers are lost; the next reader finds out."""

    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        lost = scene.cluster.control.drop(ApiKey.END_TXN, 3, where=of_the_log)
        assert scene.commit(run, 0, plan, messages) is Commit.COMMITTED
        assert lost.fired
        assert scene.open_ids() == []

    scene = Scene.of(play, SparkLife(1, tasks=1, transaction_version=2))
    assert scene.batches() == {0}


def test_an_abort_before_the_decision_leaves_nothing() -> None:
    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        lost = scene.cluster.control.drop(
            ApiKey.PRODUCE, FOREVER, processed=False, topic="__kprod_commits"
        )
        with pytest.raises(KafkaTimeoutError, match="the commit log of 'orders~~log'"):
            scene.commit(run, 0, plan, messages)
        assert lost.fired
        scene.cluster.control.clear()
        scene.abort(run, 0, plan, messages)
        assert scene.open_ids() == []

    scene = Scene.of(play)
    assert scene.visible() == set()
    assert any(rows for rows in scene.seen(committed=False).values())


def test_the_later_of_two_drivers_wins_and_the_earlier_stops() -> None:
    def play(scene: Scene) -> None:
        old, new = scene.run("run-0"), scene.run("run-1")
        assert scene.batch(old, 0) is Commit.COMMITTED
        plan_new = scene.plan(new)
        messages_new = scene.write(new, 1, plan_new)
        plan_old = scene.plan(old)
        messages_old = scene.write(old, 1, plan_old)
        assert scene.commit(new, 1, plan_new, messages_new) is Commit.COMMITTED
        with pytest.raises(
            SupersededError, match=r"run-1 \(generation \d+\) in place of run run-0"
        ):
            scene.commit(old, 1, plan_old, messages_old)
        assert scene.abort(old, 1, plan_old, messages_old) == ()
        assert scene.batch(new, 2) is Commit.COMMITTED

    scene = Scene.of(play)
    assert scene.batches() == {0, 1, 2}


@pytest.mark.parametrize("version", [1, 2])
def test_a_superseded_driver_does_not_stop_its_successor(
    version: int,
) -> None:
    """It opens the log, and so fences the other's session, in the middle of the other's commit."""

    def play(scene: Scene) -> None:
        old, new = scene.taken_over()
        looks = scene.cluster.control.delay(ApiKey.DESCRIBE_TRANSACTIONS, 3_000)
        late, told = scene.beside(new.run.process, lambda: scene.commit(*new))
        scene.scheduler.block(lambda: bool(looks.fired), NEVER)
        with pytest.raises(SupersededError, match="run run-1"):
            scene.commit(*old)
        assert not told
        scene.scheduler.block(lambda: late.done, NEVER)
        assert told == [Commit.COMMITTED]

    scene = Scene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1, 2}


def test_a_batch_committed_by_the_other_driver_is_dropped() -> None:
    def play(scene: Scene) -> None:
        old, new = scene.run("run-0"), scene.run("run-1")
        scene.batch(old, 0)
        plan = scene.plan(new)
        messages = scene.write(new, 1, plan)
        scene.batch(old, 1)
        assert scene.commit(new, 1, plan, messages) is Commit.ALREADY_DONE
        assert scene.open_ids() == []

    scene = Scene.of(play)
    assert scene.batches() == {0, 1}


def test_a_deleted_checkpoint_is_an_error_naming_both_batches() -> None:
    """Spark starts again at batch 0, under another query id: to drop it would lose rows."""

    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        for number in range(3):
            scene.batch(run, number)
        again = scene.run("run-1")
        plan = scene.plan(again)
        with pytest.raises(CommitError, match=r"at batch 2 of query query-0.*batch 0") as caught:
            scene.commit(again, 0, plan, [], query="query-1")
        assert "kprod txn reset orders" in str(caught.value)

    Scene.of(play)


@pytest.mark.parametrize("number", [0, 4])
def test_a_restored_or_copied_checkpoint_is_an_error(number: int) -> None:
    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        for done in range(3):
            scene.batch(run, done)
        again = scene.run("run-1")
        plan = scene.plan(again)
        with pytest.raises(CommitError, match=rf"at batch 2 of query query-0.*batch {number}"):
            scene.commit(again, number, plan, [])

    Scene.of(play)


def test_evicting_a_warm_producer_leaves_its_transaction_alone() -> None:
    """Three tasks in one worker, two places for warm producers: one goes before the commit."""

    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = [scene.launch(run, 0, task, 0, plan) for task in range(1)]
        scene.scheduler.block(lambda: all(a.over for a in messages), NEVER)
        for task in (1, 2):
            messages.append(scene.launch(run, 0, task, 0, plan))
            scene.scheduler.block(lambda: messages[-1].over, NEVER)
        worker = run.workers[0]
        assert len(run.workers) == 1
        assert len(worker.kept.warm) == 2
        assert len(scene.open_ids()) == 3
        worker.kept.warm.close()
        scene.scheduler.sleep(5_000)
        assert len(scene.open_ids()) == 3
        told = [a.message for a in messages if a.message is not None]
        assert scene.commit(run, 0, plan, told) is Commit.COMMITTED

    scene = Scene.of(play, SparkLife(1, tasks=3, new_worker=0.0))
    assert {(b, t) for b, t, _ in scene.visible()} == {(0, 0), (0, 1), (0, 2)}


@pytest.mark.parametrize("version", [1, 2])
def test_an_uncommitted_decision_is_undone_and_written_again(
    version: int,
) -> None:
    """DECIDED, then no driver for longer than the transactions live: brokers abort them. Nothing is
    visible, so no operator is needed.
    """

    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan, tasks=2)
        lost = scene.cluster.control.drop(
            ApiKey.END_TXN, FOREVER, processed=False, where=lambda r: not of_the_log(r)
        )
        with pytest.raises(CommitOutcomeUnknownError, match="is decided, but the outcome of 2"):
            scene.commit(run, 0, plan, messages)
        assert lost.fired
        scene.abort(run, 0, plan, messages)
        scene.scheduler.sleep(2 * TIMEOUT_MS)
        scene.cluster.control.clear()
        again = scene.run("run-1")
        assert scene.plan(again).state.last_done == -1
        assert scene.visible() == set()
        assert scene.batch(again, 0) is Commit.COMMITTED

    scene = Scene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0}


def test_a_driver_away_too_long_in_its_commit_is_loud() -> None:
    """DECIDED, one of two is committed, then no driver for longer than the other one lives."""

    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan, tasks=2)
        assert messages[1].prepared is not None
        late = messages[1].prepared.transactional_id
        lost = scene.cluster.control.drop(
            ApiKey.END_TXN,
            FOREVER,
            processed=False,
            where=lambda r: bool(r.body.transactional_id == late),
        )
        with pytest.raises(CommitOutcomeUnknownError, match="is decided, but the outcome of 1"):
            scene.commit(run, 0, plan, messages)
        assert lost.fired
        scene.abort(run, 0, plan, messages)
        scene.scheduler.sleep(2 * TIMEOUT_MS)
        scene.cluster.control.clear()
        for name in ("run-1", "run-2"):
            with pytest.raises(PartialCommitError, match="committed in part") as caught:
                scene.plan(scene.run(name))
            assert caught.value.transactional_ids == (late,)
            assert "kprod txn resolve orders --batch 0 --as done" in str(caught.value)

    scene = Scene.of(play)
    assert {task for _, task, _ in scene.visible()} == {0}


def test_a_job_that_took_too_long_is_aborted_undecided() -> None:
    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        scene.scheduler.sleep(TIMEOUT_MS * 3 // 4)
        with pytest.raises(CommitError, match="took too long"):
            scene.commit(run, 0, plan, messages)
        assert scene.open_ids() == []

    scene = Scene.of(play)
    assert scene.visible() == set()


@pytest.mark.parametrize("version", [1, 2])
def test_a_batch_that_a_broker_aborted_by_time_is_aborted_whole(version: int) -> None:
    """One of two transactions timed out: of the other nothing may be seen either."""

    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        old = scene.write(run, 0, plan, tasks=1)
        scene.scheduler.sleep(TIMEOUT_MS + 15_000)
        late = scene.launch(run, 0, 1, 0, plan)
        scene.scheduler.block(lambda: late.over, NEVER)
        assert late.message is not None
        with pytest.raises(CommitError, match=r"1 of 2 transactions are not open any more"):
            scene.commit(run, 0, plan, [*old, late.message])
        assert scene.open_ids() == []

    scene = Scene.of(play, SparkLife(1, tasks=2, transaction_version=version))
    assert scene.visible() == set()


@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_that_spark_asks_for_twice_is_done_once(version: int) -> None:
    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        assert scene.commit(run, 0, plan, messages) is Commit.COMMITTED
        assert scene.commit(run, 0, plan, messages) is Commit.ALREADY_DONE
        scene.abort(run, 0, plan, messages)

    scene = Scene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0}


def test_a_stream_crosses_the_last_epoch_of_its_producer_ids() -> None:
    """Epochs end at 32 767: completing a transaction near it goes on under a new producer id."""

    def play(scene: Scene) -> None:
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

    scene = Scene.of(play, SparkLife(1, tasks=1, new_worker=0.0))
    assert scene.batches() == set(range(14))


def test_a_stream_needs_no_more_ids_than_twice_its_tasks() -> None:
    tasks = 3

    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        for number in range(30):
            assert scene.batch(run, number) is Commit.COMMITTED
        ids = [i for i in scene.cluster.transactions.transactions if f"{PREFIX}~run-0~" in i]
        assert len(ids) <= 2 * tasks

    Scene.of(play, SparkLife(1, tasks=tasks, rows=2, new_worker=0.0))
