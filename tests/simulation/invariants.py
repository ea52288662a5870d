"""What must be true at the end of every life, whatever happened in it."""

from __future__ import annotations

from collections import Counter, defaultdict

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.simulation.scheduler import START_MS
from tests.simulation.world import World

GHOST = "a dead connection's request is worked on"
#: A stalled broker, a silent connection's request.timeout.ms, and both again.
_RECOVERY_MS = 200_000
#: More than linger.ms, and less than a partition is sick.
_DELAY_MS = 30_000


def check(world: World) -> None:
    """AssertionError names the first invariant that does not hold."""
    life, ledger, producer = world.life, world.ledger, world.producer
    assert producer is not None
    single_failures = any(row.error is not None for row in ledger.rows)
    for error in () if single_failures and not life.idempotent else ledger.errors:
        # (A failed row of ``send`` is its caller's to count.)
        assert "bug" not in (error.hint or ""), f"the producer calls it a bug: {error!r}"
    # A late InitProducerId or Produce of a dead connection may fence its own producer: a broker
    # can't tell it from a new one.
    fenced_itself = life.transactional and world.fired[GHOST] > 0
    _only_what_is_ill_fails(world)
    if life.must_succeed and not fenced_itself:
        assert not ledger.errors, f"failed for no reason: {ledger.errors[0]!r}"
        _in_time(world)
    _nothing_is_held(world)
    _no_spinning(world)
    by_offset = {tp: world.log_of(tp) for tp in world.cluster.logs}
    logs = {tp: list(rows.values()) for tp, rows in by_offset.items()}
    _rows_are_where_they_belong(world, logs)
    _every_future_has_its_outcome(world, by_offset)
    if life.transactional:
        _transactions_are_whole(world)
    elif life.acks != "0":
        _what_was_acknowledged_is_there(world, logs)
    if life.idempotent:
        for tp, rows in logs.items():
            assert len(rows) == len(set(rows)), f"{tp} has rows twice: {rows}"
            # Also those that failed: a late copy is of an old epoch, and refused after the first
            # batch of the next one.
            assert rows == sorted(rows), f"{tp} has rows out of order: {rows}"
            if not life.transactional:
                _no_hole(world, tp, rows)
    elif int(life.options["max.in.flight.requests.per.connection"]) == 1 and life.acks != "0":
        for tp, rows in logs.items():
            # Doubles by unclear answers are allowed; an order is promised within what is new.
            first_seen = list(dict.fromkeys(rows))
            assert first_seen == sorted(first_seen), f"{tp} is out of order: {rows}"


def _only_what_is_ill_fails(world: World) -> None:
    """Where brokers refuse some rows for what they hold, or no row of one partition for a while, no
    other row fails, but for those in one batch with a refused row; in a calm world none is delayed.
    """
    life, sick = world.life, world.life.sick
    if not life.ill or not (life.calm or life.must_succeed):
        return
    for number, row in enumerate(world.ledger.rows):
        if row.refused or row.called == 0:
            continue
        text = "" if row.error is None else row.error.message
        if "closed before" in text:
            continue
        if row.invalid:
            assert row.error is not None, f"row {number} is invalid, and acknowledged"
        elif sick is not None and sick.tp == TopicPartition(row.topic, row.placed):
            patient = life.must_succeed and "part of a batch" not in text
            assert row.error is None or not patient, f"row {number} failed: {text}"
        elif "part of a batch" not in text:
            assert row.error is None, f"row {number} is an innocent, and failed: {text}"
            waited = row.told_ms - row.sent_ms
            assert not life.calm or waited <= _DELAY_MS + world.scheduler.dawdled_ms, (
                f"row {number} waited {waited} ms"
            )


