"""Whoever waits long enough ends, from every world that any order of steps reaches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import pytest

from spark_kafka_sink.transactions import ending, steps
from spark_kafka_sink.transactions.ending import Ending
from tests.transactions.explored_model import Model
from tests.transactions.explored_things import Actor
from tests.transactions.explorer import Came, circle, explore, few_openings, without_end
from tests.transactions.test_every_order import (
    ABORT,
    ALL_BUT_IDS,
    COMMANDS,
    DRIVER,
    FAULTS,
    NEXT,
    NO_FAULTS,
    OPERATOR,
    OTHER,
    RESTART,
    works_of,
)

Change = Callable[[], AbstractContextManager[Any]]
BESIDE = {
    "nobody": (),
    "a restart": (RESTART,),
    "an operator": (OPERATOR,),
    "Spark's abort": (ABORT,),
    "the next batch of another driver": (NEXT,),
    **{command: (Actor("o", (command,)),) for command in COMMANDS},
}


def found(
    *actors: Actor, faults: tuple[str, ...], change: Change = nullcontext
) -> tuple[list[str], list[str]]:
    """The actors that can't come to an end, and a way round in a circle."""
    model = Model(works_of(actors))
    with change(), few_openings():
        start = model.begin(*actors, **{**NO_FAULTS, **dict.fromkeys(faults, 1)})
        came: Came = {}
        wrong = list(explore(model, start, came).counterexample)
        endless = [str(world) for world in without_end(model, came)]
        return wrong + endless, circle(model, start)


@pytest.mark.parametrize("name", BESIDE)
def test_each_actor_that_waits_comes_to_an_end(name: str) -> None:
    assert found(DRIVER, *BESIDE[name], faults=()) == ([], [])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_driver_ends_after_a_fault(fault: str) -> None:
    assert found(DRIVER, faults=(fault,)) == ([], [])


@pytest.mark.long
@pytest.mark.parametrize(
    "actors",
    [(DRIVER, ABORT), (DRIVER, RESTART), (DRIVER, OTHER)],
    ids=["Spark's abort", "a restart", "a second driver"],
)
def test_two_that_end_one_decision_come_to_an_end(actors: tuple[Actor, ...]) -> None:
    faults = () if OTHER in actors else ALL_BUT_IDS[:2]
    assert found(*actors, faults=faults) == ([], [])


def _never_undone() -> AbstractContextManager[Any]:
    true = ending.ending

    def waits(*given: Any, **named: Any) -> Ending | None:
        todo = true(*given, **named)
        return Ending.WAIT if todo is Ending.UNDO else todo

    return patch.object(ending, "ending", waits)


def _sweeps_for_ever() -> AbstractContextManager[Any]:
    return patch.object(steps, "with_sweep", lambda view, *_, **__: view)


@pytest.mark.parametrize("change", [_never_undone, _sweeps_for_ever])
def test_a_wait_for_something_that_never_comes_is_found(change: Change) -> None:
    endless, _ = found(DRIVER, RESTART, faults=(), change=change)
    assert endless


def test_a_way_round_in_a_circle_is_found() -> None:
    _, way = found(DRIVER, faults=(), change=_sweeps_for_ever)
    assert way
