"""The counts of one task attempt, and the sum of the counts of several attempts.

``produce_recorder.py`` counts. The commit message of a task contains the counts of its attempt.
:class:`ProducerProgress` has the counts while the attempt runs. This module imports neither Arrow
nor numpy, because the driver needs neither for a commit.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark_kafka_sink.base.counts import LARGEST, merged_counts
from spark_kafka_sink.protocol.cluster import TopicPartition

#: Upper bounds of the latencies that ``NodeReport.latencies`` counts, in ms. The last count is the
#: number of longer latencies.
LATENCY_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000)
_NO_LATENCIES: Final = (0,) * (len(LATENCY_BOUNDS_MS) + 1)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The number and the latencies (ms) of the Produce requests to one broker.

    ``last_answer`` describes the last response that caused a retry, or the last failed connection.
    It is empty if neither has occurred. ``latencies`` has the number of requests in each interval
    of :data:`LATENCY_BOUNDS_MS`.
    """

    requests: int = 0
    total_latency_ms: int = 0
    max_latency_ms: int = 0
    last_answer: str = ""
    latencies: tuple[int, ...] = _NO_LATENCIES

    def after_request(self, latency_ms: int) -> NodeReport:
        """Returns a copy of the report that counts one more request. ``latency_ms`` is the latency
        of this request.
        """
        at = bisect_left(LATENCY_BOUNDS_MS, latency_ms)
        counts = self.latencies
        return NodeReport(
            self.requests + 1,
            self.total_latency_ms + latency_ms,
            max(self.max_latency_ms, latency_ms),
            self.last_answer,
            (*counts[:at], counts[at] + 1, *counts[at + 1 :]),
        )

    @property
    def mean_latency_ms(self) -> float:
        return self.total_latency_ms / self.requests if self.requests else 0.0

    def merge(self, other: NodeReport) -> NodeReport:
        """Returns the sum of this report and ``other``, a report about the same broker."""
        return NodeReport(
            self.requests + other.requests,
            self.total_latency_ms + other.total_latency_ms,
            max(self.max_latency_ms, other.max_latency_ms),
            other.last_answer or self.last_answer,
            tuple(map(operator.add, self.latencies, other.latencies)),
        )


@dataclass(slots=True)
class ProduceReport:
    """The counts of one task attempt. A report can be pickled.

    A batch that was sent several times counts once. With acks=0 a batch counts when it is written
    to the socket.

    The class ``WriteReport`` (the report of a Spark write) describes all fields that are not in
    this list:

    * ``nodes``: the requests to each broker, by node id.
    * ``rows_without_offset``: the number of acknowledged rows whose offsets are unknown.
    * ``batch_bytes``: the size of the batches before compression.
    * ``queue_ms``: the time in ms from a batch's first row to its last send, summed over all
      batches.
    * ``offsets``: the first and the last known offset of each partition.
    * ``by_partition``: the number of rows, the number of bytes, and the sum of the CRC-32C
      checksums of the batches, for each partition.
    * ``producer_ids``: the pairs of producer id and epoch in the batches. They are (-1, -1) without
      idempotence.
    * ``topic_ids``: the id of each topic whose id is known, in the format of Kafka's tools.
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
    nodes: dict[int, NodeReport] = field(default_factory=dict)
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    retried_rows: int = 0
    queue_ms: int = 0
    max_queue_ms: int = field(default=0, metadata=LARGEST)
    buffer_wait_ms: int = 0
    metadata_wait_ms: int = 0
    connections: int = 0
    cluster_id: str | None = None
    by_partition: dict[TopicPartition, tuple[int, int, int]] = field(default_factory=dict)
    rows_without_offset: int = 0
    producer_ids: set[tuple[int, int]] = field(default_factory=set)
    topic_ids: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def merge(reports: Sequence[ProduceReport]) -> ProduceReport:
        """Returns the sum of ``reports``, which come from several task attempts. The driver makes
        the report of the write from this sum.
        """
        counts: dict[str, Any] = {**merged_counts(ProduceReport, reports)}
        total = ProduceReport(**counts)
        for report in reports:
            for node, answers in report.nodes.items():
                total.nodes[node] = total.nodes.get(node, NodeReport()).merge(answers)
            for tp, (first, last) in report.offsets.items():
                seen = total.offsets.get(tp, (first, last))
                total.offsets[tp] = (min(seen[0], first), max(seen[1], last))
            for tp, (rows, size, checksum) in report.by_partition.items():
                before = total.by_partition.get(tp, (0, 0, 0))
                total.by_partition[tp] = (
                    before[0] + rows, before[1] + size, before[2] + checksum
                )  # fmt: skip
            total.producer_ids |= report.producer_ids
            total.topic_ids |= report.topic_ids
            total.cluster_id = total.cluster_id or report.cluster_id
        return total


@dataclass(frozen=True, slots=True)
class ProducerProgress:
    """The progress of a running task attempt, for other threads.

    ``report`` has the counts of the attempt so far. ``on_wire`` has an entry for each node with
    batches in flight: the number of these batches, and the age of the oldest batch in ms. The age
    begins at the batch's first row.
    """

    report: ProduceReport
    on_wire: Mapping[int, tuple[int, int]]
    waits_for_memory: bool
