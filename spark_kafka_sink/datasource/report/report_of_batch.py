"""Makes a batch's report from its commit messages and its result.

Owns: :func:`report_of_batch`. Never: what a field means (``write_report.py``), where a report goes.
"""

from __future__ import annotations

import hashlib
import platform
import statistics
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import pyspark

from spark_kafka_sink.base.errors import (
    CommitOutcomeUnknownError,
    KafkaError,
    PartialCommitError,
    safe_text,
)
from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.report.write_report import (
    BrokerReport,
    DeadLettersReport,
    ErrorReport,
    Outcome,
    PartitionReport,
    ReasonReport,
    SampleReport,
    TaskReport,
    TopicReport,
    WriteReport,
)
from spark_kafka_sink.datasource.write.commit_message import (
    TaskCommitMessage,
    TaskCounts,
    letters_of,
)
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.transactions.transactional_ids import DEFAULT_PREFIX

#: Unfinished tasks and topics that a report lists.
NAMED = 100
_LONGEST_TEXT = 2_000


def report_of_batch(
    config: SinkConfig,
    messages: Sequence[TaskCommitMessage],
    outcome: Outcome,
    *,
    batch_id: int | None = None,
    error: KafkaError | None = None,
    unfinished: Sequence[int] = (),
    wall_ms: int | None = None,
) -> WriteReport:
    """The report of a batch whose finished tasks sent ``messages``; ``unfinished`` are the indices
    of the others. ``wall_ms`` is now, in ms since the epoch. :func:`after_commit` adds the result.
    """
    now = time.time_ns() // 1_000_000 if wall_ms is None else wall_ms
    produced = ProduceReport.merge(m.produced for m in messages)
    letters = _dead_letters(config, messages)
    if letters is not None:
        produced = replace(produced, rows=produced.rows - letters.total)
    values: dict[str, Any] = {
        **_of_equal_names(produced),
        **{n: sum(getattr(m.counts, n) for m in messages) for n in _names_of(TaskCounts)},
        **_identity(messages),
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
        error=None if error is None else _error(error),
        topics=tuple(sorted(topics)[:NAMED]),
        topic_counts=_topic_counts(produced),
        tasks=len(messages) + len(unfinished),
        unfinished_tasks=len(unfinished),
        unfinished=tuple(unfinished[:NAMED]),
        oldest_transaction_ms=_oldest_ms(messages, now),
        commit_ms=None,
        dead_letters=letters,
        brokers=_brokers(produced),
        partitions=tuple(
            PartitionReport(*tp, *span) for tp, span in sorted(produced.offsets.items())
        ),
    )


def _names_of(cls: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(cls))


_REPORTED = frozenset(_names_of(WriteReport))


def _of_equal_names(produced: ProduceReport) -> dict[str, object]:
    """The fields of a producer's report that a batch's report has, too."""
    return {n: getattr(produced, n) for n in _names_of(ProduceReport) if n in _REPORTED}


def _topic_counts(produced: ProduceReport) -> tuple[TopicReport, ...]:
    most = sorted(produced.by_topic.items(), key=lambda one: -one[1][0])[:NAMED]
    return tuple(TopicReport(topic, *counts) for topic, counts in sorted(most))


def _identity(messages: Sequence[TaskCommitMessage]) -> dict[str, object]:
    """Whose batch it is. Each value is the first that a task knows."""
    tasks = [m.identity for m in messages]
    return {
        "version": __version__,
        "spark_version": pyspark.__version__,
        "host": platform.node(),
        "application_id": _first_known(t.app_id for t in tasks),
        "application_name": _first_known(t.app_name for t in tasks),
        "query_id": _first_known(t.query_id for t in tasks),
        "query_name": _first_known(t.query_name for t in tasks),
        "run_id": _first_known(t.run_id for t in tasks),
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
        "longest_task_ms": longest_ms,
        "median_task_ms": median_ms,
        "task_skew": _ratio(longest_ms, median_ms, 2),
        "row_skew": _skew([m.rows for m in with_rows]),
        "slowest_task": None if longest is None else _task(longest),
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


def after_commit(
    report: WriteReport, outcome: Outcome, error: KafkaError | None, took_ms: int
) -> WriteReport:
    """``report``, which was made before the commit, with the commit's result."""
    why = None if error is None else _error(error)
    return replace(report, outcome=outcome, error=why, commit_ms=took_ms)


def _report_id(messages: Sequence[TaskCommitMessage]) -> str:
    """The same for the same task attempts, so that an abort has the id of the commit."""
    if not messages:
        return uuid.uuid4().hex
    tasks = ((m.identity, m.begun_ms) for m in messages)
    attempts = sorted((t.app_id, t.host, t.task_attempt_id, begun) for t, begun in tasks)
    return hashlib.sha256(repr(attempts).encode()).hexdigest()[:32]


def outcome_of_error(error: BaseException) -> Outcome:
    """The outcome of a batch whose commit raised ``error``."""
    if isinstance(error, CommitOutcomeUnknownError):
        return Outcome.UNKNOWN
    return Outcome.PARTIAL if isinstance(error, PartialCommitError) else Outcome.FAILED


def _error(error: KafkaError) -> ErrorReport:
    return ErrorReport(
        error.kind.kp_code,
        safe_text(error.message, _LONGEST_TEXT),
        safe_text(error.hint or "", _LONGEST_TEXT),
    )


def _first_known(texts: Iterable[str]) -> str | None:
    """The first non-empty text."""
    return next((safe_text(text) for text in texts if text), None)


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
    """The largest by the mean."""
    return _ratio(max(counts, default=0) * len(counts), sum(counts), 2)


def _ratio(count: int, of: int, digits: int) -> float:
    return round(count / of, digits) if of else 1.0


def _per_second(count: int, elapsed_ms: int) -> float:
    return round(count * 1000 / elapsed_ms, 1) if elapsed_ms else 0.0


def _dead_letters(
    config: SinkConfig, messages: Sequence[TaskCommitMessage]
) -> DeadLettersReport | None:
    """None with errors.tolerance=none."""
    if config.dead_letters is None:
        return None
    totals = letters_of(messages)
    return DeadLettersReport(
        config.dead_letters.topic,
        sum(one.rows for one in totals),
        tuple(
            ReasonReport(
                one.code, one.reason, one.rows, tuple(SampleReport(*s) for s in one.samples)
            )
            for one in totals
        ),
    )


def _brokers(produced: ProduceReport) -> tuple[BrokerReport, ...]:
    return tuple(
        BrokerReport(
            node,
            seen.requests,
            round(seen.mean_latency_ms, 3),
            seen.max_latency_ms,
            seen.latencies,
            seen.last_answer,
        )
        for node, seen in sorted(produced.nodes.items())
    )
