"""Queries by seed: what each is like, lived and judged. ``python -m tests.simulation.spark_lives``
lives many.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections import Counter, deque

from spark_kafka_sink.transactions.commit_state import CommitState
from tests.fakes.record_reader import parse_batch
from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.processes import Blow, Strike
from tests.simulation.seeded_cluster import ClusterFaults
from tests.simulation.spark_application import (
    OPERATIONS,
    Application,
    ApplicationLife,
    Kind,
    Start,
)
from tests.simulation.spark_invariants import judge
from tests.simulation.spark_world import LOG_TOPIC, QUERY, SparkWorld

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


def draw(seed: int) -> ApplicationLife:
    """The life of ``seed``: a calm one, in which only what its application does is hard; or a bad
    one, or a terrible one.
    """
    fate = random.Random(f"spark life {seed}")
    bad = fate.choice((0.0, 0.0, 0.3, 1.0))
    kind = fate.choice((Kind.STREAM, Kind.STREAM, *Kind))

    def maybe(probability: float, chance: float = 0.5) -> float:
        return probability * bad if fate.random() < chance else 0.0

    def situation(value: float, chance: float = 0.2) -> float:
        return value if fate.random() < chance else 0.0

    batches = fate.randint(1, 4)
    strikes = [_strike(fate) for _ in range(fate.choice((0, 0, 1, 2, 2)))]
    times = fate.choice(((20_000, 5_000, 20_000), (60_000, 30_000, 120_000)))
    # Misfortunes that hurt only together with a driver that dies behind its decision.
    recipe = fate.randrange(20)
    if recipe < 4:
        strikes.insert(0, Strike("commit", 0, fate.randrange(10), Blow.KILL_ALL, 0, "decided"))
        times = (20_000, 5_000, 20_000)
    elif recipe < 6:
        # An abort beside a commit that goes on.
        since = fate.choice(("", "check", "decided"))
        strikes = [Strike("commit", fate.randrange(2), fate.randrange(12), Blow.STOP, 0, since)]
    elif recipe < 8:
        ms = fate.choice((20_000, 45_000, 75_000))
        strikes = [Strike("commit", 0, fate.randrange(12), Blow.FREEZE, ms, "check")]
    elif recipe == 8:
        times = (20_000, 5_000, 20_000)
    absent = fate.choice((0, 0, 0, 0, 1, 2, 3))
    stranger = None
    if (
        kind in (Kind.STREAM, Kind.FOREACH_BATCH, Kind.TRANSACTION)
        and batches > 1
        and fate.random() < 0.15
    ):
        stranger = 0
    return ApplicationLife(
        seed,
        batches=batches,
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
        strikes=tuple(strikes),
        fails=maybe(0.3) or situation(0.3, 0.1),
        speculative=situation(0.6, 0.6 if absent else 0.3),
        empty=situation(0.3),
        slow=maybe(0.1),
        twice=situation(0.5, 0.15),
        warm_driver=fate.random() < 0.5,
        heals_after_ms=fate.choice((60_000, 300_000)) if bad else None,
        kind=kind,
        connect=fate.random() < 0.5,
        stops=situation(0.3),
        operators=situation(0.5, 0.2),
        operations=fate.choice((OPERATIONS, ("look", "commit"))),
        empty_first=situation(0.5, 0.3),
        stranger_at=stranger,
        stranger_query=fate.choice((QUERY, "query-9")),
        crowded=fate.random() < 0.15,
        unreachable=fate.random() < 0.15,
        rights=situation(0.4, 0.1),
        late=situation(0.3, 0.15),
        late_sweeps=fate.choice((0, 0, 0, 0, 2_000, 15_000)),
        late_init=fate.choice((8_000, 15_000)) if recipe == 0 else 0,
        late_add=fate.choice((8_000, 15_000)) if recipe == 1 else 0,
        absent_node=absent,
        lost_coordinator=25_000 if recipe == 8 else 0,
        marker_ms=fate.choice((2, 2, 2, 400)),
        deposed=recipe == 2,
        away_ms=fate.choice(((0, 100, 3_000), (0, 100, 3_000), (3_000, 90_000))),
        times_ms=times,
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


class LongRun(Application):
    """One query of very many micro-batches. What the world itself remembers of them is thrown away,
    so that what grows is the sink's.
    """

    def __init__(self, kind: Kind, batches: int) -> None:
        super().__init__(
            ApplicationLife(
                0, batches=batches, tasks=2, rows=1, network=NetworkFaults(), new_worker=0.0,
                speculative=0.1, warm_driver=True, kind=kind, times_ms=(20_000, 5_000, 20_000),
            )
        )  # fmt: skip
        self.trace = deque(maxlen=_TAIL)  # type: ignore[assignment]
        self.scheduler.most_turns = 1 << 62
        self.begun = time.monotonic()
        self.ids_at: dict[int, int] = {}

    def _noted(self, run: Start, number: int) -> None:
        del self.writes[:-2], self.order[:-2]
        self._attempts = [attempt for attempt in self._attempts if not attempt.over]
        run.workers = [worker for worker in run.workers if not worker.process.dead]
        self.ends.clear()
        if (number + 1) % max(1, self.life.batches // 8) == 0:
            self.told(number + 1)

    def told(self, batches: int) -> None:
        """One line of what there is by now."""
        transactions = self.cluster.transactions.transactions
        ids = sum("~~" not in one for one in transactions)
        workers = sum(process.role == "worker" for process in self.machine.processes)
        newest = self.newest()
        print(
            f"{batches:>6} micro-batches: {ids} transactional ids of tasks, {workers} workers "
            f"started; the log's newest record {len(newest)} bytes, "
            f"{len(CommitState.decode(self.key, newest).superseded)} superseded runs; "
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB, "
            f"{time.monotonic() - self.begun:.0f} s",
            flush=True,
        )
        self.ids_at[batches] = ids

    def newest(self) -> bytes:
        """The log's newest record of the key."""
        found = b""
        for tp, log in self.cluster.logs.items():
            if tp.topic == LOG_TOPIC and log.batches:
                last = next(batch for batch in reversed(log.batches) if not batch.control)
                found = parse_batch(last.data).records[-1].value or b""
        return found

    def check(self) -> None:
        """AssertionError unless each row is visible once, and what there is is bounded."""
        assert not self.broken, self.broken[0]
        seen = Counter((b, t, r) for rows in self.seen().values() for b, t, _, r in rows)
        life = self.life
        wanted = {(b, t, r) for b in range(life.batches) for t in (0, 1) for r in range(life.rows)}
        assert seen.keys() == wanted
        assert set(seen.values()) == {1}
        workers = sum(process.role == "worker" for process in self.machine.processes)
        ids = sum("~~" not in one for one in self.cluster.transactions.transactions)
        assert ids <= workers * 4, f"{ids} ids of {workers} workers"


def long_run(kind: Kind, batches: int) -> int:
    world = LongRun(kind, batches)
    world.live()
    world.check()
    fired = world.fired
    print(
        f"{kind.value}: {batches} micro-batches, {fired['= speculative attempts']} speculative "
        f"attempts: every row once, {fired['= looks for what hangs after a commit']} times looked "
        "and nothing hung"
    )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.spark_lives")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--long", type=int, help="one query of so many micro-batches instead")
    parser.add_argument("--kind", choices=["stream", "foreach_batch"], default="stream")
    arguments = parser.parse_args()
    if arguments.long:
        return long_run(Kind(arguments.kind), arguments.long)
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
