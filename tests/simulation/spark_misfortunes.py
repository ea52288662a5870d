"""What has to meet what: misfortunes of which each part alone is harmless, laid into a life."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.processes import Blow, Strike
from tests.simulation.seeded_cluster import ClusterFaults
from tests.simulation.spark_application_life import ApplicationLife, Kind
from tests.simulation.spark_world import QUERY

Misfortune = Callable[[random.Random, ApplicationLife], ApplicationLife]
#: max.block.ms, request.timeout.ms, delivery.timeout.ms
SHORT = (20_000, 5_000, 20_000)


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
        times_ms=SHORT,
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
        times_ms=SHORT,
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
        times_ms=SHORT,
        fails=0.0,
        slow=0.0,
        late=0.0,
    )


def a_partition_is_late(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """As the identity, with version 1: it opens again what was committed, unnoticed."""
    return replace(
        life,
        transaction_version=1,
        strikes=(Strike("commit", 0, fate.randrange(1, 14), Blow.KILL_ALL, 0, "decided"),),
        late_add=fate.choice((7_000, 9_000, 15_000)),
        away_ms=(90_000,),
        times_ms=SHORT,
        fails=0.0,
        slow=0.0,
        late=0.0,
        empty=0.0,
    )


def abort_beside_a_commit(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """The user stopped the query. The commit goes on, and waits: before its first request to end
    anything, so that abort comes between its check and its decision; or right behind that. The
    abort waits, too: before the log has that the run is aborted, and behind that.
    """
    since = fate.choice(("", "decided"))
    step = fate.randrange(8) if not since else fate.randrange(3)
    stop = Strike("commit", 0, step, Blow.STOP, 0, since)
    wait = Strike("commit", 0, step, Blow.FREEZE, fate.choice((500, 1_000, 5_000)), since)
    ends = (
        Strike("commit", 1, 0, Blow.FREEZE, fate.choice((1_000, 3_000)), "end"),
        Strike("commit", 0, 0, Blow.FREEZE, fate.choice((3_000, 9_000)), "end"),
        Strike("commit", 1, 2, Blow.FREEZE, 9_000, "end"),
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
    if fate.random() < 0.5:
        return _frozen_for_its_lease(fate, life)
    ms = fate.choice((45_000, 55_000, 75_000))
    since, steps = fate.choice((("check", 20), ("end", 3)))
    strike = Strike("commit", 0, fate.randrange(steps), Blow.FREEZE, ms, since)
    return replace(life, strikes=(strike,), late=fate.choice((0.0, 0.5)), late_ms=40_000)


def _frozen_for_its_lease(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """Tasks begin some seconds before the commit. So brokers, which look for old transactions every
    10 s from their beginning on, abort the log's write, and the driver is back early enough to take
    the answer to its end.
    """
    strike = Strike("commit", 0, 0, Blow.FREEZE, fate.randint(13_200, 14_500), "end")
    return replace(
        calm(fate, life),
        transaction_version=2,
        tasks=2,
        stagger_ms=3_500,
        empty=0.0,
        strikes=(strike,),
        times_ms=(60_000, 30_000, 120_000),
    )


def at_a_deposed_leader(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """Who decided the first batch is dead, and the next driver reads what was before that."""
    strike = Strike("commit", 0, fate.randrange(12), Blow.KILL_ALL, 0, "decided")
    life = life if fate.random() < 0.3 else calm(fate, life)
    return replace(
        life,
        kind=fate.choice((Kind.STREAM, Kind.FOREACH_BATCH, Kind.VERSIONS)),
        strikes=(strike,),
        deposed=True,
        empty=0.0,
        empty_first=0.0,
        away_ms=(0, 100),
        times_ms=SHORT,
    )


def _the_log_gives_no_answer(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """Its writes are taken, and their answers are lost."""
    return replace(life, mute_log=fate.choice((1, 2, 3)), strikes=(), times_ms=SHORT)


def _rights_are_gone(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    return replace(life, rights=0.7)


def a_broker_was_down(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """The driver lives on, and what beaten attempts leave open is at the broker that came back."""
    life = life if fate.random() < 0.3 else calm(fate, life)
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
    life = life if fate.random() < 0.3 else calm(fate, life)
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


def calm(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """Nothing happens to it by chance."""
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
        twice=0.0,
        operators=0.0,
        late_sweeps=0,
        heals_after_ms=None,
        away_ms=(0, 100, 3_000),
        times_ms=SHORT,
    )


def _only(**of: object) -> Misfortune:
    """Nothing is wrong but that."""
    return lambda fate, life: replace(calm(fate, life), **of)  # type: ignore[arg-type]


MISFORTUNES: tuple[Misfortune, ...] = (
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
    _only(twice=0.8),
    _only(operators=0.9, operations=("look", "commit"), transaction_version=2),
    _only(crowded=True),
    _only(unreachable=True),
)
