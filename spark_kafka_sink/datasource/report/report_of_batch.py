"""Creates a batch's report from its commit messages, its failed attempts and its result.

``write_report.py`` describes the fields of a report, and ``destinations.py`` delivers reports.
"""

from __future__ import annotations

import hashlib
import platform
import statistics
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import pyspark

from spark_kafka_sink.base.counts import merged_counts
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    CommitOutcomeUnknownError,
    KafkaError,
    PartialCommitError,
    safe_text,
)
from spark_kafka_sink.base.security.import_paths import place_of
from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.report.write_report import (
    CHECKSUMS,
    AuditReport,
    BrokerReport,
    DeadLettersReport,
    ErrorReport,
    FailedAttempt,
    PartitionReport,
    TaskReport,
    TopicReport,
    WriteOutcome,
    WriteReport,
)
from spark_kafka_sink.datasource.write.commit_message import (
    TaskCommitMessage,
    TaskCounts,
)
from spark_kafka_sink.datasource.write.letter_counts import summed
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.producer.metrics.produce_report import NodeReport, ProduceReport
from spark_kafka_sink.transactions.transactional_ids import DEFAULT_PREFIX

#: The largest number of unfinished tasks, failed attempts, servers and topics that a report lists.
NAMED = 100
_LONGEST_TEXT = 2_000


def report_of_batch(
    config: SinkConfig,
    messages: Sequence[TaskCommitMessage],
    outcome: WriteOutcome,
    *,
    batch_id: int | None = None,
    error: KafkaError | None = None,
    unfinished: Sequence[int] = (),
    wall_ms: int | None = None,
) -> WriteReport:
    """Creates the report of a batch before its commit. :func:`after_commit` adds the result of the
    commit.

    ``messages`` come from the finished tasks, and ``unfinished`` are the indices of the other
    tasks. ``wall_ms`` is the current time in milliseconds since the epoch.
    """
    now = time.time_ns() // 1_000_000 if wall_ms is None else wall_ms
    produced = ProduceReport.merge([m.produced for m in messages])
    letters = None
    if (queue := config.dead_letters) is not None:
        counts = summed(count for message in messages for count in message.letters)
        letters = DeadLettersReport(queue.topic, sum(one.rows for one in counts), counts)
        # The number of acknowledged dead letters, which may be smaller than the number of noted
        # dead letters if the attempt has failed.
        sent = (n for tp, (n, _, _) in produced.by_partition.items() if tp.topic == queue.topic)
        produced = replace(produced, rows=produced.rows - sum(sent))
    values: dict[str, Any] = {
        **_of_equal_names(produced),
        **merged_counts(TaskCounts, [m.counts for m in messages]),
        **_identity([m.identity for m in messages]),
        **_of_options(config),
        **_of_tasks(messages),
        **_rates(produced, max(now - min((m.begun_ms for m in messages), default=now), 0)),
    }
    if batch_id is not None:
        values["batch_id"] = batch_id
    topics = {tp.topic for tp in produced.offsets} | ({config.topic} if config.topic else set())
    return WriteReport(
        **values,
        report_id=_report_id(messages),
        written_at_ms=now,
        outcome=outcome,
        error=None if error is None else error_report(error),
        topics=tuple(sorted(topics)[:NAMED]),
        topic_counts=_topic_counts(produced),
        tasks=len(messages) + len(unfinished),
        unfinished_tasks=len(unfinished),
        unfinished=tuple(unfinished[:NAMED]),
        **_of_partitions(produced),
        oldest_transaction_ms=_oldest_ms(messages, now),
        commit_ms=None,
        dead_letters=letters,
        brokers=_brokers(produced.nodes),
        partitions=tuple(
            PartitionReport(*tp, *span) for tp, span in sorted(produced.offsets.items())
        ),
        audit=_audit(produced),
    )


def _audit(produced: ProduceReport) -> AuditReport:
    counts = [produced.by_partition.get(tp, (0, 0, 0)) for tp in sorted(produced.offsets)]
    return AuditReport(
        tuple(rows for rows, _, _ in counts),
        tuple(f"{checksum % CHECKSUMS:x}" for _, _, checksum in counts),
        produced.rows_without_offset,
        tuple(f"{one}/{epoch}" for one, epoch in sorted(produced.producer_ids)),
    )


