"""The judge of exactly-once: what was promised (truth) against what readers see.

Nothing here shares code with what is judged: records are read by confluent-kafka, with
``read_committed`` and ``read_uncommitted``, open transactions are asked for with kafka-python.
:func:`judge` is a pure function, so that a test can plant every fault it must find.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from tests.exactly_once import records
from tests.exactly_once.records import Fate, Seen
from tests.exactly_once.truth import Batch, Result
from tests.real_kafka import consume_topic
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

#: Offenders that a report names.
NAMED = 20
#: Partition 0 of the topic of the dead letters, beside those of the rows' topic.
LETTERS = 10_000
#: How long an end of transactions may take to reach every partition (markers follow the answer).
SETTLE_S = 30.0 * PATIENCE
#: States of a transaction that is over.
_OVER = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


class Fault(Enum):
    LOST = "a row of a batch that is OK can't be read"
    DOUBLED = "a row can be read twice"
    ABORTED_VISIBLE = "a row of a batch that failed can be read"
    TORN = "a part of a batch of unknown outcome can be read, and no error named that part"
    OUT_OF_ORDER = "rows of one attempt stand in another order than it wrote them"
    MIXED = "rows of two attempts of one task can be read"
    CORRUPT = "key, value or headers are not what was written"
    FATE = "a row that was to be aborted can be read"
    UNINVITED = "a row that no batch has"
    HANGING = "a transaction is open that nobody ends"
    MISPLACED = "a row that can't be sent is in the topic, or its letter is not what it is to be"
    STALLED = "readers of committed rows stood still for long after a batch had ended"


@dataclass
class Report:
    """What was found wrong, and what was counted. ``clean``: nothing."""

    found: dict[Fault, list[str]] = field(default_factory=lambda: defaultdict(list))
    #: Rows that read_committed shows.
    visible: int = 0
    #: Rows in the log that read_committed does not show: what aborted attempts wrote.
    aborted: int = 0
    #: Of these, dead letters.
    letters: int = 0
    #: How long LSO stayed behind the end after the judge came.
    settled_ms: int = 0
    #: The longest that readers stood still after a batch had ended.
    stalled_s: float = 0.0

    @property
    def clean(self) -> bool:
        return not any(self.found.values())

    @property
    def faults(self) -> set[Fault]:
        return {fault for fault, offenders in self.found.items() if offenders}

    def add(self, fault: Fault, offender: str) -> None:
        self.found[fault].append(offender)

    def __str__(self) -> str:
        counted = f"{self.visible} rows visible, {self.aborted} not"
        counted += f", {self.letters} dead letters" if self.letters else ""
        times = f"settled in {self.settled_ms} ms, longest stall {self.stalled_s:.1f} s"
        lines = [f"{counted}, {times}"]
        for fault, offenders in self.found.items():
            if offenders:
                more = f", +{len(offenders) - NAMED}" if len(offenders) > NAMED else ""
                shown = ", ".join(offenders[:NAMED])
                lines.append(f"{fault.name} ({fault.value}): {len(offenders)}: {shown}{more}")
        return "\n".join(lines)


def judge(
    truth: Sequence[Batch],
    committed: Sequence[Seen],
    uncommitted: Sequence[Seen] = (),
    *,
    run: str,
    hanging: Iterable[str] = (),
    bad: int = 0,
) -> Report:
    """``committed`` and ``uncommitted`` are ordered by partition and offset; partitions from
    LETTERS on are those of the dead letters. ``bad``: of so many rows, one of each kind of those.
    """
    report = Report(visible=len(committed), aborted=max(0, len(uncommitted) - len(committed)))
    for seen in committed:
        if not seen.intact:
            report.add(Fault.CORRUPT, seen.where)
    shown = {(seen.partition, seen.offset) for seen in committed}
    for seen in uncommitted:
        if not seen.intact and (seen.partition, seen.offset) not in shown:
            report.add(Fault.CORRUPT, f"{seen.where} (read_uncommitted)")
    whole = [seen for seen in committed if seen.intact]
    batches = {batch.number: batch for batch in truth}
    rows: dict[int, Counter[int]] = {number: Counter() for number in batches}
    places: dict[tuple[int, int], list[str]] = defaultdict(list)
    attempts: dict[tuple[int, int], set[str]] = defaultdict(set)
    for seen in whole:
        batch = batches.get(seen.batch)
        if seen.run != run or batch is None or seen.seq not in batch.seqs:
            report.add(Fault.UNINVITED, f"{seen.run}|{seen.batch} seq {seen.seq} {seen.where}")
            continue
        rows[seen.batch][seen.seq] += 1
        places[seen.batch, seen.seq].append(f"{seen.where} attempt {seen.attempt}")
        attempts[seen.batch, seen.task].add(seen.attempt)
        kind = records.bad_kind(seen.seq, bad)
        wanted = ("", False) if kind is None else (records.BAD_CODES[kind], True)
        if (seen.code, seen.partition >= LETTERS) != wanted:
            place = f"batch {seen.batch} seq {seen.seq} {seen.where} {seen.code}"
            report.add(Fault.MISPLACED, place)
        if seen.fate is Fate.ABORT:
            report.add(Fault.FATE, f"batch {seen.batch} seq {seen.seq} {seen.where}")
    for number, batch in batches.items():
        _judge_batch(report, batch, rows[number], places)
    for (number, task), names in attempts.items():
        if len(names) > 1:
            report.add(Fault.MIXED, f"batch {number} task {task}: {sorted(names)}")
    _judge_order(report, whole)
    for transaction in hanging:
        report.add(Fault.HANGING, transaction)
    return report


def _judge_batch(
    report: Report,
    batch: Batch,
    rows: Counter[int],
    places: dict[tuple[int, int], list[str]],
) -> None:
    for seq, count in rows.items():
        if count > 1:
            report.add(
                Fault.DOUBLED, f"batch {batch.number} seq {seq} at {places[batch.number, seq]}"
            )
    missing = [seq for seq in batch.seqs if seq not in rows]
    if batch.result is Result.OK:
        for seq in missing:
            report.add(Fault.LOST, f"batch {batch.number} seq {seq}")
    elif batch.result is Result.FAIL:
        for seq in rows:
            where = places[batch.number, seq]
            report.add(Fault.ABORTED_VISIBLE, f"batch {batch.number} seq {seq} at {where}")
    elif rows and missing and not (batch.result is Result.UNKNOWN and batch.ids):
        report.add(
            Fault.TORN,
            f"batch {batch.number} ({batch.result.name}): {len(rows)} of {batch.rows} rows",
        )


def _judge_order(report: Report, seen_in_order: Iterable[Seen]) -> None:
    last: dict[tuple[object, ...], int] = {}
    for seen in seen_in_order:
        writer = (seen.run, seen.batch, seen.task, seen.attempt, seen.partition)
        if seen.seq <= last.get(writer, -1):
            report.add(
                Fault.OUT_OF_ORDER,
                f"batch {seen.batch} seq {seen.seq} behind {last[writer]} {seen.where}",
            )
        last[writer] = seen.seq


# --- readers -------------------------------------------------------------------------------------


def check(
    bootstrap: str,
    topic: str,
    truth: Sequence[Batch],
    *,
    run: str,
    prefix: str | None = None,
    also: Sequence[str] = (),
    settle_s: float = SETTLE_S,
    letters: str | None = None,
    bad: int = 0,
) -> Report:
    """Read ``topic`` both ways once nothing is open any more, and judge.

    ``prefix``: of the transactional ids; none of them may be open. ``also``: further topics on
    which no transaction may hang (the commit log). ``letters``: the topic of the dead letters.
    """
    start = time.monotonic()
    also = also if letters is None else [*also, letters]
    hanging = wait_until_settled(bootstrap, [topic, *also], prefix, settle_s)
    settled_ms = round((time.monotonic() - start) * 1000)
    committed, uncommitted = (
        read(bootstrap, topic, isolation)
        + ([] if letters is None else read(bootstrap, letters, isolation, LETTERS))
        for isolation in ("read_committed", "read_uncommitted")
    )
    report = judge(truth, committed, uncommitted, run=run, hanging=hanging, bad=bad)
    report.letters = sum(seen.partition >= LETTERS for seen in committed)
    report.settled_ms = settled_ms
    return report


def read(bootstrap: str, topic: str, isolation: str, first: int = 0) -> list[Seen]:
    """Everything, ordered by partition, counted from ``first``, and offset."""
    found = consume_topic(bootstrap, topic, isolation=isolation)
    return [
        records.parse(first + fields[0], *fields[1:])
        for fields in zip(
            found.partitions, found.offsets, found.keys, found.values, found.headers, strict=True
        )
    ]


def wait_until_settled(
    bootstrap: str, topics: Sequence[str], prefix: str | None = None, timeout_s: float = SETTLE_S
) -> list[str]:
    """Wait until LSO is the high watermark on every partition and none of ``prefix`` is open.

    Gives what still hangs at the end of that time; empty is good.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        behind = partitions_behind(bootstrap, topics)
        open_ids = [] if prefix is None else open_transactions(bootstrap, prefix)
        if not behind and not open_ids:
            return []
        if time.monotonic() >= deadline:
            return [*behind, *open_ids]
        time.sleep(0.05)


