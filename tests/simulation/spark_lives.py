"""Queries by seed: what each is like, lived and judged. ``python -m tests.simulation.spark_lives``
lives many.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from collections import Counter
from dataclasses import replace

from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.processes import Blow, Strike
from tests.simulation.results_page import table, write_section
from tests.simulation.seeded_cluster import ClusterFaults
from tests.simulation.spark_application import Application
from tests.simulation.spark_application_life import OPERATIONS, ApplicationLife, Kind
from tests.simulation.spark_invariants import judge
from tests.simulation.spark_long_run import long_run
from tests.simulation.spark_misfortunes import MISFORTUNES, SHORT, Misfortune
from tests.simulation.spark_situations import SITUATIONS, versions_are_written_again, with_more

#: Of the lives.
_IN_A_SITUATION = 0.4
#: Lines of a failing life's end that are printed.
_TAIL = 120


class SparkLifeError(AssertionError):
    """A seed that breaks an invariant: its script, the end of what happened, and how to replay."""

    def __init__(self, world: Application, error: BaseException) -> None:
        tail = "\n".join(world.trace[-_TAIL:])
        super().__init__(
            f"{type(error).__name__}: {error}\n{world.life}\n  ... what happened last:\n{tail}\n"
            f"{type(error).__name__}: {error}\n"
            f"replay: python -m tests.simulation.spark_lives --seeds 1 --from {world.life.seed}"
        )


def draw(seed: int) -> ApplicationLife:
    """The life of ``seed``: a calm one, in which only what its application does is hard; or a bad
    one, or a terrible one; most of them with a misfortune of which each part alone is harmless, or
    in a situation of blocks, operators and restarts.
    """
    fate, life, misfortune = _drawn(seed)
    life = with_more(fate, life if misfortune is None else misfortune(fate, life))
    # (Of its own, so that all else is as it was for each seed.)
    long = life.twice and life.batches > 2 and life.kind in (Kind.STREAM, Kind.FOREACH_BATCH)
    life = replace(life, idles=bool(long) and random.Random(f"idle {seed}").random() < 0.5)
    if misfortune is None and life.kind is not Kind.JOB and (life.offsets or life.report):
        late_own = random.Random(f"own {seed}").choice((0, 0, 1_000, 4_000))
        life = replace(life, late_own=late_own)
    if misfortune is None and life.kind is Kind.VERSIONS:
        return versions_are_written_again(random.Random(f"again {seed}"), life)
    return life


def _drawn(seed: int) -> tuple[random.Random, ApplicationLife, Misfortune | None]:
    fate = random.Random(f"spark life {seed}")
    life = _any(fate, seed)
    misfortune = fate.choice(MISFORTUNES) if fate.random() < 0.6 else None
    if random.Random(f"situation {seed}").random() < _IN_A_SITUATION:
        misfortune = fate.choice(SITUATIONS)
    return fate, life, misfortune


def _any(fate: random.Random, seed: int) -> ApplicationLife:
    bad = fate.choice((0.0, 0.0, 0.3, 1.0))
    kind = fate.choice((Kind.STREAM, Kind.STREAM, *Kind))

    def maybe(probability: float, chance: float = 0.5) -> float:
        return probability * bad if fate.random() < chance else 0.0

    def situation(value: float, chance: float = 0.2) -> float:
        return value if fate.random() < chance else 0.0

    return ApplicationLife(
        seed,
        batches=fate.choice((1, 2, 2, 3)),
        tasks=fate.choice((1, 2, 2, 3)),
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
            append_ms=fate.choice((0, 0, 3, 30)),
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
            failover_ms=fate.choice((0, 100, 2_000)),
            cut_off=maybe(0.004),
            held=maybe(0.02),
            under_replicated=maybe(0.001),
            reader_error=maybe(0.03),
        ),
        preemption=fate.choice((0.0, 0.02, 0.1)),
        strikes=tuple(_strike(fate) for _ in range(fate.choice((0, 0, 1, 2, 2)))),
        fails=maybe(0.3) or situation(0.3, 0.1),
        speculative=situation(0.6, 0.3),
        empty=situation(0.3),
        # (Of its own, so that all else is as it was for each seed.)
        bad=random.Random(f"bad {seed}").choice((0.0, 0.0, 0.3)),
        slow=maybe(0.1),
        twice=situation(0.5, 0.15),
        warm_driver=fate.random() < 0.5,
        heals_after_ms=fate.choice((60_000, 300_000)) if bad else None,
        kind=kind,
        connect=fate.random() < 0.5,
        stops=situation(0.3),
        operators=situation(0.5, 0.1),
        operations=fate.choice((OPERATIONS, ("look", "commit"))),
        empty_first=situation(0.5, 0.3),
        crowded=fate.random() < 0.1,
        unreachable=fate.random() < 0.1,
        rights=situation(0.4, 0.05),
        late=situation(0.3, 0.1),
        late_sweeps=fate.choice((0, 0, 0, 0, 2_000, 15_000)),
        marker_ms=fate.choice((2, 2, 2, 400)),
        away_ms=fate.choice(((0, 100, 3_000), (0, 100, 3_000), (3_000, 90_000))),
        times_ms=fate.choice((SHORT, (60_000, 30_000, 120_000))),
    )


def _strike(fate: random.Random) -> Strike:
    """At one of the first steps of a process, or behind the step where it decides."""
    role = fate.choice(("commit", "commit", "commit", "plan", "worker", "worker"))
    blow = fate.choice((*Blow, Blow.KILL_ALL))
    ms = fate.choice((200, 3_000, 20_000, 45_000, 75_000)) if blow is Blow.FREEZE else 0
    nth = fate.choice((0, 0, 0, 1, 1, 2, 3))
    if role == "commit" and fate.random() < 0.6:
        since = fate.choice(("check", "decided"))
        return Strike(role, nth, fate.randrange(10), blow, ms, since)
    return Strike(role, nth, fate.randrange(40), blow, ms)


def live(seed: int) -> Application:
    """Live and judge the life of ``seed``; SparkLifeError says what broke."""
    world = Application(draw(seed))
    try:
        world.live()
        judge(world)
    except Exception as error:
        raise SparkLifeError(world, error) from error
    return world


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.spark_lives")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--long", type=int, help="one query of so many micro-batches instead")
    parser.add_argument("--kind", choices=["stream", "foreach_batch"], default="stream")
    parser.add_argument("--page", action="store_true", help="write the result to RESULTS.md")
    arguments = parser.parse_args()
    if arguments.long:
        return long_run(Kind(arguments.kind), arguments.long)
    gc.set_threshold(50_000, 20, 20)  # a tenth of the time was spent there
    fired: Counter[str] = Counter()
    failed = 0
    begun = time.monotonic()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        try:
            fired += live(seed).happened()
        except SparkLifeError as error:
            failed += 1
            text = str(error) if failed == 1 else str(error).splitlines()[0]
            print(f"seed {seed}: {text}", flush=True)
        if (seed + 1) % 100 == 0:  # (where --from may go on)
            print(f"up to seed {seed}: {failed} failed", file=sys.stderr, flush=True)
    seconds = time.monotonic() - begun
    result = f"{arguments.seeds} queries, {failed} failed, {seconds:.0f} s"
    print(result)
    for name, count in sorted(fired.items()):
        print(f"{count:>9} {name}")
    if arguments.page:
        call = f"make queries SEEDS={arguments.seeds} FROM={arguments.first}"
        happened = table("what happened | times", sorted(fired.items()))
        write_section("Queries and jobs", call, f"{result}.\n\n{happened}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
