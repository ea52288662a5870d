"""Applications over a simulated cluster: killed and cut at every step, and by seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from unittest.mock import patch

import pytest

from tests.simulation import careless_mutants as careless
from tests.simulation.processes import Blow, Strike
from tests.simulation.seeded_cluster import ClusterFaults
from tests.simulation.spark_application import Application
from tests.simulation.spark_application_life import ApplicationLife, Kind
from tests.simulation.spark_invariants import judge
from tests.simulation.spark_lives import SparkLifeError, draw, live
from tests.simulation.spark_long_run import long_run
from tests.simulation.spark_mutants import CARELESS, OF_BLOCKS, REVIEWED

#: About 10 s of one core. (``make queries`` lives thousands.)
SEEDS = range(3, 43)


def lived(life: ApplicationLife) -> Application:
    world = Application(life)
    world.live()
    judge(world)
    return world


def strikes(life: ApplicationLife, blow: Blow) -> Iterator[ApplicationLife]:
    """``life`` once for each step of each of its processes, struck there. What kills a process of
    the driver's kills the driver.
    """
    for process in lived(life).machine.processes:
        both = blow is Blow.KILL and process.role != "worker"
        for step in range(process.steps):
            strike = Strike(process.role, process.nth, step, Blow.KILL_ALL if both else blow)
            yield replace(life, strikes=(strike,))


#: One micro-batch and the planning of a second one: every state machine, from its first step to
#: its last. (``make queries`` strikes longer lives, too.)
SHORT = ApplicationLife(7, batches=1, tasks=2, rows=3)


@pytest.mark.parametrize(
    ("version", "blow", "every"),
    [
        (2, Blow.KILL, 4),
        pytest.param(1, Blow.CUT, 1, marks=pytest.mark.long),
        pytest.param(1, Blow.KILL, 1, marks=pytest.mark.long),
        pytest.param(2, Blow.CUT, 1, marks=pytest.mark.long),
        pytest.param(2, Blow.KILL, 1, marks=pytest.mark.long),
    ],
)
def test_killed_at_any_step_each_committed_row_is_visible_once(version, blow, every):
    met: Counter[str] = Counter()
    struck = strikes(replace(SHORT, transaction_version=version), blow)
    for life in islice(struck, 0, None, every):
        world = lived(life)
        assert world.machine.met == list(life.strikes)
        met[life.strikes[0].role] += 1
    assert met["plan"] > 10 / every
    assert met["commit"] > 40 / every
    assert met["worker"] > 10 / every


def test_a_few_lives_show_each_committed_row_once():
    for seed in SEEDS[:8]:
        live(seed)


@pytest.mark.long
def test_whatever_happens_each_committed_row_is_visible_once():
    happened: Counter[str] = Counter()
    for seed in SEEDS:
        happened += live(seed).happened()
    # What never happened has tested nothing.
    for name in (
        "cut",
        "silent cut",
        "coordinator error",
        "coordinator moves",
        "leader moves",
        "held",
        "a dead connection's request is worked on",
        "= attempts that raised",
        "= workers lost with a prepared transaction",
        "= speculative attempts",
        "= stopped by the user",
        "= rights taken",
        "= struck: commit kill all",
        *(f"= committed: {kind.value}" for kind in Kind),
        "= commits: no rows",
        "= orphans swept by an abort",
        "= looks for what hangs after a commit",
        "= looks for what hangs after an abort",
    ):
        assert happened[name] > 0, name
    assert sum(count for name, count in happened.items() if name.startswith("= struck")) > 10


def test_a_kill_of_all_ends_a_worker_whose_driver_is_dead_already():
    life = live(52104)
    assert life.happened()["= struck: worker kill all"] == 1


@pytest.mark.parametrize("seed", [0, 3])
def test_a_driver_frozen_after_its_decision_reports_no_partial(seed):
    """One transaction has timed out when it wakes up, and the other one is still open."""
    frozen = Strike("commit", 0, 0, Blow.FREEZE, 50_000, "decided")
    world = lived(
        ApplicationLife(seed, batches=1, tasks=2, late=0.6, late_ms=24_000, strikes=(frozen,))
    )
    assert world.machine.met
    assert not world.partial


@pytest.mark.parametrize("seed", [0, 4, 12, 13])
def test_two_that_begin_at_once_do_not_stop_each_other(seed):
    """Both may take over; and a write of this log takes long, so that each shuts the other out."""
    slow = ClusterFaults(work_ms=20)
    world = lived(ApplicationLife(seed, batches=1, tasks=1, twice=1.0, marker_ms=400, cluster=slow))
    assert world.pairs


def test_the_same_seed_lives_the_same_life():
    def trace(seed: int) -> list[str]:
        world = Application(draw(seed))
        world.live()
        return world.trace

    assert trace(28) == trace(28)


def test_a_failing_seed_of_a_query_shows_its_script():
    with (
        patch.object(Application, "seen", lambda _, **__: {}),
        pytest.raises(SparkLifeError, match=r"lost: .*(.|\n)*spark_lives --seeds 1 --from 4"),
    ):
        live(4)


@pytest.mark.parametrize(
    "mutant", [*CARELESS, *REVIEWED, *OF_BLOCKS], ids=lambda mutant: mutant.__name__
)
def test_a_broken_protocol_still_breaks_something_that_is_there(mutant):
    """And lives with it, well or not. (``make mutants`` says with which seed each is found, and
    ``test_broken_protocols.py`` has lives that find some of them surely.)
    """
    with mutant(), suppress(AssertionError):
        lived(ApplicationLife(0, batches=1, tasks=1))


@pytest.mark.parametrize("kind", [Kind.STREAM, Kind.FOREACH_BATCH])
def test_a_long_run_needs_no_more_ids_than_its_workers(kind, capsys):
    """(``make queries LONG=24000`` runs longer.)"""
    assert long_run(kind, 64) == 0
    assert "every row once" in capsys.readouterr().out


# ---- what the invariants are worth: each deliberate fault breaks one ----------------------------


STRUCK = [
    careless.forgets_what_is_done,
    careless.ends_without_a_decision,
    careless.finishes_nothing,
]
ALWAYS = [
    careless.one_id_for_two_tasks,
    pytest.param(careless.a_prepared_producer_aborts_as_it_closes, marks=pytest.mark.long),
]


@pytest.mark.long
@pytest.mark.parametrize("fault", STRUCK, ids=lambda fault: fault.__name__)
def test_a_broken_driver_is_found(fault):
    # From the last step back: that is where drivers decide and end.
    lives = [x for x in strikes(SHORT, Blow.KILL) if x.strikes[0].role != "worker"][::-1]
    with fault():
        for life in lives:
            try:
                lived(life)
            except AssertionError:
                return
    pytest.fail(f"{len(lives)} kills did not notice {fault.__name__}")


@pytest.mark.parametrize("fault", ALWAYS, ids=lambda fault: fault.__name__)
def test_a_broken_task_is_found(fault):
    # Two tasks in one worker, one after the other: four tasks, and workers that are reused.
    with fault(), pytest.raises(AssertionError, match="not done after"):
        lived(replace(SHORT, tasks=4, stagger_ms=400))
