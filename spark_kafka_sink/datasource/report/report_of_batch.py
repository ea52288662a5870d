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
from dataclasses import replace

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
    ErrorReport,
    Outcome,
    PartitionReport,
    TaskReport,
    WriteReport,
)
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
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
    produced = ProduceReport.merge(m.produced() for m in messages)
    elapsed = max(now - min((m.begun_ms for m in messages), default=now), 0)
    with_rows = [m for m in messages if m.rows]
    longest = max(messages, key=lambda m: m.elapsed_ms, default=None)
    longest_ms = 0 if longest is None else longest.elapsed_ms
    median_ms = statistics.median_low(m.elapsed_ms for m in with_rows) if with_rows else 0
    topics = sorted(
        {tp.topic for tp in produced.offsets} | ({config.topic} if config.topic else set())
    )
    return WriteReport(
        report_id=_report_id(messages),
        written_at_ms=now,
        outcome=outcome,
        error=None if error is None else _error(error),
        version=__version__,
        spark_version=pyspark.__version__,
        host=platform.node(),
        application_id=_first_known(m.app_id for m in messages),
        application_name=_first_known(m.app_name for m in messages),
        query_id=_first_known(m.query_id for m in messages),
        query_name=_first_known(m.query_name for m in messages),
        run_id=_first_known(m.run_id for m in messages),
        batch_id=batch_id
        if batch_id is not None
        else next((m.batch_id for m in messages if m.batch_id >= 0), None),
        options_fingerprint=config.fingerprint,
        delivery_guarantee=str(config.delivery_guarantee),
        transactional_id_prefix=(config.transactional_id_prefix or DEFAULT_PREFIX)
        if config.is_exactly_once
        else None,
        txn_app_id=config.txn_app_id,
        txn_version=config.txn_version,
        cluster_id=produced.cluster_id,
        topics=tuple(topics[:NAMED]),
        tasks=len(messages) + len(unfinished),
        unfinished_tasks=len(unfinished),
        unfinished=tuple(unfinished[:NAMED]),
        transactions=sum(m.transaction is not None for m in messages),
        oldest_transaction_ms=_oldest_ms(messages, now),
        transaction_timeout_ms=config.producer.transaction_timeout_ms
        if config.is_exactly_once
        else None,
        longest_task_ms=longest_ms,
        median_task_ms=median_ms,
        task_skew=round(longest_ms / median_ms, 2) if median_ms else 1.0,
        row_skew=_row_skew(with_rows),
        slowest_task=None if longest is None else _task(longest),
        rows=produced.rows,
        skipped_rows=sum(m.skipped_rows for m in messages),
        bytes=produced.bytes,
        bytes_before_compression=produced.batch_bytes,
        compression_rate=round(produced.bytes / produced.batch_bytes, 3)
        if produced.batch_bytes
        else 1.0,
        rows_per_second=_per_second(produced.rows, elapsed),
        bytes_per_second=_per_second(produced.bytes, elapsed),
        batches=produced.batches,
        mean_batch_size=produced.bytes // produced.batches if produced.batches else 0,
        requests=produced.requests,
        retries=produced.retries,
        retried_rows=produced.retried_rows,
        splits=produced.splits,
        duplicates=produced.duplicates,
        elapsed_ms=elapsed,
        commit_ms=None,
        throttle_ms=produced.throttle_ms,
        mean_queue_ms=round(produced.queue_ms / produced.batches, 3) if produced.batches else 0.0,
        max_queue_ms=produced.max_queue_ms,
        input_wait_ms=sum(m.input_wait_ms for m in messages),
        buffer_wait_ms=produced.buffer_wait_ms,
        rate_wait_ms=sum(m.rate_wait_ms for m in messages),
        metadata_wait_ms=produced.metadata_wait_ms,
        broker_wait_ms=sum(m.broker_wait_ms for m in messages),
        connections=produced.connections,
        brokers=_brokers(produced),
        partitions=tuple(
            PartitionReport(*tp, *span) for tp, span in sorted(produced.offsets.items())
        ),
    )


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
    attempts = sorted((m.app_id, m.host, m.task_attempt_id, m.begun_ms) for m in messages)
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
    return TaskReport(
        message.partition_id,
        message.attempt,
        message.host,
        message.rows,
        message.elapsed_ms,
        message.input_wait_ms,
    )


def _oldest_ms(messages: Sequence[TaskCommitMessage], now: int) -> int | None:
    began = [m.start_ms for m in messages if m.transaction is not None and m.start_ms >= 0]
    return max(now - min(began), 0) if began else None


def _row_skew(with_rows: Sequence[TaskCommitMessage]) -> float:
    rows = sum(m.rows for m in with_rows)
    return round(max(m.rows for m in with_rows) * len(with_rows) / rows, 2) if rows else 1.0


def _per_second(count: int, elapsed_ms: int) -> float:
    return round(count * 1000 / elapsed_ms, 1) if elapsed_ms else 0.0


def _brokers(produced: ProduceReport) -> tuple[BrokerReport, ...]:
    return tuple(
        BrokerReport(
            node,
            seen.requests,
            round(seen.mean_latency_ms, 3),
            seen.max_latency_ms,
            seen.last_answer,
        )
        for node, seen in sorted(produced.nodes.items())
    )
