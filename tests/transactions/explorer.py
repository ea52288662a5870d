"""Every order of the steps of several drivers, of operators, of brokers and of time, breadth first.

``explored_moves.py`` has what may happen next, ``explored_model.py`` what must hold in each world.
The liveness is checked here: each actor that waits comes to an end. An actor that works alone,
without a further fault, while time passes and leaders come back, must come to its end from each
world, whatever it knows there. It may not give up for that: its deadline would hide a wait for
something that never comes.
And with all others at work, no way through the worlds leads back to an earlier one, except for
looks at transactions that are neither ended nor old enough yet: time ends these. So no actor
goes round in a circle, either.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import AbstractContextManager
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.transactions import table
from tests.transactions.explored_model import Model
from tests.transactions.explored_things import OPENINGS, Actor, Surroundings

#: Each one, with the one from which it was reached first, and by which step.
Came = dict[Surroundings, tuple[Surroundings | None, str]]
#: An actor looks again, and may do what it did before.
LOOKS_AGAIN = "looks again"
GIVES_UP = "gives up"


class Explored(NamedTuple):
    states: int
    depth: int
    ends: frozenset[tuple[str, ...]]
    #: The steps to a world that is broken, and what is wrong with it; empty when none is.
    counterexample: tuple[str, ...] = ()
    #: Every world was visited, and not a sample.
    is_whole: bool = True


def few_openings() -> AbstractContextManager[Any]:
    """Each actor opens the key as often as the bounds have it."""
    return patch.multiple(table, MOST_OPENINGS=OPENINGS, MOST_UNCLEAR=OPENINGS)


def explore(
    model: Model, start: Surroundings, came: Came | None = None, most: int = sys.maxsize
) -> Explored:
    """Every world that can be reached from ``start``; stops at the first broken one. ``came`` gets
    all worlds. If a depth has more than ``most`` worlds, a sample, the same one each time.
    """
    with few_openings():
        return _explored(model, start, {} if came is None else came, most)


def _explored(model: Model, start: Surroundings, came: Came, most: int) -> Explored:
    came[start] = None, ""
    layer, depth, is_whole = [start], 0, True
    ends: set[tuple[str, ...]] = set()
    chance = Random(1)
    while layer:
        if len(layer) > most:
            layer, is_whole = chance.sample(layer, most), False
        following = []
        for world in layer:
            ends.add(tuple(actor.end for actor in world.actors))
            try:
                if wrong := model.broken(world):
                    return Explored(len(came), depth, frozenset(ends), (*_way(came, world), wrong))
                after = list(model.after(world))
            except IllegalStateError as error:  # the state has no such transition
                way = (*_way(came, world), error.message)
                return Explored(len(came), depth, frozenset(ends), way)
            for what, reached in after:
                then = model.canonical(reached)
                if then not in came:
                    came[then] = (world, what)
                    following.append(then)
        layer, depth = following, depth + 1
    return Explored(len(came), depth, frozenset(ends), is_whole=is_whole)


def _way(came: Came, world: Surroundings) -> list[str]:
    way: list[str] = []
    at: Surroundings | None = world
    while at is not None:
        at, what = came[at]
        way.append(what)
    return way[-2::-1]


# --- each actor that waits comes to an end ------------------------------------------------------


def alone(world: Surroundings, actor: Actor) -> Surroundings:
    """All others have stopped for ever, and no fault happens any more."""
    return world._replace(
        actors=(actor,), old=world.log,
        unanswered=0, late=0, stale=0, leaderless=0, forgotten=0,
    )  # fmt: skip


def without_end(model: Model, worlds: Iterable[Surroundings]) -> list[Surroundings]:
    """Worlds from which an actor can't come to its end alone."""
    left = {
        model.canonical(alone(world, actor))
        for world in worlds
        for actor in world.actors
        if not actor.end
    }
    found, before = set(left), defaultdict(set)
    while left:
        world = left.pop()
        for what, reached in model.after(world):
            then = model.canonical(reached)
            if not what.endswith(GIVES_UP):
                before[then].add(world)
                if then not in found:
                    found.add(then)
                    left.add(then)
    ending = [world for world in found if world.actors[0].end]
    good = set(ending)
    while ending:
        for world in before[ending.pop()] - good:
            good.add(world)
            ending.append(world)
    return sorted(found - good, key=str)


def circle(model: Model, start: Surroundings) -> list[str]:
    """A way that leads back to a world without a look again; empty when there is none."""
    is_over: dict[Surroundings, bool] = {start: False}
    way = [(start, "", _steps(model, start))]
    while way:
        world, _, steps = way[-1]
        if not steps:
            is_over[world] = True
            way.pop()
            continue
        what, then = steps.pop()
        if then not in is_over:
            is_over[then] = False
            way.append((then, what, _steps(model, then)))
        elif not is_over[then]:
            return [*(step for _, step, _ in way[1:]), what]
    return []


def _steps(model: Model, world: Surroundings) -> list[tuple[str, Surroundings]]:
    found = [(what, model.canonical(then)) for what, then in model.after(world)]
    return [(what, then) for what, then in found if not what.endswith(LOOKS_AGAIN)]
