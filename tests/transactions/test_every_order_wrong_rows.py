"""Every order of a commit's steps with one row of the protocol wrong or missing: each is found.

``test_every_order.py`` has the orders with the correct rows, and the actors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest

from spark_kafka_sink.transactions import ending, steps, table
from spark_kafka_sink.transactions.ending import Ending
from spark_kafka_sink.transactions.steps import (
    AbortBatch,
    AbortUnknown,
    CommitBatch,
    EndByHand,
    Goal,
    Reset,
    Resolve,
    RollForward,
)
from tests.simulation.mutant import all_of, with_row_text, with_text, without_rows
from tests.transactions.explored_things import Actor
from tests.transactions.explorer import Explored
from tests.transactions.test_every_order import (
    ABORT,
    DRIVER,
    NEXT,
    OPERATOR,
    OTHER,
    REPORTING,
    RESTART,
    THREADS,
    TWICE,
    explored,
)

Change = Callable[[], AbstractContextManager[Any]]


def _row(name: str, goal: type[Goal] = CommitBatch) -> Change:
    return lambda: without_rows(name, goal=goal)


def _ending(change: Callable[[Ending | None], Ending | None]) -> Change:
    true = ending.ending
    return lambda: patch.object(ending, "ending", lambda *a, **n: change(true(*a, **n)))


#: The change, who must be there for it to matter, and the fault.
CHANGES: dict[str, tuple[Change, tuple[Actor, ...], tuple[str, ...]]] = {
    "a commit that has succeeded goes on": (_row("it_has_succeeded"), (DRIVER,), ()),
    "a failed step is not looked at": (_row("a_step_has_failed"), (DRIVER, RESTART), ()),
    "a key is written without opening it": (_row("the_key_is_not_open"), (DRIVER,), ()),
    "its decision counts as others'": (_row("it_has_decided"), (DRIVER, RESTART), ()),
    "an earlier decision is forgotten": (
        _row("others_may_have_ended_its_decision"), (DRIVER, NEXT), ("unanswered",)
    ),
    "any run may decide": (_row("its_run_may_not_decide"), (DRIVER, ABORT), ()),
    "nobody rolls forward": (_row("another_decision_is_there"), (DRIVER, OTHER), ()),
    "a batch is decided twice": (_row("it_is_done"), (DRIVER, OTHER), ()),
    "others' decision counts as its own": (
        lambda: with_row_text(
            "another_decision_is_there", "view, decision)", "view, decision, is_ours=True)"
        ),
        (DRIVER, OTHER), (),
    ),
    "a lost transaction counts as committed": (
        lambda: with_text(table, "_end", "if ended.lost and", "if False and"), (DRIVER,), ()
    ),
    "an aborted run may decide": (
        _row("its_run_may_still_decide", AbortBatch), (DRIVER, ABORT), ()
    ),
    "a decided batch is aborted": (
        lambda: all_of(
            _row("it_was_decided", AbortBatch)(),
            _row("its_run_may_still_decide", AbortBatch)(),
        ),
        (DRIVER, ABORT), (),
    ),
    "a run with another decision is not superseded by an abort": (
        lambda: with_row_text(
            "its_run_may_still_decide", "return Write(",
            "return None if state.decision and state.run_id == owner.run_id else Write(",
            goal=AbortBatch,
        ),
        TWICE, (),
    ),
    "a thread's undone decision counts as done by another": (
        lambda: with_row_text(
            "others_may_have_ended_its_decision", "if view.seen is None",
            "if view.decided and view.state.has_done(view.decided):\n"
            "        return _sweep(goal, Commit.COMMITTED)\n"
            "    if view.seen is None",
        ),
        TWICE, (),
    ),
    "versions share the id of a report": (
        lambda: with_row_text(
            "it_is_to_be_decided", 'view.name if is_shared else ""', '""'
        ),
        REPORTING, (),
    ),
    "an undone decision is done": (
        lambda: with_text(table, "_end", "state.undone()", "state.finished()"), (DRIVER,), ()
    ),
    "a doubtful outcome counts as committed": (
        lambda: with_text(table, "_end", "return Refuse(Commit.UNKNOWN, reason)", "pass"),
        (DRIVER,), (),
    ),
    "a start undoes what may still be committed": (
        _ending(lambda todo: Ending.UNDO if todo is Ending.COMMIT else todo), (DRIVER, RESTART), ()
    ),
    "a look that comes late commits": (
        _ending(lambda todo: Ending.FINISH if todo is Ending.WAIT else todo), (DRIVER, RESTART), ()
    ),
    "a decision that a deposed leader lacks is denied": (
        lambda: patch.object(steps, "with_seen", lambda view, _: replace(view, tried=None)),
        (DRIVER, RESTART), ("unanswered", "stale"),
    ),
    "a version's own run is swept, and may decide": (
        lambda: with_row_text("it_has_succeeded", "if run not in", "if False and run not in"),
        THREADS, (),
    ),
    "a batch is lost in part while one is open": (
        lambda: with_text(table, "_end", "and not ended.unclear", ""), (DRIVER,), ()
    ),
    "a command takes the word of a deposed leader": (
        lambda: with_text(table, "_needs_newest_state", "(goal, Resolve | Reset)", "(goal, Reset)"),
        (DRIVER, Actor("o", ("resolve --as replay",))), ("stale", "forgotten"),
    ),
    "the outcome of another batch is told as its own": (
        lambda: with_row_text("another_decision_is_there", "if is_other and", "if False and"),
        THREADS, (),
    ),
}  # fmt: skip
#: What they need to show it.
MORE: dict[str, dict[str, int]] = {
    "a version's own run is swept, and may decide": {"a1": 2},
    "a run with another decision is not superseded by an abort": {"a1": 2},
    "a batch is lost in part while one is open": {"a": 3},
}


#: These break nothing: an actor does not come to one of its ends any more.
LOSES_AN_END = ("a failed step is not looked at", "a key is written without opening it")
#: Rows of a commit that the model does not tell apart, and what does.
SHOWN_ELSEWHERE = {
    "its_decision_is_undone": "only the error's text differs: test_errors_and_readers.py",
    "it_can_not_be_the_next_one": "test_batch_numbers.py",
    "it_is_a_write_of_a_block": "test_parts.py",
    "it_is_a_job_without_rows": "test_batch_numbers.py",
    "it_is_to_be_decided": "the last row: without it nothing is committed",
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_row_is_found(name: str) -> None:
    change, actors, faults = CHANGES[name]
    ends = explored(*actors, faults=faults).ends if name in LOSES_AN_END else frozenset()
    with change():
        most = 1_000 if actors is TWICE else sys.maxsize
        found = explored(*actors, faults=faults, most=most, **MORE.get(name, {}))
    assert found.counterexample or ends - found.ends


def test_each_row_has_a_change_or_is_shown_elsewhere() -> None:
    changed = [row for row in table.COMMIT if _is_changed(row.__name__)]
    shown = [row for row in table.COMMIT if row.__name__ in SHOWN_ELSEWHERE]
    assert {*changed, *shown} == {*table.COMMIT}


def _is_changed(name: str) -> bool:
    """A change of the table lacks the row, or has another one of its name."""
    row = getattr(table, name)
    for change, _, _ in CHANGES.values():
        with change():
            if row not in table.TABLES[CommitBatch]:
                return True
    return False


RESOLVES = Actor("o", ("resolve --as done",))
#: Who pursues each other goal beside a driver that commits.
PURSUED: dict[type[Goal], tuple[Actor, ...]] = {
    RollForward: (RESTART, OPERATOR),
    AbortBatch: (ABORT,),
    AbortUnknown: (Actor("a", ("abort unknown",), "a"),),
    EndByHand: (Actor("o", ("abort --force",), "a"), Actor("o", ("sweep",))),
    Resolve: (RESOLVES, Actor("o", ("resolve --as replay",))),
    Reset: (Actor("o", ("reset",)),),
}
#: Their rows that the model does not tell apart, and why they are there.
NOT_TOLD_APART = {
    "the_key_is_not_read": "it spares opening the key: test_edges_log_reading.py",
    "the_state_that_was_read_is_enough": "it spares opening the key: test_edges_log_reading.py",
    "the_state_is_not_expected": "what planning refuses: test_transaction_plan.py",
    "its_transactions_may_be_open": "the model's sweep sees all: test_edges_sweeping.py",
    "its_run_may_have_more_open": "of failed attempts: test_edges_sweeping.py",
    "its_tasks_may_still_run": "killed tasks: test_edges_sweeping.py",
    "nothing_will_follow_it": "the key of a job: test_edges_sweeping.py",
    "it_has_nothing_to_abort": "it spares opening the key: test_edges_sweeping.py",
    "the_decision_has_changed": "another decision: test_operations.py",
    "its_transactions_are_not_ended": "a batch in part with an open rest: test_cli.py",
    "some_contradict_it": "test_edges_leaderless.py",
    "the_state_has_changed": "another state: test_operations.py",
}
_ROWS = [
    pytest.param(goal, row.__name__, id=f"{goal.__name__}: {row.__name__}")
    for goal in PURSUED
    for row in table.TABLES[goal][:-1]  # without the last one there is no step
    if row.__name__ not in NOT_TOLD_APART
    # (A resolve that is not answered is written again, which ends it, too.)
    and not (goal is Resolve and row is table.a_step_has_failed)
]


def _beside_a_driver(actor: Actor) -> Explored:
    if actor.todo == ("sweep",):  # it leaves the owner alone
        return explored(OTHER, actor, faults=(), b=2)
    return explored(DRIVER, actor, faults=("unanswered",) if actor is RESOLVES else ())


@cache
def _all_ends(actor: Actor) -> frozenset[tuple[str, ...]]:
    return _beside_a_driver(actor).ends


@pytest.mark.parametrize(("goal", "name"), _ROWS)
def test_a_row_that_is_missing_is_found(goal: type[Goal], name: str) -> None:
    """Something breaks, or an end can't be reached any more."""
    for actor in PURSUED[goal]:
        wanted = _all_ends(actor)
        with without_rows(name, goal=goal):
            found = _beside_a_driver(actor)
        if found.counterexample or wanted - found.ends:
            return
    pytest.fail(f"nothing needs the row {name}")