def _names_of(cls: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(cls))


_REPORTED = frozenset(_names_of(WriteReport))


def _of_equal_names(produced: ProduceReport) -> dict[str, object]:
    """The fields of ``produced`` that :class:`WriteReport` also has, with their values."""
    return {n: getattr(produced, n) for n in _names_of(ProduceReport) if n in _REPORTED}


def _topic_counts(produced: ProduceReport) -> tuple[TopicReport, ...]:
    found: dict[str, tuple[int, int]] = {}
    for tp, (rows, size, _) in produced.by_partition.items():
        before = found.get(tp.topic, (0, 0))
        found[tp.topic] = (before[0] + rows, before[1] + size)
    most = sorted(found.items(), key=lambda one: -one[1][0])[:NAMED]
    ids = produced.topic_ids
    return tuple(TopicReport(topic, *counts, ids.get(topic)) for topic, counts in sorted(most))


def _identity(tasks: Sequence[TaskIdentity]) -> dict[str, object]:
    """The identity of the batch: its application, query and run. Each value comes from the first
    task that has it.
    """
    return {
        "version": __version__,
        "spark_version": pyspark.__version__,
        "host": platform.node(),
        "application_id": _first_known(t.app_id for t in tasks),
        "application_name": _first_known(t.app_name for t in tasks),
        "query_id": _first_known(t.query_id for t in tasks),
        "query_name": _first_known(t.query_name for t in tasks),
        "run_id": _first_known(t.run_id for t in tasks),
        "parent_run": _first_known((t.parent_run for t in tasks), _LONGEST_TEXT),
        "batch_id": next((t.batch_id for t in tasks if t.batch_id >= 0), None),
    }


def _of_options(config: SinkConfig) -> dict[str, object]:
    exactly_once = config.is_exactly_once
    prefix = config.transactional_id_prefix or DEFAULT_PREFIX
    timeout_ms = config.producer.transaction_timeout_ms
    return {
        "bootstrap_servers": tuple(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            for host, port in config.producer.bootstrap_servers[:NAMED]
        ),
        "options_fingerprint": config.fingerprint,
        "delivery_guarantee": str(config.delivery_guarantee),
        "transactional_id_prefix": prefix if exactly_once else None,
        "transaction_timeout_ms": timeout_ms if exactly_once else None,
        "txn_app_id": config.txn_app_id,
        "txn_version": config.txn_version,
    }


def _of_tasks(messages: Sequence[TaskCommitMessage]) -> dict[str, object]:
    with_rows = [m for m in messages if m.rows]
    longest = max(messages, key=lambda m: m.elapsed_ms, default=None)
    longest_ms = 0 if longest is None else longest.elapsed_ms
    median_ms = statistics.median_low(m.elapsed_ms for m in with_rows) if with_rows else 0
    return {
        "transactions": sum(m.prepared is not None for m in messages),
        "lost_attempts": sum(m.identity.attempt for m in messages),
        "longest_task_ms": longest_ms,
        "median_task_ms": median_ms,
        "task_skew": _ratio(longest_ms, median_ms, 2),
        "row_skew": _skew([m.rows for m in with_rows]),
        "slowest_task": None if longest is None else _task(longest),
    }


def _of_partitions(produced: ProduceReport) -> dict[str, Any]:
    rows = {tp: count for tp, (count, _, _) in produced.by_partition.items()}
    largest = max(rows, key=lambda tp: rows[tp], default=None)
    return {
        "partition_skew": _skew(list(rows.values())),
        "largest_partition": None if largest is None else str(largest),
    }


def _rates(produced: ProduceReport, elapsed_ms: int) -> dict[str, object]:
    batches = produced.batches
    return {
        "elapsed_ms": elapsed_ms,
        "bytes_before_compression": produced.batch_bytes,
        "compression_rate": _ratio(produced.bytes, produced.batch_bytes, 3),
        "rows_per_second": _per_second(produced.rows, elapsed_ms),
        "bytes_per_second": _per_second(produced.bytes, elapsed_ms),
        "mean_batch_size": produced.bytes // batches if batches else 0,
        "mean_queue_ms": round(produced.queue_ms / batches, 3) if batches else 0.0,
    }


