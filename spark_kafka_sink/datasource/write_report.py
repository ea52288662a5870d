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
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from spark_kafka_sink import __version__
from spark_kafka_sink.datasource.commit_message import TaskCommitMessage

_log = logging.getLogger(__name__)

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
    """What one batch or micro-batch wrote. Sums over its tasks; ``batch_id`` -1 outside streams.

    ``bytes`` went over the wire in record batches, ``batch_bytes`` is their size before
    compression. ``offsets`` spans, per topic partition, the first and the last offset that any
    task was told; rows of other producers may lie between.
    """

    tasks: int
    rows: int
    bytes: int
    batches: int
    batch_bytes: int
    requests: int
    retries: int
    splits: int
    duplicates: int
    throttle_ms: int
    longest_task_ms: int
    query_id: str
    batch_id: int
    nodes: tuple[NodeSummary, ...]
    offsets: tuple[tuple[str, int, int, int], ...]

    @classmethod
    def of(cls, messages: Iterable[TaskCommitMessage]) -> WriteReport:
        """The sum of ``messages``, which ``checked_messages`` has checked."""
        tasks = tuple(messages)
        return cls(
            tasks=len(tasks),
            rows=sum(m.acknowledged for m in tasks),
            bytes=sum(m.bytes for m in tasks),
            batches=sum(m.batches for m in tasks),
            batch_bytes=sum(m.batch_bytes for m in tasks),
            requests=sum(m.requests for m in tasks),
            retries=sum(m.retries for m in tasks),
            splits=sum(m.splits for m in tasks),
            duplicates=sum(m.duplicates for m in tasks),
            throttle_ms=sum(m.throttle_ms for m in tasks),
            longest_task_ms=max((m.elapsed_ms for m in tasks), default=0),
            query_id=next((m.query_id for m in tasks if m.query_id), ""),
            batch_id=next((m.batch_id for m in tasks if m.batch_id >= 0), -1),
            nodes=_nodes(tasks),
            offsets=_offsets(tasks),
        )

    @property
    def mean_batch_size(self) -> int:
        """Bytes on the wire of one record batch, on average."""
        return self.bytes // self.batches if self.batches else 0

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
        shown = self.offsets[:LOGGED_PARTITIONS]
        parts = [f"{t}-{p}:{first}..{last}" for t, p, first, last in shown]
        if len(shown) < len(self.offsets):
            parts.append(f"+{len(self.offsets) - len(shown)} more")
        values: dict[str, object] = {
            "rows": self.rows,
            "bytes": self.bytes,
            "batches": self.batches,
            "meanBatchSize": self.mean_batch_size,
            "requests": self.requests,
            "retries": self.retries,
            "splits": self.splits,
            "duplicates": self.duplicates,
            "throttleMs": self.throttle_ms,
            "tasks": self.tasks,
            "longestTaskMs": self.longest_task_ms,
            "slowestBroker": "none"
            if slowest is None
            else f"{slowest.id}({slowest.mean_latency_ms:.1f}ms)",
            "offsets": ",".join(parts) or "none",
        }
        if self.query_id:
            values = {"queryId": self.query_id, "batchId": self.batch_id} | values
        return {name: str(value) for name, value in values.items()}

    def json(self, written_at_ms: int) -> str:
        """The report as one line of JSON; ``written_at_ms`` is wall time."""
        return json.dumps(
            {
                "writtenAtMs": written_at_ms,
                "version": __version__,
                "queryId": self.query_id or None,
                "batchId": None if self.batch_id < 0 else self.batch_id,
                "tasks": self.tasks,
                "rows": self.rows,
                "bytes": self.bytes,
                "bytesBeforeCompression": self.batch_bytes,
                "batches": self.batches,
                "meanBatchSize": self.mean_batch_size,
                "requests": self.requests,
                "retries": self.retries,
                "splits": self.splits,
                "duplicates": self.duplicates,
                "throttleMs": self.throttle_ms,
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
    show_on_driver()
    # Spark's JSON log of Python workers shows the fields of "context" as columns.
    _log.info("%s", report.line(), extra={"context": report.summary()})
    if report_path is None:
        return
    line = (report.json(written_at_ms) + "\n").encode()
    try:
        # One write of one line with O_APPEND: two queries may share the file.
        fd = os.open(report_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)
    except (OSError, ValueError) as error:
        _log.warning("the rows are in Kafka, but reportPath can't be written: %s", error)


def show_on_driver() -> None:
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


def _nodes(tasks: tuple[TaskCommitMessage, ...]) -> tuple[NodeSummary, ...]:
    sums: dict[int, tuple[int, int, int]] = {}
    for message in tasks:
        for node, requests, total, longest in message.nodes:
            seen = sums.get(node, (0, 0, 0))
            sums[node] = (seen[0] + requests, seen[1] + total, max(seen[2], longest))
    return tuple(
        NodeSummary(node, requests, total / requests if requests else 0.0, longest)
        for node, (requests, total, longest) in sorted(sums.items())
    )


def _offsets(tasks: tuple[TaskCommitMessage, ...]) -> tuple[tuple[str, int, int, int], ...]:
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for message in tasks:
        for topic, partition, first, last in message.offsets:
            low, high = spans.get((topic, partition), (first, last))
            spans[topic, partition] = (min(low, first), max(high, last))
    return tuple((topic, p, *span) for (topic, p), span in sorted(spans.items()))
