"""The report of one batch or micro-batch, version 1: the written rows, or the reason why no row was
written.

A :class:`WriteReport` describes its fields and their units, and makes the JSON of a report. The
JSON Schema (``write_report.schema.json`` in this folder) and docs/reports.md are generated from
these descriptions. ``report_of_batch.py`` computes the values, and ``destinations.py`` delivers the
report.

No field contains a secret, and no field contains data of a row. Version 1 may get new fields.
Removing a field, or changing its meaning, needs version 2.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from spark_kafka_sink.base.described_fields import Described, as_json
from spark_kafka_sink.datasource.report.waits import explained
from spark_kafka_sink.datasource.write.letter_counts import LetterCount
from spark_kafka_sink.producer.metrics.produce_report import LATENCY_BOUNDS_MS

REPORT_VERSION = 1

#: The limit of a report's size, so that it fits into a record of a topic with Kafka's defaults. A
#: larger report omits partitions, and ``partitions_left_out`` counts them.
MAX_JSON_BYTES = 900_000

#: The sum of checksums is a number modulo 2^64.
CHECKSUMS = 2**64

_MS = "ms"
EPOCH_MS = "ms since 1970-01-01 UTC"


class WriteOutcome(StrEnum):
    """The outcome of a batch: whether its rows are in Kafka."""

    #: deliveryGuarantee=at-least-once or none: every row is acknowledged.
    ACKNOWLEDGED = "acknowledged"
    #: The next four have the names of ``Commit`` (``transactions/results.py``), with exactly-once.
    #: Every row is committed.
    COMMITTED = "committed"
    #: An earlier write of the same batch is committed, and this write has added no row.
    DONE_BEFORE = "done before"
    #: The batch has no rows.
    NO_ROWS = "no rows"
    #: A write of a ``transaction`` block: its rows are committed at the end of the block.
    PREPARED = "prepared, to be decided with other writes"
    #: The commit raised an error, which is in the field ``error``.
    FAILED = "failed"
    #: It is unknown whether the batch is committed. The next start or an operator resolves it.
    UNKNOWN = "unknown"
    #: A part of the rows is committed, because some of the transactions were aborted.
    PARTIAL = "partial"
    #: The batch was aborted before its commit: a task failed, the query was stopped, or the code in
    #: a ``transaction`` block raised an exception.
    ABORTED = "aborted"

    @property
    def is_success(self) -> bool:
        """Whether the write succeeded: every row of the batch is in Kafka, or is prepared. Prepared
        rows of a ``transaction`` block become visible at the end of the block, together with its
        other writes.
        """
        return self in _SUCCESSES

    @property
    def certainty(self) -> int:
        """Which of two reports with the same id counts: the report whose outcome has the larger
        number. The order of the two reports does not matter.

        A hanging commit can end after its abort, so ``aborted`` and ``unknown`` can be wrong. In
        the topic, a batch that is ``partial`` can also have a report ``committed``.
        """
        if self is WriteOutcome.PARTIAL:
            return len(_UNCERTAIN) + 1
        return _UNCERTAIN.index(self) if self in _UNCERTAIN else len(_UNCERTAIN)


#: The least certain outcome first. ``prepared`` does not show the end of the block.
_UNCERTAIN = (WriteOutcome.PREPARED, WriteOutcome.ABORTED, WriteOutcome.UNKNOWN)
_SUCCESSES = frozenset(
    {
        WriteOutcome.ACKNOWLEDGED,
        WriteOutcome.COMMITTED,
        WriteOutcome.DONE_BEFORE,
        WriteOutcome.NO_ROWS,
        WriteOutcome.PREPARED,
    }
)


def certainty_of(report: Mapping[str, object]) -> int:
    """The certainty of the outcome of ``report``, the JSON of a report. -1 if it has no outcome of
    this version.
    """
    try:
        return WriteOutcome(str(report.get("outcome"))).certainty
    except ValueError:
        return -1


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """The error that ended a batch or a task attempt: code, text and advice."""

    code: Annotated[
        str,
        Described("The error's code, such as `KP0301`; `kprod explain` shows its meaning."),
    ]
    message: Annotated[str, Described("The text of the error.")]
    hint: Annotated[str, Described("The advice; empty if there is none.")]


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """The Produce requests to one broker, summed over all finished tasks. In the report of an
    aborted batch, the sums also cover the failed attempts that left a report.
    """

    id: Annotated[
        int,
        Described(
            "The id of the broker. The entry with the id -1 is for record batches whose"
            " partition had no known leader."
        ),
    ]
    requests: Annotated[
        int, Described("Produce requests to which the broker responded.", "requests")
    ]
    mean_latency_ms: Annotated[float, Described("Mean time from a request to its response.", _MS)]
    max_latency_ms: Annotated[int, Described("Longest time from a request to its response.", _MS)]
    latencies: Annotated[
        tuple[int, ...],
        Described(
            "The number of requests in each interval of latency. The intervals end at "
            + ", ".join(str(bound) for bound in LATENCY_BOUNDS_MS)
            + " ms. The last interval has no end.",
            "requests",
        ),
    ]
    last_answer: Annotated[
        str,
        Described(
            "The last response that caused a retry, or the last failure of a connection to"
            " the broker. Empty if there was neither."
        ),
    ]

    def merge(self, other: BrokerReport) -> BrokerReport:
        """Adds the requests of ``other``, a report about the same broker. The result has the last
        response of ``other``, if ``other`` has one.
        """
        requests = self.requests + other.requests
        total_ms = self.requests * self.mean_latency_ms + other.requests * other.mean_latency_ms
        return BrokerReport(
            self.id,
            requests,
            round(total_ms / requests, 3) if requests else 0.0,
            max(self.max_latency_ms, other.max_latency_ms),
            tuple(map(operator.add, self.latencies, other.latencies)),
            other.last_answer or self.last_answer,
        )


@dataclass(frozen=True, slots=True)
class TopicReport:
    """The rows and bytes that were written to one topic."""

    topic: Annotated[str, Described("The topic.")]
    rows: Annotated[
        int,
        Described("Rows that brokers have acknowledged. With acks=0: rows that were sent.", "rows"),
    ]
    bytes: Annotated[
        int, Described("Bytes of the acknowledged record batches, after compression.", "bytes")
    ]
    topic_id: Annotated[
        str | None,
        Described("Kafka's id of the topic; null if the brokers are older than 2.8."),
    ] = None


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The first and the last offset that were written to one topic partition. Rows of other
    producers may be between them.
    """

    topic: Annotated[str, Described("The topic.")]
    partition: Annotated[int, Described("The partition.")]
    first_offset: Annotated[
        int, Described("The lowest offset of the acknowledged rows of this write.", "offset")
    ]
    last_offset: Annotated[
        int,
        Described(
            "The highest offset of the acknowledged rows of this write. Rows of other"
            " producers may be between firstOffset and lastOffset.",
            "offset",
        ),
    ]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The figures of a write, its dead letters included. An audit compares them with the topics."""

    rows: Annotated[
        tuple[int, ...],
        Described(
            "For each item of `partitions`, in the same order: the number of acknowledged rows.",
            "rows",
        ),
    ]
    checksums: Annotated[
        tuple[str, ...],
        Described(
            "For each item of `partitions`, in the same order: the checksum of the"
            " acknowledged record batches. It is the sum of their CRC-32C checksums, modulo"
            " 2^64, in hexadecimal digits."
        ),
    ]
    rows_without_offset: Annotated[
        int,
        Described(
            "Rows whose offsets are not known, because of acks=0, or because the response to"
            " their record batch was lost. Such rows may be below firstOffset or above"
            " lastOffset.",
            "rows",
        ),
    ]
    producers: Annotated[
        tuple[str, ...],
        Described(
            "The producer ids and epochs of the acknowledged record batches, such as"
            " `4001/7`. With exactly-once, they identify the rows of this write in a topic. With"
            " at-least-once, later writes can have the same ids and epochs. Without idempotence:"
            " `-1/-1`."
        ),
    ]


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The task that took longest, among the finished tasks of a batch."""

    partition: Annotated[
        int,
        Described("The index of the task, which is also the number of the DataFrame's partition."),
    ]
    attempt: Annotated[int, Described("The number of the attempt that succeeded, from 0.")]
    host: Annotated[str, Described("The executor's host.")]
    rows: Annotated[int, Described("Rows that the task wrote.", "rows")]
    elapsed_ms: Annotated[
        int, Described("Duration of the task, from its first read of the input to its end.", _MS)
    ]
    input_wait_ms: Annotated[
        int, Described("The part of elapsedMs that the task waited for Spark's rows.", _MS)
    ]


