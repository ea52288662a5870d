"""What a producer did: counted while it happens, reported when an attempt ends.

Owns: :class:`ProduceReport`, the value that travels in commit messages, and
:class:`ProduceRecorder`, which the sender fills and which hears how every batch ended. Never: any
cost per row, any decision.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.cluster import TopicPartition


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One broker's Produce requests: count and latency (milliseconds)."""

    requests: int = 0
    total_latency_ms: int = 0
    max_latency_ms: int = 0

    def merge(self, other: NodeReport) -> NodeReport:
        return NodeReport(
            self.requests + other.requests,
            self.total_latency_ms + other.total_latency_ms,
            max(self.max_latency_ms, other.max_latency_ms),
        )


@dataclass(frozen=True, slots=True)
class ProduceReport:
    """What one attempt wrote. Picklable.

    ``rows`` were acknowledged (with acks=0: handed to the socket). ``bytes`` is what the batches
    weighed on the wire, ``batch_bytes`` the same before compression. ``offsets`` gives the first
    and the last offset of each partition of which the broker told one.
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

    @staticmethod
    def merge(reports: Iterable[ProduceReport]) -> ProduceReport:
        """The sum of several attempts' reports, as the driver logs it."""
        raise NotImplementedError


class ProduceRecorder:
    """Counts for the current attempt. One lock guards all fields; a few calls for each request.

    It is the accumulator's BatchListener: acknowledged and failed batches arrive by
    :meth:`batch_done`. The sender calls the others.
    """

    def batch_done(self, batch: ProducerBatch) -> None: ...
    def request_sent(self, node_id: int, batches: int, size: int) -> None: ...
    def request_answered(self, node_id: int, latency_ms: int, throttle_ms: int) -> None: ...
    def batch_retried(self, batch: ProducerBatch) -> None: ...
    def batch_split(self, batch: ProducerBatch) -> None: ...
    def batch_duplicate(self, batch: ProducerBatch) -> None: ...

    #: The first batch that failed for good, as the writer shall see it.
    failure: KafkaError | None


_ = threading
