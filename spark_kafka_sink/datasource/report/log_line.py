"""Formats a report as a line of the driver's log. ``destinations.py`` logs the line."""

from __future__ import annotations

from spark_kafka_sink.base.errors import named
from spark_kafka_sink.config.sink_config import DeliveryGuarantee
from spark_kafka_sink.datasource.report.write_report import WriteReport

#: The largest number of partitions that the line lists.
LOGGED_PARTITIONS = 20
_LOGGED_ATTEMPTS = 10


def line_of(report: WriteReport) -> str:
    """Formats the report of a successful batch as one log line of ``name=value`` pairs."""
    return "kprod wrote " + " ".join(f"{n}={value}" for n, value in summary_of(report).items())


def summary_of(report: WriteReport) -> dict[str, str]:
    """The names and values of a report's log line, in the order of the line."""
    slowest = report.slowest_broker
    values: dict[str, object] = {}
    if report.query_id is not None:
        values = {"queryId": report.query_id, "batchId": report.batch_id}
    values |= {
        "rows": report.rows,
        "bytes": report.bytes,
        "batches": report.batches,
        "meanBatchSize": report.mean_batch_size,
        "requests": report.requests,
        "retries": report.retries,
        "splits": report.splits,
        "duplicates": report.duplicates,
        "throttleMs": report.throttle_ms,
        "inputWaitMs": report.input_wait_ms,
        "bufferWaitMs": report.buffer_wait_ms,
        "brokerWaitMs": report.broker_wait_ms,
        "meanQueueMs": f"{report.mean_queue_ms:.1f}",
        "elapsedMs": report.elapsed_ms,
        "rowsPerSecond": round(report.rows_per_second),
        "tasks": report.tasks,
        "longestTaskMs": report.longest_task_ms,
        "taskSkew": f"{report.task_skew:.1f}",
        "guarantee": report.delivery_guarantee,
    }
    if report.skipped_rows:
        values["skippedRows"] = report.skipped_rows
    if report.dead_letters is not None and report.dead_letters.total:
        values["deadLetters"] = report.dead_letters.total
    if report.lost_attempts:
        values["lostAttempts"] = report.lost_attempts
    if report.rate_wait_ms:
        values["rateWaitMs"] = report.rate_wait_ms
    if report.delivery_guarantee == DeliveryGuarantee.EXACTLY_ONCE:
        values["transactions"] = report.transactions
        values["outcome"] = report.outcome.replace(" ", "-")
    values["slowestBroker"] = (
        "none" if slowest is None else f"{slowest.id}({slowest.mean_latency_ms:.1f}ms)"
    )
    values["offsets"] = _offsets(report)
    return {name: str(value) for name, value in values.items()}


def failure_of(report: WriteReport) -> str:
    """Describes the failure of an aborted batch for a log line: the query, the failed attempts, the
    brokers' last responses, and the error.
    """
    values: dict[str, object] = {
        "applicationId": report.application_id,
        "queryName": report.query_name,
        "queryId": report.query_id,
        "elapsedMs": report.elapsed_ms,
    }
    parts = [f"{name}={value}" for name, value in values.items() if value is not None]
    attempts = [f"{one.partition}.{one.attempt}@{one.host}" for one in report.failed_attempts]
    if attempts:
        parts.append(f"failedAttempts={named(attempts, _LOGGED_ATTEMPTS)}")
    answers = [f"broker {one.id}: {one.last_answer}" for one in report.brokers if one.last_answer]
    if answers:
        parts.append(f"lastAnswers={named(answers, _LOGGED_ATTEMPTS)}")
    error = report.error
    if error is not None:
        parts.append(f"error={error.code} {error.message}" + f" ({error.hint})" * bool(error.hint))
    return " ".join(parts)


def _offsets(report: WriteReport) -> str:
    shown = report.partitions[:LOGGED_PARTITIONS]
    parts = [f"{p.topic}-{p.partition}:{p.first_offset}..{p.last_offset}" for p in shown]
    more = len(report.partitions) + report.partitions_left_out - len(shown)
    if more:
        parts.append(f"+{more} more (reportPath and reportTopic have them)")
    return ",".join(parts) or "none"