@dataclass(frozen=True, slots=True)
class DeadLettersReport:
    """The rows that can't be sent (errors.tolerance=all)."""

    topic: Annotated[str, Described("The topic of the dead letters.")]
    total: Annotated[
        int,
        Described("The number of dead letters.", "rows"),
    ]
    by_reason: Annotated[
        tuple[LetterCount, ...],
        Described("The number of dead letters for each reason, the largest number first."),
    ]


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt of a task. Spark runs the task again, or fails the batch."""

    partition: Annotated[
        int,
        Described("The index of the task, which is also the number of the DataFrame's partition."),
    ]
    attempt: Annotated[int, Described("The number of the attempt, from 0.")]
    host: Annotated[str, Described("The executor's host.")]
    rows: Annotated[int, Described("Rows of the attempt that brokers acknowledged.", "rows")]
    elapsed_ms: Annotated[int, Described("Time from the attempt's start to its failure.", _MS)]
    code: Annotated[str, Described("The error's code.")]
    message: Annotated[str, Described("The text of the error.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport:
    """The report of one batch or micro-batch: the written rows, or the reason why no row was
    written.

    Each run of a batch has one report. It is made at the commit, even if the commit fails. If there
    is no commit, it is made at the abort. Exception: if the run is stopped during its commit, the
    commit and the abort can both make a report with the same id. Sums cover only the tasks that
    have sent a commit message to the driver.
    """

    report_version: Annotated[int, Described("The version of this format: 1.")] = REPORT_VERSION
    report_id: Annotated[
        str,
        Described(
            "The id of the report. It is the same at all destinations, and in [two reports of"
            " one run](#two-reports-of-one-run)."
        ),
    ]
    written_at_ms: Annotated[
        int,
        Described(
            "The time of the report: when the driver begins to commit or to abort the batch.",
            EPOCH_MS,
        ),
    ]
    outcome: Annotated[WriteOutcome, Described("The [outcome](#outcomes) of the batch.")]
    error: Annotated[
        ErrorReport | None,
        Described(
            "The reason why the batch failed. Null if the batch succeeded. If the report does"
            " not have the task's error, `code` is KP0505 ([causes](#why-a-batch-failed))."
        ),
    ]
    failed_attempts: Annotated[
        tuple[FailedAttempt, ...],
        Described(
            "The failed attempts of tasks whose errors are known, at most 100. A batch that"
            " succeeded can have failed attempts too."
        ),
    ] = ()
    lost_attempts: Annotated[
        int,
        Described(
            "The number of all attempts that were started before the successful attempt of their"
            " task. This number includes attempts without a reported error, for example if the"
            " executor or the Python worker was killed, or if a speculative attempt was faster.",
            "attempts",
        ),
    ] = 0

    # -- identity -----------------------------------------------------------------------------
    version: Annotated[str, Described("Version of spark-kafka-sink.")]
    spark_version: Annotated[str, Described("Version of PySpark on the driver.")]
    host: Annotated[str, Described("The driver's host.")]
    application_id: Annotated[
        str | None,
        Described("Spark's application id; null if it is unknown."),
    ]
    application_name: Annotated[str | None, Described("Spark's application name.")]
    query_id: Annotated[
        str | None,
        Described(
            "The streaming query's id; null in batch jobs. It can also be null for a"
            " micro-batch that you stopped, if the option checkpointLocation is not set."
        ),
    ]
    query_name: Annotated[str | None, Described("The streaming query's name, if it has one.")]
    run_id: Annotated[str | None, Described("The streaming query's run id; null in batch jobs.")]
    batch_id: Annotated[int | None, Described("The id of the micro-batch; null in batch jobs.")]
    parent_run: Annotated[
        str | None,
        Described(
            "The run of an orchestrator, such as Airflow, that started the job. The value is"
            " `NAMESPACE/NAME/RUNID`, from Spark's properties"
            " spark.openlineage.parentJobNamespace, spark.openlineage.parentJobName and"
            " spark.openlineage.parentRunId. Null if these are not set."
        ),
    ]
    options_fingerprint: Annotated[
        str,
        Described(
            "A hash of the options of the write, to find writes with the same options. It"
            " leaves out txnVersion, and all options of TLS, SASL and the schema registry's client."
        ),
    ]
    delivery_guarantee: Annotated[
        str,
        Described(
            "The guarantee of the write: `at-least-once`, `exactly-once` or `none`. If other"
            " options switch idempotence off, the value is `none`."
        ),
    ]
    transactional_id_prefix: Annotated[
        str | None,
        Described(
            "The option transactionalIdPrefix, or its default `kprod`; null without exactly-once."
        ),
    ]
    txn_app_id: Annotated[
        str | None,
        Described(
            "The option txnAppId. If the write uses this package's function foreach_batch or"
            " transaction, the value is the first argument of the function."
        ),
    ]
    txn_version: Annotated[
        int | None,
        Described(
            "The option txnVersion. If the write uses the function foreach_batch or transaction,"
            " the value is the id of the micro-batch."
        ),
    ]
    cluster_id: Annotated[str | None, Described("Kafka's cluster id; null when nothing was sent.")]
    topics: Annotated[
        tuple[str, ...],
        Described(
            "The option topic, and all topics that got rows. At most 100 topics, in the order"
            " of their names."
        ),
    ]

    topic_counts: Annotated[
        tuple[TopicReport, ...],
        Described(
            "Rows and bytes of each topic. If more than 100 topics got rows, the list has the"
            " 100 topics with the most rows."
        ),
    ]
    bootstrap_servers: Annotated[
        tuple[str, ...], Described("The first 100 addresses of kafka.bootstrap.servers.")
    ]

    # -- tasks --------------------------------------------------------------------------------
    tasks: Annotated[int, Described("The number of tasks of the batch.", "tasks")]
    unfinished_tasks: Annotated[
        int,
        Described(
            "The number of tasks without a result: they failed, were stopped, or never ran.",
            "tasks",
        ),
    ]
    unfinished: Annotated[tuple[int, ...], Described("The indices of these tasks, at most 100.")]
    transactions: Annotated[
        int,
        Described(
            "The number of transactions that tasks have written. A task without rows has no"
            " transaction.",
            "transactions",
        ),
    ]
    oldest_transaction_ms: Annotated[
        int | None,
        Described(
            "Duration from the first row of the oldest transaction to writtenAtMs; null if there"
            " is no transaction. Brokers abort a transaction that is older than"
            " transactionTimeoutMs.",
            _MS,
        ),
    ]
    transaction_timeout_ms: Annotated[
        int | None,
        Described("kafka.transaction.timeout.ms; null without exactly-once.", _MS),
    ]
    longest_task_ms: Annotated[int, Described("Duration of the slowest task.", _MS)]
    median_task_ms: Annotated[int, Described("Median duration of the tasks that wrote rows.", _MS)]
    task_skew: Annotated[
        float,
        Described("longestTaskMs divided by medianTaskMs.", "ratio"),
    ]
    row_skew: Annotated[
        float,
        Described(
            "The largest number of rows of a task, divided by the mean of all tasks that"
            " wrote rows.",
            "ratio",
        ),
    ]
    partition_skew: Annotated[
        float,
        Described(
            "The largest number of rows of a Kafka partition, divided by the mean of all"
            " partitions that got rows.",
            "ratio",
        ),
    ]
    largest_partition: Annotated[
        str | None, Described("The Kafka partition with the most rows; null without rows.")
    ]
    slowest_task: Annotated[TaskReport | None, Described("The task that took longest.")]

    # -- rows ---------------------------------------------------------------------------------
    rows: Annotated[
        int,
        Described(
            "Rows that brokers have acknowledged, including addedRows. Dead letters don't"
            " count. With acks=0: rows that were sent.",
            "rows",
        ),
    ]
    rows_in: Annotated[
        int,
        Described(
            "Rows that Spark passed to the tasks. The figures of a batch agree: rows +"
            " skippedRows + the dead letters = rowsIn + addedRows.",
            "rows",
        ),
    ] = 0
    dead_letters: Annotated[
        DeadLettersReport | None,
        Described(
            "The [dead letters](dead-letters.md): rows that can't be sent, and are written to"
            " another topic. Null with errors.tolerance=none."
        ),
    ] = None
    skipped_rows: Annotated[
        int,
        Described(
            "Rows that are not sent. With the option onNullValue=skip, these are rows with a"
            " null value. With the option [changelog](changelogs.md), these are rows of updates: an"
            " update can have two rows, the row before the update and the row after it. If both"
            " have the same key, the row before the update is not sent.",
            "rows",
        ),
    ] = 0
    added_rows: Annotated[
        int,
        Described(
            "Records that the sink adds in a write with the option [changelog](changelogs.md)."
            " Input in Debezium's format (changelog=debezium) adds 1 record for each update that"
            " changes the key. Output in Debezium's format (changelog.mode=debezium) adds 1 record"
            " for each update that changes the key, and 1 record for each delete. With both"
            " options, an update that changes the key adds 2 records.",
            "rows",
        ),
    ] = 0
    bytes: Annotated[
        int,
        Described(
            "Bytes of the acknowledged record batches, after compression. With acks=0: bytes"
            " that were sent.",
            "bytes",
        ),
    ]
    bytes_before_compression: Annotated[
        int, Described("Bytes of these record batches before compression.", "bytes")
    ]
    compression_rate: Annotated[
        float,
        Described("bytes divided by bytesBeforeCompression.", "ratio"),
    ]
    rows_per_second: Annotated[
        float, Described("Rows per second: rows divided by elapsedMs.", "rows/s")
    ]
    bytes_per_second: Annotated[
        float, Described("Bytes per second: bytes divided by elapsedMs.", "bytes/s")
    ]
    batches: Annotated[
        int,
        Described(
            "The number of acknowledged record batches. A record batch that was sent again"
            " counts once.",
            "batches",
        ),
    ]
    mean_batch_size: Annotated[
        int, Described("Average size of a record batch after compression.", "bytes")
    ]
    requests: Annotated[
        int,
        Described("The number of Produce requests.", "requests"),
    ]
    retries: Annotated[
        int,
        Described(
            "The number of times that a record batch was sent again. Retries after the error"
            " CONCURRENT_TRANSACTIONS don't count.",
            "batches",
        ),
    ]
    retried_rows: Annotated[
        int, Described("Rows in the record batches that were sent again.", "rows")
    ]
    splits: Annotated[
        int,
        Described(
            "Record batches that were split, because brokers refused their size"
            " (MESSAGE_TOO_LARGE).",
            "batches",
        ),
    ]
    duplicates: Annotated[
        int,
        Described(
            "Record batches that were sent again, although the broker already had them and only its"
            " response was lost. The broker keeps only one copy.",
            "batches",
        ),
    ]

    # -- time ---------------------------------------------------------------------------------
    elapsed_ms: Annotated[
        int,
        Described(
            "Duration from the start of the first task to writtenAtMs. With the outcome"
            " `aborted`: from the planning of the batch, which is earlier.",
            _MS,
        ),
    ]
    commit_ms: Annotated[
        int | None,
        Described(
            "Duration of the commit, which begins at writtenAtMs. Null if there was no"
            " commit. Also null in a record of reportTopic with the outcome `committed`.",
            _MS,
        ),
    ]
    throttle_ms: Annotated[
        int,
        Described(
            "Time by which brokers delayed their responses because of quotas, summed over"
            " responses.",
            _MS,
        ),
    ]
    mean_queue_ms: Annotated[
        float,
        Described(
            "The mean queue time of the record batches: from the first row of a record batch"
            " until the record batch is sent for the last time.",
            _MS,
        ),
    ]
    max_queue_ms: Annotated[
        int,
        Described(
            "The longest queue time of a record batch. If a record batch is not acknowledged"
            " within kafka.delivery.timeout.ms after its first row, its task fails.",
            _MS,
        ),
    ]
    input_wait_ms: Annotated[
        int, Described("Time that tasks waited for Spark's next rows, summed over tasks.", _MS)
    ]
    buffer_wait_ms: Annotated[
        int,
        Described(
            "Time that tasks waited because buffer.memory was used up, summed over tasks.", _MS
        ),
    ]
    rate_wait_ms: Annotated[
        int,
        Described(
            "Time that tasks waited because of maxRecordsPerSecond or maxBytesPerSecond, summed"
            " over tasks.",
            _MS,
        ),
    ] = 0
    metadata_wait_ms: Annotated[
        int, Described("Time that tasks waited for a topic's metadata, summed over tasks.", _MS)
    ]
    broker_wait_ms: Annotated[
        int,
        Described(
            "Time that tasks waited for acknowledgements after their last row, summed over tasks.",
            _MS,
        ),
    ]

    # -- brokers and partitions ---------------------------------------------------------------
    connections: Annotated[
        int,
        Described(
            "The number of connections that tasks have opened.",
            "connections",
        ),
    ]
    brokers: Annotated[
        tuple[BrokerReport, ...],
        Described(
            "The brokers that responded, or to which a connection failed, in the order of"
            " their ids."
        ),
    ]
    partitions: Annotated[
        tuple[PartitionReport, ...],
        Described("Each Kafka partition that got rows, with its offsets; empty with acks=0."),
    ]
    partitions_left_out: Annotated[
        int,
        Described(
            "The number of partitions that are left out, because the report would be larger"
            f" than {MAX_JSON_BYTES} bytes.",
            "partitions",
        ),
    ] = 0

    audit: Annotated[
        AuditReport | None,
        Described(
            "The figures that `kprod audit` compares with the topics. Null if they would make the"
            f" report larger than {MAX_JSON_BYTES} bytes ([effect on an"
            " audit](audit.md#reports-without-all-figures))."
        ),
    ] = None

    @property
    def slowest_broker(self) -> BrokerReport | None:
        """The broker with the longest mean latency. None if no broker responded."""
        return max(self.brokers, key=lambda one: one.mean_latency_ms, default=None)

    def explain(self) -> str:
        """Describes the write in a short text. If the write failed, the text has the cause and the
        remedy. If the write succeeded, the text has the longest wait of the tasks, and names the
        places to look for the cause of this wait.
        """
        return explained(json.loads(self.json()))

    def json(self) -> str:
        """The report as a line of JSON of at most MAX_JSON_BYTES bytes (it is ASCII).

        The line is cached, because several destinations may need it.
        """
        global _last
        if _last is None or _last[0] is not self:
            _last = (self, self._json())
        return _last[1]

    def _json(self) -> str:
        report = self
        text = _dumps(report)
        if len(text) > MAX_JSON_BYTES:
            # The audit is left out as a whole, because a part of it would be useless.
            report = replace(report, audit=None)
            text = _dumps(report)
        while len(text) > MAX_JSON_BYTES and report.partitions:
            # The number to leave out is estimated by their mean size, with one percent more.
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
