"""More broken protocols, each in a life that it must break: of blocks, of operators, of checkpoints
and of another driver's transactions. (See ``test_broken_protocols.py``.)
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from spark_kafka_sink.base.errors import ConfigError, ErrorCode, KafkaError, SupersededError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.exactly_once.transaction_commit import abort, commit
from spark_kafka_sink.datasource.exactly_once.transaction_plan import (
    TransactionPlan,
    plan_transactions,
)
from spark_kafka_sink.datasource.foreach_batch import foreach_batch, transaction
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.driver_transactions import TopicRecord
from spark_kafka_sink.transactions.lease import margin_ms
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation import block_mutants as of_blocks
from tests.simulation import reviewed_mutants as reviewed
from tests.simulation.scene import Scene, owner_of
from tests.simulation.spark_checkpoints import SOURCE, Checkpoints
from tests.simulation.spark_world import QUERY, TIMEOUT_MS, Run
from tests.simulation.test_broken_protocols import (
    FAILURES,
    UNDONE_MS,
    Directed,
    play,
    sleep_until,
    told_by,
)
from tests.simulation.test_edges_ownership import told_of_a_take_over

#: The rounds after which an id that no broker lists counts as old (``TransactionClient``).
MISSED = 10

# --- another driver, an operator ----------------------------------------------------------------


def an_abort_has_no_message(scene: Scene) -> None:
    """Another start of the query has nothing but its token; and this one is about to commit."""
    mine, other = scene.run("run-0"), scene.run("run-1")
    plan = replace(scene.plan(mine), driver="mine")
    messages = scene.write(mine, 0, plan)
    config = parse_sink_config(scene.options())
    with scene.driving(other):
        swept = abort(config, None, [], 0, tasks_may_run=True, driver_token="another").swept
    assert swept == ()
    told = told_by(lambda: scene.commit(mine, 0, plan, messages))
    assert told is Commit.COMMITTED, f"its transactions are gone: {told}"
    scene.ends_with(0)


def a_commit_by_hand_comes_late(scene: Scene) -> None:
    """At an age at which a start undoes the decision; the command waits, and commits it."""
    begun = scene.scheduler.now
    scene.decides_and_dies(*scene.first_batch())
    sleep_until(scene, begun + UNDONE_MS)
    assert scene.commit_by_hand().last_done == 0, "it is undone"
    scene.ends_with(0)


def a_take_over_ends_the_drivers_own(scene: Scene) -> None:
    """Between its InitProducerId and the offsets that it writes."""
    told = told_of_a_take_over(scene)
    assert isinstance(told, SupersededError), f"it is told bare: {told}"


def a_commit_by_hand_has_a_shorter_timeout(scene: Scene) -> None:
    """The transactions are older than that one, and young by their own."""
    scene.decides_and_dies(*scene.first_batch())
    scene.scheduler.sleep(TIMEOUT_MS // 2)
    told = told_by(lambda: scene.commit_by_hand(TIMEOUT_MS // 3))
    assert isinstance(told, CommitState), f"they count as old: {told}"
    assert told.last_done == 0, "they count as old: all are aborted"
    scene.ends_with(0)


def an_id_moves_while_a_start_looks(scene: Scene) -> None:
    """Its coordinator resigns: no broker lists the id, until the start has asked for old ones. Then
    it is listed, and is young. Its driver may be about to commit it.
    """
    timeout_ms = 900_000  # an undo has m/16 from its first look, and the rounds take seconds
    scene.changes = {"transaction_timeout_ms": timeout_ms}
    scene.decides_and_dies(*scene.first_batch())
    old_ms = timeout_ms - margin_ms(timeout_ms) * 8 // 32
    asked: list[int] = []

    def is_listed_nowhere(request: Request) -> bool:
        is_over = asked.count(old_ms) >= MISSED
        asked.append(request.body.duration_filter)
        return not is_over

    scene.control.answer(ApiKey.LIST_TRANSACTIONS, ErrorCode.NONE, FOREVER, where=is_listed_nowhere)
    assert scene.plan(scene.run("run-1")).state.last_done == 0, "it is undone"
    assert asked.count(old_ms) >= MISSED
    scene.ends_with(0)


def a_driver_has_a_report(scene: Scene) -> None:
    """It becomes visible with the rows."""
    scene.cluster.create_topic("reports", 1)
    written = scene.second_batch()
    batch = Batch(1, tuple(written.prepared), report=TopicRecord("reports", b"a report"))
    with scene.driver_side(written.run) as driver:
        assert driver.commit(owner_of("run-0", written.plan), batch) is Commit.COMMITTED
    scene.scheduler.sleep(200)
    seen = scene.cluster.logs[TopicPartition("reports", 0)].values(committed=True)
    assert list(seen) == [b"a report"], "the report is lost"


# --- blocks and named writes --------------------------------------------------------------------


def a_block_of_the_same_name_begins_meanwhile(scene: Scene) -> None:
    """In another thread, say. It is refused, and the first one goes on."""
    scene.tells_query = False
    run = scene.run("driver")
    told: list[object] = []

    def block(number: int, then: object = None) -> None:
        with transaction("sinks", 0, **scene.options()) as one:
            one.write(scene.frame(run, number))
            if then is None:
                told.append(told_by(partial(block, 100, "nothing")))

    assert told_by(partial(block, 0)) is None, "the first block fails"
    assert isinstance(told[0], ConfigError)
    scene.ends_with(0)


def a_name_writes_two_frames(scene: Scene) -> None:
    """Of one micro-batch, which has offsets in the checkpoint: the second one has the same."""
    checkpoints, run = Checkpoints(), scene.run("driver")
    checkpoints.begin("orders", QUERY, 0)
    write = foreach_batch("sinks", **scene.options(checkpointLocation=checkpoints.path("orders")))
    write(scene.frame(run, 0), 0)
    other = scene.frame(run, 100)
    other._part = 1
    told = told_by(lambda: write(other, 0))
    assert isinstance(told, KafkaError), "its rows are dropped"
    scene.ends_with(0)


def a_block_is_written_again_in_another_order(scene: Scene) -> None:
    """By threads, whose order is a matter of luck."""
    scene.tells_query = False
    run = scene.run("driver")

    def block(*frames: tuple[int, int]) -> None:
        with transaction("sinks", 0, **scene.options()) as one:
            for number, rows in frames:
                one.write(scene.frame(run, number, rows=rows))

    block((0, 2), (100, 3))
    told = told_by(lambda: block((100, 3), (0, 2)))
    assert told is None, f"it is refused: {told}"
    scene.ends_with(0, 100)


def a_write_of_a_block_has_its_own_key(scene: Scene) -> None:
    """The log of another prefix gets its part, and the end of the block does not find it."""
    scene.tells_query = False
    run = scene.run("driver")

    def block() -> None:
        with transaction("sinks", 0, **scene.options()) as one:
            one.write(scene.frame(run, 0), transactionalIdPrefix="other")

    told = told_by(block)
    assert isinstance(told, ConfigError), f"its write is not refused: {told}"
    scene.ends_with()


def a_name_writes_many_micro_batches(scene: Scene) -> None:
    """Coordinators keep each id for a week."""
    micro_batch = scene.foreach_batch("sinks")
    for number in range(8):
        micro_batch(number)
    assert len(scene.data_ids()) < 4, "each micro-batch has ids of its own"
    scene.ends_with(*range(8))


# --- checkpoints --------------------------------------------------------------------------------


def a_checkpoint_is_another_querys(scene: Scene) -> None:
    """It has begun its next micro-batch. Its offsets would be committed for this one's group."""
    checkpoints, run = Checkpoints(), scene.run("driver")
    for number in range(2):
        checkpoints.begin("other", "another query", number)
    scene.cluster.create_topic(SOURCE, 1)
    options = scene.options(offsetsGroup="readers", checkpointLocation=checkpoints.path("other"))
    told = told_by(lambda: foreach_batch("sinks", **options)(scene.frame(run, 0), 0))
    assert isinstance(told, KafkaError), f"its offsets are committed: {told}"
    scene.ends_with()


