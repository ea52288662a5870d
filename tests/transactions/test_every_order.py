"""Every order of a commit's steps, with all faults of brokers: no batch is visible twice, none in
part unless its state says so, and what a commit returns is true.
(``explored_moves.py`` has the bounds.)
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest

from spark_kafka_sink.transactions import ending, steps, table
from spark_kafka_sink.transactions.ending import Ending
from spark_kafka_sink.transactions.ownership import Numbering
from spark_kafka_sink.transactions.results import Commit
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
from tests.simulation.results_page import table as page_table
from tests.simulation.results_page import write_section
from tests.transactions.explored_model import Model
from tests.transactions.explored_things import Actor
from tests.transactions.explorer import Explored, explore

NO_FAULTS = {"unanswered": 0, "late": 0, "stale": 0, "leaderless": 0, "forgotten": 0}
FAULTS = tuple(NO_FAULTS)
#: ``make orders`` visits every order, in about ten minutes of CPU; ``make test-long`` a part.
IS_WHOLE = "KPROD_EVERY_ORDER" in os.environ


def only_whole(test: Callable[..., None]) -> Callable[..., None] | None:
    """A test that takes minutes of CPU: pytest finds it under ``make orders`` alone."""
    return test if IS_WHOLE else None


ALL_BUT_IDS = tuple(fault for fault in FAULTS if fault != "forgotten")
DRIVER, OTHER = Actor("a", ("commit",), "a"), Actor("b", ("plan", "commit"), "b")
RESTART, OPERATOR = Actor("r", ("plan",)), Actor("o", ("by hand",))
NAMES = ["a restart", "an operator", "Spark's abort", "the next batch of another driver"]
#: Spark's abort, and a driver that has taken over for the next batch.
ABORT, NEXT = Actor("a", ("abort",), "a"), Actor("b", ("plan", "next"))

#: Of an operator, beside its commit.
COMMANDS = ("abort --force", "sweep", "resolve --as done", "resolve --as replay", "reset")


#: A row of tests/simulation/RESULTS.md for each exploration of the correct rules.
_EXPLORED: list[tuple[object, ...]] = []


@pytest.fixture(scope="module", autouse=True)
def page() -> Iterator[None]:
    """``make orders`` writes its section of tests/simulation/RESULTS.md."""
    _EXPLORED.clear()
    yield
    if IS_WHOLE:
        head = "actors | version | faults | states | depth | seconds of CPU"
        body = page_table(head, sorted(_EXPLORED, key=str))
        write_section("Every order of a commit's steps", "make orders", body)


def works_of(actors: tuple[Actor, ...]) -> dict[str, int]:
    """Two transactions of a driver; one of each other driver, of each thread, and of three."""
    works = {actor.work: 1 for actor in actors if actor.work}
    is_small = actors in (THREADS, REPORTING) or len(actors) > 2
    return works if is_small else works | {"a": 2}


def explored(
    *actors: Actor,
    version: int = 2,
    faults: tuple[str, ...] = FAULTS,
    most: int = sys.maxsize,
    **works: int,
) -> Explored:
    """From the beginning, with one fault of each of ``faults``; ``works`` has more transactions.
    ``most``: only a sample of so many worlds at each depth.
    """
    reports = frozenset(actor.work for actor in actors if actor.has_report)
    model = Model(works_of(actors) | works, version, reports)
    start = model.begin(*actors, **{**NO_FAULTS, **dict.fromkeys(faults, 1)})
    return explore(model, start, most=most)


def sound(
    *actors: Actor,
    version: int = 2,
    faults: tuple[str, ...] = FAULTS,
    most: int = sys.maxsize,
    **works: int,
) -> Explored:
    """As ``explored``; fails at a broken order, and has a row of the page."""
    began = time.process_time()
    found = explored(*actors, version=version, faults=faults, most=most, **works)
    seconds = round(time.process_time() - began)
    assert not found.counterexample, "\n".join(found.counterexample)
    who = "; ".join(
        f"{actor.run}: {', '.join(actor.todo)}{' (left open)' * actor.has_left_open}"
        f"{' (a report)' * actor.has_report}"
        for actor in actors
    )
    what = "all" if faults == FAULTS else ", ".join(faults) or "none"
    who += "".join(f"; {n} transactions of {work}" for work, n in works.items())
    states = f"{found.states:,}{'' if found.is_whole else ' (a sample)'}"
    _EXPLORED.append((who, version, what, states, found.depth, seconds))
    return found


@pytest.mark.parametrize("version", [1, 2])
def test_one_driver_with_every_fault(version: int) -> None:
    found = sound(DRIVER, version=version)
    commits = {ends[0] for ends in found.ends}
    assert {
        how.value for how in (Commit.COMMITTED, Commit.NOT_VISIBLE, Commit.UNKNOWN, Commit.PARTIAL)
    } <= commits


@pytest.mark.parametrize("other", [RESTART, OPERATOR, ABORT, NEXT], ids=NAMES)
def test_a_driver_and_another_one_that_ends_its_decision(other: Actor) -> None:
    sound(DRIVER, other, faults=())


#: Its process has committed the batch before, and others act meanwhile.
GOES_ON = DRIVER._replace(has_left_open=True)
MEANWHILE = {
    "a restart": RESTART,
    "an operator": OPERATOR,
    "Spark's abort": ABORT,
    "the next batch of another driver": NEXT,
    "a reset": Actor("o", ("reset",)),
}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param((), id="no fault"),
        pytest.param(("unanswered", "stale"), id="faults", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("other", MEANWHILE.values(), ids=MEANWHILE)
def test_a_driver_that_goes_on_with_the_key_left_open(other: Actor, fault: tuple[str, ...]) -> None:
    found = sound(GOES_ON, other, faults=fault)
    assert any(ends[0] == "committed" for ends in found.ends)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param((), id="no fault"),
        pytest.param(("forgotten",), id="an id expires", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_driver_and_each_command_of_an_operator(command: str, fault: tuple[str, ...]) -> None:
    found = sound(DRIVER, Actor("o", (command,)), faults=fault)
    assert any("over" in ends[1] for ends in found.ends) or command == "sweep"


@pytest.mark.long
@pytest.mark.timeout(1200)  # a minute of CPU, and much more on a machine that does other work
@pytest.mark.parametrize("other", [RESTART, OPERATOR, ABORT, NEXT], ids=NAMES)
def test_two_that_end_one_decision_with_every_fault(other: Actor) -> None:
    found = sound(DRIVER, other, faults=FAULTS if IS_WHOLE else ALL_BUT_IDS)
    assert found.states > 30_000


#: Versions of one job, which threads of its driver write.
THREADS = (
    Actor("a", ("commit",), "a", 0, Numbering.VERSIONS),
    Actor("a", ("commit",), "a1", 1, Numbering.VERSIONS),
)


@pytest.mark.parametrize(
    "works",
    [
        pytest.param({"a1": 2}, id="the next"),
        pytest.param({"a": 2}, id="the first", marks=pytest.mark.long),
    ],
)
def test_two_threads_of_one_job(works: dict[str, int]) -> None:
    """A version in two transactions could be torn: by the other one's sweep, or by its end."""
    found = sound(*THREADS, faults=(), **works)
    assert (Commit.COMMITTED.value, Commit.COMMITTED.value) in found.ends


