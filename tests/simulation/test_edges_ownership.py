"""The healthy driver is never harmed: not by a superseded one, another client, or a mistake."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import (
    CommitError,
    ErrorCode,
    KafkaError,
    SupersededError,
)
from spark_kafka_sink.cli.operations.operator import Operator
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.exactly_once.transaction_commit import prepared_transactions
from spark_kafka_sink.datasource.write_plan import WritePlan
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import OffsetAndMetadata
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.committer import Batch, Commit
from spark_kafka_sink.transactions.offset_commits import GroupOffsets
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.edge_scene import EdgeScene
from tests.simulation.spark_scene import Written, of_the_log, owner_of
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, TOPIC, Run, SparkLife
from tests.simulation.test_edges_operators import by_hand


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("marker_ms", [2, 60])
def test_a_superseded_driver_between_produce_and_end_is_harmless(
    marker_ms: int, version: int
) -> None:
    """B is the owner, and its decision's Produce is answered late; A, superseded, opens the log:
    B's transaction of the log is aborted, and B's EndTxn comes after that.
    """

    def play(scene: EdgeScene) -> None:
        old, new = scene.taken_over()
        scene.cluster.marker_ms = marker_ms
        slow = scene.cluster.control.delay(ApiKey.PRODUCE, 40, topic=LOG_TOPIC)

        late, told = scene.beside(new.run.process, lambda: scene.commit(*new))
        scene.scheduler.block(lambda: bool(slow.fired), NEVER)
        with pytest.raises(KafkaError):
            scene.commit(*old)
        scene.scheduler.block(lambda: late.done, NEVER)
        assert told == [Commit.COMMITTED]

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1, 2}


def _commits(scene: EdgeScene, written: Written) -> None:
    assert scene.commit(*written) is Commit.COMMITTED


def _is_aborted(scene: EdgeScene, written: Written) -> None:
    scene.abort(*written)


def _is_ended_by_hand(scene: EdgeScene, written: Written) -> None:
    with by_hand(scene, scene.run("operator")) as operator:
        plan = operator.plan_abort_run(PREFIX, written.run.id, force=True)
        assert not operator.end(plan).failed


@pytest.mark.parametrize("act", [_commits, _is_aborted, _is_ended_by_hand])
@pytest.mark.parametrize("version", [1, 2])
def test_who_is_shut_out_of_the_log_eight_times_goes_on(
    version: int, act: Callable[[EdgeScene, Written], None]
) -> None:
    """Others open it before each of their writes."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        plan = scene.plan(run)
        written = Written(run, 1, plan, scene.write(run, 1, plan))
        shut_out = scene.cluster.control.answer(
            ApiKey.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH, 8, topic=LOG_TOPIC
        )
        act(scene, written)
        assert shut_out.fired == 8
        assert scene.open_ids() == []

    EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))


def _shut_out(scene: EdgeScene) -> object:
    return scene.cluster.control.answer(
        ApiKey.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH, 8, topic=LOG_TOPIC
    )


def _unanswered(scene: EdgeScene) -> object:
    return scene.cluster.control.drop(ApiKey.END_TXN, FOREVER, where=of_the_log)


@pytest.mark.parametrize("happens", [_shut_out, _unanswered])
@pytest.mark.parametrize("version", [1, 2])
def test_a_reset_beside_drivers_goes_on(
    version: int, happens: Callable[[EdgeScene], object]
) -> None:
    """Others open the log before each of its writes; or no answer to one comes."""

    def play(scene: EdgeScene) -> None:
        scene.batch(scene.run("run-0"), 0)
        with by_hand(scene, scene.run("operator")) as operator:
            report = operator.plan_reset(PREFIX)
            happens(scene)
            operator.reset(report)
            assert operator.inspector.keys(PREFIX)[PREFIX] == report.state.forgotten()

    EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))


