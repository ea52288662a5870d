"""The control plane's requests and answers, as values of our own; kio does the bytes.

Owns: one frozen dataclass for each request and answer, and the only imports of ``kio`` in the
package (lazy: a task pays for an API when it first uses it). Never: the Produce request, which is
zero-copy and ours (``protocol/produce.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange

# INTERFACE STUB: fields below are fixed; encode/decode bodies are the protocol room's work.


@dataclass(frozen=True, slots=True)
class ApiVersionsResponse:
    error: ErrorCode
    api_versions: Mapping[int, VersionRange]
    finalized_features: Mapping[str, int] = field(default_factory=dict)
    finalized_features_epoch: int = -1
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class ApiVersionsRequest:
    software_name: str
    software_version: str

    api_key = ApiKey.API_VERSIONS
    versions = VersionRange(0, 4)

    def encode(self, version: int) -> Buffers:
        raise NotImplementedError

    def decode(self, version: int, body: memoryview) -> ApiVersionsResponse:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    error: ErrorCode
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    error: ErrorCode
    name: str
    topic_id: bytes | None
    internal: bool
    partitions: tuple[PartitionMetadata, ...]


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    brokers: tuple[Node, ...]
    cluster_id: str | None
    controller: int
    topics: tuple[TopicMetadata, ...]
    throttle_ms: int = 0
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """``topics`` None asks for all, an empty tuple for none (brokers only)."""

    topics: tuple[str, ...] | None
    allow_auto_topic_creation: bool = True

    api_key = ApiKey.METADATA
    versions = VersionRange(4, 13)

    def encode(self, version: int) -> Buffers:
        raise NotImplementedError

    def decode(self, version: int, body: memoryview) -> MetadataResponse:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    error: ErrorCode
    producer_id: int
    producer_epoch: int
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1

    api_key = ApiKey.INIT_PRODUCER_ID
    versions = VersionRange(0, 5)

    def encode(self, version: int) -> Buffers:
        raise NotImplementedError

    def decode(self, version: int, body: memoryview) -> InitProducerIdResponse:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTopicsResponse:
    """``errors`` maps each topic to its code and the broker's text."""

    errors: Mapping[str, tuple[ErrorCode, str | None]]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest:
    topics: tuple[NewTopic, ...]
    timeout_ms: int
    validate_only: bool = False

    api_key = ApiKey.CREATE_TOPICS
    versions = VersionRange(2, 7)

    def encode(self, version: int) -> Buffers:
        raise NotImplementedError

    def decode(self, version: int, body: memoryview) -> CreateTopicsResponse:
        raise NotImplementedError