def _transactions_are_whole(world: World) -> None:
    """What a read_committed consumer sees: every row of a committed transaction, once and in
    order, none of an aborted one, and all or nothing of one whose end was not reported.
    """
    ledger = world.ledger
    seen: Counter[int] = Counter()
    for tp, log in world.cluster.logs.items():
        assert log.last_stable_offset == log.end, f"{tp} has a transaction that never ends"
        rows = list(world.log_of(tp, committed=True).values())
        assert rows == sorted(set(rows)), f"{tp} shows rows twice or out of order: {rows}"
        seen.update(rows)
    sent: dict[int, list[int]] = defaultdict(list)
    for number, row in enumerate(ledger.rows):
        if row.taken:
            sent[row.attempt].append(number)
        else:
            assert row.attempt not in ledger.finished, f"row {number} was refused, then committed"
    for attempt, numbers in sent.items():
        found = sum(seen[number] for number in numbers)
        if attempt in ledger.finished:
            assert found == len(numbers), f"transaction {attempt}: {found} of {len(numbers)} rows"
        elif attempt in ledger.aborted:
            assert found == 0, f"transaction {attempt} was aborted, {found} rows are seen"
        else:
            assert found in (0, len(numbers)), f"transaction {attempt}: {found} of {len(numbers)}"


def _nothing_is_held(world: World) -> None:
    producer = world.producer
    assert producer is not None
    accumulator = producer._accumulator
    pool = accumulator.pool
    assert not producer._thread.is_alive(), "the network thread lives"
    assert world.network.closed, "connections are open"
    assert pool.available == pool.total, f"{pool.total - pool.available} bytes are not given back"
    assert pool.waiters == 0
    assert not accumulator.incomplete, "batches are not completed"
    assert not accumulator.has_undrained, "batches are still queued"


def _in_time(world: World) -> None:
    """When the world is well, all that waits goes soon: it ends with time-outs, not with luck."""
    life = world.life
    assert life.heals_after_ms is not None
    elapsed = world.ended_ms - START_MS
    limit = life.heals_after_ms + max(life.late_topics.values(), default=0) + life.idle_ms
    limit += world.scheduler.dawdled_ms + (0 if life.sick is None else life.sick.to_ms)
    assert elapsed <= limit + _RECOVERY_MS, f"it took {elapsed} ms, of which {limit} are explained"


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


def _every_future_has_its_outcome(world: World, logs: dict[TopicPartition, dict[int, int]]) -> None:
    ledger = world.ledger
    for number, future in ledger.futures.items():
        row = ledger.rows[number]
        assert future.done(), f"row {number} has no outcome"
        error = future.exception(0)
        assert row.called == 1, f"row {number}: its callback was called {row.called} times"
        # (Of a record that a broker names, each is made when it is asked for.)
        same = row.error is error or repr(row.error) == repr(error)
        assert same, f"row {number}: callback {row.error!r}, future {error!r}"
        if error is not None:
            ended = row.attempt in ledger.finished
            assert not (row.taken and ended), f"row {number} failed, the attempt did not"
            continue
        metadata = future.result(0)
        tp = TopicPartition(metadata.topic, metadata.partition)
        if metadata.offset >= 0:
            there = logs[tp].get(metadata.offset)
            assert there == number, f"row {number} is not at {metadata}, where {there} is"
        elif world.life.acks != "0":
            assert number in logs[tp].values(), f"row {number} was acknowledged, and is not in {tp}"
    if world.life.idempotent or world.life.options["max.in.flight.requests.per.connection"] == "1":
        for order in ledger.completed.values():
            assert order == sorted(order), f"callbacks out of order: {order}"


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
    """Where the rows of a partition are known, what is in its log is a beginning of them; but for
    a row that went by ``send`` and was reported as failed: the next one goes on.
    """
    rows = enumerate(world.ledger.rows)
    of_topic = [(n, row) for n, row in rows if row.topic == tp.topic and not row.refused]
    if any(row.partition is None for _, row in of_topic):
        return
    sent = [n for n, row in of_topic if row.partition == tp.partition and row.error is None]
    found = [n for n in found if world.ledger.rows[n].error is None]
    assert found == sent[: len(found)], f"{tp} has a hole: {found} of {sent}"


def failures(world: World) -> list[KafkaError]:
    return world.ledger.errors
