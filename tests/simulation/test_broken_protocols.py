"""Broken protocols, each in a life that it must break: the fault happens at the step that matters.

Lives by seed (``make mutants``) meet that step by chance, and a seed names another life after any
change of the sink's requests. A broken protocol that is not found here has no effect any more.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import pytest

from spark_kafka_sink.base.errors import (
    CommitError,
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    SupersededError,
)
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.exactly_once.transaction_plan import plan_transactions
from spark_kafka_sink.datasource.foreach_batch import transaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.commit_state import NOTHING_DONE
from spark_kafka_sink.transactions.lease import margin_ms
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation import block_mutants as of_blocks
from tests.simulation import careless_mutants as careless
from tests.simulation import reviewed_mutants as reviewed
from tests.simulation import test_edges_ids as ids
from tests.simulation import test_edges_late_requests as late_requests
from tests.simulation import test_edges_log_reading as log_reading
from tests.simulation import test_edges_sweeping as sweeping
from tests.simulation.mutant import Mutant
from tests.simulation.scene import Scene
from tests.simulation.scene_requests import ends_data, of_data, of_the_log
from tests.simulation.spark_sink import Frame
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, TIMEOUT_MS, TOPIC, SparkLife
from tests.simulation.test_edges_decisions import begins_the_log

#: Of an assertion, and of ``pytest.raises``.
FAILURES = (AssertionError, pytest.fail.Exception)
MARGIN_MS = margin_ms(TIMEOUT_MS)
#: An age at which a start undoes a decision.
UNDONE_MS = TIMEOUT_MS - MARGIN_MS * 7 // 32


class Directed(NamedTuple):
    """A life that ``mutant`` breaks, with ``symptom`` in the failure."""

    mutant: Mutant
    life: Callable[[Scene], None]
    symptom: str
    tasks: int = 1
    version: int = 2
    warm: bool = False


def told_by(call: Callable[[], object]) -> object:
    """What it returns, or raises."""
    try:
        return call()
    except KafkaError as error:
        return error


def sleep_until(scene: Scene, at_ms: int) -> None:
    scene.scheduler.sleep(at_ms - scene.scheduler.now)


def a_batch_is_too_old(scene: Scene) -> None:
    """Its transactions are open, and brokers abort them before all of them would be ended."""
    written = scene.second_batch()
    scene.scheduler.sleep(TIMEOUT_MS - MARGIN_MS + 5_000)
    told = told_by(lambda: scene.commit(*written))
    assert isinstance(told, CommitError), f"it is decided: {told}"


def an_abort_follows_a_decision(scene: Scene) -> None:
    """The driver died behind its decision, and Spark aborts the batch."""
    written = scene.second_batch()
    scene.decides_and_dies(*written)
    scene.abort(*written._replace(run=scene.run("run-0")))
    assert scene.open_ids() == sorted(written.ids)
    assert scene.batch(scene.run("run-2"), 1) is Commit.ALREADY_DONE
    scene.ends_with(0, 1)


def a_request_opens_a_transaction_again(scene: Scene) -> None:
    """A task's AddPartitionsToTxn times out, is sent again, and answered. The first one arrives
    when the transaction is committed, and the driver is dead.
    """
    run, plan = scene.second_plan()
    late = scene.control.hold(ApiKey.ADD_PARTITIONS_TO_TXN, 9_000, nth=1)
    messages = scene.write(run, 1, plan)
    assert late.fired
    noted = scene.control.drop(ApiKey.PRODUCE, FOREVER, processed=False, topic=LOG_TOPIC, nth=2)
    run.process.start(lambda: scene.commit(run, 1, plan, messages), "commit")
    scene.wait(lambda: noted.fired)
    run.process.kill()
    scene.control.clear()
    scene.scheduler.sleep(3 * TIMEOUT_MS)
    assert scene.plan(scene.run("run-1")).state.last_done == 1, "it is called lost"
    scene.ends_with(0, 1)


def a_copy_has_other_rows(scene: Scene) -> None:
    """A query with a copied checkpoint writes more rows under the number that is done."""
    scene.batch(scene.run("run-0"), 0)
    copy = scene.run("run-1")
    plan = scene.plan(copy)
    messages = scene.write(copy, 0, plan, tasks=2)
    told = told_by(lambda: scene.commit(copy, 0, plan, messages))
    assert isinstance(told, CommitError), f"its rows are dropped: {told}"


def a_write_of_a_block_fails_unseen(scene: Scene) -> None:
    """The user's function swallows its error, and goes on."""
    run = scene.run("driver")

    def misses_a_column(_: object, __: object) -> None:
        raise KafkaError("a column is missing")

    def micro_batch() -> None:
        with transaction("sinks", 0, **scene.options()) as block:
            block.write(scene.frame(run, 0))
            with suppress(KafkaError):
                block.write(Frame(misses_a_column, None))  # type: ignore[arg-type]

    told = told_by(micro_batch)
    assert isinstance(told, CommitError), f"it is decided in part: {told}"
    scene.ends_with()


