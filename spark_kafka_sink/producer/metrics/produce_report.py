"""The result of one attempt, which commit messages contain, and the merge of such results.

Owns: :class:`ProduceReport`, :class:`NodeReport` and their merge; :class:`ProducerProgress`, the
result so far. Never: the counting
(``produce_recorder.py``), an import of Arrow or numpy: a commit on the driver loads neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_kafka_sink.protocol.cluster import TopicPartition


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One broker's Produce requests: count and latency (milliseconds). ``last_answer`` is the last
    response that caused a retry, empty when there was none.
    """

    requests: int = 0
    total_latency_ms: int = 0
    max_latency_ms: int = 0
    last_answer: str = ""

    @property
    def mean_latency_ms(self) -> float:
        return self.total_latency_ms / self.requests if self.requests else 0.0

    def merge(self, other: NodeReport) -> NodeReport:
        return NodeReport(
            self.requests + other.requests,
            self.total_latency_ms + other.total_latency_ms,
            max(self.max_latency_ms, other.max_latency_ms),
            other.last_answer or self.last_answer,
        )


@dataclass(frozen=True, slots=True)
class ProduceReport:
    """The result of one attempt. Picklable.

    ``rows`` were acknowledged (with acks=0: written to the socket). ``bytes`` is the size of their
    batches as sent, ``batch_bytes`` before compression; retried batches count once. ``queue_ms``
    sums the time of each batch from its first row until it was (last) sent, ``max_queue_ms`` is the
    longest. ``buffer_wait_ms`` and ``metadata_wait_ms`` are the writer's waits for buffer.memory
    and for unknown topics, ``connections`` is the number of connections made. ``offsets`` has the
    first and the last known offset of each partition.
    """

    rows: int = 0
    bytes: int = 0
    batches: int = 0
    batch_bytes: int = 0
    requests: int = 0
    retries: int = 0
    splits: int = 0
    duplicates: int = 0
    throttle_ms: int = 0
    nodes: Mapping[int, NodeReport] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    retried_rows: int = 0
    queue_ms: int = 0
    max_queue_ms: int = 0
    buffer_wait_ms: int = 0
    metadata_wait_ms: int = 0
    connections: int = 0
    cluster_id: str | None = None

    @staticmethod
    def merge(reports: Iterable[ProduceReport]) -> ProduceReport:
        """The sum of several attempts' reports, as the driver logs it."""
        every = list(reports)
        nodes: dict[int, NodeReport] = {}
        offsets: dict[TopicPartition, tuple[int, int]] = {}
        for report in every:
            for node, one in report.nodes.items():
                nodes[node] = nodes.get(node, NodeReport()).merge(one)
            for tp, (first, last) in report.offsets.items():
                seen = offsets.get(tp, (first, last))
                offsets[tp] = (min(seen[0], first), max(seen[1], last))
        values: dict[str, Any] = {
            name: sum(getattr(report, name) for report in every) for name in SUMMED
        }
        values |= {
            name: max((getattr(report, name) for report in every), default=0) for name in LARGEST
        }
        cluster_id = next((r.cluster_id for r in every if r.cluster_id), None)
        return ProduceReport(**values, nodes=nodes, offsets=offsets, cluster_id=cluster_id)

    def counts(self) -> dict[str, int]:
        """The summed and the maximum values, by name."""
        return {name: getattr(self, name) for name in (*SUMMED, *LARGEST)}


#: How each field is merged.
SUMMED = (
    "rows", "bytes", "batches", "batch_bytes", "requests", "retries", "splits", "duplicates",
    "throttle_ms", "retried_rows", "queue_ms", "buffer_wait_ms", "metadata_wait_ms", "connections",
)  # fmt: skip
LARGEST = ("max_queue_ms",)


@dataclass(frozen=True, slots=True)
class ProducerProgress:
    """The progress of a running producer, for other threads. ``report`` is the attempt's so far.
    ``on_wire`` has the in-flight record batches by node: their count, and the age of the oldest in
    ms, from its first row.
    """

    report: ProduceReport
    on_wire: Mapping[int, tuple[int, int]]
    waits_for_memory: bool