def test_an_abort_without_messages_beside_the_commit_of_a_job() -> None:
    """The key of a job that is never repeated has its decision."""
    commit = DRIVER._replace(numbering=Numbering.ONCE)
    abort = Actor("a", ("abort",), numbering=Numbering.ONCE)
    found = sound(commit, abort, faults=())
    assert ("committed", "abort: over") in found.ends


def with_an_id_initialized_again(tasks: int, *actors: Actor) -> Explored:
    model = Model({"a": tasks})
    model.is_forgotten_early = True
    return explore(model, model.begin(*actors, **{**NO_FAULTS, "forgotten": 1}))


@pytest.mark.parametrize("others", [(), (RESTART,), (OPERATOR,)], ids=["nobody", *NAMES[:2]])
@pytest.mark.parametrize("tasks", [2, 3])
def test_a_rest_is_not_committed_for_an_outcome_that_is_not_known(
    tasks: int, others: tuple[Actor, ...]
) -> None:
    """The id of one is initialized again, which may be aborted: the rest waits for its end."""
    found = with_an_id_initialized_again(tasks, DRIVER, *others)
    assert not found.counterexample, "\n".join(found.counterexample)


def test_a_rest_that_is_committed_beside_such_an_outcome_is_found() -> None:
    with with_text(ending, "ending", "if _is_doubtful", "if False and _is_doubtful"):
        assert with_an_id_initialized_again(3, DRIVER).counterexample


