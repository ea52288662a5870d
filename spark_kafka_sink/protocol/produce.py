"""The Produce request and its answer: our own codec, zero copy.

Owns: the bytes around finished record batches (ProduceRequest v3 to v12) and the bounded decoder
of the answer. Never: the bytes of a batch, which are passed on as they lie.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange

# INTERFACE STUB: fields below are fixed; encode/decode bodies are the protocol room's work.


@dataclass(frozen=True, slots=True)
class PartitionProduceData:
    """One record batch for one partition: ``buffers`` lie as they are sent, ``size`` bytes."""

    tp: TopicPartition
    buffers: Buffers
    size: int


@dataclass(frozen=True, slots=True)
class RecordError:
    """``batch_index`` is the record's index in the batch."""

    batch_index: int
    message: str | None


@dataclass(frozen=True, slots=True)
class PartitionProduceResponse:
    """``leader`` is KIP-951's hint (node id, epoch), or None."""

    tp: TopicPartition
    error: ErrorCode
    base_offset: int
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[RecordError, ...] = ()
    error_message: str | None = None
    leader: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ProduceResponse:
    partitions: tuple[PartitionProduceResponse, ...]
    throttle_ms: int = 0
    node_endpoints: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """``acks`` is -1, 0 or 1; at most one batch for each partition.

    Version 13 (topic ids) is not offered: names survive a topic's re-creation as an error of the
    sequence check, and every 4.x broker takes 12. A TV1 transaction caps ``max_version`` at 11.
    """

    acks: int
    timeout_ms: int
    data: tuple[PartitionProduceData, ...]
    transactional_id: str | None = None
    max_version: int = 12
    min_version: int = 3

    api_key = ApiKey.PRODUCE

    @property
    def versions(self) -> VersionRange:
        return VersionRange(self.min_version, self.max_version)

    def encode(self, version: int) -> Buffers:
        raise NotImplementedError

    def decode(self, version: int, body: memoryview) -> ProduceResponse:
        raise NotImplementedError