@pytest.mark.parametrize("happens", [_shut_out, _unanswered])
@pytest.mark.parametrize("version", [1, 2])
def test_a_resolution_beside_drivers_goes_on(
    version: int, happens: Callable[[EdgeScene], object]
) -> None:
    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        scene.decides_and_dies(run, 0, plan, messages)
        prepared = messages[0].prepared
        assert prepared is not None
        with by_hand(scene, scene.run("operator")) as operator:
            state = operator.inspector.keys(PREFIX)[PREFIX]
            with scene.driver_side(scene.run("run-1")) as driver:
                log = CommitLog(driver.client, LOG_TOPIC)
                session = log.open(PREFIX, driver.client.deadline())
                lost = state.partly_lost([prepared.transactional_id])
                session.write(lost, driver.client.deadline())
            resolution = operator.plan_resolve(PREFIX, 0, done=False)
            happens(scene)
            assert operator.resolve(resolution).last_done == -1
            scene.cluster.control.clear()
            assert operator.inspector.keys(PREFIX)[PREFIX].decision is None
        assert scene.open_ids() == []

    EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))


@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_that_its_successor_rolled_forward_succeeds(version: int) -> None:
    """A's decision is in the log, and A does not hear of it. B begins: it ends what A decided, and
    takes over with a batch of its own. A opens the log again, and finds itself superseded.
    """

    def play(scene: EdgeScene) -> None:
        old = scene.run("run-0")
        plan = scene.plan(old)
        messages = scene.write(old, 0, plan)
        lost = scene.cluster.control.drop(ApiKey.END_TXN, where=of_the_log)

        late, told = scene.beside(old.process, lambda: scene.commit(old, 0, plan, messages))
        scene.scheduler.block(lambda: bool(lost.fired), NEVER)
        assert scene.batch(scene.run("run-1"), 1) is Commit.COMMITTED
        scene.scheduler.block(lambda: late.done, NEVER)
        assert told == [Commit.COMMITTED]

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1}


@pytest.mark.parametrize("version", [1, 2])
def test_a_take_over_while_offsets_are_prepared_says_so(version: int) -> None:
    """B takes over between A's requests for its own transaction, and ends it."""

    def play(scene: EdgeScene) -> None:
        old, new = scene.run("run-0"), scene.run("run-1")
        assert scene.batch(old, 0) is Commit.COMMITTED
        plan, theirs = scene.plan(old), scene.written(new, 1)
        messages = scene.write(old, 1, plan)
        owner = owner_of(old.id, plan)
        offsets = {TopicPartition(TOPIC, 0): OffsetAndMetadata(1)}
        batch = Batch(
            1, prepared_transactions(messages, owner), offsets=GroupOffsets("readers", offsets)
        )
        met = scene.before_send(
            old,
            lambda request: request.api == ApiKey.TXN_OFFSET_COMMIT,
            lambda: scene.scheduler.block(lambda: other.done, NEVER),
        )

        def takes_over() -> Commit:
            scene.scheduler.block(lambda: bool(met), NEVER)
            return scene.commit(*theirs)

        other, told = scene.beside(new.process, takes_over)
        with (
            pytest.raises(SupersededError, match="another driver has taken over"),
            scene.driver_side(old) as driver,
        ):
            driver.commit(owner, batch)
        assert told == [Commit.COMMITTED]

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1}


@pytest.mark.parametrize("version", [1, 2])
def test_an_earlier_driver_does_not_take_the_key_back(version: int) -> None:
    """It has planned at the newest generation, so that only the list of runs distinguishes it."""

    def play(scene: EdgeScene) -> None:
        old, new = scene.run("run-0"), scene.run("run-1")
        scene.batch(old, 0)
        scene.batch(new, 1)
        with pytest.raises(CommitError, match="run run-0 of 'orders'"):
            scene.commit(old, 2, scene.plan(old), [])  # (its tasks would refuse to write)
        assert scene.batch(new, 2) is Commit.COMMITTED

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1, 2}


@pytest.mark.parametrize("version", [1, 2])
def test_a_run_whose_successor_was_aborted_names_the_successor(version: int) -> None:
    """Its own batch was not aborted: its user must know that two queries share a name."""

    def play(scene: EdgeScene) -> None:
        old, new = scene.taken_over()
        scene.abort(*new)
        with pytest.raises(SupersededError, match=r"run run-1 .* in place of run run-0"):
            scene.commit(*old)
        with pytest.raises(CommitError, match="run run-1 of 'orders' was aborted") as told:
            scene.commit(*new)
        assert not isinstance(told.value, SupersededError)
        scene.abort(*old)
        assert scene.open_ids() == []
        assert scene.batch(scene.run("run-2"), 2) is Commit.COMMITTED

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1, 2}


