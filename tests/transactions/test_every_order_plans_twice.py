"""A run that plans a batch, is superseded, plans another batch, and becomes the owner.

A sweep that has found the earlier batch may abort a part of it at any later time. So no run may
decide the earlier batch any more. (The package chooses a new run for the second plan. Another
implementation may not.)
"""

from __future__ import annotations

from unittest.mock import patch

import pytest

from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.ownership import Numbering
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.steps import AbortBatch
from tests.simulation.mutant import with_row_text
from tests.transactions.explored_model import Model
from tests.transactions.explored_things import Actor, Surroundings
from tests.transactions.explorer import few_openings
from tests.transactions.test_every_order import NO_FAULTS, explored, sound

#: Run c takes over (generation 2) and sweeps; run b has planned at 1, and plans again at 2.
SWEEPER = Actor("c", ("commit",), "c", 0, Numbering.VERSIONS)
EARLIER = Actor("b", ("commit",), "b", 2, Numbering.VERSIONS)
LATER = Actor("b", ("commit",), "b2", 1, Numbering.VERSIONS, generation=2)
BEFORE, AFTER = ("opens", "checks", "decides"), ("has ended all", "writes DONE")
SWEEPER_COMMITS = (*BEFORE, "commits p~c~g1.c~0", *AFTER)
LATER_COMMITS = (*BEFORE, "commits p~b~g2.b2~0", *AFTER)
#: The earlier batch is aborted at once, and the log was at generation 0 when it was planned.
ABORTED = EARLIER._replace(todo=("abort",), number=1, generation=0)
BESIDE = LATER._replace(number=0, generation=1)


def walked(model: Model, world: Surroundings, nth: int, *steps: str) -> Surroundings:
    """The world after the actor with that number has taken these steps."""
    for step in steps:
        actor = world.actors[nth]
        found = {what: (now, then) for what, now, then in model.of_actor(world, actor)}
        now, then = found[step]
        actors = (*world.actors[:nth], model.at_its_end(then), *world.actors[nth + 1 :])
        world = now._replace(actors=actors)
    return world


def decides_the_earlier_one(*, torn: bool) -> Surroundings:
    """Run c has found both transactions of the earlier batch, and aborts one after a check of the
    decision, if there is such a check.
    """
    model = Model({"c": 1, "b": 2, "b2": 1}, planned={"b2": 2})
    with few_openings():
        world = model.begin(SWEEPER, EARLIER, LATER, **NO_FAULTS)
        world = walked(model, world, 0, *SWEEPER_COMMITS)
        world = walked(model, world, 2, *LATER_COMMITS)
        world = walked(model, world, 1, "opens")
        if torn:
            world = walked(model, world, 1, "checks")
            world = walked(model, world, 0, "sweeps p~b~g1.b~0")
            world = walked(model, world, 1, "decides", "commits p~b~g1.b~1")
        return world


def test_an_owner_does_not_decide_what_it_planned_before() -> None:
    world = decides_the_earlier_one(torn=False)
    assert world.actors[1].end == Commit.SUPERSEDED.value


def test_an_owner_that_decides_what_it_planned_before_is_found() -> None:
    with (
        patch.object(CommitState, "_is_of_the_owner", lambda *_: True),
        pytest.raises(IllegalStateError, match="a rest is committed, and none of the others is"),
    ):
        decides_the_earlier_one(torn=True)


def test_an_abort_leaves_alone_what_its_run_planned_since() -> None:
    found = sound(ABORTED, BESIDE, faults=(), b2=2)
    assert ("abort: over", "committed") in found.ends


def test_an_abort_that_takes_what_its_run_planned_since_is_found() -> None:
    row, old = "its_run_may_have_more_open", "owner.generation"
    with with_row_text(row, old, "view.state.generation", goal=AbortBatch):
        assert explored(ABORTED, BESIDE, faults=(), b2=2).counterexample


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_order_of_a_run_that_plans_twice() -> None:
    """A sample, which goes to the end of the longest orders."""
    found = sound(SWEEPER, EARLIER, LATER, faults=(), most=4_000, b=2)
    assert ("committed", "superseded", "committed") in found.ends