def an_end_arrives_late(scene: Scene) -> None:
    """The next start undoes the decision of a dead driver. As it sends its first abort, the
    driver's request to commit arrives.
    """
    begun = scene.scheduler.now
    written = scene.first_batch()
    scene.decides_and_dies(*written)
    sleep_until(scene, begun + UNDONE_MS)
    again = scene.run("run-1")
    (one,) = written.prepared

    def arrives() -> None:
        scene.cluster.transactions.end(
            one.transactional_id,
            (one.producer_id, one.producer_epoch),
            commit=True,
            version=2,
            now=scene.cluster.now,
        )

    undone = scene.before_send(again, lambda r: ends_data(r) and not r.body.committed, arrives)
    assert scene.batch(again, 0) is Commit.ALREADY_DONE, "it is written twice"
    assert undone
    scene.ends_with(0)


def a_driver_commits_for_too_long(scene: Scene) -> None:
    """Coordinators load until its decision is about to time out, and a start undoes it. Then one
    coordinator takes what the driver sends, the other one what the start sends.
    """
    scene.changes = {"delivery_timeout_ms": 120_000}
    old, new = scene.run("run-0"), scene.run("run-1")
    begun = scene.scheduler.now
    written = scene.written(old, 0)
    first, second = written.ids
    loading = scene.coordinators_load(of_data)
    driver, _ = scene.beside(old.process, lambda: scene.commit(*written))
    scene.wait(lambda: loading.fired)
    sleep_until(scene, begun + UNDONE_MS)
    undoes = scene.before_send(new, lambda r: ends_data(r) and not r.body.committed, lambda: None)
    start, _ = scene.beside(new.process, lambda: scene.plan(new))
    scene.wait(lambda: undoes)

    def is_of_the_other(request: Request) -> bool:
        is_first = request.body.transactional_id == first
        is_second = request.body.transactional_id == second
        return (is_second and request.body.committed) or (is_first and not request.body.committed)

    scene.coordinators_load(is_of_the_other)
    loading.stop()
    scene.scheduler.block(lambda: bool(scene.visible()), scene.scheduler.now + 1_000)
    scene.control.clear()
    scene.wait(lambda: driver.done and start.done)
    scene.scheduler.sleep(1_000)
    assert scene.open_ids() == []
    seen = {task for _, task, _ in scene.visible()}
    assert seen in (set(), {0, 1}), f"it is torn: {seen}"


def a_group_has_members(scene: Scene) -> None:
    """They would go on at the query's offsets."""
    scene.cluster.groups.members["live"] = "Stable"
    options = scene.options(offsetsGroup="live", checkpointLocation="/checkpoints/orders")
    with scene.driving(scene.run("run-0")):
        told = told_by(lambda: plan_transactions(parse_sink_config(options), streaming=True))
    assert isinstance(told, ConfigError), f"its offsets are moved: {told}"


