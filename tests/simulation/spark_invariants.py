"""What must be true of a streaming query, whatever happened to it (P1 to P5).

P1, P2: a read_committed consumer sees each row of a batch that Spark calls committed once. P3: rows
of a task keep their order in a partition. P4: of a batch that is not committed nothing is visible,
or the error said so. P5: no transaction stays open.
"""

from __future__ import annotations

from collections import Counter

from spark_kafka_sink.errors import PartialCommitError
from tests.fakes.fake_cluster.transaction_coordinator import State
from tests.simulation.spark_world import SparkWorld


def check(world: SparkWorld) -> None:
    """AssertionError for the first that is broken."""
    assert world.commits == list(range(world.life.batches)), world.commits
    partial = [error for _, _, error in world.errors if isinstance(error, PartialCommitError)]
    assert not partial, f"a batch was committed in part: {partial[0].message}"
    _each_row_once(world)
    _order(world)
    _nothing_open(world)


def _each_row_once(world: SparkWorld) -> None:
    seen: Counter[tuple[int, int, int]] = Counter()
    attempts: dict[tuple[int, int], set[int]] = {}
    for rows in world.seen().values():
        for batch, task, attempt, row in rows:
            seen[batch, task, row] += 1
            attempts.setdefault((batch, task), set()).add(attempt)
    wanted = {
        (batch, task, row)
        for batch in range(world.life.batches)
        for task in range(world.life.tasks)
        for row in range(len(world.rows(batch, task)))
    }
    lost = sorted(wanted - seen.keys())
    assert not lost, f"lost: {lost}"
    foreign = sorted(seen.keys() - wanted)
    assert not foreign, f"of no batch: {foreign}"
    doubled = sorted(row for row, count in seen.items() if count > 1)
    assert not doubled, f"doubled: {doubled}"
    torn = sorted(where for where, found in attempts.items() if len(found) > 1)
    assert not torn, f"of two attempts: {torn}"


def _order(world: SparkWorld) -> None:
    for partition, rows in world.seen().items():
        last: dict[tuple[int, int], int] = {}
        for batch, task, _, row in rows:
            assert row > last.get((batch, task), -1), f"partition {partition}: {rows}"
            last[batch, task] = row


def _nothing_open(world: SparkWorld) -> None:
    for tp, log in world.cluster.logs.items():
        assert log.last_stable_offset == log.end, f"{tp} hangs at {log.last_stable_offset}"
    open_ = [
        t.transactional_id
        for t in world.cluster.transactions.transactions.values()
        if t.state is State.ONGOING
    ]
    assert not open_, f"open: {open_}"
