"""What a suspicious reader of the protocol tried: each was a bug once."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import CommitError, CommitOutcomeUnknownError, SupersededError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import TransactionalId, log_key
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import VERSIONS, Scene, Written
from tests.simulation.spark_world import LOG_TOPIC, PREFIX


@VERSIONS
@pytest.mark.life(new_worker=0.0)
def test_planning_fails_when_the_batch_before_can_not_be_done(scene: Scene) -> None:
    """Batch 1 is committed, its DONE can't be written, and neither can it at batch 2's planning.

    Going on, batch 2's task would reuse the same id, and the log would name a transaction of
    batch 1 whose outcome can't be found out any more: every later start would fail.
    """
    written = scene.second_batch()
    run = written.run
    silent = scene.control.drop(ApiKey.PRODUCE, FOREVER, processed=False, topic=LOG_TOPIC, nth=2)
    assert scene.commit(*written) is Commit.COMMITTED
    tried = silent.fired
    assert tried
    with pytest.raises(CommitOutcomeUnknownError, match="the commit log of 'orders~~log'"):
        scene.plan(run)
    assert silent.fired > tried
    scene.control.clear()
    assert scene.plan(run).state.last_done == 1
    assert scene.batch(run, 2) is Commit.COMMITTED
    scene.ends_with(0, 1, 2)


def test_a_run_that_never_owned_the_key_leaves_nothing_open(scene: Scene) -> None:
    """Two queries with one new prefix plan. The loser's run is in no log, and it writes after the
    winner has looked for such runs: its own abort has to end what it prepared.
    """
    winner, loser = scene.run("run-a"), scene.run("run-b")
    plan = scene.plan(loser)
    assert scene.commit(*scene.written(winner, 0)) is Commit.COMMITTED
    theirs = Written(loser, 0, plan, scene.write(loser, 0, plan))
    with pytest.raises(SupersededError, match="run run-a"):
        scene.commit(*theirs)
    assert len(scene.open_ids()) == 1
    scene.abort(*theirs)
    assert scene.open_ids() == []
    scene.ends_with(0)


def test_a_batch_of_another_query_is_not_taken_for_the_done_one(scene: Scene) -> None:
    """Two queries' foreachBatch share a name, and one commits while the other one's tasks write:
    its version is done by number only, and was planned before that.
    """
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


def test_a_query_whose_first_batch_was_aborted_goes_on(scene: Scene) -> None:
    """It was at batch 57 when it turned to exactly-once. The abort's note is no batch that is done,
    and the next commit sweeps what the aborted run's tasks still begin.
    """
    first = scene.run("run-0")
    plan = scene.plan(first)
    scene.abort(first, 57, plan, scene.write(first, 57, plan))
    scene.attempt_of(first, 57, 0, 1, plan)
    assert len(scene.open_ids()) == 1
    again = scene.run("run-1")
    assert scene.batch(again, 57) is Commit.COMMITTED
    assert scene.open_ids() == []
    assert scene.batch(again, 58) is Commit.COMMITTED
    scene.ends_with(57, 58)


def test_an_aborted_job_leaves_no_record_unless_it_may_return(scene: Scene) -> None:
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


@VERSIONS
def test_orphans_of_a_driver_dead_before_its_commit_are_swept(scene: Scene) -> None:
    """Its run is in no record of the log. Its ids tell that it planned before the take-over."""
    scene.batch(scene.run("run-0"), 0)
    for name in ("run-1", "run-2"):
        scene.dies_undecided(name, 1)
    foreign = str(TransactionalId(f"{PREFIX}.eu", "run-9", "w", 0, 2))
    job = str(TransactionalId(log_key(PREFIX, "job"), "job", "w", 7, 2))
    for transactional_id in (foreign, job):
        scene.begin_foreign(transactional_id)
    assert len(scene.open_ids()) == 2 + 2
    run = scene.run("run-3")
    assert scene.batch(run, 1) is Commit.COMMITTED
    assert scene.open_ids() == sorted((foreign, job))
    assert scene.plan(run).state.superseded == ("run-0",)
    scene.ends_with(0, 1)


def test_who_starts_after_a_take_over_is_not_swept_by_it(scene: Scene) -> None:
    """The later starter wins: only runs that had planned before us are shut out."""
    first, second = scene.run("run-1"), scene.run("run-2")
    scene.batch(first, 0)
    written = scene.written(second, 1)
    scene.batch(first, 1)
    assert len(scene.open_ids()) == 1, "the owner's later commits sweep no strangers"
    assert scene.commit(*written) is Commit.ALREADY_DONE
    assert scene.open_ids() == []
    assert scene.batch(second, 2) is Commit.COMMITTED
    scene.ends_with(0, 1, 2)


def test_a_batch_that_is_dropped_takes_nothing_over(scene: Scene) -> None:
    """Nothing is written then, so the run that owns the key may go on: its transactions are its."""
    written = scene.second_batch()
    assert scene.commit(*scene.written(scene.run("run-1"), 0)) is Commit.ALREADY_DONE
    assert len(scene.open_ids()) == 1
    assert scene.commit(*written) is Commit.COMMITTED
    scene.ends_with(0, 1)


def test_an_abort_without_the_key_in_the_log_still_aborts(scene: Scene) -> None:
    """Planned when the key had an owner; its topic was deleted since."""
    written = scene.second_batch()
    scene.change_log(PREFIX, lambda _: None)
    assert len(scene.open_ids()) == 1
    scene.abort(*written)
    assert scene.open_ids() == []
    scene.ends_with(0)