#: A thousand worlds at each depth, or every one.
SAMPLE_OR_ALL = pytest.mark.parametrize(
    "most",
    [
        pytest.param(1_000, id="a sample"),
        pytest.param(sys.maxsize, id="all", marks=pytest.mark.long),
    ],
)
#: Each one's report is a transaction of the driver's own.
REPORTING = tuple(actor._replace(has_report=True) for actor in THREADS)


@SAMPLE_OR_ALL
def test_two_threads_of_one_job_with_reports(most: int) -> None:
    found = sound(*REPORTING, faults=(), most=most)
    assert (Commit.COMMITTED.value, Commit.COMMITTED.value) in found.ends


#: Two threads write one version, of which one fails: Spark aborts it while the other one commits.
TWICE = (
    THREADS[0],
    THREADS[1]._replace(number=0),
    Actor("a", ("abort",), "a1", 0, Numbering.VERSIONS),
)


@SAMPLE_OR_ALL
def test_an_abort_of_a_version_that_another_thread_writes_too(most: int) -> None:
    """The decision of the other thread is perhaps undone later, and then this one may decide."""
    found = sound(*TWICE, faults=(), most=most, a1=2)
    assert ("committed", "superseded", "abort: over") in found.ends


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fault", FAULTS if IS_WHOLE else FAULTS[:1])
def test_two_threads_of_one_job_with_each_fault(fault: str) -> None:
    found = sound(*THREADS, faults=(fault,))
    assert found.states > 10_000
    assert (Commit.COMMITTED.value, Commit.COMMITTED.value) in found.ends


@only_whole
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", [*COMMANDS, "by hand"])
def test_two_drivers_and_an_operator(command: str) -> None:
    found = sound(DRIVER, OTHER, Actor("o", (command,)), faults=())
    assert found.states > 30_000


@pytest.mark.parametrize("command", [*COMMANDS, "by hand"])
def test_three_transactions_and_an_operator(command: str) -> None:
    """One may be committed, one lost, and one open."""
    sound(DRIVER, Actor("o", (command,)), faults=(), a=3)


@only_whole
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("command", [*COMMANDS, "by hand"])
def test_three_transactions_and_an_operator_with_each_fault(command: str, fault: str) -> None:
    sound(DRIVER, Actor("o", (command,)), faults=(fault,), a=3)


#: Worlds at each depth that are visited, where all of them would take hours.
MOST = 1_000


@only_whole
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("command", [*COMMANDS, "by hand"])
def test_two_drivers_and_an_operator_with_each_fault(command: str, fault: str) -> None:
    """A sample, which goes to the end of the longest orders."""
    found = sound(DRIVER, OTHER, Actor("o", (command,)), faults=(fault,), most=MOST)
    assert found.depth > 30


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fault", FAULTS if IS_WHOLE else FAULTS[:1])
def test_two_drivers_of_one_batch_with_each_fault(fault: str) -> None:
    found = sound(DRIVER, OTHER, faults=(fault,))
    assert found.states > 30_000


# --- the rows, each changed -------------------------------------------------------------------

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
    "no_run_has_it_open": "it spares opening the key: test_edges_sweeping.py",
    "nothing_will_follow_them": "the key of a job: test_operations.py",
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
