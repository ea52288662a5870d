"""The control plane's requests, as values of our own.

Owns: one frozen dataclass for each request that a producer makes. The answers' values are named
here, too, but checked by ``protocol/responses.py``. Never: their bytes (``protocol/messages/``),
what only the driver asks (``protocol/transaction_admin_messages.py``,
``protocol/fetch_messages.py``, ``protocol/config_messages.py``), and the Produce request, which is
zero-copy (``protocol/produce.py``).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from spark_kafka_sink.errors import ErrorCode, UnsupportedVersionError
from spark_kafka_sink.protocol import messages
from spark_kafka_sink.protocol.bodies import by_topic, check_version, read_body, topic_name
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.metadata_response import (
    MetadataResponse,
    TopicMetadata,
    read_metadata,
)
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange
from spark_kafka_sink.protocol.responses import (
    AddPartitionsToTxnResponse,
    ApiVersionsResponse,
    CreateTopicsResponse,
    EndTxnResponse,
    FindCoordinatorResponse,
    InitProducerIdResponse,
    api_ranges,
    read_add_partitions_to_txn,
    read_api_versions,
    read_create_topics,
    read_end_txn,
    read_find_coordinator,
    read_init_producer_id,
)
from spark_kafka_sink.protocol.wire import MalformedError, WireReader

__all__ = [
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "CoordinatorType",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "EndTxnRequest",
    "EndTxnResponse",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "MetadataRequest",
    "MetadataResponse",
    "NewTopic",
    "TopicMetadata",
]


@dataclass(frozen=True, slots=True)
class ApiVersionsRequest:
    """The first request on a connection (KIP-35, KIP-511). From version 3 on it names the client.

    Name and version are letters and digits, with '-' and '.' inside, else the broker refuses.
    """

    software_name: str
    software_version: str

    api_key = ApiKey.API_VERSIONS
    versions = VersionRange(0, 4)

    def encode(self, version: int) -> Buffers:
        check_version(self, version)
        request = messages.api_versions.ApiVersionsRequest(
            client_software_name=self.software_name,
            client_software_version=self.software_version,
        )
        return [request.encode(version)]

    def decode(self, version: int, body: memoryview) -> ApiVersionsResponse:
        """The response; a broker without ``version`` responds with version 0."""
        refused = ErrorCode.UNSUPPORTED_VERSION
        if version == 0 or bytes(body[:2]) != refused.value.to_bytes(2, "big"):
            return read_body(self, version, body, read_api_versions)
        # The code is all that is needed. The supported range behind it is a kindness of brokers
        # since 2.4; others send it garbled (librdkafka's mock does).
        reader = WireReader(bytes(body), flexible=False)
        try:
            answer = messages.api_versions.ApiVersionsResponse.read(reader, 0)
            ranges = api_ranges(answer.api_keys)
        except (MalformedError, struct.error, IndexError):
            ranges = {}
        return ApiVersionsResponse(refused, ranges)


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """``topics`` empty asks for the brokers only. All topics can't be requested: what a broker
    may answer, and so how much memory an answer takes, is known from the question. What we may do
    to each topic is told by brokers since 2.3 (v8, KIP-430).
    """

    topics: tuple[str, ...]
    allow_auto_topic_creation: bool = True
    include_topic_authorized_operations: bool = False

    api_key = ApiKey.METADATA
    versions = VersionRange(4, 13)

    def encode(self, version: int) -> Buffers:
        """Raises InvalidTopicError for a topic name that is too long even for the wire."""
        check_version(self, version)
        topic = messages.metadata.MetadataRequestTopic
        request = messages.metadata.MetadataRequest(
            topics=[topic(name=topic_name(name)) for name in self.topics],
            allow_auto_topic_creation=self.allow_auto_topic_creation,
            include_topic_authorized_operations=(
                version >= 8 and self.include_topic_authorized_operations
            ),
        )
        return [request.encode(version)]

    def decode(self, version: int, body: memoryview) -> MetadataResponse:
        topics = self.topics
        return read_body(self, version, body, lambda r, v: read_metadata(r, v, topics))


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    """Requests a producer id. With an id and an epoch, bumps that epoch (v3, KIP-360).

    ``enable_2pc``: the id's transactions are never aborted for their age, whatever the time-out
    (KIP-939). ``keep_prepared_txn``: what is open stays open, and the answer names it. Either takes
    version 6, which no broker offers by itself: up to Kafka 4.3 it is called unstable, and the
    answer to ``keep_prepared_txn`` is UNSUPPORTED_VERSION.
    """

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1
    enable_2pc: bool = False
    keep_prepared_txn: bool = False

    api_key = ApiKey.INIT_PRODUCER_ID

    @property
    def versions(self) -> VersionRange:
        # Version 6 is unstable and may change, so it is used only when it is needed.
        return VersionRange(6, 6) if self._needs_6 else VersionRange(0, 5)

    @property
    def _needs_6(self) -> bool:
        return self.enable_2pc or self.keep_prepared_txn

    def encode(self, version: int) -> Buffers:
        check_version(self, version)
        if version < 3 and self.producer_id != -1:
            raise UnsupportedVersionError(
                f"INIT_PRODUCER_ID v{version} can't carry a producer id; brokers since 2.5 can",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        request = messages.init_producer_id.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            enable2_pc=self.enable_2pc,
            keep_prepared_txn=self.keep_prepared_txn,
        )
        return [request.encode(version)]

    def decode(self, version: int, body: memoryview) -> InitProducerIdResponse:
        """The answer, whose epoch is higher than the one that this request raises."""

        def parse(reader: WireReader, version: int) -> InitProducerIdResponse:
            response = read_init_producer_id(reader, version)
            _check_epoch(response, self.producer_id, self.producer_epoch)
            return response

        return read_body(self, version, body, parse)


class CoordinatorType(IntEnum):
    """What a key that has a coordinator is (FindCoordinatorRequest's key type, KIP-98)."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest:
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

    def encode(self, version: int) -> Buffers:
        check_version(self, version)
        request = messages.find_coordinator.FindCoordinatorRequest(
            key=self.keys[0] if version < 4 else "",
            key_type=self.type.value,
            coordinator_keys=self.keys if version >= 4 else (),
        )
        return [request.encode(version)]

    def decode(self, version: int, body: memoryview) -> FindCoordinatorResponse:
        """The answer, which names every key of this request once and no other."""
        keys = self.keys
        return read_body(self, version, body, lambda r, v: read_find_coordinator(r, v, keys))


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnRequest:
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

    def encode(self, version: int) -> Buffers:
        check_version(self, version)
        topic = messages.add_partitions_to_txn.AddPartitionsToTxnTopic
        request = messages.add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                topic(name=name, partitions=numbers)
                for name, numbers in by_topic(self.partitions).items()
            ],
        )
        return [request.encode(version)]

    def decode(self, version: int, body: memoryview) -> AddPartitionsToTxnResponse:
        """The answer, which names every partition of this request once and no other."""
        requested = self.partitions
        return read_body(
            self, version, body, lambda r, v: read_add_partitions_to_txn(r, v, requested)
        )