@pytest.mark.parametrize("before", [0, 1])
def test_a_run_aborted_before_its_first_commit_says_so(before: int) -> None:
    """Also beside the owner of the key, from which it has taken nothing."""

    def play(scene: EdgeScene) -> None:
        for number in range(before):
            scene.batch(scene.run("run-0"), number)
        run = scene.run("run-1")
        plan = scene.plan(run)
        messages = scene.write(run, before, plan)
        scene.abort(run, before, plan, messages)
        with pytest.raises(CommitError, match="run run-1 of 'orders' was aborted"):
            scene.commit(run, before, plan, messages)

    EdgeScene.of(play)


# -- two queries with one prefix -------------------------------------------------------------------


@pytest.mark.parametrize("newcomers_batch", [0, 3, 4, 5, 57])
def test_an_abort_without_its_run_leaves_other_runs_alone(newcomers_batch: int) -> None:
    """Two queries of one application share a prefix by mistake. The newcomer's tasks are refused
    before they write, and Spark aborts its micro-batch without a message.
    """

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        config = SinkConfig.parse(scene.options())
        stream = WritePlan(config, ColumnPlan(topic=TOPIC, value_column=0), None)
        with scene.driving(run):
            for number in range(4):
                stream.commit(scene.write(run, number, scene.plan(run)), number)
            messages = scene.write(run, 4, scene.plan(run))
            open_before = scene.open_ids()
            stream.abort([None], newcomers_batch)
            assert scene.open_ids() == open_before
            stream.commit(messages, 4)

    scene = EdgeScene.of(play)
    assert scene.batches() == set(range(5))


# -- operators -------------------------------------------------------------------------------------


def reset(scene: EdgeScene, run: Run) -> None:
    """``kprod txn reset``."""
    with scene.driver_side(run) as driver:
        operator = Operator(CommitLog(driver.client, LOG_TOPIC), driver.client)
        operator.reset(operator.plan_reset(PREFIX, force=True))


def lose(scene: EdgeScene, run: Run) -> None:
    """As if the log had been deleted, and created again."""
    with scene.driver_side(run) as driver:
        log = CommitLog(driver.client, LOG_TOPIC)
        deadline = scene.scheduler.now + 20_000
        log.open(PREFIX, deadline).write(None, deadline)


@pytest.mark.parametrize("forget", [reset, lose])
def test_a_driver_planned_before_a_reset_is_not_the_one_after(
    forget: Callable[[EdgeScene, Run], None],
) -> None:
    """Generations begin at the time of a key's first commit, so that they don't come again:

    A plans batch 2 (generation g), and is frozen
    the key is forgotten, and somebody puts the checkpoint back to batch 1
    B commits batch 1 (generation h, not g) and plans batch 2
    A commits batch 2: it is the earlier one, and must stop
    """

    def play(scene: EdgeScene) -> None:
        first = scene.run("run-0")
        scene.batch(first, 0)
        scene.batch(first, 1)
        old = scene.run("run-a")
        plan_old = scene.plan(old)
        forget(scene, old)
        new = scene.run("run-b")
        scene.batch(new, 1)
        plan_new = scene.plan(new)
        messages_new = scene.write(new, 2, plan_new)
        messages_old = scene.write(old, 2, plan_old)
        with pytest.raises((SupersededError, CommitError)):
            scene.commit(old, 2, plan_old, messages_old)
        assert scene.commit(new, 2, plan_new, messages_new) is Commit.COMMITTED

    scene = EdgeScene.of(play)
    rows = [row for found in scene.seen().values() for row in found]
    assert len([row for row in rows if row[0] == 2]) == len({row for row in rows if row[0] == 2})