def a_checkpoint_is_copied(scene: Scene) -> None:
    """The copy reads other rows of as many bytes under a number that is done."""
    checkpoints = Checkpoints()
    checkpoints.begin("orders", QUERY, 0)
    checkpoints.begin("copy", QUERY, 0, first=5)

    def planned(run: Run, checkpoint: str) -> tuple[SinkConfig, TransactionPlan]:
        options = scene.options(checkpointLocation=checkpoints.path(checkpoint))
        config = parse_sink_config(options)
        with scene.driving(run):
            return config, plan_transactions(config, streaming=True)

    first, copy = scene.run("run-0"), scene.run("run-1")
    config, plan = planned(first, "orders")
    messages = scene.write(first, 0, plan)
    with scene.driving(first):
        assert commit(config, None, messages, 0) is Commit.COMMITTED
    _, plan = planned(copy, "copy")
    told = told_by(lambda: plan.is_done(TaskIdentity(query_id=QUERY, run_id="run-1", batch_id=0)))
    assert isinstance(told, KafkaError), f"its rows are dropped: {told}"
    scene.ends_with(0)


FOUND = (
    Directed(
        reviewed.s15_an_abort_without_a_run_takes_all,
        an_abort_has_no_message,
        "its transactions are gone|== \\(\\)",
    ),
    Directed(
        of_blocks.f1_an_operators_commit_aborts_what_is_not_lost,
        a_commit_by_hand_comes_late,
        "it is undone",
        tasks=2,
    ),
    Directed(
        of_blocks.f1_whoever_looks_judges_by_his_own_time_out,
        a_commit_by_hand_has_a_shorter_timeout,
        "they count as old",
        tasks=2,
    ),
    Directed(
        of_blocks.x7_one_that_moves_counts_as_old, an_id_moves_while_a_start_looks, "it is undone"
    ),
    Directed(
        of_blocks.x8_a_fence_of_the_drivers_own_is_bare,
        a_take_over_ends_the_drivers_own,
        "it is told bare",
    ),
    Directed(
        of_blocks.offsets_are_committed_without_the_rows, a_driver_has_a_report, "report is lost"
    ),
    Directed(
        of_blocks.f2_blocks_of_one_name_are_mixed,
        a_block_of_the_same_name_begins_meanwhile,
        "the first block fails",
    ),
    Directed(
        of_blocks.f2_another_block_of_a_number_counts_as_done,
        a_name_writes_two_frames,
        "its rows are dropped",
    ),
    Directed(
        of_blocks.f3_the_writes_of_a_block_have_an_order,
        a_block_is_written_again_in_another_order,
        "it is refused",
    ),
    Directed(
        of_blocks.f4_a_write_of_a_block_may_have_any_option,
        a_write_of_a_block_has_its_own_key,
        "its write is not refused",
    ),
    Directed(
        of_blocks.f7_each_batch_has_a_run_of_its_own,
        a_name_writes_many_micro_batches,
        "ids of its own",
    ),
    Directed(
        of_blocks.f5_any_checkpoint_is_taken_for_the_querys,
        a_checkpoint_is_another_querys,
        "its offsets are committed",
    ),
    Directed(
        of_blocks.a_batch_is_known_by_its_rows_alone,
        a_checkpoint_is_copied,
        "its rows are dropped",
    ),
)


@pytest.mark.long
@pytest.mark.parametrize("directed", FOUND, ids=lambda directed: directed.mutant.__name__)
def test_a_broken_protocol_is_found_in_its_own_life(directed: Directed) -> None:
    play(directed)
    with directed.mutant(), pytest.raises(FAILURES, match=directed.symptom):
        play(directed)
