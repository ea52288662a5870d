"""Lives of the whole producer, a seed each; what must be true of them is in ``invariants.py``.

20 000 of them: ``make simulate SEEDS=20000``; the results are in ``RESULTS.md``.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.programs import run_python
from tests.simulation.life import draw
from tests.simulation.mutant import Mutant
from tests.simulation.mutations import MUTATIONS
from tests.simulation.run import LifeError, live
from tests.simulation.world import World

SEEDS = [range(60), pytest.param(range(60, 200), marks=pytest.mark.long)]


@pytest.mark.parametrize("seeds", SEEDS, ids=["the first seeds", "more seeds"])
def test_every_acknowledged_row_is_there_once_and_in_order(seeds: range) -> None:
    fired: Counter[str] = Counter()
    for seed in seeds:
        world = live(seed)
        fired += world.fired + world.outcomes()
    # A fault that never fired has tested nothing.
    for fault in (
        "cut",
        "half write",
        "pieces",
        "refused",
        "silent cut",
        "leader moves",
        "broker stops",
        "throttle",
        "a dead connection's request is worked on",
        "= rows acknowledged",
        "coordinator error",
        "= batches sent again",
        "= rows sent singly",
        "= invalid rows",
        "sick partition",
        "= transactions aborted",
        "= transactions finished",
    ):
        assert fired[fault] > 0, fault


def trace_of(seed: int) -> list[str]:
    world = World(draw(seed))
    world.live()
    return world.trace


@pytest.mark.parametrize("seed", [3, 11, 42])
def test_the_same_seed_lives_the_same_life(seed: int) -> None:
    assert trace_of(seed) == trace_of(seed)


@pytest.mark.long
def test_a_seed_lives_the_same_life_in_another_process() -> None:
    """Not even the order of Python's sets may matter, or no failure could be replayed."""
    command = ("-m", "tests.simulation", "--seeds", "3", "--from", "7", "--trace")
    traces = []
    for hash_seed in ("1", "2"):
        done = run_python(*command, environment={"PYTHONHASHSEED": hash_seed})
        traces.append(
            [line for line in done.stdout.splitlines() if " simulated hours " not in line]
        )
    assert traces[0] == traces[1]


def test_a_failing_seed_shows_its_script_and_its_replay() -> None:
    def lose_everything(world: World) -> None:
        for log in world.cluster.logs.values():
            log.batches.clear()

    with pytest.raises(LifeError) as caught:
        live(1, before_check=lose_everything)
    message = str(caught.value)
    assert "python -m tests.simulation --seeds 1 --from 1 --trace" in message
    assert "Send(rows=" in message
    assert re.search(r"AssertionError: (row|transaction) \d+", message)


#: The slowest to be found shows up near seed 300.
SEEDS_PER_MUTATION = 800


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_broken_producer_is_found(mutation: Mutant) -> None:
    """What the invariants are worth: each deliberate fault breaks one within some hundred seeds."""
    with mutation():
        for seed in range(SEEDS_PER_MUTATION):
            try:
                live(seed)
            except LifeError:
                return
    pytest.fail(f"{SEEDS_PER_MUTATION} seeds did not notice {mutation.__name__}")
