"""What one batch or micro-batch wrote, or why it was not written: report version 1.

Owns: :class:`WriteReport` and its fields, their meaning and units, and the JSON of a report. The
JSON Schema (``write_report.schema.json`` in this folder) and docs/reports.md are generated.
Never: how the values are computed (``report_of_batch.py``), where a report goes
(``destinations.py``).

No field has data of a row or a secret. A field may be added in version 1; one that
is removed, or changes its meaning, needs version 2.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from spark_kafka_sink.datasource.described_fields import Described, as_json
from spark_kafka_sink.datasource.report.waits import explained
from spark_kafka_sink.datasource.write.letter_counts import LetterCount
from spark_kafka_sink.producer.metrics.produce_report import LATENCY_BOUNDS_MS

REPORT_VERSION = 1

#: The limit of a report's size, so that it fits into a record of a topic with Kafka's defaults. Of
#: a larger one partitions are omitted, and ``partitions_left_out`` counts them.
MAX_JSON_BYTES = 900_000

_MS = "ms"
EPOCH_MS = "ms since 1970-01-01 UTC"


class Outcome(StrEnum):
    """The outcome of a batch's rows."""

    #: deliveryGuarantee=at-least-once or none: every row is acknowledged.
    ACKNOWLEDGED = "acknowledged"
    #: exactly-once, as ``transactions/committer.py`` ``Commit`` has them.
    COMMITTED = "committed"
    DONE_BEFORE = "done before"
    NO_ROWS = "no rows"
    PREPARED = "prepared, to be decided with other writes"
    #: The commit raised: see ``error``.
    FAILED = "failed"
    #: It is unknown whether the batch is committed; the next start resolves it.
    UNKNOWN = "unknown"
    #: Partly committed: the broker aborted some of the transactions.
    PARTIAL = "partial"
    #: Spark aborted the batch before its commit: a task failed, or the query was stopped.
    ABORTED = "aborted"

    @property
    def is_success(self) -> bool:
        """Every row of the batch is in Kafka, or is decided together with other writes."""
        return self in _SUCCESSES


_SUCCESSES = frozenset(
    {
        Outcome.ACKNOWLEDGED,
        Outcome.COMMITTED,
        Outcome.DONE_BEFORE,
        Outcome.NO_ROWS,
        Outcome.PREPARED,
    }
)


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """Why a batch failed: an error of this package, as its log line has it."""

    code: Annotated[
        str,
        Described("The error's code, `KP0301` for example; `kprod explain` says what it means."),
    ]
    message: Annotated[str, Described("What failed, and where.")]
    hint: Annotated[str, Described("What to do; empty when there is nothing to say.")]


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """One broker's Produce requests, over all tasks that finished or left their error."""

    id: Annotated[int, Described("The node id; -1 where a batch had no known leader.")]
    requests: Annotated[int, Described("Produce requests that it responded to.", "requests")]
    mean_latency_ms: Annotated[float, Described("Mean time from a request to its response.", _MS)]
    max_latency_ms: Annotated[int, Described("Longest time from a request to its response.", _MS)]
    latencies: Annotated[
        tuple[int, ...],
        Described(
            "Requests by that time: up to "
            + ", ".join(str(bound) for bound in LATENCY_BOUNDS_MS)
            + " ms, and longer ones.",
            "requests",
        ),
    ]
    last_answer: Annotated[
        str,
        Described(
            "The last response, or failure of the connection, that caused a retry; empty when there"
            " was none."
        ),
    ]


