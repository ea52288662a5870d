"""A task's commit message to the driver: step 13 of a record's way.

Owns: :class:`TaskCommitMessage`, its wire form (plain ints, strings and tuples, with the schema
version and the package version in front), and its validation on the driver. Never: what is done
with it (``write_plan``, ``report/``).

Spark pickles a message on the executor and unpickles it on the driver, through
:func:`rebuild_message` only, which accepts any version and never fails: a message of another
version becomes a :class:`ForeignCommitMessage`, so that ``commit`` can name both versions instead
of failing on a missing field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import CommitError, safe_text
from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.producer.metrics.produce_report import (
    LARGEST,
    SUMMED,
    NodeReport,
    ProduceReport,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction

#: Incremented whenever a field is added, removed or changes its meaning.
SCHEMA_VERSION = 7

#: node id, requests, total latency in ms, longest latency in ms, the last response that caused a
#: retry (empty: none)
NodeLatency = tuple[int, int, int, int, str]
#: topic, partition, first offset, last offset (both acknowledged, both included)
PartitionOffsets = tuple[str, int, int, int]
#: transactional id, producer id, producer epoch, transaction version
TransactionFields = tuple[str, int, int, int]


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """One task attempt that wrote all of its rows. Frozen; ints, strings and tuples only.

    ``rows`` are those that Spark passed to the task, ``acknowledged`` those that brokers confirmed:
    they must be equal. ``bytes`` is the size of the record batches on the wire, ``batch_bytes`` the
    same before compression; the other counters are ``ProduceReport``'s. ``cluster_id`` is empty
    when nothing was sent, ``offsets`` also with acks=0. ``host`` and the ids say where the attempt
    ran; ``query_id`` and ``run_id`` are empty and ``batch_id`` is -1 outside of streaming.
    ``producer_id`` is -1 without idempotence.

    ``transaction`` is to be ended by the driver, None when nothing was written or without
    exactly-once; with ``two_phase_commit`` it never times out. ``generation`` is the commit log's
    in the driver's plan (-1: no exactly-once), ``start_ms`` the wall time of the transaction's
    first row (-1: none).
    ``begun_ms`` is the wall time at which the attempt began, ``input_wait_ms`` how long it waited
    for Spark's next rows, ``broker_wait_ms`` for acknowledgements after the last one;
    ``skipped_rows`` are those that onNullValue=skip dropped, not included in ``rows``, and
    ``rate_wait_ms`` the wait for maxRecordsPerSecond or maxBytesPerSecond. ``app_id``, ``app_name``
    and ``query_name`` are Spark's, empty when they are not available. ``payload`` are the rows and
    bytes that the task wrote, or would have written if its batch were not committed already; None
    when it didn't count them, or without exactly-once.
    """

    rows: int
    acknowledged: int
    bytes: int
    batches: int
    batch_bytes: int
    requests: int
    retries: int
    splits: int
    duplicates: int
    throttle_ms: int
    retried_rows: int
    queue_ms: int
    max_queue_ms: int
    buffer_wait_ms: int
    metadata_wait_ms: int
    connections: int
    elapsed_ms: int
    nodes: tuple[NodeLatency, ...]
    offsets: tuple[PartitionOffsets, ...]
    partition_id: int
    attempt: int
    task_attempt_id: int
    host: str
    query_id: str
    run_id: str
    batch_id: int
    producer_id: int
    producer_epoch: int
    cluster_id: str
    transaction: TransactionFields | None = None
    generation: int = -1
    start_ms: int = -1
    payload: tuple[int, int] | None = None
    begun_ms: int = 0
    input_wait_ms: int = 0
    broker_wait_ms: int = 0
    skipped_rows: int = 0
    rate_wait_ms: int = 0
    app_id: str = ""
    app_name: str = ""
    query_name: str = ""
    two_phase_commit: bool = False

    @property
    def prepared(self) -> PreparedTransaction | None:
        """:attr:`transaction` as the driver's type."""
        return None if self.transaction is None else PreparedTransaction(*self.transaction)

    def produced(self) -> ProduceReport:
        """The counters as a producer's report."""
        counts: dict[str, Any] = {
            name: getattr(self, name) for name in (*SUMMED, *LARGEST) if name != "rows"
        }
        return ProduceReport(
            rows=self.acknowledged,
            **counts,
            nodes={seen[0]: NodeReport(*seen[1:]) for seen in self.nodes},
            offsets={TopicPartition(t, p): (first, last) for t, p, first, last in self.offsets},
            cluster_id=self.cluster_id or None,
        )

    def __reduce__(self) -> tuple[object, ...]:
        values = tuple((f.name, getattr(self, f.name)) for f in fields(self))
        return (rebuild_message, (SCHEMA_VERSION, __version__, values))


class ForeignCommitMessage(WriterCommitMessage):
    """A message whose schema or package version is not ours, or whose fields are not."""

    def __init__(self, schema_version: object, package_version: object, reason: str) -> None:
        self.schema_version = schema_version
        self.package_version = package_version
        self.reason = reason


def rebuild_message(
    schema_version: object, package_version: object, values: object
) -> WriterCommitMessage:
    """The unpickled message. Never raises, for any arguments."""
    if schema_version != SCHEMA_VERSION or package_version != __version__:
        return ForeignCommitMessage(schema_version, package_version, "of another version")
    try:
        return TaskCommitMessage(**dict(values))  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return ForeignCommitMessage(schema_version, package_version, "with other fields")


