"""What a suspicious reader of the protocol tried: each was a bug once."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import CommitError, CommitOutcomeUnknownError, SupersededError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.committer import Batch, Commit
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.transactional_ids import TransactionalId, log_key
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.spark_scene import Scene, of_the_log
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, SparkLife


@pytest.mark.parametrize("version", [1, 2])
def test_planning_fails_when_the_batch_before_can_not_be_done(version: int) -> None:
    """Batch 1 is committed, its DONE can't be written, and neither can it at batch 2's planning.

    Going on, batch 2's task would reuse the same id, and the log would name a transaction of
    batch 1 whose outcome can't be found out any more: every later start would fail.
    """

    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        plan = scene.plan(run)
        messages = scene.write(run, 1, plan)
        silent = scene.cluster.control.drop(
            ApiKey.PRODUCE, FOREVER, processed=False, topic=LOG_TOPIC, nth=2
        )
        assert scene.commit(run, 1, plan, messages) is Commit.COMMITTED
        tried = silent.fired
        assert tried
        with pytest.raises(CommitOutcomeUnknownError, match="the commit log of 'orders~~log'"):
            scene.plan(run)
        assert silent.fired > tried
        scene.cluster.control.clear()
        assert scene.plan(run).state.last_done == 1
        assert scene.batch(run, 2) is Commit.COMMITTED

    life = SparkLife(1, tasks=1, new_worker=0.0, transaction_version=version)
    scene = Scene.of(play, life)
    assert scene.batches() == {0, 1, 2}


def test_a_run_that_never_owned_the_key_leaves_nothing_open() -> None:
    """Two queries with one new prefix plan. The loser's run is in no log, and it writes after the
    winner has looked for such runs: its own abort has to end what it prepared.
    """

    def play(scene: Scene) -> None:
        winner, loser = scene.run("run-a"), scene.run("run-b")
        plans = scene.plan(winner), scene.plan(loser)
        ours = scene.write(winner, 0, plans[0])
        assert scene.commit(winner, 0, plans[0], ours) is Commit.COMMITTED
        theirs = scene.write(loser, 0, plans[1])
        with pytest.raises(SupersededError, match="run run-a"):
            scene.commit(loser, 0, plans[1], theirs)
        assert len(scene.open_ids()) == 1
        scene.abort(loser, 0, plans[1], theirs)
        assert scene.open_ids() == []

    scene = Scene.of(play)
    assert scene.batches() == {0}


def test_a_batch_of_another_query_is_not_taken_for_the_done_one() -> None:
    """Two queries' foreachBatch share a name, and one commits while the other one's tasks write:
    its version is done by number only, and was planned before that.
    """

    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        key = log_key(PREFIX, "shared")
        batch = Batch(0, ())
        with scene.driver_side(run) as driver:
            assert driver.commit(Owner(key, "run-0", "query-a", 0), batch) is Commit.EMPTY
            generation = driver.plan(key).generation
            again = Owner(key, "run-1", "query-a", generation)
            assert driver.commit(again, batch) is Commit.ALREADY_DONE
            with pytest.raises(CommitError, match=r"batch 0 of query query-a, and query query-b"):
                driver.commit(Owner(key, "run-2", "query-b", generation), batch)

    Scene.of(play)


@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_that_opens_the_log_after_an_abort_fails(version: int) -> None:
    """A user stops a query that hangs in its commit; Spark calls abort, and the commit's process is
    still there:

        abort opens the log, no decision; its read takes a while
        commit opens the log, all are prepared; the answer takes a while
        abort ends the transactions
        commit writes DECIDED, with transactions that are gone
    """

    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        plan = scene.plan(run)
        messages = scene.write(run, 1, plan)
        control = scene.cluster.control
        stalled = control.drop(ApiKey.INIT_PRODUCER_ID, processed=False, where=of_the_log)
        late, outcomes = scene.beside(run.process, lambda: scene.commit(run, 1, plan, messages))
        scene.scheduler.block(lambda: bool(stalled.fired), NEVER)
        slow_read = control.delay(ApiKey.FETCH, 8_000 - 3_500)
        slow_check = control.delay(ApiKey.DESCRIBE_TRANSACTIONS, 4_500)
        scene.scheduler.sleep(3_500)
        scene.abort(run, 1, plan, messages)
        scene.scheduler.block(lambda: late.done, NEVER)
        assert isinstance(outcomes[0], CommitError), outcomes
        assert slow_read.fired
        assert slow_check.fired
        again = scene.run("run-1")
        assert scene.plan(again).state.last_done == 0
        assert scene.batch(again, 1) is Commit.COMMITTED
        assert scene.open_ids() == []

    scene = Scene.of(play, SparkLife(1, tasks=2, transaction_version=version))
    assert scene.batches() == {0, 1}


def test_a_query_whose_first_batch_was_aborted_goes_on() -> None:
    """It was at batch 57 when it turned to exactly-once. The abort's note is no batch that is done,
    and the next commit sweeps what the aborted run's tasks still begin.
    """

    def play(scene: Scene) -> None:
        first = scene.run("run-0")
        plan = scene.plan(first)
        scene.abort(first, 57, plan, scene.write(first, 57, plan))
        late = scene.launch(first, 57, 0, 1, plan)
        scene.scheduler.block(lambda: late.over, NEVER)
        assert len(scene.open_ids()) == 1
        again = scene.run("run-1")
        assert scene.batch(again, 57) is Commit.COMMITTED
        assert scene.open_ids() == []
        assert scene.batch(again, 58) is Commit.COMMITTED

    scene = Scene.of(play)
    assert scene.batches() == {57, 58}


def test_an_aborted_job_leaves_no_record_unless_it_may_return() -> None:
    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        with scene.driver_side(run) as driver:
            for name, numbering in (("job-1", Numbering.ONCE), ("app", Numbering.VERSIONS)):
                owner = Owner(log_key(PREFIX, name), "job-1", "", 0, numbering=numbering)
                driver.abort(owner, 0, (), tasks_may_run=False)
            with pytest.raises(CommitError, match="run job-1 of 'orders~app' was aborted"):
                driver.commit(owner, Batch(0, ()))
        with scene.driver_side(run) as driver:
            assert driver.plan(log_key(PREFIX, "job-1")).superseded == ()
            assert driver.plan(log_key(PREFIX, "app")).superseded == ("job-1",)

    Scene.of(play)


@pytest.mark.parametrize("version", [1, 2])
def test_orphans_of_a_driver_dead_before_its_commit_are_swept(version: int) -> None:
    """Its run is in no record of the log. Its ids tell that it planned before the take-over."""

    def play(scene: Scene) -> None:
        scene.batch(scene.run("run-0"), 0)
        for name in ("run-1", "run-2"):
            dead = scene.run(name)
            scene.write(dead, 1, scene.plan(dead))
            dead.process.kill()
        foreign = str(TransactionalId(f"{PREFIX}.eu", "run-9", "w", 0))
        job = str(TransactionalId(log_key(PREFIX, "job"), "job", "w", 7))
        for transactional_id in (foreign, job):
            scene.begin_foreign(transactional_id)
        assert len(scene.open_ids()) == 2 + 2
        run = scene.run("run-3")
        assert scene.batch(run, 1) is Commit.COMMITTED
        assert scene.open_ids() == sorted((foreign, job))
        assert scene.plan(run).state.superseded == ("run-0",)

    scene = Scene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1}


def test_who_starts_after_a_take_over_is_not_swept_by_it() -> None:
    """The later starter wins: only runs that had planned before us are shut out."""

    def play(scene: Scene) -> None:
        first, second = scene.run("run-1"), scene.run("run-2")
        scene.batch(first, 0)
        plan = scene.plan(second)
        messages = scene.write(second, 1, plan)
        scene.batch(first, 1)
        assert len(scene.open_ids()) == 1, "the owner's later commits sweep no strangers"
        assert scene.commit(second, 1, plan, messages) is Commit.ALREADY_DONE
        assert scene.batch(second, 2) is Commit.COMMITTED

    scene = Scene.of(play)
    assert scene.batches() == {0, 1, 2}


def test_a_batch_that_is_dropped_takes_nothing_over() -> None:
    """Nothing is written then, so the run that owns the key may go on: its transactions are its."""

    def play(scene: Scene) -> None:
        owner, other = scene.run("run-1"), scene.run("run-2")
        scene.batch(owner, 0)
        plan_other, plan = scene.plan(other), scene.plan(owner)
        messages = scene.write(owner, 1, plan)
        dropped = scene.write(other, 0, plan_other)
        assert scene.commit(other, 0, plan_other, dropped) is Commit.ALREADY_DONE
        assert len(scene.open_ids()) == 1
        assert scene.commit(owner, 1, plan, messages) is Commit.COMMITTED

    scene = Scene.of(play)
    assert scene.batches() == {0, 1}


def test_an_abort_without_the_key_in_the_log_still_aborts() -> None:
    """Planned when the key had an owner; its topic was deleted since."""

    def play(scene: Scene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        plan = scene.plan(run)
        messages = scene.write(run, 1, plan)
        with scene.driver_side(run) as driver:
            log = CommitLog(driver.client, LOG_TOPIC)
            deadline = scene.scheduler.now + 20_000
            log.open(PREFIX, deadline).write(None, deadline)
        assert len(scene.open_ids()) == 1
        scene.abort(run, 1, plan, messages)
        assert scene.open_ids() == []

    scene = Scene.of(play)
    assert scene.batches() == {0}
