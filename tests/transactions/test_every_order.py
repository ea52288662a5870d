"""Every order of a commit's steps, with all faults of brokers: no batch is visible twice, none in
part unless its state says so, and what a commit returns is true.
(``explored_moves.py`` has the bounds.)
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from spark_kafka_sink.transactions import ending
from spark_kafka_sink.transactions.ownership import Numbering
from spark_kafka_sink.transactions.results import Commit
from tests.simulation.mutant import with_text
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
    planned = {actor.work: actor.generation for actor in actors if actor.work}
    model = Model(works_of(actors) | works, version, reports, planned)
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