def checked_messages(
    messages: Sequence[WriterCommitMessage | None],
) -> tuple[TaskCommitMessage, ...]:
    """Every message, if each is complete and valid; else CommitError. Runs on the driver.

    None is a task that Spark considers done and that sent no message. The only known cause is the
    continuous trigger, with which Spark never calls a Python sink's ``write``: its rows are dropped
    by Spark (Spark builds the error for it and does not throw it).
    """
    missing = [i for i, message in enumerate(messages) if message is None]
    if missing:
        raise CommitError(
            f"{len(missing)} of {len(messages)} tasks sent no commit message (first: task "
            f"{missing[0]}), so their rows can't be confirmed",
            hint="with the continuous trigger Spark never calls a Python sink and drops every row: "
            "use trigger(processingTime=...) or trigger(availableNow=True)",
            kind=Kind.NO_COMMIT_MESSAGE,
        )
    checked = tuple(_checked(i, message) for i, message in enumerate(messages))
    _check_partition_ids(checked)
    return checked


def finished_messages(
    messages: Sequence[WriterCommitMessage | None],
) -> tuple[TaskCommitMessage, ...]:
    """The usable messages of an abort, without missing and foreign ones. Never raises."""
    return tuple(m for m in messages if isinstance(m, TaskCommitMessage))


def _checked(index: int, message: WriterCommitMessage | None) -> TaskCommitMessage:
    if isinstance(message, ForeignCommitMessage):
        raise CommitError(
            f"task {index} sent a commit message {message.reason}: spark-kafka-sink "
            f"{safe_text(str(message.package_version), 40)} (schema "
            f"{safe_text(str(message.schema_version), 20)}) there, {__version__} (schema "
            f"{SCHEMA_VERSION}) on the driver",
            hint="install the same spark-kafka-sink on driver and executors; the rows were "
            "acknowledged, and writing them again duplicates them",
            kind=Kind.VERSIONS_DIFFER,
        )
    if not isinstance(message, TaskCommitMessage):
        raise CommitError(
            f"task {index} sent a {type(message).__name__} in place of a commit message"
        )
    for problem in _problems(message):
        raise CommitError(f"task {index} sent a commit message that contradicts itself: {problem}")
    return message


_COUNTS = (
    *SUMMED, *LARGEST, "acknowledged", "elapsed_ms", "partition_id", "attempt", "task_attempt_id",
    "begun_ms", "input_wait_ms", "broker_wait_ms", "skipped_rows",
    "rate_wait_ms",
)  # fmt: skip
_IDS = ("batch_id", "producer_id", "producer_epoch", "generation", "start_ms")
_TEXTS = (
    "host", "query_id", "run_id", "cluster_id", "app_id", "app_name", "query_name",
)  # fmt: skip

_FLAGS = ("two_phase_commit",)


def _problems(message: TaskCommitMessage) -> list[str]:
    """The errors in the fields of ``message``; types first, then the counts."""
    wrong = [
        f"{name} is not an int >= {least}"
        for names, least in ((_COUNTS, 0), (_IDS, -1))
        for name in names
        if not _is_int(getattr(message, name), least)
    ]
    wrong += [f"{n} is not a str" for n in _TEXTS if not isinstance(getattr(message, n), str)]
    wrong += [f"{n} is not a bool" for n in _FLAGS if not isinstance(getattr(message, n), bool)]
    if not _all_rows(message.nodes, ("id", 0, 0, 0, "")):
        wrong.append("nodes is not a tuple of (id, requests, total ms, longest ms, last answer)")
    if not _all_rows(message.offsets, ("", 0, 0, 0)):
        wrong.append("offsets is not a tuple of (topic, partition, first, last)")
    if message.transaction is not None and not _is_transaction(message.transaction):
        wrong.append("transaction is not (id, producer id, epoch, version 1 or 2)")
    if message.payload is not None and not _all_rows((message.payload,), (0, 0)):
        wrong.append("payload is not (rows, bytes)")
    if wrong:
        return wrong
    if message.rows != message.acknowledged:
        wrong.append(f"{message.rows} rows in, {message.acknowledged} rows acknowledged")
    for topic, partition, first, last in message.offsets:
        if last < first:
            wrong.append(f"offsets of {safe_text(topic)}-{partition} run from {first} to {last}")
    return wrong


def _is_int(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_transaction(value: object) -> bool:
    if not _all_rows((value,), ("", 0, 0, 0)):
        return False
    assert isinstance(value, tuple)
    return value[2] < 2**15 and value[3] in (1, 2)


def _all_rows(rows: object, shape: tuple[object, ...]) -> bool:
    """True when ``rows`` is a tuple of tuples like ``shape``: "" is text, 0 a count, "id" an id."""
    if not isinstance(rows, tuple):
        return False
    return all(
        isinstance(row, tuple)
        and len(row) == len(shape)
        and all(_fits(value, wanted) for value, wanted in zip(row, shape, strict=True))
        for row in rows
    )


def _fits(value: object, wanted: object) -> bool:
    if wanted == "":
        return isinstance(value, str)
    return _is_int(value, -(2**31) if wanted == "id" else 0)


def _check_partition_ids(messages: tuple[TaskCommitMessage, ...]) -> None:
    seen: set[int] = set()
    for message in messages:
        if message.partition_id in seen:
            raise CommitError(
                f"two commit messages claim partition {message.partition_id} of the DataFrame"
            )
        seen.add(message.partition_id)