def partitions_behind(bootstrap: str, topics: Sequence[str]) -> list[str]:
    """Partitions whose last stable offset is not their end."""
    return [
        f"{topic}-{partition}: LSO {stable} of {end}"
        for (topic, partition), (end, stable) in offsets(bootstrap, topics).items()
        if stable < end
    ]


def offsets(
    bootstrap: str, topics: Sequence[str], admin: AdminClient | None = None
) -> dict[tuple[str, int], tuple[int, int]]:
    """By topic and partition, the end and the last stable offset (ListOffsets, both isolation
    levels; the end is asked for last). ``admin`` is asked in place of a new client.
    """
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    admin = new_admin(bootstrap) if admin is None else admin
    known = admin.list_topics(timeout=20).topics
    asked = {
        TopicPartition(topic, partition): OffsetSpec.latest()
        for topic in topics
        if topic in known
        for partition in known[topic].partitions
    }
    if not asked:
        return {}
    ends = {
        level: {
            (place.topic, place.partition): future.result(20).offset
            for place, future in admin.list_offsets(
                asked, isolation_level=level, request_timeout=20
            ).items()
        }
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    }
    stable, high = ends[IsolationLevel.READ_COMMITTED], ends[IsolationLevel.READ_UNCOMMITTED]
    return {place: (end, stable[place]) for place, end in high.items()}