#: The hint for an error that this package has not raised.
_OF_SPARK = "Spark's own exception has the cause"


def report_of_attempt(
    config: SinkConfig, attempt: TaskCommitMessage, error: BaseException
) -> WriteReport:
    """Creates the report of a failed task attempt. ``attempt`` has the figures of the attempt up to
    its failure. :func:`with_attempts` or :func:`with_failures` later adds this report to the
    batch's report.

    If ``error`` is not an exception of this package, its text is left out, because it may contain
    data of a row.
    """
    batch_id = attempt.identity.batch_id
    if not isinstance(error, KafkaError):
        # The text of the error may contain data of a row.
        error = KafkaError(
            f"the task was stopped, or got no more rows from Spark: {place_of(error)}",
            hint=_OF_SPARK,
            kind=Kind.TASK_STOPPED,
        )
    return report_of_batch(
        config,
        [attempt],
        WriteOutcome.FAILED,
        batch_id=batch_id if batch_id >= 0 else None,
        error=error,
    )


def with_attempts(report: WriteReport, attempts: Sequence[WriteReport]) -> WriteReport:
    """Adds the failed attempts to the report of their batch, in the order of time, at most 100.
    ``attempts`` are the reports of :func:`report_of_attempt`.
    """
    every = sorted(attempts, key=lambda one: one.written_at_ms)
    return replace(report, failed_attempts=tuple(_failed(one) for one in every[:NAMED]))


def with_failures(
    report: WriteReport,
    attempts: Sequence[WriteReport],
    begun_ms: int | None,
    told: TaskIdentity | None = None,
) -> WriteReport:
    """Completes the report of an aborted batch: adds the failed attempts, their error, and the
    identity of the write.

    - ``attempts`` are the reports of :func:`report_of_attempt`.
    - ``begun_ms`` is the time of the planning. The elapsed time of the batch begins at the planning
      or at the start of the first attempt, whichever is earlier.
    - ``told`` is the identity that the first task stored, or None.
    """
    every = sorted(attempts, key=lambda one: one.written_at_ms)
    begun = min(one.written_at_ms - one.elapsed_ms for one in (report, *every))
    if begun_ms is not None:
        begun = min(begun, begun_ms)
    # Without an unfinished task the commit failed, which has a report of its own.
    error = _UNTOLD if report.unfinished_tasks else report.error
    known: dict[str, Any] = {
        name: next((v for one in (report, *every) if (v := getattr(one, name)) is not None), None)
        for name in _OWN
    }
    if told is not None:
        of_first = _identity([told])
        known = {name: of_first.get(name) if v is None else v for name, v in known.items()}
    return replace(
        with_attempts(report, every),
        **known,
        error=max(every, key=_ends_the_batch).error if every else error,
        elapsed_ms=report.written_at_ms - begun,
        brokers=_merged([broker for one in (report, *every) for broker in one.brokers]),
    )


#: Facts of a batch that an attempt may have and the driver may lack.
_OWN = (
    "application_id", "application_name", "query_id", "query_name", "run_id", "parent_run",
    "batch_id", "cluster_id",
)  # fmt: skip


#: Spark passes nothing of a failed task to the abort.
_UNTOLD = ErrorReport(
    Kind.TASK_STOPPED.kp_code,
    "a task failed without leaving why, or the write was stopped",
    f"{_OF_SPARK}; an executor or a Python worker that was killed leaves no error: when the system"
    " did it (the OOM killer, a container's limit, exit code 137), raise"
    " spark.executor.memoryOverhead",
)


def _ends_the_batch(attempt: WriteReport) -> tuple[int, bool]:
    """A sort key for failed attempts: the number of the attempt, and whether it failed by itself
    (False if Spark stopped it). The attempt that made Spark end the batch has the greatest key.
    """
    # Spark ends a batch after the last allowed attempt of a task, so this attempt has the greatest
    # number. Then Spark stops the other tasks, so a stopped attempt counts less.
    number = 0 if attempt.slowest_task is None else attempt.slowest_task.attempt
    code = None if attempt.error is None else attempt.error.code
    return number, code != Kind.TASK_STOPPED.kp_code


