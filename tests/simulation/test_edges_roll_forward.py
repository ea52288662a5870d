"""Who rolls a decision forward, or takes over with an empty batch, harms no other run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import CommitOutcomeUnknownError, ErrorCode, SupersededError
from spark_kafka_sink.datasource.exactly_once.transaction_commit import (
    payload_of,
    prepared_transactions,
)
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.committer import Batch, Commit
from spark_kafka_sink.transactions.ownership import Numbering
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.fakes.fake_cluster.transaction_coordinator import State
from tests.simulation.edge_scene import EdgeScene
from tests.simulation.scheduler import Task
from tests.simulation.spark_scene import of_a_sweep, of_the_log, owner_of
from tests.simulation.spark_world import LOG_TOPIC, TIMEOUT_MS, TOPIC, SparkLife
from tests.simulation.test_edges_operators import by_hand, commit_by_hand


def test_a_roll_forward_that_can_not_be_recorded_has_ended_all() -> None:
    """The right to write the commit log was taken away: the rows are visible, and it says so."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        scene.decides_and_dies(run, 0, plan, scene.write(run, 0, plan))
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        fault = scene.cluster.control.answer(ApiKey.PRODUCE, refused, 1, topic=LOG_TOPIC)
        with pytest.raises(CommitOutcomeUnknownError, match="are ended, which could not be rec"):
            scene.plan(scene.run("run-1"))
        assert fault.fired
        assert scene.batches() == {0}
        assert scene.plan(scene.run("run-2")).state.last_done == 0

    EdgeScene.of(play)


@pytest.mark.parametrize("by", ["operator", "plan", "itself"])
def test_a_restart_planned_before_a_roll_forward_goes_on(by: str) -> None:
    """It gives the dead driver's run other ids, and takes nothing over. ``itself``: the earlier
    driver does not know whether its decision is written, and rolls it forward.
    """

    def play(scene: EdgeScene) -> None:
        old, new = scene.run("run-0"), scene.run("run-1")
        scene.batch(old, 0)
        plan = scene.plan(old)
        messages = scene.write(old, 1, plan)
        restart = scene.plan(new)
        written = scene.write(new, 1, restart)
        if by == "itself":
            lost = scene.cluster.control.drop(ApiKey.END_TXN, where=of_the_log)
            assert scene.commit(old, 1, plan, messages) is Commit.COMMITTED
            assert lost.fired
        else:
            scene.decides_and_dies(old, 1, plan, messages)
            if by == "operator":
                commit_by_hand(scene, scene.run("operator"), TIMEOUT_MS)
            else:
                scene.plan(scene.run("run-2"))
        assert scene.commit(new, 1, restart, written) is Commit.ALREADY_DONE
        assert scene.batch(new, 2) is Commit.COMMITTED
        assert scene.open_ids() == []

    scene = EdgeScene.of(play, SparkLife(1, tasks=1))
    assert scene.batches() == {0, 1, 2}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("numbering", [Numbering.STREAM, Numbering.MICRO_BATCHES])
def test_a_take_over_is_written_before_its_sweep(numbering: Numbering, version: int) -> None:
    """An empty batch, or one that is dropped, takes over; the owner, which is about to decide, must
    find that in the log before its transactions are ended.
    """

    def play(scene: EdgeScene) -> None:
        old, new = scene.run("run-0"), scene.run("run-1")
        scene.batch(old, 0)
        plan, restart = scene.plan(old), scene.plan(new)
        messages = scene.write(old, 1, plan)
        owner = replace(owner_of(new.id, restart), numbering=numbering)
        batch = Batch(int(numbering is Numbering.STREAM), (), None)
        sweeps = scene.cluster.control.hold(
            ApiKey.LIST_TRANSACTIONS,
            1_000,
            where=of_a_sweep,
        )

        def takes_over() -> Commit:
            with scene.driver_side(new) as driver:
                return driver.commit(owner, batch)

        late, told = scene.beside(new.process, takes_over)
        scene.scheduler.block(lambda: sweeps.fired > 0, NEVER)
        with pytest.raises(SupersededError):
            scene.commit(old, 1, plan, messages)
        scene.scheduler.block(lambda: late.done, NEVER)
        how = Commit.EMPTY if numbering is Numbering.STREAM else Commit.ALREADY_DONE
        assert told == [how]
        assert scene.open_ids() == []

    scene = EdgeScene.of(play, SparkLife(1, tasks=2, transaction_version=version))
    assert scene.batches() == {0}