@dataclass(frozen=True, slots=True)
class TopicReport:
    """What was written to one topic."""

    topic: Annotated[str, Described("The topic.")]
    rows: Annotated[int, Described("Rows that brokers have acknowledged.", "rows")]
    bytes: Annotated[int, Described("Record batches on the wire, after compression.", "bytes")]


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The offsets of one topic partition; rows of other producers may be between them."""

    topic: Annotated[str, Described("The topic.")]
    partition: Annotated[int, Described("The partition.")]
    first_offset: Annotated[
        int, Described("The first offset in any task's acknowledgements.", "offset")
    ]
    last_offset: Annotated[
        int, Described("The last offset in any task's acknowledgements.", "offset")
    ]


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The task that took longest."""

    partition: Annotated[int, Described("The DataFrame's partition, which is the task's index.")]
    attempt: Annotated[int, Described("The attempt that was finished, from 0.")]
    host: Annotated[str, Described("The executor's host.")]
    rows: Annotated[int, Described("Rows that it wrote.", "rows")]
    elapsed_ms: Annotated[int, Described("From its first read of the input to its end.", _MS)]
    input_wait_ms: Annotated[
        int, Described("Of that, how long it waited for Spark's next rows.", _MS)
    ]


@dataclass(frozen=True, slots=True)
class DeadLettersReport:
    """The rows that can't be sent (errors.tolerance=all)."""

    topic: Annotated[str, Described("The topic that has them.")]
    total: Annotated[int, Described("How many rows.", "rows")]
    by_reason: Annotated[
        tuple[LetterCount, ...], Described("By reason, those with most rows first.")
    ]


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt of a task that failed; Spark runs the task again, or gives the batch up."""

    partition: Annotated[int, Described("Its partition of the DataFrame: the task's index.")]
    attempt: Annotated[int, Described("The attempt, from 0.")]
    host: Annotated[str, Described("The executor's host.")]
    rows: Annotated[int, Described("Rows of it that brokers acknowledged.", "rows")]
    elapsed_ms: Annotated[int, Described("From its begin to its failure.", _MS)]
    code: Annotated[str, Described("The error's code.")]
    message: Annotated[str, Described("What failed, and where.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport:
    """What one batch or micro-batch wrote, or why it was not written.

    Sums are over the tasks whose commit messages the driver has. A batch has one report for each
    run by Spark: of its commit, successful or not, or, without a commit, of its abort.
    """

    report_version: Annotated[int, Described("Version of this schema.")] = REPORT_VERSION
    report_id: Annotated[str, Described("Unique for each report; the same at all destinations.")]
    written_at_ms: Annotated[
        int, Described("When the report was made: the commit, or the abort, began.", EPOCH_MS)
    ]
    outcome: Annotated[Outcome, Described("What became of the rows.")]
    error: Annotated[
        ErrorReport | None,
        Described(
            "Why the batch failed: the commit's error, or that of the attempt that ended the batch;"
            " null when it succeeded. It is KP0505 when no attempt left an error: the write was "
            "stopped, an executor was killed, or does not share the directory of reportPath with "
            "the driver."
        ),
    ]
    failed_attempts: Annotated[
        tuple[FailedAttempt, ...],
        Described("Attempts of tasks that failed and left their error, at most 100 of them."),
    ] = ()

    # -- identity -----------------------------------------------------------------------------
    version: Annotated[str, Described("Version of spark-kafka-sink.")]
    spark_version: Annotated[str, Described("Version of PySpark on the driver.")]
    host: Annotated[str, Described("The driver's host.")]
    application_id: Annotated[
        str | None,
        Described(
            "Spark's application id; null when no task left it and the driver does not know it."
        ),
    ]
    application_name: Annotated[str | None, Described("Spark's application name.")]
    query_id: Annotated[str | None, Described("The streaming query's id; null in batch jobs.")]
    query_name: Annotated[str | None, Described("The streaming query's name, if it has one.")]
    run_id: Annotated[str | None, Described("The streaming query's run id; null in batch jobs.")]
    batch_id: Annotated[int | None, Described("The micro-batch; null in batch jobs.")]
    parent_run: Annotated[
        str | None,
        Described(
            "An orchestrator's run, as Spark's properties spark.openlineage.parentJobNamespace,"
            " parentJobName and parentRunId have it, with a slash between them; null without them."
        ),
    ]
    options_fingerprint: Annotated[
        str,
        Described(
            "Equal for equal options. Options of TLS and SASL are not in it, nor txnVersion."
        ),
    ]
    delivery_guarantee: Annotated[str, Described("The option deliveryGuarantee.")]
    transactional_id_prefix: Annotated[
        str | None,
        Described("The option transactionalIdPrefix, or its default; null without exactly-once."),
    ]
    txn_app_id: Annotated[
        str | None, Described("The option txnAppId, or the name of foreach_batch.")
    ]
    txn_version: Annotated[
        int | None, Described("The option txnVersion, or foreach_batch's micro-batch.")
    ]
    cluster_id: Annotated[str | None, Described("Kafka's cluster id; null when nothing was sent.")]
    topics: Annotated[
        tuple[str, ...], Described("Topics that were written to, at most 100 of them.")
    ]

    topic_counts: Annotated[
        tuple[TopicReport, ...],
        Described("Rows and bytes of the topics with most rows, at most 100 of them, by name."),
    ]
    bootstrap_servers: Annotated[
        tuple[str, ...], Described("kafka.bootstrap.servers, the first 100 of them.")
    ]

    # -- tasks --------------------------------------------------------------------------------
    tasks: Annotated[int, Described("Tasks of the batch.", "tasks")]
    unfinished_tasks: Annotated[
        int,
        Described(
            "Tasks without a commit message: they failed, were stopped, or never ran.", "tasks"
        ),
    ]
    unfinished: Annotated[tuple[int, ...], Described("Their indices, at most 100 of them.")]
    transactions: Annotated[
        int, Described("Transactions that tasks have prepared.", "transactions")
    ]
    oldest_transaction_ms: Annotated[
        int | None,
        Described("From the first row of the oldest of them to writtenAtMs; null: none.", _MS),
    ]
    transaction_timeout_ms: Annotated[
        int | None,
        Described("kafka.transaction.timeout.ms; null without exactly-once.", _MS),
    ]
    longest_task_ms: Annotated[int, Described("Time of the task that took longest.", _MS)]
    median_task_ms: Annotated[
        int, Described("Time of the task in the middle, of tasks with rows.", _MS)
    ]
    task_skew: Annotated[
        float,
        Described("longestTaskMs / medianTaskMs: 1 when all tasks took the same time.", "ratio"),
    ]
    row_skew: Annotated[
        float,
        Described(
            "Most rows of a task / the mean over tasks with rows: 1 when all had the same.",
            "ratio",
        ),
    ]
    partition_skew: Annotated[
        float,
        Described(
            "Most rows of a Kafka partition / the mean over partitions with rows: 1 when all had"
            " the same.",
            "ratio",
        ),
    ]
    largest_partition: Annotated[
        str | None, Described("The Kafka partition with most rows; null without rows.")
    ]
    slowest_task: Annotated[TaskReport | None, Described("The task that took longest.")]

    # -- rows ---------------------------------------------------------------------------------
    rows: Annotated[
        int, Described("Rows that brokers have acknowledged, without dead letters.", "rows")
    ]
    rows_in: Annotated[
        int,
        Described(
            "Rows that Spark passed to the tasks: rows, skippedRows and deadLetters.total.",
            "rows",
        ),
    ] = 0
    dead_letters: Annotated[
        DeadLettersReport | None,
        Described("Rows that can't be sent; null with errors.tolerance=none."),
    ] = None
    skipped_rows: Annotated[
        int, Described("Rows with a null value that onNullValue=skip left out.", "rows")
    ] = 0
    bytes: Annotated[int, Described("Record batches on the wire, after compression.", "bytes")]
    bytes_before_compression: Annotated[int, Described("The same before compression.", "bytes")]
    compression_rate: Annotated[float, Described("bytes / bytesBeforeCompression.", "ratio")]
    rows_per_second: Annotated[float, Described("rows / elapsedMs.", "rows/s")]
    bytes_per_second: Annotated[float, Described("bytes / elapsedMs.", "bytes/s")]
    batches: Annotated[int, Described("Record batches, each counted once.", "batches")]
    mean_batch_size: Annotated[
        int, Described("Bytes on the wire of a record batch, on average.", "bytes")
    ]
    requests: Annotated[int, Described("Produce requests.", "requests")]
    retries: Annotated[int, Described("Record batches that were sent again.", "batches")]
    retried_rows: Annotated[int, Described("Rows in these.", "rows")]
    splits: Annotated[
        int, Described("Record batches that were split (MESSAGE_TOO_LARGE).", "batches")
    ]
    duplicates: Annotated[
        int,
        Described(
            "Record batches that a broker had already, and kept once (a retry whose first"
            " response was lost).",
            "batches",
        ),
    ]

    # -- time ---------------------------------------------------------------------------------
    elapsed_ms: Annotated[int, Described("From the first task's begin to writtenAtMs.", _MS)]
    commit_ms: Annotated[
        int | None,
        Described(
            "What the commit took after that; null without one, and in the record of reportTopic"
            " that is a part of it.",
            _MS,
        ),
    ]
    throttle_ms: Annotated[
        int, Described("Throttling that brokers imposed, summed over responses.", _MS)
    ]
    mean_queue_ms: Annotated[
        float, Described("From a record batch's first row until it was sent, on average.", _MS)
    ]
    max_queue_ms: Annotated[
        int, Described("The same, the longest; at kafka.delivery.timeout.ms it expires.", _MS)
    ]
    input_wait_ms: Annotated[
        int, Described("Waiting for Spark's next rows, summed over tasks.", _MS)
    ]
    buffer_wait_ms: Annotated[
        int, Described("Waiting for memory (buffer.memory was used up), summed over tasks.", _MS)
    ]
    rate_wait_ms: Annotated[
        int,
        Described(
            "Waiting because of maxRecordsPerSecond or maxBytesPerSecond, summed over tasks.", _MS
        ),
    ] = 0
    metadata_wait_ms: Annotated[
        int, Described("Waiting for a topic's metadata, summed over tasks.", _MS)
    ]
    broker_wait_ms: Annotated[
        int, Described("Waiting for acknowledgements after the last row, summed over tasks.", _MS)
    ]

    # -- brokers and partitions ---------------------------------------------------------------
    connections: Annotated[
        int,
        Described(
            "Connections that tasks have opened, those to coordinators among them.", "connections"
        ),
    ]
    brokers: Annotated[tuple[BrokerReport, ...], Described("Every broker that responded, by id.")]
    partitions: Annotated[
        tuple[PartitionReport, ...],
        Described("The offsets of every partition, by topic and partition (none with acks=0)."),
    ]
    partitions_left_out: Annotated[
        int,
        Described(
            f"Partitions that were left out so that a report stays below {MAX_JSON_BYTES} bytes.",
            "partitions",
        ),
    ] = 0

    @property
    def slowest_broker(self) -> BrokerReport | None:
        """The broker with the longest mean latency, or None when none responded."""
        return max(self.brokers, key=lambda one: one.mean_latency_ms, default=None)

    def explain(self) -> str:
        """Why the batch failed and what to do, or what its tasks waited for most and where to look:
        a sentence.
        """
        return explained(json.loads(self.json()))

    def json(self) -> str:
        """One line of JSON of at most MAX_JSON_BYTES bytes (it is ASCII).

        The last one is cached, for several destinations.
        """
        global _last
        if _last is None or _last[0] is not self:
            _last = (self, self._json())
        return _last[1]

    def _json(self) -> str:
        text = _dumps(self)
        report = self
        while len(text) > MAX_JSON_BYTES and report.partitions:
            # By their mean size, and one percent more: at most a few rounds.
            count = len(report.partitions)
            over = (len(text) - MAX_JSON_BYTES) / len(text)
            kept = min(count - 1, int(count * (1 - over) * 0.99))
            report = replace(
                report,
                partitions=report.partitions[:kept],
                partitions_left_out=report.partitions_left_out + count - kept,
            )
            text = _dumps(report)
        return text


#: The last report that was serialized, and its JSON. Thread-safe: a lost update costs a repetition.
_last: tuple[WriteReport, str] | None = None


def _dumps(report: WriteReport) -> str:
    return json.dumps(as_json(report), separators=(",", ":"))
