"""The control plane's requests and responses, as values.

Owns: one frozen dataclass for each request that a producer makes and for its response, and how the
latter comes of Kafka's message (``protocol/messages/``): checked for sense, and holding nothing
that was not requested, so that what it takes is bounded by the request. Never: their bytes, the
meaning of an error code, what only the driver requests (``protocol/transaction_admin_messages.py``,
``protocol/fetch_messages.py``, ``protocol/admin_messages.py``), and the Produce request, which is
zero-copy (``protocol/produce.py``). Metadata's response is in ``metadata_response.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from spark_kafka_sink.base.errors import ErrorCode, UnsupportedVersionError
from spark_kafka_sink.protocol.bodies import (
    ControlRequest,
    Message,
    by_topic,
    once_each,
)
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.messages import (
    add_partitions_to_txn,
    create_topics,
    delete_topics,
    find_coordinator,
    metadata,
)
from spark_kafka_sink.protocol.metadata_response import MetadataResponse, read_metadata
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.wire import WireReader, checked_node, error_of


@dataclass(frozen=True, slots=True)
class MetadataRequest(ControlRequest[MetadataResponse]):
    """``topics`` empty requests the brokers only. All topics can't be requested: the request bounds
    the response, and so its memory. Brokers since 2.3 return the principal's operations on each
    topic (v8, KIP-430).
    """

    topics: tuple[str, ...]
    allow_auto_topic_creation: bool = True
    include_topic_authorized_operations: bool = False

    api_key = ApiKey.METADATA
    versions = VersionRange(4, 13)

    def message(self, version: int) -> Message:
        """Raises InvalidTopicError for a topic name that is too long even for the wire."""
        topic = metadata.MetadataRequestTopic
        return metadata.MetadataRequest(
            topics=[topic(name=name) for name in self.topics],
            allow_auto_topic_creation=self.allow_auto_topic_creation,
            include_topic_authorized_operations=(
                version >= 8 and self.include_topic_authorized_operations
            ),
        )

    def read(self, reader: WireReader, version: int) -> MetadataResponse:
        return read_metadata(reader, version, self.topics)


class CoordinatorType(IntEnum):
    """What a key that has a coordinator is (FindCoordinatorRequest's key type, KIP-98)."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class FoundCoordinator:
    """``node`` is None when ``error`` is not NONE; ``message`` is the broker's text."""

    error: ErrorCode
    node: Node | None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse:
    """``coordinators`` by the key that was requested."""

    coordinators: Mapping[str, FoundCoordinator]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest(ControlRequest[FindCoordinatorResponse]):
    """Which broker coordinates each of ``keys``: transactional ids, or consumer groups.

    Several keys in one request need brokers since 3.0 (v4, KIP-699).
    """

    keys: tuple[str, ...]
    type: CoordinatorType = CoordinatorType.TRANSACTION

    api_key = ApiKey.FIND_COORDINATOR

    @property
    def versions(self) -> VersionRange:
        # Version 0 has no key type.
        return VersionRange(1 if len(self.keys) == 1 else 4, 6)

    def message(self, version: int) -> Message:
        return find_coordinator.FindCoordinatorRequest(
            key=self.keys[0] if version < 4 else "",
            key_type=self.type.value,
            coordinator_keys=self.keys if version >= 4 else (),
        )

    def read(self, reader: WireReader, version: int) -> FindCoordinatorResponse:
        """The response, which has every key of this request once and no other."""
        answer = find_coordinator.FindCoordinatorResponse.read(reader, version)
        if version < 4:
            coordinators = {self.keys[0]: _coordinator(answer)}
        else:
            coordinators = once_each(
                ((one.key, _coordinator(one)) for one in answer.coordinators), self.keys, "a key"
            )
        return FindCoordinatorResponse(coordinators, max(0, answer.throttle_time_ms))


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnResponse:
    """``errors`` by partition: all NONE, or nothing was added."""

    errors: Mapping[TopicPartition, ErrorCode]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnRequest(ControlRequest[AddPartitionsToTxnResponse]):
    """Adds ``partitions`` to the open transaction, or opens it with them.

    For transactions of version 1 only: with version 2 the partition's leader does it (KIP-890).
    Versions 4 and up are for brokers among themselves.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]

    api_key = ApiKey.ADD_PARTITIONS_TO_TXN
    versions = VersionRange(0, 3)

    def message(self, version: int) -> Message:
        topic = add_partitions_to_txn.AddPartitionsToTxnTopic
        return add_partitions_to_txn.AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[
                topic(name=name, partitions=numbers)
                for name, numbers in by_topic(self.partitions).items()
            ],
        )

    def read(self, reader: WireReader, version: int) -> AddPartitionsToTxnResponse:
        """The response, which has every partition of this request once and no other."""
        answer = add_partitions_to_txn.AddPartitionsToTxnResponse.read(reader, version)
        errors = once_each(
            (
                (
                    TopicPartition(topic.name, one.partition_index),
                    error_of(one.partition_error_code),
                )
                for topic in answer.results_by_topic
                for one in topic.results_by_partition
            ),
            self.partitions,
        )
        return AddPartitionsToTxnResponse(errors, max(0, answer.throttle_time_ms))


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 is the broker's default (from v4 on, Kafka 2.4)."""

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
class CreateTopicsRequest(ControlRequest[CreateTopicsResponse]):
    """Creates topics; the broker answers when they are known to all, or ``timeout_ms`` is over."""

    topics: tuple[NewTopic, ...]
    timeout_ms: int
    validate_only: bool = False

    api_key = ApiKey.CREATE_TOPICS
    versions = VersionRange(2, 7)

    def message(self, version: int) -> Message:
        if version < 4 and any(-1 in (t.partitions, t.replication_factor) for t in self.topics):
            raise UnsupportedVersionError(
                f"CREATE_TOPICS v{version} has no defaults: give partitions and replication "
                "factor, or use brokers since 2.4",
            )
        wire = create_topics
        return wire.CreateTopicsRequest(
            topics=[
                wire.CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    assignments=(),
                    configs=[
                        wire.CreatableTopicConfig(name=name, value=value)
                        for name, value in topic.configs.items()
                    ],
                )
                for topic in self.topics
            ],
            timeout_ms=self.timeout_ms,
            validate_only=self.validate_only,
        )

    def read(self, reader: WireReader, version: int) -> CreateTopicsResponse:
        """The response, which must have every topic of this request once and no other."""
        answer = create_topics.CreateTopicsResponse.read(reader, version)
        errors = once_each(
            (
                (topic.name, (error_of(topic.error_code), topic.error_message))
                for topic in answer.topics
            ),
            [topic.name for topic in self.topics],
            "a topic",
        )
        return CreateTopicsResponse(errors, max(0, answer.throttle_time_ms))


