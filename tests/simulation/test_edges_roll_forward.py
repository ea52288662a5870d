"""Who rolls a decision forward, or takes over with an empty batch, harms no other run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import (
    CommitOutcomeUnknownError,
    ErrorCode,
    KafkaError,
    SupersededError,
)
from spark_kafka_sink.datasource.exactly_once.transaction_commit import payload_of
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.ownership import Numbering
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.control import FOREVER
from tests.fakes.fake_cluster.transaction_coordinator import State
from tests.simulation.scene import VERSIONS, Scene, Written, owner_of
from tests.simulation.scene_requests import LOG_OF, is_a_logs, of_a_sweep, of_the_log, opens_a_log
from tests.simulation.scheduler import Task
from tests.simulation.spark_world import LOG_TOPIC, TOPIC

pytestmark = VERSIONS


def test_a_roll_forward_that_can_not_be_recorded_has_ended_all(scene: Scene) -> None:
    """The right to write the commit log was taken away: the rows are visible, and it says so."""
    scene.decides_and_dies(*scene.first_batch())
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    fault = scene.control.answer(ApiKey.PRODUCE, refused, 1, topic=LOG_TOPIC)
    with pytest.raises(CommitOutcomeUnknownError, match="are ended, which could not be rec"):
        scene.plan(scene.run("run-1"))
    assert fault.fired
    scene.scheduler.sleep(100)  # for the markers
    assert scene.batches() == {0}
    assert scene.plan(scene.run("run-2")).state.last_done == 0


@pytest.mark.parametrize("by", ["operator", "plan", "itself"])
def test_a_restart_planned_before_a_roll_forward_goes_on(scene: Scene, by: str) -> None:
    """It gives the dead driver's run other ids, and takes nothing over. ``itself``: the earlier
    driver does not know whether its decision is written, and rolls it forward.
    """
    written = scene.second_batch()
    restart = scene.written(scene.run("run-1"), 1)
    if by == "itself":
        lost = scene.control.drop(ApiKey.END_TXN, where=of_the_log)
        assert scene.commit(*written) is Commit.COMMITTED
        assert lost.fired
    else:
        scene.decides_and_dies(*written)
        if by == "operator":
            scene.commit_by_hand()
        else:
            scene.plan(scene.run("run-2"))
    assert scene.commit(*restart) is Commit.ALREADY_DONE
    assert scene.batch(restart.run, 2) is Commit.COMMITTED
    assert scene.open_ids() == []
    scene.ends_with(0, 1, 2)


@pytest.mark.parametrize("numbering", [Numbering.STREAM, Numbering.MICRO_BATCHES])
@pytest.mark.life(tasks=2)
def test_a_take_over_is_written_before_its_sweep(scene: Scene, numbering: Numbering) -> None:
    """An empty batch, or one that is dropped, takes over; the owner, which is about to decide, must
    find that in the log before its transactions are ended.
    """
    new, written = scene.run("run-1"), scene.second_batch()
    restart = scene.plan(new)
    owner = replace(owner_of(new.id, restart), numbering=numbering)
    batch = Batch(int(numbering is Numbering.STREAM), (), None)
    sweeps = scene.control.hold(ApiKey.LIST_TRANSACTIONS, 1_000, where=of_a_sweep)

    def takes_over() -> Commit:
        with scene.driver_side(new) as driver:
            return driver.commit(owner, batch)

    late, told = scene.beside(new.process, takes_over)
    scene.wait(lambda: sweeps.fired)
    with pytest.raises(SupersededError):
        scene.commit(*written)
    scene.wait(lambda: late.done)
    how = Commit.EMPTY if numbering is Numbering.STREAM else Commit.ALREADY_DONE
    assert told == [how]
    assert scene.open_ids() == []
    scene.ends_with(0)


def test_an_empty_version_whose_sweep_missed_a_broker_is_no_error(scene: Scene) -> None:
    """Another thread has committed the next one meanwhile. Its sweep looks at superseded runs only,
    whose ids nobody takes: there is nothing to record.
    """
    run = scene.run("driver")
    scene.version_of_job(run, 0)
    silent = scene.control.drop(ApiKey.LIST_TRANSACTIONS, 3, processed=False, where=of_a_sweep)
    empty, told = scene.beside(run.process, lambda: scene.version_of_job(run, 1, rows=0))
    scene.wait(lambda: silent.fired)
    scene.version_of_job(run, 2)
    scene.wait(lambda: empty.done)
    assert not isinstance(told[0], KafkaError)
    scene.version_of_job(run, 3)
    scene.ends_with(0, 2, 3)


@pytest.mark.life(new_worker=0.0)
def test_an_attempt_of_a_dropped_version_keeps_its_id(scene: Scene) -> None:
    """Its run's next version may be written by a thread, so the drop does not sweep the run."""
    run = scene.run("run-0")

    def commit(written: Written) -> Commit:
        owner = replace(owner_of(run.id, written.plan), numbering=Numbering.VERSIONS)
        payload = payload_of(written.messages, TOPIC)
        with scene.driver_side(run) as driver:
            return driver.commit(owner, Batch(written.number, tuple(written.prepared), payload))

    assert commit(scene.written(run, 0)) is Commit.COMMITTED
    again = scene.plan(run)
    assert commit(scene.written(run, 1)) is Commit.COMMITTED
    dropped, _ = scene.speculative_pair(run, 1, again)
    assert commit(Written(run, 1, again, [dropped])) is Commit.ALREADY_DONE
    (left,) = scene.open_ids()
    written = scene.written(run, 2)
    assert left not in written.ids
    assert commit(written) is Commit.COMMITTED
    scene.ends_with(0, 1, 2)