def test_the_first_commit_after_a_reset_ends_what_was_open() -> None:
    """Two runs had owned the key by then."""

    def play(scene: EdgeScene) -> None:
        first, second = scene.run("run-0"), scene.run("run-1")
        scene.batch(first, 0)
        scene.batch(second, 1)
        plan = scene.plan(second)
        scene.write(second, 2, plan)
        second.process.kill()
        reset(scene, scene.run("operator"))
        assert len(scene.open_ids()) == 1
        assert scene.batch(scene.run("run-2"), 0) is Commit.COMMITTED
        assert scene.open_ids() == []

    EdgeScene.of(play)


def test_a_driver_planned_before_a_reset_is_refused_as_such() -> None:
    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        plan = scene.plan(run)
        messages = scene.write(run, 1, plan)
        reset(scene, scene.run("operator"))
        with pytest.raises(CommitError, match="has lost the state of 'orders'"):
            scene.commit(run, 1, plan, messages)
        # Who plans behind it begins anew.
        assert scene.batch(run, 1) is Commit.COMMITTED

    EdgeScene.of(play)


@pytest.mark.parametrize("version", [1, 2])
def test_a_start_beside_another_roll_forward_does_not_fail(version: int) -> None:
    """``kprod txn commit``, or another start, ends the same decision, and opens the log."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        scene.decides_and_dies(run, 0, plan, messages)
        slow = scene.cluster.control.delay(
            ApiKey.END_TXN, 3_000, 1, where=lambda r: not of_the_log(r)
        )
        one, told = scene.beside(
            scene.machine.process("driver"),
            lambda: scene.plan(scene.run("run-1")).state.last_done,
        )
        scene.scheduler.block(lambda: slow.fired > 0, NEVER)
        assert scene.plan(scene.run("run-2")).state.last_done == 0
        assert not told
        scene.scheduler.block(lambda: one.done, NEVER)
        assert told == [0]

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0}


@pytest.mark.parametrize("version", [1, 2])
def test_an_abort_beside_a_decision_of_its_number_ends_its_own(
    version: int,
) -> None:
    """Decided is a list of transactions, not a number: run-0 dies behind its decision of batch 1,
    and run-1, planned before that, has written batch 1, too.
    """

    def play(scene: EdgeScene) -> None:
        run, other = scene.run("run-0"), scene.run("run-1")
        scene.batch(run, 0)
        plan, plan_other = scene.plan(run), scene.plan(other)
        messages = scene.write(run, 1, plan)
        theirs = scene.write(other, 1, plan_other)
        scene.decides_and_dies(run, 1, plan, messages)
        scene.abort(other, 1, plan_other, theirs)
        assert not [i for i in scene.open_ids() if "~run-1~" in i]
        assert scene.batch(scene.run("run-2"), 1) is Commit.ALREADY_DONE
        assert scene.open_ids() == []

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1}


# -- what is done ----------------------------------------------------------------------------------


def test_other_rows_under_a_number_that_is_done_are_an_error() -> None:
    """A checkpoint that was copied, or put back: this start wrote two tasks' rows under a number
    under which one task's rows are committed.
    """

    def play(scene: EdgeScene) -> None:
        run, other = scene.run("run-0"), scene.run("run-1")
        scene.batch(run, 0)
        plan = scene.plan(other)
        theirs = scene.write(other, 1, plan, tasks=2)
        plan_run = scene.plan(run)
        scene.commit(run, 1, plan_run, scene.write(run, 1, plan_run, tasks=1))
        with pytest.raises(CommitError):
            scene.commit(other, 1, plan, theirs)
        scene.abort(other, 1, plan, theirs)
        assert scene.open_ids() == []

    scene = EdgeScene.of(play)
    assert {(b, t) for b, t, _ in scene.visible()} == {(0, 0), (1, 0)}


def test_a_field_of_a_newer_package_is_kept_by_an_older_one() -> None:
    """One that raises no format, so that an older package may go on, and must not forget it."""
    given = CommitState(generation=3, run_id="r", query_id="q", last_done=7).encode()
    newer = given.replace(b'"generation"', b'"ofANewerPackage":[1,{"a":2}],"generation"')
    assert b'"ofANewerPackage":[1,{"a":2}]' in CommitState.decode("key", newer).encode()
