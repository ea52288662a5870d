"""More runs of a key than ``superseded`` keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.admin.transaction_description import TransactionDescription, TransactionState
from spark_kafka_sink.base.errors import ErrorCode, SupersededError
from spark_kafka_sink.transactions.commit_state import KEPT_RUNS, CommitState
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.result_errors import error_of
from spark_kafka_sink.transactions.steps import (
    AbortBatch,
    AbortUnknown,
    EndByHand,
    Goal,
    View,
    Write,
    Writing,
    opened,
    with_write,
)
from spark_kafka_sink.transactions.table import next_step
from spark_kafka_sink.transactions.transactional_ids import parse

KEY = "p"
RUNS = [f"run-{n}" for n in range(KEPT_RUNS + 8)]
#: By an earlier log, whose generation was larger.
PLANNED = 1_700_000_000_000
DESCRIBED = tuple(
    TransactionDescription(
        ErrorCode.NONE, f"{KEY}~{run}~g{PLANNED}.w~0", TransactionState.ONGOING, 1_000, 0, 7, 3
    )
    for run in RUNS
)


@pytest.mark.parametrize(
    "goal",
    [
        AbortUnknown(KEY, lambda _: True),
        EndByHand(KEY, DESCRIBED, frozenset(), even_owners=False, may_decide=True),
    ],
    ids=["an abort without messages", "an operator's abort"],
)
def test_forty_runs_are_superseded_by_one_write(goal: Goal) -> None:
    """None of those that the log does not keep may decide, either."""
    found = frozenset(filter(None, (parse(one.transactional_id) for one in DESCRIBED)))
    assert len(found) == len(RUNS)
    view = replace(opened(View(), CommitState(1, "a"), 1), found=found)
    writes = 0
    while isinstance(step := next_step(goal, view), Write) and step.why is Writing.ABORTED:
        writes += 1
        assert writes < 5, "the log is written without end"
        view = with_write(view, step)
    assert writes == 1
    assert view.state.run_id == "a", "it owns the key"
    assert not any(Owner(KEY, run, "q", PLANNED).may_decide(view.state) for run in RUNS)


@pytest.mark.parametrize(
    "goal",
    [
        AbortUnknown(KEY, lambda _: True),
        EndByHand(KEY, DESCRIBED[:1], frozenset(), even_owners=False, may_decide=True),
        AbortBatch(Owner(KEY, RUNS[0], "q", PLANNED), 1, (), tasks_may_run=False),
    ],
    ids=["an abort without messages", "an operator's abort", "an abort"],
)
def test_an_abort_of_a_later_plan_is_recorded_first(goal: Goal) -> None:
    """The state may be a deposed leader's, and the run the owner in a later one."""
    known = opened(View(), CommitState(1, "", superseded=(RUNS[0],)), 1)
    view = replace(known, found=frozenset(filter(None, [parse(DESCRIBED[0].transactional_id)])))
    step = next_step(goal, view)
    assert isinstance(step, Write)
    assert step.why is Writing.ABORTED
    assert not isinstance(next_step(goal, with_write(view, step)), Write), "it is written once"


def told(run: str, planned: int, state: CommitState) -> str:
    refusal = Owner(KEY, run, "q", planned).refusal(state)
    assert refusal is not None
    return error_of(KEY, refusal).message


def test_a_run_shut_out_beside_the_owner_has_the_owners_name() -> None:
    """The owner has had the key since before that run planned; the others were aborted."""
    state = CommitState().taken_over("a", "q", 1)
    planned = state.generation
    for run in RUNS:
        state = state.with_aborted_run(run, 1)
    message = told("waiting", planned, state)
    assert "another driver has taken over" not in message
    assert "run a owns the key" in message
    taken = told("waiting", planned, state.taken_over("b", "q", 1))
    assert "another driver has taken over 'p': run b" in taken


@pytest.mark.parametrize("owner", ["a", ""])
def test_the_error_of_an_aborted_run_claims_no_other_driver(owner: str) -> None:
    """Its list is full since, so that the generation has grown."""
    state = CommitState().taken_over("a", "q", 1)
    planned = state.generation
    if not owner:
        state = state.with_aborted_run("a", 1)
    for run in [*RUNS, "aborted", "one more"]:
        state = state.with_aborted_run(run, 1)
    assert state.run_id == owner
    message = told("aborted", planned, state)
    assert "another driver has taken over" not in message
    assert "run aborted of 'p'" in message


def test_the_error_of_an_owner_shows_its_own_later_plan() -> None:
    state = CommitState().taken_over("a", "q", 5).taken_over("b", "q", 5).taken_over("c", "q", 5)
    message = told("c", 5, state)
    assert "another driver has taken over" not in message
    assert "owns the key since a later plan" in message


@pytest.mark.parametrize("numbering", [Numbering.STREAM, Numbering.VERSIONS])
def test_a_run_shut_out_by_many_aborts_is_not_told_of_another_driver(
    numbering: Numbering,
) -> None:
    """The generation grew, because ``superseded`` was full; no driver has taken over."""
    state = CommitState().taken_over("a", "q", 1)
    waiting = Owner(KEY, "waiting", "q", state.generation, numbering)
    for run in ["a", *RUNS]:
        assert waiting.run_id != run
        state = state.with_aborted_run(run, 1)
    refusal = waiting.refusal(state)
    assert refusal is not None
    error = error_of(KEY, refusal)
    assert isinstance(error, SupersededError)
    assert "another driver has taken over" not in error.message
    assert "run waiting of 'p' can't commit this batch any more" in error.message
    assert "no run owns the key" in error.message
    assert "again" in str(error.hint)
