"""The healthy driver is never harmed: not by a superseded one, another client, or a mistake."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_kafka_sink.base.errors import CommitError, ErrorCode, KafkaError, SupersededError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.plan.planned_batch import PlannedBatch
from spark_kafka_sink.datasource.plan.write_plan import WritePlan
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import OffsetAndMetadata
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.offset_commits import GroupOffsets
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.control import FOREVER, Fault
from tests.simulation.scene import VERSIONS, Scene, Written, owner_of
from tests.simulation.scene_requests import of_data, of_the_log
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, TOPIC


@VERSIONS
@pytest.mark.parametrize("marker_ms", [2, 60])
def test_a_superseded_driver_between_produce_and_end_is_harmless(
    scene: Scene, marker_ms: int
) -> None:
    """B is the owner, and its decision's Produce is answered late; A, superseded, opens the log:
    B's transaction of the log is aborted, and B's EndTxn comes after that.
    """
    old, new = scene.taken_over()
    scene.cluster.marker_ms = marker_ms
    slow = scene.control.delay(ApiKey.PRODUCE, 40, topic=LOG_TOPIC)

    late, told = scene.beside(new.run.process, lambda: scene.commit(*new))
    scene.wait(lambda: slow.fired)
    with pytest.raises(KafkaError):
        scene.commit(*old)
    scene.wait(lambda: late.done)
    assert told == [Commit.COMMITTED]
    scene.ends_with(0, 1, 2)


def _commits(scene: Scene, written: Written) -> None:
    assert scene.commit(*written) is Commit.COMMITTED


def _is_aborted(scene: Scene, written: Written) -> None:
    scene.abort(*written)


def _is_ended_by_hand(scene: Scene, written: Written) -> None:
    with scene.by_hand() as operator:
        plan = operator.plan_abort_run(PREFIX, written.run.id, force=True)
        assert not operator.end(plan).failed


@pytest.mark.parametrize("act", [_commits, _is_aborted, _is_ended_by_hand])
@VERSIONS
def test_who_is_shut_out_of_the_log_eight_times_goes_on(
    scene: Scene, act: Callable[[Scene, Written], None]
) -> None:
    """Others open it before each of their writes."""
    written = scene.second_batch()
    shut_out = _shut_out(scene)
    act(scene, written)
    assert shut_out.fired == 8
    assert scene.open_ids() == []


def _shut_out(scene: Scene) -> Fault:
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH
    return scene.control.answer(ApiKey.PRODUCE, fenced, 8, topic=LOG_TOPIC)


def _unanswered(scene: Scene) -> Fault:
    return scene.control.drop(ApiKey.END_TXN, FOREVER, where=of_the_log)


@pytest.mark.parametrize("happens", [_shut_out, _unanswered])
@VERSIONS
def test_a_reset_beside_drivers_goes_on(scene: Scene, happens: Callable[[Scene], Fault]) -> None:
    """Others open the log before each of its writes; or no answer to one comes."""
    scene.batch(scene.run("run-0"), 0)
    with scene.by_hand() as operator:
        report = operator.plan_reset(PREFIX)
        happens(scene)
        operator.reset(report)
        assert operator.inspector.keys(PREFIX)[PREFIX] == report.state.forgotten(1)


@pytest.mark.parametrize("happens", [_shut_out, _unanswered])
@VERSIONS
def test_a_resolution_beside_drivers_goes_on(
    scene: Scene, happens: Callable[[Scene], Fault]
) -> None:
    written = scene.first_batch()
    scene.decides_and_dies(*written)
    scene.change_log(PREFIX, lambda state: state.partly_lost(written.ids))
    with scene.by_hand() as operator:
        resolution = operator.plan_resolve(PREFIX, 0, done=False)
        happens(scene)
        assert operator.resolve(resolution).last_done == -1
        scene.control.clear()
        assert operator.inspector.keys(PREFIX)[PREFIX].decision is None
    assert scene.open_ids() == []


def told_of_a_take_over(scene: Scene) -> object:
    """B takes over between A's requests for its own transaction, and ends it: the result of A's
    commit, or its error.
    """
    ours, theirs = scene.second_batch(), scene.written(scene.run("run-1"), 1)
    offsets = GroupOffsets("readers", {TopicPartition(TOPIC, 0): OffsetAndMetadata(1)})
    batch = Batch(1, tuple(ours.prepared), offsets=offsets)
    met = scene.before_send(
        ours.run,
        lambda request: request.api == ApiKey.TXN_OFFSET_COMMIT,
        lambda: scene.wait(lambda: other.done),
    )

    def takes_over() -> Commit:
        scene.wait(lambda: met)
        return scene.commit(*theirs)

    def commits() -> Commit:
        with scene.driver_side(ours.run) as driver:
            return driver.commit(owner_of(ours.run.id, ours.plan), batch)

    other, told = scene.beside(theirs.run.process, takes_over)
    (of_ours,) = scene.at_once(ours.run, commits)
    assert told == [Commit.COMMITTED]
    scene.ends_with(0, 1)
    return of_ours


@VERSIONS
def test_a_take_over_while_offsets_are_prepared_says_so(scene: Scene) -> None:
    told = told_of_a_take_over(scene)
    assert isinstance(told, SupersededError)
    assert "another driver has taken over" in told.message


@VERSIONS
def test_an_earlier_driver_does_not_take_the_key_back(scene: Scene) -> None:
    """It has planned at the newest generation, so that only the list of runs distinguishes it."""
    old, new = scene.run("run-0"), scene.run("run-1")
    scene.batch(old, 0)
    scene.batch(new, 1)
    with pytest.raises(CommitError, match="run run-0 of 'orders'"):
        scene.commit(old, 2, scene.plan(old), [])  # (its tasks would refuse to write)
    assert scene.batch(new, 2) is Commit.COMMITTED
    scene.ends_with(0, 1, 2)


@VERSIONS
def test_a_run_whose_successor_was_aborted_names_the_successor(scene: Scene) -> None:
    """Its own batch was not aborted: its user must know that two queries share a name."""
    old, new = scene.taken_over()
    scene.abort(*new)
    with pytest.raises(SupersededError, match="the run that was aborted last is run-1"):
        scene.commit(*old)
    with pytest.raises(CommitError, match="run run-1 of 'orders' was aborted") as told:
        scene.commit(*new)
    assert not isinstance(told.value, SupersededError)
    scene.abort(*old)
    assert scene.open_ids() == []
    assert scene.batch(scene.run("run-2"), 2) is Commit.COMMITTED
    scene.ends_with(0, 1, 2)


@pytest.mark.parametrize("before", [0, 1])
def test_a_run_aborted_before_its_first_commit_says_so(scene: Scene, before: int) -> None:
    """Also beside the owner of the key, from which it has taken nothing."""
    for number in range(before):
        scene.batch(scene.run("run-0"), number)
    written = scene.written(scene.run("run-1"), before)
    scene.abort(*written)
    with pytest.raises(CommitError, match="run run-1 of 'orders' was aborted"):
        scene.commit(*written)


# -- two queries with one prefix -------------------------------------------------------------------


@pytest.mark.parametrize("newcomers_batch", [0, 3, 4, 5, 57])
def test_an_abort_without_its_run_leaves_other_runs_alone(
    scene: Scene, newcomers_batch: int
) -> None:
    """Two queries of one application share a prefix by mistake. The newcomer's tasks are refused
    before they write, and Spark aborts its micro-batch without a message.
    """
    run = scene.run("run-0")
    config = parse_sink_config(scene.options())
    stream = PlannedBatch(WritePlan(config, ColumnPlan(topic=TOPIC, value_column=0), None))
    with scene.driving(run):
        for number in range(4):
            stream.commit(scene.write(run, number, scene.plan(run)), number)
        messages = scene.write(run, 4, scene.plan(run))
        open_before = scene.open_ids()
        stream.abort([None], newcomers_batch)
        assert scene.open_ids() == open_before
        stream.commit(messages, 4)
    scene.ends_with(*range(5))


# -- operators -------------------------------------------------------------------------------------


def reset(scene: Scene) -> None:
    """``kprod txn reset``."""
    with scene.by_hand() as operator:
        operator.reset(operator.plan_reset(PREFIX, force=True))


def lose(scene: Scene) -> None:
    """As if the log had been deleted, and created again."""
    scene.change_log(PREFIX, lambda _: None)


@pytest.mark.parametrize("forget", [reset, lose])
def test_a_driver_planned_before_a_reset_is_not_the_one_after(
    scene: Scene, forget: Callable[[Scene], None]
) -> None:
    """Generations begin at the time of a key's first commit, so that they don't come again:

    A plans batch 2 (generation g), and is frozen
    the key is forgotten, and somebody puts the checkpoint back to batch 1
    B commits batch 1 (generation h, not g) and plans batch 2
    A commits batch 2: it is the earlier one, and must stop
    """
    first = scene.run("run-0")
    scene.batch(first, 0)
    scene.batch(first, 1)
    old = scene.run("run-a")
    plan = scene.plan(old)
    forget(scene)
    new = scene.run("run-b")
    scene.batch(new, 1)
    theirs = scene.written(new, 2)
    messages = scene.write(old, 2, plan)
    with pytest.raises((SupersededError, CommitError)):
        scene.commit(old, 2, plan, messages)
    assert scene.commit(*theirs) is Commit.COMMITTED
    rows = [row for found in scene.seen().values() for row in found if row[0] == 2]
    assert len(rows) == len(set(rows))


def test_the_first_commit_after_a_reset_ends_what_was_open(scene: Scene) -> None:
    """Two runs had owned the key by then."""
    first, second = scene.run("run-0"), scene.run("run-1")
    scene.batch(first, 0)
    scene.batch(second, 1)
    scene.written(second, 2)
    second.process.kill()
    reset(scene)
    assert len(scene.open_ids()) == 1
    assert scene.batch(scene.run("run-2"), 0) is Commit.COMMITTED
    assert scene.open_ids() == []


def test_a_driver_planned_before_a_reset_is_refused_as_such(scene: Scene) -> None:
    written = scene.second_batch()
    reset(scene)
    with pytest.raises(CommitError, match="has lost the state of 'orders'"):
        scene.commit(*written)
    # Who plans behind it begins anew.
    assert scene.batch(written.run, 1) is Commit.COMMITTED


@VERSIONS
def test_a_start_beside_another_roll_forward_does_not_fail(scene: Scene) -> None:
    """``kprod txn commit``, or another start, ends the same decision, and opens the log."""
    scene.decides_and_dies(*scene.first_batch())
    slow = scene.control.delay(ApiKey.END_TXN, 3_000, 1, where=of_data)
    one, told = scene.beside(
        scene.machine.process("driver"), lambda: scene.plan(scene.run("run-1")).state.last_done
    )
    scene.wait(lambda: slow.fired)
    assert scene.plan(scene.run("run-2")).state.last_done == 0
    assert not told
    scene.wait(lambda: one.done)
    assert told == [0]
    scene.ends_with(0)


@VERSIONS
def test_an_abort_beside_a_decision_of_its_number_ends_its_own(scene: Scene) -> None:
    """Decided is a list of transactions, not a number: run-0 dies behind its decision of batch 1,
    and run-1, planned before that, has written batch 1, too.
    """
    written, other = scene.second_batch(), scene.written(scene.run("run-1"), 1)
    scene.decides_and_dies(*written)
    scene.abort(*other)
    assert not [i for i in scene.open_ids() if "~run-1~" in i]
    assert scene.batch(scene.run("run-2"), 1) is Commit.ALREADY_DONE
    assert scene.open_ids() == []
    scene.ends_with(0, 1)


# -- what is done ----------------------------------------------------------------------------------


def test_other_rows_under_a_number_that_is_done_are_an_error(scene: Scene) -> None:
    """A checkpoint that was copied, or put back: this start wrote two tasks' rows under a number
    under which one task's rows are committed.
    """
    run, other = scene.run("run-0"), scene.run("run-1")
    scene.batch(run, 0)
    plan = scene.plan(other)
    theirs = Written(other, 1, plan, scene.write(other, 1, plan, tasks=2))
    scene.commit(*scene.written(run, 1))
    with pytest.raises(CommitError):
        scene.commit(*theirs)
    scene.abort(*theirs)
    assert scene.open_ids() == []
    scene.ends_with_tasks((0, 0), (1, 0))


def test_a_field_of_a_newer_package_is_kept_by_an_older_one() -> None:
    """One that raises no format, so that an older package may go on, and must not forget it."""
    given = CommitState(generation=3, run_id="r", query_id="q", last_done=7).encode()
    newer = given.replace(b'"generation"', b'"ofANewerPackage":[1,{"a":2}],"generation"')
    assert b'"ofANewerPackage":[1,{"a":2}]' in CommitState.decode("key", newer).encode()