def new_admin(bootstrap: str) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap})


def _states_by_node(bootstrap: str, prefix: str) -> dict[int, dict[str, str]]:
    """By coordinator, the state of its transactional ids of exactly this prefix."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    try:
        listed = admin.list_transactions()
    finally:
        admin.close()
    return {
        node_id: {
            entry.transactional_id: str(getattr(entry.state, "value", entry.state))
            for entry in entries
            if entry.transactional_id.startswith(f"{prefix}~")
        }
        for node_id, entries in listed.items()
    }


def transactions(bootstrap: str, prefix: str) -> dict[str, str]:
    """The state of every transactional id of exactly this prefix that a coordinator knows."""
    states = _states_by_node(bootstrap, prefix).values()
    return {transactional_id: state for node in states for transactional_id, state in node.items()}


def coordinated_by(bootstrap: str, node_id: int, prefix: str, state: str) -> set[str]:
    """The transactional ids of exactly this prefix that the node says are in ``state``."""
    found = _states_by_node(bootstrap, prefix).get(node_id, {})
    return {transactional_id for transactional_id, its in found.items() if its == state}


def open_transactions(bootstrap: str, prefix: str) -> list[str]:
    return [
        f"{transactional_id} is {state}"
        for transactional_id, state in transactions(bootstrap, prefix).items()
        if state not in _OVER
    ]
