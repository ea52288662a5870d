"""Queries by seed: what each is like, lived and judged. ``python -m tests.simulation.spark_lives``
lives many.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections import Counter, deque

from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.processes import Blow, Strike
from tests.simulation.seeded_cluster import ClusterFaults
from tests.simulation.spark_invariants import check
from tests.simulation.spark_world import SparkLife, SparkWorld

#: Lines of a failing life's end that are printed.
_TAIL = 120


class SparkLifeError(AssertionError):
    """A seed that breaks an invariant: its script, the end of what happened, and how to replay."""

    def __init__(self, world: SparkWorld, error: BaseException) -> None:
        tail = "\n".join(world.trace[-_TAIL:])
        super().__init__(
            f"{type(error).__name__}: {error}\n{world.life}\n  ... what happened last:\n{tail}\n"
            f"{type(error).__name__}: {error}\n"
            f"replay: python -m tests.simulation.spark_lives --seeds 1 --from {world.life.seed}"
        )


def draw(seed: int) -> SparkLife:
    """The life of ``seed``: a calm one, a bad one, or a terrible one."""
    fate = random.Random(f"spark life {seed}")
    bad = fate.choice((0.0, 0.3, 1.0))

    def maybe(probability: float, chance: float = 0.5) -> float:
        return probability * bad if fate.random() < chance else 0.0

    strikes = []
    for _ in range(fate.choice((0, 1, 1, 2, 3))):
        role = fate.choice(("driver", "driver", "worker"))
        strikes.append(
            Strike(role, fate.randrange(3), fate.randrange(130), fate.choice(list(Blow)))
        )
    return SparkLife(
        seed,
        batches=fate.randint(1, 4),
        tasks=fate.randint(1, 3),
        rows=fate.randint(1, 6),
        transaction_version=fate.choice((1, 2, 2)),
        network=NetworkFaults(
            latency_ms=fate.choice((0, 2, 20)),
            spike=maybe(0.02),
            split=maybe(0.2),
            cut=maybe(0.01),
            silent=maybe(0.3),
            refused=maybe(0.05),
            slow_connect=maybe(0.02),
        ),
        cluster=ClusterFaults(
            work_ms=fate.choice((0, 5, 50)),
            stall=maybe(0.005),
            leader_moves=maybe(0.005),
            broker_stops=maybe(0.003),
            not_leader=maybe(0.03),
            not_enough_replicas=maybe(0.02),
            not_enough_after_append=maybe(0.02),
            throttle=maybe(0.02),
            metadata_error=maybe(0.05),
            coordinator_error=maybe(0.1),
            coordinator_moves=maybe(0.01),
        ),
        preemption=fate.choice((0.0, 0.02, 0.1)),
        strikes=tuple(strikes),
        fails=maybe(0.3),
        speculative=maybe(0.5),
        empty=maybe(0.3),
        slow=maybe(0.1),
        twice=maybe(0.3),
        warm_driver=fate.random() < 0.5,
        heals_after_ms=fate.choice((60_000, 300_000)),
    )


def live(seed: int) -> SparkWorld:
    """Live and judge the life of ``seed``; SparkLifeError says what broke."""
    world = SparkWorld(draw(seed))
    try:
        world.live()
        check(world)
    except Exception as error:
        raise SparkLifeError(world, error) from error
    return world


def stream(batches: int) -> int:
    """One query whose epochs overflow on the way (32 767 of them, two or more a micro-batch)."""
    life = SparkLife(
        0, batches=batches, tasks=2, rows=1, network=NetworkFaults(), new_worker=0.0,
        warm_driver=True,
    )  # fmt: skip
    world = SparkWorld(life)
    world.trace = deque(maxlen=_TAIL)  # type: ignore[assignment]
    world.scheduler.most_turns = 1 << 62
    begun = time.monotonic()
    world.live()
    check(world)
    transactions = world.cluster.transactions.transactions
    ids = [i for i in transactions if i.startswith("orders~run-0~")]
    print(
        f"{batches} micro-batches of 2 tasks: every row once; {len(ids)} transactional ids of "
        f"tasks; the last producer id given out is {world.cluster.transactions.new_producer_id()}; "
        f"{time.monotonic() - begun:.0f} s"
    )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.spark_lives")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--stream", type=int, help="one query of so many micro-batches instead")
    arguments = parser.parse_args()
    logging.disable()
    if arguments.stream:
        return stream(arguments.stream)
    fired: Counter[str] = Counter()
    failed = 0
    begun = time.monotonic()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        try:
            fired += live(seed).happened()
        except SparkLifeError as error:
            failed += 1
            print(f"seed {seed}: {error}" if failed == 1 else str(error).splitlines()[0])
    seconds = time.monotonic() - begun
    print(f"{arguments.seeds} queries, {failed} failed, {seconds:.0f} s")
    for name, count in sorted(fired.items()):
        print(f"{count:>9} {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