@dataclass(frozen=True, slots=True)
class EndTxnRequest:
    """Commits or aborts the transaction of a (transactional id, producer id, epoch).

    The broker judges it by the rules of the request's version, not by those that the cluster has
    now, so ``transaction_version`` is the one that the transaction was written with: a transaction
    of version 2 that is requested again with version 4 of this request would be called fenced
    although it was committed.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    transaction_version: int

    api_key = ApiKey.END_TXN

    @property
    def versions(self) -> VersionRange:
        return VersionRange(5, 5) if self.transaction_version >= 2 else VersionRange(0, 4)

    def encode(self, version: int) -> Buffers:
        check_version(self, version)
        request = messages.end_txn.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=self.committed,
        )
        return [request.encode(version)]

    def decode(self, version: int, body: memoryview) -> EndTxnResponse:
        """The answer, whose epoch, if it has one, is higher than that of the ended transaction."""

        def parse(reader: WireReader, version: int) -> EndTxnResponse:
            response = read_end_txn(reader, version)
            _check_epoch(response, self.producer_id, self.producer_epoch)
            return response

        return read_body(self, version, body, parse)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 is the broker's default (from v4 on, Kafka 2.4)."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest:
    """Creates topics; the broker answers when they are known to all, or ``timeout_ms`` is over."""

    topics: tuple[NewTopic, ...]
    timeout_ms: int
    validate_only: bool = False

    api_key = ApiKey.CREATE_TOPICS
    versions = VersionRange(2, 7)

    def encode(self, version: int) -> Buffers:
        check_version(self, version)
        if version < 4 and any(-1 in (t.partitions, t.replication_factor) for t in self.topics):
            raise UnsupportedVersionError(
                f"CREATE_TOPICS v{version} has no defaults: give partitions and replication "
                "factor, or use brokers since 2.4",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )

        wire = messages.create_topics
        request = wire.CreateTopicsRequest(
            topics=[
                wire.CreatableTopic(
                    name=topic_name(topic.name),
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
        return [request.encode(version)]

    def decode(self, version: int, body: memoryview) -> CreateTopicsResponse:
        """The answer, which must name every topic of this request once and no other."""
        names = [topic.name for topic in self.topics]
        return read_body(self, version, body, lambda r, v: read_create_topics(r, v, names))


def _check_epoch(
    response: InitProducerIdResponse | EndTxnResponse, producer_id: int, epoch: int
) -> None:
    """One (producer id, epoch) is one transaction: two with the same would join each other."""
    if response.producer_id == producer_id >= 0 and response.producer_epoch <= epoch:
        raise MalformedError(
            f"it returned epoch {response.producer_epoch} to a producer with epoch {epoch}"
        )
