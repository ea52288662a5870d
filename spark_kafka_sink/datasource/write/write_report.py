"""The write report: one line on the driver after a commit, and the same as JSON on request.

Owns: :class:`WriteReport` (the sum of a batch's commit messages), its log line and its JSON, and
the append to ``reportPath``. Never: the decision that a batch is committed; an error over one that
is: a report that can't be written is a warning, because the rows are in Kafka.

The JSON is one object a line (JSON Lines), appended: a stream adds a line for every micro-batch,
and a job that runs every hour keeps its history in one file. The path is local to the driver.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from spark_kafka_sink import __version__
from spark_kafka_sink.config.sink_config import DeliveryGuarantee
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import ConfigError, warn
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.security.allow_lists import check_report_path
from spark_kafka_sink.security.local_files import UnusableFileError, append_line

_log = logging.getLogger(__name__)

#: The outcome of a write without transactions.
ACKNOWLEDGED = "acknowledged"

#: Partitions that the log line names; the JSON has them all.
LOGGED_PARTITIONS = 20


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """One broker's Produce requests, over all tasks; latencies in milliseconds."""

    id: int
    requests: int
    mean_latency_ms: float
    max_latency_ms: int


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What one batch or micro-batch wrote. ``batch_id`` -1 outside streams.

    ``produced`` is the merge of what the tasks' producers counted: sums, and the largest of maxima.
    Its offsets span, per topic partition, the first and the last offset that any task was told;
    rows of other producers may lie between.
    """

    tasks: int
    longest_task_ms: int
    query_id: str
    batch_id: int
    produced: ProduceReport
    #: deliveryGuarantee, the number of transactions, and what became of them.
    guarantee: str = "at-least-once"
    transactions: int = 0
    outcome: str = ACKNOWLEDGED

    @classmethod
    def of(
        cls,
        messages: Iterable[TaskCommitMessage],
        guarantee: str = "at-least-once",
        outcome: str = ACKNOWLEDGED,
    ) -> WriteReport:
        """The sum of ``messages``, which ``checked_messages`` has checked. ``outcome`` is what
        brokers did with the rows: acknowledge them, or with exactly-once a ``Commit``'s value.
        """
        tasks = tuple(messages)
        return cls(
            tasks=len(tasks),
            longest_task_ms=max((m.elapsed_ms for m in tasks), default=0),
            query_id=next((m.query_id for m in tasks if m.query_id), ""),
            batch_id=next((m.batch_id for m in tasks if m.batch_id >= 0), -1),
            produced=ProduceReport.merge(m.produced() for m in tasks),
            guarantee=str(guarantee),
            transactions=sum(m.transaction is not None for m in tasks),
            outcome=outcome,
        )

    @property
    def nodes(self) -> tuple[NodeSummary, ...]:
        """Every broker that answered, by id."""
        return tuple(
            NodeSummary(
                node,
                seen.requests,
                seen.total_latency_ms / seen.requests if seen.requests else 0.0,
                seen.max_latency_ms,
            )
            for node, seen in sorted(self.produced.nodes.items())
        )

    @property
    def offsets(self) -> tuple[tuple[str, int, int, int], ...]:
        """(topic, partition, first, last), sorted."""
        return tuple((*tp, *span) for tp, span in sorted(self.produced.offsets.items()))

    @property
    def mean_batch_size(self) -> int:
        """Bytes on the wire of one record batch, on average."""
        return self.produced.bytes // self.produced.batches if self.produced.batches else 0

    @property
    def mean_queue_ms(self) -> float:
        """Milliseconds that a batch waited from its first row until it left, on average."""
        return self.produced.queue_ms / self.produced.batches if self.produced.batches else 0.0

    @property
    def compression_rate(self) -> float:
        """Bytes on the wire by bytes before compression, over all batches."""
        produced = self.produced
        return produced.bytes / produced.batch_bytes if produced.batch_bytes else 1.0

    @property
    def slowest_node(self) -> NodeSummary | None:
        """The broker with the longest mean latency, or None when nothing was sent."""
        return max(self.nodes, key=lambda node: node.mean_latency_ms, default=None)

    def line(self) -> str:
        """The report as one line of ``name=value``."""
        return "kprod wrote " + " ".join(f"{n}={value}" for n, value in self.summary().items())

    def summary(self) -> dict[str, str]:
        """Names and values of the line, in its order."""
        slowest = self.slowest_node
        produced, offsets = self.produced, self.offsets
        shown = offsets[:LOGGED_PARTITIONS]
        parts = [f"{t}-{p}:{first}..{last}" for t, p, first, last in shown]
        if len(shown) < len(offsets):
            parts.append(f"+{len(offsets) - len(shown)} more")
        values: dict[str, object] = {
            "rows": produced.rows,
            "bytes": produced.bytes,
            "batches": produced.batches,
            "meanBatchSize": self.mean_batch_size,
            "requests": produced.requests,
            "retries": produced.retries,
            "splits": produced.splits,
            "duplicates": produced.duplicates,
            "throttleMs": produced.throttle_ms,
            "bufferWaitMs": produced.buffer_wait_ms,
            "meanQueueMs": f"{self.mean_queue_ms:.1f}",
            "tasks": self.tasks,
            "longestTaskMs": self.longest_task_ms,
            "guarantee": self.guarantee,
            **self._ended(),
            "slowestBroker": "none"
            if slowest is None
            else f"{slowest.id}({slowest.mean_latency_ms:.1f}ms)",
            "offsets": ",".join(parts) or "none",
        }
        if self.query_id:
            values = {"queryId": self.query_id, "batchId": self.batch_id} | values
        return {name: str(value) for name, value in values.items()}

    def _ended(self) -> dict[str, object]:
        if self.guarantee != DeliveryGuarantee.EXACTLY_ONCE:
            return {}
        return {
            "transactions": self.transactions,
            "outcome": self.outcome.replace(" ", "-"),
        }

    def json(self, written_at_ms: int) -> str:
        """The report as one line of JSON; ``written_at_ms`` is wall time."""
        produced = self.produced
        return json.dumps(
            {
                "writtenAtMs": written_at_ms,
                "version": __version__,
                "queryId": self.query_id or None,
                "batchId": None if self.batch_id < 0 else self.batch_id,
                "tasks": self.tasks,
                "deliveryGuarantee": self.guarantee,
                "transactions": self.transactions,
                "outcome": self.outcome,
                "clusterId": produced.cluster_id,
                "rows": produced.rows,
                "bytes": produced.bytes,
                "bytesBeforeCompression": produced.batch_bytes,
                "compressionRate": round(self.compression_rate, 3),
                "batches": produced.batches,
                "meanBatchSize": self.mean_batch_size,
                "requests": produced.requests,
                "retries": produced.retries,
                "retriedRows": produced.retried_rows,
                "splits": produced.splits,
                "duplicates": produced.duplicates,
                "throttleMs": produced.throttle_ms,
                "meanQueueMs": round(self.mean_queue_ms, 3),
                "maxQueueMs": produced.max_queue_ms,
                "bufferWaitMs": produced.buffer_wait_ms,
                "metadataWaitMs": produced.metadata_wait_ms,
                "connections": produced.connections,
                "longestTaskMs": self.longest_task_ms,
                "brokers": [
                    {
                        "id": node.id,
                        "requests": node.requests,
                        "meanLatencyMs": round(node.mean_latency_ms, 3),
                        "maxLatencyMs": node.max_latency_ms,
                    }
                    for node in self.nodes
                ],
                "partitions": [
                    {"topic": t, "partition": p, "firstOffset": first, "lastOffset": last}
                    for t, p, first, last in self.offsets
                ],
            },
            separators=(",", ":"),
        )


def publish(report: WriteReport, report_path: str | None, written_at_ms: int) -> None:
    """Logs the line, and appends the JSON to ``report_path`` when given. Never raises."""
    configure_driver_logging()
    # Spark's JSON log of Python workers shows the fields of "context" as columns.
    _log.info("%s", report.line(), extra={"context": report.summary()})
    if report_path is None:
        return
    line = (report.json(written_at_ms) + "\n").encode()
    try:
        check_report_path(report_path)
        append_line(report_path, line)
    except (ConfigError, UnusableFileError) as error:
        warn(
            _log,
            Kind.REPORT_NOT_WRITTEN,
            "the rows are in Kafka, but reportPath can't be written: %s",
            error,
        )


def configure_driver_logging() -> None:
    """Makes our log lines visible in Spark's driver log, where nobody configured logging.

    ``commit`` runs in a worker process that Spark starts, in which no handler exists: INFO would
    vanish. Its stderr is the driver's. A process in which somebody configured logging is left
    alone, and with ``spark.sql.pyspark.worker.logging.enabled`` Spark's own handler is there too.
    """
    package = logging.getLogger("spark_kafka_sink")
    if package.level == logging.NOTSET:
        package.setLevel(logging.INFO)
    if not package.hasHandlers():
        handler = _Stderr()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        package.addHandler(handler)


class _Stderr(logging.Handler):
    """Writes to whatever ``sys.stderr`` is now: Spark swaps it around every commit."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            self.handleError(record)
