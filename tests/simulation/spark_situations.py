"""Situations of blocks, operators and restarts: whose lives a seed draws beside the others'."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.processes import Blow, Strike
from tests.simulation.spark_application_life import (
    ALL_OPERATIONS,
    ApplicationLife,
    Block,
    Kind,
    Second,
)
from tests.simulation.spark_misfortunes import SHORT, Misfortune, calm
from tests.simulation.spark_world import QUERY, TIMEOUT_MS

#: Of the command line without a config file the time-out is a fifteenth of the sink's.
_OPERATORS_MS = (TIMEOUT_MS // 15, TIMEOUT_MS // 15, 20_000, 900_000)
_OTHERS_MS = ((TIMEOUT_MS, 900_000), (TIMEOUT_MS, 40_000), (900_000, TIMEOUT_MS))
_MICRO_BATCHES = (Kind.STREAM, Kind.FOREACH_BATCH, Kind.TRANSACTION)
#: max.block.ms, request.timeout.ms, delivery.timeout.ms, as they are shipped.
_PATIENT = (60_000, 30_000, 120_000)


def _dies(life: ApplicationLife, step: int) -> tuple[Strike, ...]:
    """Behind the first decision; each call has a process of its own then."""
    nth = life.block.writes if life.kind is Kind.TRANSACTION else 0
    return (Strike("commit", nth, step, Blow.KILL_ALL, 0, "decided"),)


def an_operator_commits(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """The driver died behind its decision, and it was not started again yet; it may be about to
    time out.
    """
    comes = fate.choice((3_000, 8_000, 46_000, 50_000))
    return replace(
        calm(fate, life),
        strikes=_dies(life, fate.randrange(3)),
        tasks=fate.choice((2, 3)),
        late=0.5,
        late_ms=10_000,
        empty=0.0,
        meanwhile="operator",
        comes_ms=comes,
        operators_timeout_ms=fate.choice(_OPERATORS_MS),
        warm_driver=False,
        away_ms=(comes + fate.choice((2_000, 12_000, 12_000)),),
    )


def an_operator_meets_a_driver(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """Both work on one decision, and its coordinators load."""
    return replace(
        calm(fate, life),
        tasks=fate.choice((2, 3)),
        late=0.5,
        late_ms=20_000,
        empty=0.0,
        loads_ms=fate.choice((500, 2_000, 6_000)),
        comes_ms=fate.choice((0, 400, 1_500, 5_000)),
        meanwhile="operator",
        operators_timeout_ms=fate.choice(_OPERATORS_MS),
    )


def a_start_meets_a_driver(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """As the operator, with the time-out of its own configuration."""
    loads, comes = fate.choice(((500, 0), (2_000, 400), (6_000, 5_000)))
    return replace(
        calm(fate, life),
        kind=fate.choice(_MICRO_BATCHES),
        tasks=fate.choice((2, 3)),
        late=0.5,
        late_ms=24_000,
        empty=0.0,
        loads_ms=loads,
        comes_ms=comes,
        meanwhile="start",
        timeouts_ms=fate.choice(((TIMEOUT_MS,), (TIMEOUT_MS, 20_000), (TIMEOUT_MS, 900_000))),
        times_ms=_PATIENT,
    )


def coordinators_load_for_long(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """The driver goes on committing until its transactions are about to time out; then somebody
    else comes.
    """
    comes = fate.randint(50_000, 52_000)
    return replace(
        calm(fate, life),
        kind=fate.choice(_MICRO_BATCHES),
        tasks=6,
        empty=0.0,
        loads_ms=fate.randint(53_000, 54_500),
        comes_ms=comes,
        meanwhile=fate.choice(("start", "start", "start", "operator")),
        operators_timeout_ms=fate.choice(_OPERATORS_MS),
        times_ms=_PATIENT,
    )


def an_end_is_late(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """The driver gives up; the next one undoes its decision, and one of its requests arrives."""
    return replace(
        calm(fate, life),
        kind=fate.choice((Kind.STREAM, Kind.FOREACH_BATCH, Kind.VERSIONS)),
        tasks=fate.choice((2, 3)),
        empty=0.0,
        warm_driver=False,
        late_end=fate.randint(56_000, 58_000),
        away_ms=(34_000,),
    )


def tasks_begin_one_by_one(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """So that the first transactions are too old when the last task is done."""
    return replace(
        calm(fate, life), tasks=fate.choice((2, 3)), late=0.7, late_ms=TIMEOUT_MS, empty=0.0
    )


def a_copy_meets_a_decision(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """A query with a copied checkpoint writes other rows under the number of a batch that the owner
    decides, and does not end.
    """
    return replace(
        calm(fate, life),
        kind=fate.choice((Kind.STREAM, Kind.STREAM, Kind.FOREACH_BATCH)),
        batches=2,
        strikes=(Strike("commit", 1, fate.randrange(2), Blow.KILL_ALL, 0, "decided"),),
        stranger_at=1,
        stranger_query=QUERY,
        late=0.5,
        late_ms=6_000,
        empty=0.0,
        warm_driver=False,
        away_ms=(20_000,),
    )


def readers_are_a_live_group(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """Consumers of their own use the group of offsetsGroup, until the user reads the error."""
    return replace(
        calm(fate, life), kind=fate.choice(_MICRO_BATCHES), offsets=True, group_in_use=True
    )


def restarted_with_another_time_out(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """It is back when the first of the decided transactions is about to time out, and some of its
    requests to that one's coordinator get lost.
    """
    life = replace(life, kind=fate.choice((*_MICRO_BATCHES, Kind.VERSIONS)))
    return replace(
        calm(fate, life),
        strikes=_dies(life, 0),
        tasks=2,
        late=0.8,
        late_ms=20_000,
        empty=0.0,
        warm_driver=False,
        timeouts_ms=fate.choice(_OTHERS_MS),
        lost_ends=3,
        away_ms=fate.choice(((40_000,), (44_000,), (48_000,), (52_000,), (56_000,))),
    )


def a_write_has_options_of_its_own(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """They lead it out of its block; and a task of it takes long."""
    own = fate.choice(
        (
            ("kafka.transaction.timeout.ms", "20000"),
            ("transactionalIdPrefix", "others"),
            ("commitLogTopic", "__other_commits"),
        )
    )
    return replace(
        calm(fate, life),
        kind=Kind.TRANSACTION,
        block=Block(fate.choice((1, 2, 3)), own_option=own),
        tasks=2,
        late=0.7,
        late_ms=18_000,
        empty=0.0,
    )


def two_blocks_of_one_name(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    second = fate.choice((Second.NESTED, Second.BESIDE, Second.BEHIND))
    return replace(
        life if fate.random() < 0.3 else calm(fate, life),
        kind=Kind.TRANSACTION,
        block=Block(fate.choice((1, 2)), second=second, shuffled=fate.random() < 0.3),
        alike=fate.random() < 0.6,
        empty=0.0,
        checkpoint=fate.random() < 0.5,
    )


def two_queries_of_one_name(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """In one application, each with a checkpoint of its own."""
    return replace(
        calm(fate, life),
        kind=fate.choice((Kind.TRANSACTION, Kind.TRANSACTION, Kind.FOREACH_BATCH)),
        block=Block(fate.choice((1, 2))),
        batches=fate.choice((2, 3)),
        sibling=True,
        alike=fate.random() < 0.6,
        empty=0.0,
        checkpoint=fate.random() < 0.5,
        connect=fate.random() < 0.6,
    )


def written_in_another_order(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """By threads; and Spark does not know that it is done."""
    return replace(
        life if fate.random() < 0.4 else calm(fate, life),
        kind=Kind.TRANSACTION,
        block=Block(fate.choice((2, 3)), threads=fate.random() < 0.7, shuffled=True),
        unnoted=0.6,
        checkpoint=fate.random() < 0.3,
    )


def a_write_fails_unseen(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """The user's function swallows its error, and goes on."""
    return replace(
        life if fate.random() < 0.5 else calm(fate, life),
        kind=Kind.TRANSACTION,
        block=Block(fate.choice((2, 3)), fails=0.3, swallows=0.8, threads=fate.random() < 0.3),
    )