def loses_its_answer(scene: Scene) -> tuple[list[str], Task, list[object]]:
    """Run-0 commits batch 1, whose decision reaches the log without a response: the ids of its
    tasks, and the commit that goes on, with its result.
    """
    written = scene.second_batch()
    lost = scene.control.drop(ApiKey.END_TXN, where=of_the_log)
    commit, told = scene.beside(written.run.process, lambda: scene.commit(*written))
    scene.wait(lambda: lost.fired)
    return written.ids, commit, told


def test_a_decision_that_others_ended_unseen_is_an_unknown_outcome(scene: Scene) -> None:
    """The response to it is lost, another start ends it and takes over, and then no coordinator
    describes its transactions.
    """
    new, control = scene.run("run-1"), scene.control
    _, commit, told = loses_its_answer(scene)
    scene.batch(new, 2)
    silent = control.drop(ApiKey.DESCRIBE_TRANSACTIONS, FOREVER, processed=False)
    scene.wait(lambda: commit.done)
    assert silent.fired
    (error,) = told
    assert isinstance(error, CommitOutcomeUnknownError), error
    assert "batch 1 of 'orders' may be decided: " in error.message
    control.clear()
    scene.ends_with(0, 1, 2)


@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.life(tasks=2)
def test_a_decision_that_others_committed_is_committed(scene: Scene, late: int) -> None:
    """The response to it is lost, another start ends it and takes over: it opens the log again, and
    finds itself superseded. The markers of ``late`` of its two transactions are on their way: those
    are committed, too.
    """
    new, cluster = scene.run("run-1"), scene.cluster
    ids, commit, told = loses_its_answer(scene)
    waiting = set(ids[:late])
    for one in waiting:
        cluster.markers_ms[one] = 30_000
    scene.batch(new, 2)
    scene.wait(lambda: commit.done)
    states = cluster.transactions.transactions
    assert {i for i, t in states.items() if t.state is State.PREPARE_COMMIT} == waiting
    assert told == [Commit.COMMITTED]
    scene.ends_with(0, 1, 2)


def test_a_decision_whose_ids_were_used_since_is_an_unknown_outcome(
    scene: Scene, version: int
) -> None:
    """Another start committed it, and what its id wrote after that was aborted: with version 1 the
    coordinator describes that as it would an abort of the decision.
    """
    new = scene.run("run-1")
    ids, commit, told = loses_its_answer(scene)
    scene.batch(new, 2)
    used = scene.cluster.transactions.transactions[ids[0]]
    # (By InitProducerId; with version 2 the commit, and the abort, add one, too.)
    used.epoch, used.state = used.epoch + (1 if version == 1 else 2), State.COMPLETE_ABORT
    scene.wait(lambda: commit.done)
    (error,) = told
    assert isinstance(error, CommitOutcomeUnknownError), error
    assert error.transactional_ids == tuple(ids)
    scene.ends_with(0, 1, 2)


@pytest.mark.parametrize("report", [{}, {"reportTopic": "reports"}])
@pytest.mark.life(tasks=2, new_worker=0.0)
def test_a_job_that_an_operator_has_committed_and_reset_is_saved(
    scene: Scene, report: dict[str, str]
) -> None:
    """The response to its decision is lost; before it opens the log again, 'kprod txn commit' ends
    the decision, and 'kprod txn reset' removes it from the log.
    """
    run, control = scene.run("driver"), scene.control
    scene.cluster.create_topic("reports", 1)
    lost = control.drop(ApiKey.END_TXN, FOREVER, where=is_a_logs)

    def operator() -> None:
        control.clear()
        (log,) = (i for i in scene.cluster.transactions.transactions if i.endswith(LOG_OF))
        key = log.removesuffix(LOG_OF)
        with scene.by_hand() as commands:
            commands.commit(commands.plan_commit(key))
            commands.reset(commands.plan_reset(key, force=False))

    met = scene.before_send(run, lambda r: lost.fired > 0 and opens_a_log(r), operator)
    scene.job(run, scene.options(**report), 0)
    assert met
    assert scene.open_ids() == []
    scene.ends_with(0)