@dataclass(frozen=True, slots=True)
class DeleteTopicsResponse:
    """``errors`` maps each topic to its code."""

    errors: Mapping[str, ErrorCode]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class DeleteTopicsRequest(ControlRequest[DeleteTopicsResponse]):
    """Deletes topics; needs DELETE on each."""

    topics: tuple[str, ...]
    timeout_ms: int

    api_key = ApiKey.DELETE_TOPICS
    versions = VersionRange(1, 5)

    def message(self, version: int) -> Message:
        return delete_topics.DeleteTopicsRequest(
            topic_names=self.topics, timeout_ms=self.timeout_ms
        )

    def read(self, reader: WireReader, version: int) -> DeleteTopicsResponse:
        """The response, which must have every topic of this request once and no other."""
        answer = delete_topics.DeleteTopicsResponse.read(reader, version)
        errors = once_each(
            ((topic.name, error_of(topic.error_code)) for topic in answer.responses),
            self.topics,
            "a topic",
        )
        return DeleteTopicsResponse(errors, max(0, answer.throttle_time_ms))


def _coordinator(
    one: find_coordinator.FindCoordinatorResponse | find_coordinator.Coordinator,
) -> FoundCoordinator:
    error = error_of(one.error_code)
    if error is not ErrorCode.NONE:
        return FoundCoordinator(error, None, one.error_message)
    return FoundCoordinator(
        error, checked_node(one.node_id, one.host, one.port, None), one.error_message
    )
