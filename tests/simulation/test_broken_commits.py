"""Careless changes of a commit, each in a life that it must break. (See
``test_broken_protocols.py``.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from spark_kafka_sink.base.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    ErrorCode,
    KafkaError,
    PartialCommitError,
)
from spark_kafka_sink.datasource.foreach_batch import transaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.commit_state import NOTHING_DONE
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation import block_mutants as of_blocks
from tests.simulation import careless_mutants as careless
from tests.simulation import reviewed_mutants as reviewed
from tests.simulation import test_edges_decisions as decisions
from tests.simulation import test_edges_late_requests as late_requests
from tests.simulation import test_edges_log_reading as log_reading
from tests.simulation import test_edges_sweeping as sweeping
from tests.simulation.scene import Scene
from tests.simulation.scene_requests import of_data, of_the_log, opens_a_log
from tests.simulation.spark_world import PREFIX, Run
from tests.simulation.test_broken_protocols import (
    FAILURES,
    UNDONE_MS,
    Directed,
    a_batch_is_too_old,
    a_fence_is_half_done,
    an_end_arrives_late,
    play,
    sleep_until,
    told_by,
)


def without_error(life: Callable[[Scene], None], scene: Scene) -> None:
    """As ``life``; an error of the sink fails it, too."""
    try:
        life(scene)
    except KafkaError as error:
        raise AssertionError(f"it is told an error: {error}") from error


# --- the end of a decision ----------------------------------------------------------------------


def a_micro_batch(scene: Scene) -> None:
    """It is committed, and so the only one that is visible."""
    told = told_by(lambda: scene.commit(*scene.first_batch()))
    assert told is Commit.COMMITTED, f"it fails: {told}"
    scene.ends_with_tasks(*((0, task) for task in range(scene.life.tasks)))
    with scene.by_hand() as commands:
        found = commands.inspector.keys(PREFIX)[PREFIX].decision
    assert found is None, "it is not recorded"
    assert scene.open_ids() == []


def a_decision_is_not_answered(scene: Scene) -> None:
    """It is in the log. The driver opens the key again, and finds it."""
    written = scene.first_batch()
    unclear = scene.control.drop(ApiKey.END_TXN, FOREVER, where=of_the_log)
    again = scene.before_send(
        written.run, lambda r: bool(unclear.fired) and opens_a_log(r), scene.control.clear
    )
    told = told_by(lambda: scene.commit(*written))
    assert told is Commit.COMMITTED, f"it is not looked up: {told}"
    assert again
    scene.ends_with(0)


def an_end_is_not_answered(scene: Scene) -> None:
    """No request to end its transactions arrives, until the driver gives up."""
    written = scene.first_batch()
    silent = scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=of_data)
    told = told_by(lambda: scene.commit(*written))
    assert silent.fired
    assert isinstance(told, CommitOutcomeUnknownError), f"it does not say unknown: {told}"


def a_part_is_aborted_behind_the_decision(scene: Scene) -> None:
    """Its coordinator refuses the request to commit it."""
    written = scene.first_batch()
    scene.when_decided(PREFIX, lambda: scene.end_elsewhere(written.prepared[1]))
    told = told_by(lambda: scene.commit(*written))
    assert isinstance(told, PartialCommitError), f"its rows are lost unseen: {told}"


def a_driver_dies_behind_its_decision(scene: Scene) -> None:
    """The next start finds it in the log, commits it, and writes the batch not again."""
    scene.decides_and_dies(*scene.second_batch())
    again = scene.run("run-2")
    assert scene.plan(again).state.last_done == 1, "it is not rolled forward"
    assert scene.batch(again, 1) is Commit.ALREADY_DONE, "it is written twice"
    scene.ends_with(0, 1)


def a_decision_times_out(scene: Scene) -> None:
    """A start comes when brokers are about to abort it: one transaction could get lost."""
    begun = scene.scheduler.now
    scene.decides_and_dies(*scene.first_batch())
    sleep_until(scene, begun + UNDONE_MS)
    found = scene.plan(scene.run("run-1")).state.last_done
    assert found == NOTHING_DONE, "it is committed too late"
    scene.ends_with()


def a_batch_comes_again(scene: Scene) -> None:
    scene.batch(scene.run("run-0"), 0)
    assert scene.batch(scene.run("run-1"), 0) is Commit.ALREADY_DONE, "it is written twice"
    scene.ends_with(0)


# --- other runs ---------------------------------------------------------------------------------


def a_beaten_attempt_is_left(scene: Scene) -> None:
    run, plan = scene.second_plan()
    winner, _ = scene.speculative_pair(run, 1, plan)
    assert scene.commit(run, 1, plan, [winner]) is Commit.COMMITTED
    assert scene.open_ids() == []


def a_batch_is_aborted(scene: Scene) -> None:
    written = scene.first_batch()
    scene.abort(*written)
    assert scene.open_ids() == []


def a_run_dies_before_its_first_commit(scene: Scene) -> None:
    """No record of the log has its name: only the generation of its ids tells that it is late."""
    scene.batch(scene.run("run-0"), 0)
    scene.dies_undecided("run-1", 1)
    scene.batch(scene.run("run-2"), 1)
    assert scene.open_ids() == []
    scene.ends_with(0, 1)


def an_earlier_run_plans_again(scene: Scene) -> None:
    """It has the newest generation then."""
    old, new = scene.run("run-0"), scene.run("run-1")
    scene.batch(old, 0)
    scene.batch(new, 1)
    told = told_by(lambda: scene.commit(old, 2, scene.plan(old), []))
    assert isinstance(told, CommitError), f"it has taken the key back: {told}"


def two_tasks_share_a_worker(scene: Scene) -> None:
    """One after the other."""
    scene.life = replace(scene.life, new_worker=0.0)
    run = scene.run("run-0")
    plan = scene.plan(run)
    messages = [scene.attempt_of(run, 0, task, 0, plan) for task in range(2)]
    told = told_by(lambda: scene.commit(run, 0, plan, messages))
    assert told is Commit.COMMITTED, f"one has ended the other: {told}"
    scene.ends_with_tasks((0, 0), (0, 1))


# --- jobs and blocks ----------------------------------------------------------------------------


def a_version_has_no_rows_at_first(scene: Scene) -> None:
    """The rows come later, under the same version."""
    run = scene.run("driver")
    scene.version_of_job(run, 1, tasks=0)
    scene.version_of_job(run, 1)
    scene.ends_with(1)


def a_block_dies_with_a_write(scene: Scene) -> None:
    """The driver is killed. The function is called again, and makes the same write."""
    scene.tells_query = False

    def block(run: Run, *, dies: bool) -> None:
        with transaction("sinks", 0, **scene.options()) as one:
            one.write(scene.frame(run, 0))
            if dies:
                run.process.kill()
                scene.wait(lambda: False)

    first, second = scene.run("first"), scene.run("second")
    call, _ = scene.beside(first.process, partial(block, first, dies=True))
    scene.wait(lambda: call.done)
    told = told_by(partial(block, second, dies=False))
    assert told is None, f"it is refused: {told}"
    scene.ends_with(0)


FOUND = (
    Directed(careless.never_sweeps, a_beaten_attempt_is_left, r"\] == \[\]"),
    Directed(careless.abort_does_nothing, a_batch_is_aborted, r"\] == \[\]"),
    Directed(careless.no_prepare_check, a_batch_is_too_old, "it is decided"),
    Directed(careless.one_duel, a_fence_is_half_done, "the successor stops"),
    Directed(
        careless.strangers_are_not_superseded, a_run_dies_before_its_first_commit, r"\] == \[\]"
    ),
    Directed(careless.done_is_never_noted, a_micro_batch, "it is not recorded"),
    Directed(careless.silence_counts_as_committed, an_end_is_not_answered, "does not say unknown"),
    Directed(
        careless.doubtful_counts_as_committed,
        a_part_is_aborted_behind_the_decision,
        "its rows are lost unseen",
        tasks=2,
    ),
    Directed(careless.forgets_the_last_end, a_micro_batch, r"not \{", tasks=2),
    Directed(careless.generation_never_moves, a_run_dies_before_its_first_commit, r"\] == \[\]"),
    Directed(
        careless.planning_does_not_roll_forward,
        a_driver_dies_behind_its_decision,
        "it is not rolled forward",
    ),
    Directed(careless.nobody_is_superseded, an_earlier_run_plans_again, "taken the key back"),
    Directed(careless.forgets_what_is_done, a_batch_comes_again, "it is written twice"),
    Directed(
        careless.ends_without_a_decision, a_driver_dies_behind_its_decision, "not rolled forward"
    ),
    Directed(careless.finishes_nothing, a_micro_batch, r"not \{"),
    Directed(
        careless.one_id_for_two_tasks, two_tasks_share_a_worker, "one has ended the other", tasks=2
    ),
    Directed(careless.a_prepared_producer_aborts_as_it_closes, a_micro_batch, "it fails"),
    Directed(reviewed.s6_the_roll_forward_undoes_nothing, a_decision_times_out, "too late"),
    Directed(
        reviewed.s8_a_sweep_fences_whoever_has_the_id,
        partial(sweeping.test_an_orphan_is_ended_once_and_never_touched_again, warm=False),
        "Counter",
    ),
    Directed(
        reviewed.s9_what_was_swept_is_swept_again,
        partial(sweeping.test_an_orphan_is_ended_once_and_never_touched_again, warm=False),
        "Counter",
    ),
    Directed(
        reviewed.s11_an_unclear_write_is_not_looked_up,
        a_decision_is_not_answered,
        "it is not looked up",
    ),
    Directed(
        reviewed.s12_readers_wait_for_strangers,
        partial(
            without_error, log_reading.test_a_neighbours_open_transaction_in_the_log_delays_no_one
        ),
        "it is told an error",
    ),
    Directed(
        reviewed.s13_every_broker_must_answer,
        partial(without_error, late_requests.test_a_silent_broker_without_our_ids_stops_no_commit),
        "it is told an error",
        warm=True,
    ),
    Directed(
        reviewed.s14_errors_behind_the_decision_are_bare,
        partial(
            without_error,
            partial(
                decisions.test_an_error_after_the_decision_says_it_is_decided,
                code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ),
        ),
        "it is told an error",
        tasks=3,
    ),
    Directed(reviewed.s17_an_empty_version_counts, a_version_has_no_rows_at_first, r"not \{1"),
    Directed(
        reviewed.s19_a_dropped_version_sweeps_its_run,
        partial(sweeping.test_a_version_dropped_in_a_thread_leaves_the_next_one, rows=2),
        "<=",
        tasks=2,
    ),
    Directed(of_blocks.x1_parts_of_a_dead_run_survive, a_block_dies_with_a_write, "it is refused"),
    Directed(
        of_blocks.x4_undo_ignores_what_is_committed, an_end_arrives_late, "it is written twice"
    ),
)


@pytest.mark.long
@pytest.mark.parametrize("directed", FOUND, ids=lambda directed: directed.mutant.__name__)
def test_a_careless_commit_is_found_in_its_life(directed: Directed) -> None:
    play(directed)
    with directed.mutant(), pytest.raises(FAILURES, match=directed.symptom):
        play(directed)
