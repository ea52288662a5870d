"""What must be true at the end of every life, whatever happened in it."""

from __future__ import annotations

from collections import Counter

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.simulation.world import World


def check(world: World) -> None:
    """AssertionError names the first invariant that does not hold."""
    life, ledger, producer = world.life, world.ledger, world.producer
    assert producer is not None
    if life.must_succeed:
        assert not ledger.errors, f"failed for no reason: {ledger.errors[0]!r}"
    _nothing_is_held(world)
    _no_spinning(world)
    logs = {tp: world.log_of(tp) for tp in world.cluster.logs}
    _rows_are_where_they_belong(world, logs)
    if life.acks != "0":
        _what_was_acknowledged_is_there(world, logs)
    if life.idempotent:
        for tp, rows in logs.items():
            assert rows == sorted(set(rows)), f"{tp} has rows twice or out of order: {rows}"
            _no_hole(world, tp, rows)
    elif int(life.options["max.in.flight.requests.per.connection"]) == 1 and life.acks != "0":
        for tp, rows in logs.items():
            # Doubles by unclear answers are allowed; an order is promised within what is new.
            first_seen = list(dict.fromkeys(rows))
            assert first_seen == sorted(first_seen), f"{tp} is out of order: {rows}"


def _nothing_is_held(world: World) -> None:
    producer = world.producer
    assert producer is not None
    accumulator = producer._accumulator
    pool = accumulator.pool
    assert not producer._thread.is_alive(), "the network thread lives"
    assert world.network.closed, "connections are open"
    assert pool.available == pool.total, f"{pool.total - pool.available} bytes are not given back"
    assert pool.waiters == 0
    assert not accumulator.has_incomplete, "batches are not completed"
    assert not accumulator.has_undrained, "batches are still queued"


def _no_spinning(world: World) -> None:
    """Polls that brought nothing are few, however long the life was."""
    network = world.network
    happened = network._event_count + 10 * len(world.life.actions)
    assert network.idle_polls <= 200 + 3 * happened, (
        f"{network.idle_polls} polls for nothing, {happened} events"
    )


def _rows_are_where_they_belong(world: World, logs: dict[TopicPartition, list[int]]) -> None:
    for tp, found in logs.items():
        for number in found:
            row = world.ledger.rows[number]
            assert row.topic == tp.topic, f"row {number} is in {tp}"
            assert row.partition in (None, tp.partition), f"row {number} is in {tp}"


def _what_was_acknowledged_is_there(world: World, logs: dict[TopicPartition, list[int]]) -> None:
    ledger = world.ledger
    counted: Counter[int] = Counter()
    for found in logs.values():
        counted.update(set(found))
    for number, row in enumerate(ledger.rows):
        if row.attempt in ledger.finished and row.taken:
            assert counted[number] == 1, f"row {number} was acknowledged, {counted[number]} found"
    for attempt, report in enumerate(ledger.reports):
        sent = sum(row.attempt == attempt and row.taken for row in ledger.rows)
        assert report.rows == sent, f"attempt {attempt}: {report.rows} of {sent} rows reported"
        if world.life.idempotent:
            for tp, (first, last) in report.offsets.items():
                assert last < len(logs[tp]), f"{tp} has no offset {last}"
                assert all(ledger.rows[n].attempt == attempt for n in logs[tp][first : last + 1])


def _no_hole(world: World, tp: TopicPartition, found: list[int]) -> None:
    """Where the rows of a partition are known, what is in its log is a beginning of them."""
    of_topic = [(n, row) for n, row in enumerate(world.ledger.rows) if row.topic == tp.topic]
    if any(row.partition is None for _, row in of_topic):
        return
    sent = [n for n, row in of_topic if row.partition == tp.partition]
    assert found == sent[: len(found)], f"{tp} has a hole: {found} of {sent}"


def failures(world: World) -> list[KafkaError]:
    return world.ledger.errors
