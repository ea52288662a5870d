"""Queries by seed: what each is like, lived and judged. ``python -m tests.simulation.spark_lives``
lives many.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from spark_kafka_sink.transactions.commit_state import CommitState
from tests.fakes.record_reader import parse_batch
from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.processes import Blow, Strike
from tests.simulation.seeded_cluster import ClusterFaults
from tests.simulation.spark_application import (
    OPERATIONS,
    STRANGER,
    Application,
    ApplicationLife,
    Kind,
    Start,
)
from tests.simulation.spark_invariants import judge
from tests.simulation.spark_world import LOG_TOPIC, QUERY, SparkWorld

Misfortune = Callable[[random.Random, ApplicationLife], ApplicationLife]

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
    one, or a terrible one; half of them with a misfortune of which each part alone is harmless.
    """
    fate, life, misfortune = _drawn(seed)
    return life if misfortune is None else misfortune(fate, life)


def seeds_with(misfortune: Misfortune, seeds: Sequence[int]) -> list[int]:
    """Those of ``seeds`` whose life has it."""
    return [seed for seed in seeds if _drawn(seed)[2] is misfortune]


def _drawn(seed: int) -> tuple[random.Random, ApplicationLife, Misfortune | None]:
    fate = random.Random(f"spark life {seed}")
    life = _any(fate, seed)
    return fate, life, fate.choice(_MISFORTUNES) if fate.random() < 0.6 else None


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
        times_ms=fate.choice((_SHORT, (60_000, 30_000, 120_000))),
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


# ---- misfortunes: what has to meet what ----------------------------------------------------------

_SHORT = (20_000, 5_000, 20_000)