@pytest.mark.parametrize("version", [1, 2])
def test_an_empty_version_whose_sweep_missed_a_broker_is_no_error(version: int) -> None:
    """Another thread has committed the next one meanwhile. Its sweep looks at superseded runs only,
    whose ids nobody takes: there is nothing to record.
    """

    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")

        def job(number: int, rows: int) -> None:
            options = scene.options(txnAppId="app", txnVersion=number)
            scene.job(run, options, number, rows=rows)

        job(0, 3)
        silent = scene.cluster.control.drop(
            ApiKey.LIST_TRANSACTIONS,
            3,
            processed=False,
            where=of_a_sweep,
        )
        empty, told = scene.beside(run.process, lambda: job(1, 0))
        scene.scheduler.block(lambda: silent.fired > 0, NEVER)
        job(2, 3)
        scene.scheduler.block(lambda: empty.done, NEVER)
        assert told == [None]
        job(3, 3)

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 2, 3}


@pytest.mark.parametrize("version", [1, 2])
def test_an_attempt_of_a_dropped_version_keeps_its_id(version: int) -> None:
    """Its run's next version may be written by a thread, so the drop does not sweep the run."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")

        def commit(number: int, plan: TransactionPlan, messages: list[TaskCommitMessage]) -> Commit:
            owner = replace(owner_of(run.id, plan), numbering=Numbering.VERSIONS)
            prepared, payload = prepared_transactions(messages, owner), payload_of(messages, TOPIC)
            with scene.driver_side(run) as driver:
                return driver.commit(owner, Batch(number, prepared, payload))

        plan = scene.plan(run)
        assert commit(0, plan, scene.write(run, 0, plan)) is Commit.COMMITTED
        plan, again = scene.plan(run), scene.plan(run)
        assert commit(1, plan, scene.write(run, 1, plan)) is Commit.COMMITTED
        dropped, loser = (scene.launch(run, 1, 0, attempt, again) for attempt in (2, 3))
        scene.scheduler.block(lambda: dropped.over and loser.over, NEVER)
        assert dropped.message is not None
        assert commit(1, again, [dropped.message]) is Commit.ALREADY_DONE
        (left,) = scene.open_ids()
        plan = scene.plan(run)
        messages = scene.write(run, 2, plan)
        assert left not in {m.prepared.transactional_id for m in messages if m.prepared}
        assert commit(2, plan, messages) is Commit.COMMITTED

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version, new_worker=0.0))
    assert scene.batches() == {0, 1, 2}


#: The end of the transactional ids that write the commit log.
LOG_OF = log_id("")


def is_a_logs(request: Request) -> bool:
    return str(request.body.transactional_id).endswith(LOG_OF)


def loses_its_answer(scene: EdgeScene) -> tuple[list[str], Task, list[object]]:
    """Run-0 commits batch 1, whose decision reaches the log without a response: the ids of its
    tasks, and the commit that goes on, with its result.
    """
    old = scene.run("run-0")
    scene.batch(old, 0)
    plan = scene.plan(old)
    messages = scene.write(old, 1, plan)
    lost = scene.cluster.control.drop(ApiKey.END_TXN, where=of_the_log)
    commit, told = scene.beside(old.process, lambda: scene.commit(old, 1, plan, messages))
    scene.scheduler.block(lambda: lost.fired > 0, NEVER)
    return [m.prepared.transactional_id for m in messages if m.prepared], commit, told


@pytest.mark.parametrize("version", [1, 2])
def test_a_decision_that_others_ended_unseen_is_an_unknown_outcome(version: int) -> None:
    """The response to it is lost, another start ends it and takes over, and then no coordinator
    describes its transactions.
    """

    def play(scene: EdgeScene) -> None:
        new, control = scene.run("run-1"), scene.cluster.control
        _, commit, told = loses_its_answer(scene)
        scene.batch(new, 2)
        silent = control.drop(ApiKey.DESCRIBE_TRANSACTIONS, FOREVER, processed=False)
        scene.scheduler.block(lambda: commit.done, NEVER)
        assert silent.fired
        (error,) = told
        assert isinstance(error, CommitOutcomeUnknownError), error
        assert "batch 1 of 'orders' may be decided: " in error.message
        control.clear()

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1, 2}


@pytest.mark.parametrize("late", [1, 2])
@pytest.mark.parametrize("version", [1, 2])
def test_a_decision_that_others_committed_is_committed(version: int, late: int) -> None:
    """The response to it is lost, another start ends it and takes over. The markers of ``late`` of
    its two transactions are on their way: those are committed, too.
    """

    def play(scene: EdgeScene) -> None:
        new, cluster = scene.run("run-1"), scene.cluster
        ids, commit, told = loses_its_answer(scene)
        waiting = set(ids[:late])
        for one in waiting:
            cluster.markers_ms[one] = 30_000
        scene.batch(new, 2)
        scene.scheduler.block(lambda: commit.done, NEVER)
        states = cluster.transactions.transactions
        assert {i for i, t in states.items() if t.state is State.PREPARE_COMMIT} == waiting
        assert told == [Commit.COMMITTED]

    scene = EdgeScene.of(play, SparkLife(1, tasks=2, transaction_version=version))
    assert scene.batches() == {0, 1, 2}


@pytest.mark.parametrize("version", [1, 2])
def test_a_decision_whose_ids_were_used_since_is_an_unknown_outcome(version: int) -> None:
    """Another start committed it, and what its id wrote after that was aborted: with version 1 the
    coordinator describes that as it would an abort of the decision.
    """

    def play(scene: EdgeScene) -> None:
        new = scene.run("run-1")
        ids, commit, told = loses_its_answer(scene)
        scene.batch(new, 2)
        used = scene.cluster.transactions.transactions[ids[0]]
        # (By InitProducerId; with version 2 the commit, and the abort, add one, too.)
        used.epoch, used.state = used.epoch + (1 if version == 1 else 2), State.COMPLETE_ABORT
        scene.scheduler.block(lambda: commit.done, NEVER)
        (error,) = told
        assert isinstance(error, CommitOutcomeUnknownError), error
        assert error.transactional_ids == tuple(ids)

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1, 2}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("report", [{}, {"reportTopic": "reports"}])
def test_a_job_that_an_operator_has_committed_and_reset_is_saved(
    version: int, report: dict[str, str]
) -> None:
    """The response to its decision is lost; before it opens the log again, 'kprod txn commit' ends
    the decision, and 'kprod txn reset' removes it from the log.
    """

    def play(scene: EdgeScene) -> None:
        run, control = scene.run("driver"), scene.cluster.control
        scene.cluster.create_topic("reports", 1)
        lost = control.drop(ApiKey.END_TXN, FOREVER, where=is_a_logs)

        def operator() -> None:
            control.clear()
            (log,) = (i for i in scene.cluster.transactions.transactions if i.endswith(LOG_OF))
            key = log.removesuffix(LOG_OF)
            with by_hand(scene, scene.run("operator")) as commands:
                commands.commit(commands.plan_commit(key))
                commands.reset(commands.plan_reset(key, force=False))

        def opens_again(request: Request) -> bool:
            is_open = request.api == ApiKey.INIT_PRODUCER_ID and is_a_logs(request)
            return is_open and lost.fired > 0

        met = scene.before_send(run, opens_again, operator)
        scene.job(run, scene.options(**report), 0)
        assert met

    scene = EdgeScene.of(play, SparkLife(1, tasks=2, transaction_version=version, new_worker=0.0))
    assert scene.batches() == {0}
    assert scene.open_ids() == []