def a_block_dies_half_written(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """The next call of the function makes more writes, or fewer."""
    strike = Strike("commit", fate.randrange(1, 4), fate.randrange(20), Blow.KILL_ALL)
    return replace(
        calm(fate, life),
        kind=Kind.TRANSACTION,
        block=Block(varies=True, threads=fate.random() < 0.3),
        strikes=(strike,),
        preemption=0.0,
        warm_driver=False,
    )


def reads_of_another_query(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """checkpointLocation is still that of the query before. (Over Spark Connect a function does not
    know its query.)
    """
    return replace(
        calm(fate, life),
        kind=fate.choice(_MICRO_BATCHES),
        offsets=True,
        old_checkpoint=True,
        connect=False,
    )


def dies_between_two_ends(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """Offsets and a report are committed with the rows; the driver is away for long."""
    life = replace(life, kind=fate.choice((*_MICRO_BATCHES, Kind.VERSIONS)))
    return replace(
        life if fate.random() < 0.3 else calm(fate, life),
        strikes=_dies(life, fate.randrange(2, 12)),
        lost_coordinator=fate.choice((0, 25_000, 25_000)),
        warm_driver=False,
        transaction_version=2,
        offsets=True,
        report=fate.random() < 0.7,
        away_ms=fate.choice(((3_000,), (90_000,), (90_000,), (90_000,))),
        times_ms=SHORT,
    )


def made_anew_for_each_batch(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """foreach_batch is called within the user's function."""
    return replace(
        life if fate.random() < 0.5 else calm(fate, life),
        kind=Kind.FOREACH_BATCH,
        batches=3,
        made_in_function=True,
        new_worker=0.0,
    )


def a_copied_checkpoint(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """The copy's next batch has other offsets, and as many rows and bytes."""
    return replace(
        calm(fate, life),
        kind=fate.choice((Kind.STREAM, Kind.STREAM, Kind.FOREACH_BATCH, Kind.TRANSACTION)),
        batches=fate.choice((2, 3)),
        stranger_at=0,
        stranger_query=QUERY,
        alike=True,
        checkpoint=True,
        connect=fate.random() < 0.3,
        empty=0.0,
        slow=0.3,
    )


def other_bytes_each_time(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """A query with uuid(), of which Spark does not know that a batch is done."""
    return replace(
        life if fate.random() < 0.4 else calm(fate, life),
        kind=fate.choice(_MICRO_BATCHES),
        block=Block(fate.choice((1, 2, 3)), threads=fate.random() < 0.3),
        checkpoint=True,
        other_bytes=True,
        unnoted=0.6,
        stranger_at=None,
    )


def operators_do_what_they_can(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """Also what they should not."""
    return replace(
        life if fate.random() < 0.4 else calm(fate, life),
        kind=fate.choice((*_MICRO_BATCHES, Kind.TRANSACTION, Kind.VERSIONS)),
        batches=3,
        block=Block(fate.choice((2, 3)), threads=fate.random() < 0.3),
        operators=1.0,
        operations=fate.choice((ALL_OPERATIONS, ("abort", "reset"), ("reset",))),
        operators_timeout_ms=fate.choice(_OPERATORS_MS),
    )


def a_torn_batch_is_resolved(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """One was committed, and another one has timed out meanwhile."""
    life = replace(life, kind=fate.choice((*_MICRO_BATCHES, Kind.VERSIONS)))
    return replace(
        calm(fate, life),
        tasks=fate.choice((2, 3)),
        empty=0.0,
        strikes=_dies(life, fate.randrange(3, 12)),
        lost_coordinator=25_000,
        away_ms=(90_000,),
        warm_driver=False,
        resolved_as=fate.choice(("done", "replay")),
    )


def versions_are_written_again(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """By a thread of the driver, while it writes the next one. (Not among SITUATIONS, so that all
    other lives are as they were.)
    """
    life = life if fate.random() < 0.3 else calm(fate, life)
    return replace(life, kind=Kind.VERSIONS, batches=3, repeats=True)


SITUATIONS: tuple[Misfortune, ...] = (
    an_operator_commits,
    an_operator_meets_a_driver,
    a_start_meets_a_driver,
    coordinators_load_for_long,
    an_end_is_late,
    tasks_begin_one_by_one,
    a_copy_meets_a_decision,
    readers_are_a_live_group,
    restarted_with_another_time_out,
    a_write_has_options_of_its_own,
    two_blocks_of_one_name,
    two_queries_of_one_name,
    written_in_another_order,
    a_write_fails_unseen,
    a_block_dies_half_written,
    reads_of_another_query,
    dies_between_two_ends,
    made_anew_for_each_batch,
    a_copied_checkpoint,
    other_bytes_each_time,
    operators_do_what_they_can,
    a_torn_batch_is_resolved,
)


def with_more(fate: random.Random, life: ApplicationLife) -> ApplicationLife:
    """Some commit offsets and reports with their rows, and some are restarted with another
    time-out.
    """

    def one_of(chance: float) -> bool:
        return fate.random() < chance

    alone = life.stranger_at is None and not life.sibling
    return replace(
        life,
        offsets=life.offsets or (one_of(0.25) and alone and not life.connect),
        report=life.report or one_of(0.25),
        checkpoint=life.checkpoint or one_of(0.3),
        timeouts_ms=fate.choice(_OTHERS_MS)
        if life.timeouts_ms == (TIMEOUT_MS,) and one_of(0.15)
        else life.timeouts_ms,
    )