def dies_behind_its_decision(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """Tasks began at different times, so that some transactions time out before it is back."""
    return replace(
        life,
        tasks=fate.choice((2, 3)),
        strikes=(Strike("commit", 0, fate.randrange(2), Blow.KILL_ALL, 0, "decided"),),
        late=0.6,
        late_ms=24_000,
        slow=0.0,
        fails=0.0,
        empty=0.0,
        rights=0.0,
        twice=0.0,
        operators=0.0,
        stops=0.0,
        away_ms=fate.choice(((52_000,), (54_000,), (56_000,), (90_000,))),
        times_ms=_SHORT,
    )


def _dies_between_two_ends(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """One was committed, and the coordinator of another one was not there. (Or it lives on.)"""
    dies = Strike("commit", 0, fate.randrange(3, 20), Blow.KILL_ALL, 0, "decided")
    return replace(
        life,
        tasks=fate.choice((2, 3)),
        strikes=(dies,) if fate.random() < 0.6 else (),
        fails=0.0,
        slow=0.0,
        late=0.0,
        empty=0.0,
        rights=0.0,
        twice=0.0,
        stops=0.0,
        lost_coordinator=25_000,
        away_ms=(90_000,),
        times_ms=_SHORT,
    )


def _dies_before_its_record_is_stable(
    fate: random.Random, life: ApplicationLife
) -> ApplicationLife:
    """The next one reads the log while the markers of the decision are on their way."""
    return replace(
        life,
        strikes=(Strike("commit", 0, fate.randrange(2), Blow.KILL_ALL, 0, "decided"),),
        marker_ms=fate.choice((400, 3_000)),
        away_ms=(0,),
    )


def two_die(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """Both leave something open."""
    return replace(
        life,
        kind=fate.choice((Kind.STREAM, Kind.FOREACH_BATCH, Kind.TRANSACTION, Kind.VERSIONS)),
        batches=fate.choice((2, 3)),
        strikes=tuple(
            Strike("commit", nth, fate.randrange(12), Blow.KILL_ALL)
            for nth in fate.choice(((0, 1), (1, 2)))
        ),
        warm_driver=False,
        away_ms=(0, 100, 3_000),
    )


def _an_identity_is_late(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """A task's InitProducerId arrives when another one was answered, and the batch decided."""
    freeze = Strike("commit", 0, fate.randrange(14), Blow.FREEZE, 5_000, "check")
    dies = Strike("commit", 0, fate.randrange(4), Blow.KILL_ALL, 0, "decided")
    return replace(
        life,
        strikes=(fate.choice((freeze, dies)),),
        late_init=fate.choice((6_000, 8_000, 15_000)),
        away_ms=(3_000, 20_000),
        times_ms=_SHORT,
        fails=0.0,
        slow=0.0,
        late=0.0,
    )


def a_partition_is_late(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """As the identity, with version 1: it opens again what was committed, and nobody has noted."""
    return replace(
        life,
        transaction_version=1,
        strikes=(Strike("commit", 0, fate.randrange(1, 14), Blow.KILL_ALL, 0, "decided"),),
        late_add=fate.choice((7_000, 9_000, 15_000)),
        away_ms=(90_000,),
        times_ms=_SHORT,
        fails=0.0,
        slow=0.0,
        late=0.0,
        empty=0.0,
    )


def abort_beside_a_commit(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """The user stopped the query. The commit goes on, and waits: before its first request to end
    anything, so that abort comes between its check and its decision; or right behind that.
    """
    since = fate.choice(("", "decided"))
    step = fate.randrange(8) if not since else fate.randrange(3)
    stop = Strike("commit", 0, step, Blow.STOP, 0, since)
    wait = Strike("commit", 0, step, Blow.FREEZE, fate.choice((500, 1_000, 5_000)), since)
    ends = (
        Strike("commit", 1, 0, Blow.FREEZE, fate.choice((1_000, 3_000)), "end"),
        Strike("commit", 0, 0, Blow.FREEZE, fate.choice((3_000, 9_000)), "end"),
    )
    return replace(
        life,
        kind=Kind.STREAM,
        tasks=fate.choice((2, 3)),
        strikes=(stop, wait, *(() if since else ends)),
        warm_driver=False,
        fails=0.0,
        empty=0.0,
        twice=0.0,
    )


def frozen_before_its_decision(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    ms = fate.choice((45_000, 55_000, 75_000))
    since, steps = fate.choice((("check", 20), ("end", 3)))
    strike = Strike("commit", 0, fate.randrange(steps), Blow.FREEZE, ms, since)
    return replace(life, strikes=(strike,), late=fate.choice((0.0, 0.5)), late_ms=40_000)


def at_a_deposed_leader(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """Who decided the first batch is dead, and the next driver reads what was before that."""
    strike = Strike("commit", 0, fate.randrange(12), Blow.KILL_ALL, 0, "decided")
    life = life if fate.random() < 0.3 else _calm()(fate, life)
    return replace(
        life,
        kind=fate.choice((Kind.STREAM, Kind.FOREACH_BATCH, Kind.VERSIONS)),
        strikes=(strike,),
        deposed=True,
        empty=0.0,
        empty_first=0.0,
        away_ms=(0, 100),
        times_ms=_SHORT,
    )


def _the_log_gives_no_answer(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """Its writes are taken, and their answers are lost."""
    return replace(life, mute_log=fate.choice((1, 2, 3)), strikes=(), times_ms=_SHORT)


def _rights_are_gone(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    return replace(life, rights=0.7)


def a_broker_was_down(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """The driver lives on, and what beaten attempts leave open is at the broker that came back."""
    life = life if fate.random() < 0.3 else _calm()(fate, life)
    return replace(
        life,
        kind=fate.choice((Kind.STREAM, Kind.FOREACH_BATCH)),
        batches=3,
        absent_node=fate.choice((1, 2, 3)),
        speculative=0.9,
        empty=0.0,
        warm_driver=True,
    )


def _fails_again_and_again(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """While its tasks are at work, and also in a run that has committed nothing yet."""
    return replace(
        life,
        batches=3,
        kind=fate.choice((Kind.STREAM, Kind.FOREACH_BATCH, Kind.VERSIONS)),
        stops=0.6,
        fails=0.2,
        slow=0.3,
        strikes=(),
    )


def _it_takes_long(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """Its tasks begin one after the other."""
    return replace(life, tasks=fate.choice((2, 3)), late=0.4, late_ms=80_000, strikes=())


def a_stranger(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """It comes while the next batch takes long. (What is an old batch to others is done for
    versions.)
    """
    life = life if fate.random() < 0.3 else _calm()(fate, life)
    return replace(
        life,
        kind=fate.choice((Kind.STREAM, Kind.FOREACH_BATCH, Kind.TRANSACTION, Kind.VERSIONS)),
        batches=fate.choice((2, 3)),
        stranger_at=0,
        stranger_query=fate.choice((QUERY, "query-9")),
        rows=fate.randint(2, 6),
        slow=0.3,
    )


def _two_at_once(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """For long enough that both commit in turn."""
    return replace(life, batches=5, tasks=1, rows=2, twice=0.8, stops=0.0)


def _calm(**of: object) -> Misfortune:
    """Nothing is wrong but that."""

    def misfortune(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
        return replace(
            life,
            network=NetworkFaults(latency_ms=fate.choice((0, 2, 20))),
            cluster=ClusterFaults(work_ms=life.cluster.work_ms, append_ms=life.cluster.append_ms),
            strikes=(),
            fails=0.0,
            slow=0.0,
            stops=0.0,
            rights=0.0,
            late=0.0,
            late_sweeps=0,
            heals_after_ms=None,
            **of,  # type: ignore[arg-type]  # fields of a life
        )

    return misfortune


_MISFORTUNES: tuple[Misfortune, ...] = (
    dies_behind_its_decision,
    _dies_between_two_ends,
    _dies_before_its_record_is_stable,
    two_die,
    _an_identity_is_late,
    a_partition_is_late,
    abort_beside_a_commit,
    abort_beside_a_commit,
    frozen_before_its_decision,
    at_a_deposed_leader,
    _the_log_gives_no_answer,
    _rights_are_gone,
    a_broker_was_down,
    _fails_again_and_again,
    _it_takes_long,
    a_stranger,
    _two_at_once,
    _calm(twice=0.8),
    _calm(operators=0.9, operations=("look", "commit"), transaction_version=2),
    _calm(crowded=True),
    _calm(unreachable=True),
)


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
        # (A batch from STRANGER on has as many rows as a stranger's.)
        wanted = {(b, t, r) for b in range(life.batches) for t in (0, 1) for r in range(life.rows)}
        assert wanted <= seen.keys()
        assert {b for b, _, _ in seen.keys() - wanted} == set(range(STRANGER, life.batches))
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
    print(f"{arguments.seeds} queries, {failed} failed, {seconds:.0f} s")
    for name, count in sorted(fired.items()):
        print(f"{count:>9} {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