def _failed(attempt: WriteReport) -> FailedAttempt:
    task, error = attempt.slowest_task, attempt.error
    assert task is not None, "it is a report of one attempt"
    assert error is not None
    return FailedAttempt(
        task.partition,
        task.attempt,
        task.host,
        task.rows,
        task.elapsed_ms,
        error.code,
        error.message,
    )


def _merged(brokers: Sequence[BrokerReport]) -> tuple[BrokerReport, ...]:
    """Merges the reports of each broker into one report per broker. Sorted by broker id."""
    found: dict[int, BrokerReport] = {}
    for one in brokers:
        before = found.get(one.id)
        found[one.id] = one if before is None else before.merge(one)
    return tuple(found[node] for node in sorted(found))


def after_commit(
    report: WriteReport, outcome: WriteOutcome, error: KafkaError | None, took_ms: int
) -> WriteReport:
    """Adds the result of the commit to a report that was created before the commit. ``error`` is
    the error that the commit raised, or None. ``took_ms`` is the duration of the commit.
    """
    why = None if error is None else error_report(error)
    return replace(report, outcome=outcome, error=why, commit_ms=took_ms)


def _report_id(messages: Sequence[TaskCommitMessage]) -> str:
    """The report's id: a hash of the task attempts. If an abort follows a failed commit, both have
    reports with the same id, because the attempts are the same.
    """
    if not messages:
        return uuid.uuid4().hex
    tasks = ((m.identity, m.begun_ms) for m in messages)
    attempts = sorted((t.app_id, t.host, t.task_attempt_id, begun) for t, begun in tasks)
    return hashlib.sha256(repr(attempts).encode()).hexdigest()[:32]


def outcome_of_error(error: BaseException) -> WriteOutcome:
    """The outcome of a batch after its commit has raised ``error``."""
    if isinstance(error, CommitOutcomeUnknownError):
        return WriteOutcome.UNKNOWN
    return WriteOutcome.PARTIAL if isinstance(error, PartialCommitError) else WriteOutcome.FAILED


def error_report(error: KafkaError) -> ErrorReport:
    """Converts an error to the form that it has in reports."""
    message = " ".join([error.message, *(note.strip() for note in _notes(error))])
    return ErrorReport(
        error.kind.kp_code,
        safe_text(message, _LONGEST_TEXT),
        safe_text(error.hint or "", _LONGEST_TEXT),
    )


def _notes(error: BaseException) -> Sequence[str]:
    """The notes of an error, which name the rows of the DataFrame that caused the error."""
    return getattr(error, "__notes__", ())


def _first_known(texts: Iterable[str], longest: int = 200) -> str | None:
    """The first non-empty text, shortened to ``longest`` characters. None if all texts are
    empty.
    """
    return next((safe_text(text, longest) for text in texts if text), None)


def _task(message: TaskCommitMessage) -> TaskReport:
    task = message.identity
    return TaskReport(
        task.partition_id,
        task.attempt,
        task.host,
        message.rows,
        message.elapsed_ms,
        message.counts.input_wait_ms,
    )


def _oldest_ms(messages: Sequence[TaskCommitMessage], now: int) -> int | None:
    own = [m.transaction for m in messages if m.transaction is not None]
    began = [t.start_ms for t in own if t.prepared is not None and t.start_ms >= 0]
    return max(now - min(began), 0) if began else None


def _skew(counts: Sequence[int]) -> float:
    """The largest count divided by the mean count; 1.0 without counts."""
    return _ratio(max(counts, default=0) * len(counts), sum(counts), 2)


def _ratio(count: int, of: int, digits: int) -> float:
    return round(count / of, digits) if of else 1.0


def _per_second(count: int, elapsed_ms: int) -> float:
    return round(count * 1000 / elapsed_ms, 1) if elapsed_ms else 0.0


def _brokers(nodes: Mapping[int, NodeReport]) -> tuple[BrokerReport, ...]:
    return tuple(
        BrokerReport(
            node,
            seen.requests,
            round(seen.mean_latency_ms, 3),
            seen.max_latency_ms,
            seen.latencies,
            seen.last_answer,
        )
        for node, seen in sorted(nodes.items())
    )