def a_driver_is_frozen_before_its_write(scene: Scene) -> None:
    """For longer than a decision may take after its check."""
    scene.changes = {"max_block_ms": 60_000}
    written = scene.second_batch()
    frozen = scene.before_send(
        written.run, begins_the_log, lambda: scene.scheduler.sleep(MARGIN_MS * 2 // 3)
    )
    told = told_by(lambda: scene.commit(*written))
    assert frozen
    assert isinstance(told, KafkaTimeoutError), f"it is decided late: {told}"
    scene.ends_with(0)


def a_fence_is_half_done(scene: Scene) -> None:
    """A superseded driver opens the log as its successor decides, and dies: the coordinator aborts
    the successor's write, and has no new identity for anybody yet.
    """
    written = scene.second_batch()

    def decides(request: Request) -> bool:
        return request.api == ApiKey.END_TXN and of_the_log(request)

    def fences() -> None:
        coordinator = scene.cluster.transactions
        coordinator.initialize(log_id(PREFIX), TIMEOUT_MS, None, scene.cluster.now)
        scene.scheduler.sleep(100)  # its markers are written

    fenced = scene.before_send(written.run, decides, fences)
    told = told_by(lambda: scene.commit(*written))
    assert fenced
    assert told is Commit.COMMITTED, f"the successor stops: {told}"
    scene.ends_with(0, 1)


def a_superseded_run_has_an_orphan(scene: Scene) -> None:
    """It never owned the key, and a beaten attempt of it has prepared."""
    winner, loser = scene.run("run-a"), scene.run("run-b")
    plan = scene.plan(loser)
    assert scene.commit(*scene.written(winner, 0)) is Commit.COMMITTED
    messages = scene.write(loser, 0, plan)
    scene.attempt_of(loser, 0, 0, 1, plan)
    assert isinstance(told_by(lambda: scene.commit(loser, 0, plan, messages)), SupersededError)
    scene.abort(loser, 0, plan, messages)
    assert scene.open_ids() == []


def a_foreach_batch_has_a_new_checkpoint(scene: Scene) -> None:
    """Spark tells its tasks nothing of the query, whose micro-batches begin at 0 again."""
    scene.tells_query = False
    before = scene.foreach_batch("deleted")
    for number in range(3):
        before(number)
    again = scene.foreach_batch("deleted")
    told = told_by(lambda: again(0))
    assert isinstance(told, CommitError), f"its rows are dropped: {told}"


def a_partition_has_no_leader(scene: Scene) -> None:
    """The commit fails, and says so; then the leader is back."""
    written = scene.first_batch()
    scene.lose_leader(25_000)
    told = told_by(lambda: scene.commit(*written))
    assert isinstance(told, KafkaError)
    scene.scheduler.sleep(10_000)
    assert scene.plan(scene.run("run-1")).state.last_done == NOTHING_DONE, "it has not failed"
    scene.ends_with()


def an_identity_has_rows_on_their_way(scene: Scene) -> None:
    """Spark kills a beaten attempt, whose first rows arrive when its batch is committed."""
    run, plan = scene.second_plan()
    ids: list[str] = []

    def of_the_first(request: Request) -> bool:
        ids.append(request.body.transactional_id)
        return ids[-1] == ids[0]

    late = scene.control.hold(ApiKey.PRODUCE, 4_000, FOREVER, topic=TOPIC, where=of_the_first)
    loser = scene.launch(run, 1, 0, 0, plan)
    scene.wait(lambda: late.fired)
    scene.scheduler.sleep(100)  # all its rows are on their way
    loser.worker.process.kill()
    winner = scene.attempt_of(run, 1, 0, 1, plan)
    assert scene.commit(run, 1, plan, [winner]) is Commit.COMMITTED
    scene.scheduler.sleep(5_000)
    assert scene.open_ids() == []
    scene.ends_with(0, 1)


FOUND = (
    Directed(careless.no_age_check, a_batch_is_too_old, "it is decided"),
    Directed(
        careless.abort_ignores_the_decision, an_abort_follows_a_decision, r"\[\] == \[", tasks=2
    ),
    Directed(
        reviewed.s2_the_gap_before_a_write_is_not_looked_at,
        log_reading.test_reading_at_a_deposed_leader_doubles_no_batch,
        "COMMITTED",
    ),
    Directed(
        reviewed.s4_named_jobs_sweep_no_dead_runs,
        sweeping.test_the_next_batch_of_a_name_ends_a_killed_drivers_orphans,
        r"== \[\]",
        tasks=2,
    ),
    Directed(
        reviewed.s7_brokers_are_as_they_were_minutes_ago,
        partial(late_requests.test_an_orphan_at_a_broker_that_came_back_is_swept, was_down=True),
        r"== \[\]",
        warm=True,
    ),
    Directed(
        reviewed.s16_a_late_request_may_open_what_was_committed,
        a_request_opens_a_transaction_again,
        "it is called lost",
        version=1,
    ),
    Directed(reviewed.s18_other_rows_are_dropped, a_copy_has_other_rows, "its rows are dropped"),
    Directed(
        of_blocks.x2_a_block_decides_what_is_recorded,
        a_write_of_a_block_fails_unseen,
        "it is decided in part",
    ),
    Directed(of_blocks.x3_undo_does_not_look_again, an_end_arrives_late, "it is written twice"),
    Directed(
        of_blocks.x6_a_commit_does_not_look_again,
        a_driver_commits_for_too_long,
        "it is torn",
        tasks=2,
    ),
    Directed(careless.decides_before_it_checks, a_partition_has_no_leader, "it has not failed"),
    Directed(careless.empties_are_left, an_identity_has_rows_on_their_way, r"== \[\]"),
    Directed(
        reviewed.s1_unknown_queries_are_not_checked,
        a_foreach_batch_has_a_new_checkpoint,
        "its rows are dropped",
    ),
    Directed(
        reviewed.s3_an_abort_of_a_superseded_run_does_not_sweep,
        a_superseded_run_has_an_orphan,
        r"== \[\]",
    ),
    Directed(
        reviewed.s5_a_decision_is_no_lease,
        a_driver_is_frozen_before_its_write,
        "it is decided late",
        tasks=2,
    ),
    Directed(
        reviewed.s11_invalid_txn_state_stops_the_healthy,
        a_fence_is_half_done,
        "the successor stops",
    ),
    Directed(
        reviewed.s20_versions_share_the_id_of_a_report,
        ids.test_threads_of_one_job_never_share_the_id_of_a_report,
        "has lost its report",
    ),
    Directed(of_blocks.f5_a_group_may_have_members, a_group_has_members, "its offsets are moved"),
)


def play(directed: Directed) -> None:
    life = SparkLife(
        1,
        tasks=directed.tasks,
        transaction_version=directed.version,
        warm_driver=directed.warm,
    )
    scene = Scene(life)
    scene.perform(lambda: directed.life(scene))


@pytest.mark.long
@pytest.mark.parametrize("directed", FOUND, ids=lambda directed: directed.mutant.__name__)
def test_a_broken_protocol_is_found_in_its_life(directed: Directed) -> None:
    play(directed)
    with directed.mutant(), pytest.raises(FAILURES, match=directed.symptom):
        play(directed)
