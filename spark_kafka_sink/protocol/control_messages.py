"""The control plane's requests and responses, as values.

Owns: one frozen dataclass for each request that a producer makes and for its response, and how the
latter comes of Kafka's message (``protocol/messages/``): checked for sense, and holding nothing
that was not requested, so that what it takes is bounded by the request. Never: their bytes, the
meaning of an error code, what only the driver requests (``protocol/transaction_admin_messages.py``,
``protocol/fetch_messages.py``, ``protocol/admin_messages.py``), and the Produce request, which is
zero-copy (``protocol/produce.py``). Metadata's response is in ``metadata_response.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.errors import ErrorCode, UnsupportedVersionError
from spark_kafka_sink.protocol import messages
from spark_kafka_sink.protocol.bodies import (
    ControlRequest,
    Message,
    by_topic,
    once_each,
    topic_name,
)
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.metadata_response import MetadataResponse, read_metadata
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.wire import MalformedError, WireReader, checked_node, error_code

if TYPE_CHECKING:
    from spark_kafka_sink.protocol.messages import end_txn, find_coordinator, init_producer_id
    from spark_kafka_sink.protocol.messages.api_versions import ApiVersion, FinalizedFeatureKey

_KNOWN_APIS: Final = frozenset(int(key) for key in ApiKey)
_MOST_FEATURES: Final = 256


@dataclass(frozen=True, slots=True)
class ApiVersionsResponse:
    """The API versions of a broker, without APIs that this client does not support.

    ``error`` UNSUPPORTED_VERSION requires a retry: at ``api_versions[API_VERSIONS].max`` when
    that is there (brokers since 2.4), else at 0. ``finalized_features`` are the cluster's feature
    levels, of epoch ``finalized_features_epoch`` (-1: the broker reports none).

    An advertised minimum is not to be relied on: brokers since 4.0 say Produce 0 and refuse what
    is below 3, for librdkafka's sake (KAFKA-18659). So :meth:`latest_usable` intersects the
    broker's range with ours, which has what is really written (Java's NodeApiVersions).
    """

    error: ErrorCode
    api_versions: Mapping[int, VersionRange]
    finalized_features: Mapping[str, int] = field(default_factory=dict)
    finalized_features_epoch: int = -1
    throttle_ms: int = 0

    @property
    def transaction_version(self) -> int:
        """The cluster's level of ``transaction.version`` (KIP-890); 2 and up is protocol 2 (TV2).

        0 when the broker reports no features: brokers before 4.0, or ApiVersions below v3.
        """
        return self.finalized_features.get("transaction.version", 0)

    def latest_usable(self, api_key: ApiKey, ours: VersionRange) -> int:
        """The highest version that both sides support; UnsupportedVersionError without one."""
        theirs = self.api_versions.get(api_key)
        if theirs is None:
            raise UnsupportedVersionError(
                f"the broker does not offer {api_key.name}",
                hint="Kafka 2.1 is the oldest broker that is supported",
            )
        version = min(ours.max, theirs.max)
        if version < max(ours.min, theirs.min):
            raise UnsupportedVersionError(
                f"{api_key.name}: the broker offers versions {theirs.min} to {theirs.max}, "
                f"this client {ours.min} to {ours.max}",
                hint="Kafka 2.1 is the oldest broker that is supported",
            )
        return version


@dataclass(frozen=True, slots=True)
class ApiVersionsRequest(ControlRequest[ApiVersionsResponse]):
    """The first request on a connection (KIP-35, KIP-511). From version 3 on it names the client.

    Name and version are letters and digits, with '-' and '.' inside, else the broker refuses.
    """

    software_name: str
    software_version: str

    api_key = ApiKey.API_VERSIONS
    versions = VersionRange(0, 4)

    def message(self, version: int) -> Message:
        return messages.api_versions.ApiVersionsRequest(
            client_software_name=self.software_name,
            client_software_version=self.software_version,
        )

    def decode(self, version: int, body: memoryview) -> ApiVersionsResponse:
        """The response; a broker without ``version`` responds with version 0."""
        refused = ErrorCode.UNSUPPORTED_VERSION
        if version == 0 or bytes(body[:2]) != refused.value.to_bytes(2, "big"):
            return ControlRequest.decode(self, version, body)
        # Only the code is needed. Brokers since 2.4 send the supported range after it; others
        # send it malformed (librdkafka's mock does).
        reader = WireReader(bytes(body), flexible=False)
        try:
            answer = messages.api_versions.ApiVersionsResponse.read(reader, 0)
            ranges = api_ranges(answer.api_keys)
        except (MalformedError, struct.error, IndexError):
            ranges = {}
        return ApiVersionsResponse(refused, ranges)

    def read(self, reader: WireReader, version: int) -> ApiVersionsResponse:
        answer = messages.api_versions.ApiVersionsResponse.read(reader, version)
        error = error_code(answer.error_code)
        ranges = api_ranges(answer.api_keys)
        if error is ErrorCode.NONE and not ranges:
            raise MalformedError("it offers no API")
        epoch, features = answer.finalized_features_epoch, _levels(answer.finalized_features)
        if epoch < 0:  # then the levels say nothing (ApiVersionsResponse.json)
            epoch, features = -1, {}
        return ApiVersionsResponse(error, ranges, features, epoch, max(0, answer.throttle_time_ms))


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
        topic = messages.metadata.MetadataRequestTopic
        return messages.metadata.MetadataRequest(
            topics=[topic(name=topic_name(name)) for name in self.topics],
            allow_auto_topic_creation=self.allow_auto_topic_creation,
            include_topic_authorized_operations=(
                version >= 8 and self.include_topic_authorized_operations
            ),
        )

    def read(self, reader: WireReader, version: int) -> MetadataResponse:
        return read_metadata(reader, version, self.topics)


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    """``producer_id`` and ``producer_epoch`` hold only when ``error`` is NONE; -1 otherwise.

    ``ongoing_txn_producer_id`` and ``ongoing_txn_producer_epoch``: the transaction that was kept
    open (version 6); -1 when none is.
    """

    error: ErrorCode
    producer_id: int
    producer_epoch: int
    throttle_ms: int = 0
    ongoing_txn_producer_id: int = -1
    ongoing_txn_producer_epoch: int = -1


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest(ControlRequest[InitProducerIdResponse]):
    """Requests a producer id. With an id and an epoch, bumps that epoch (v3, KIP-360).

    ``enable_2pc``: the id's transactions are never aborted for their age, whatever the time-out
    (KIP-939). ``keep_prepared_txn``: an open transaction stays open, and the response has its
    identity. Both need version 6, which no broker has by default: up to Kafka 4.3 it is unstable,
    and the response to ``keep_prepared_txn`` is UNSUPPORTED_VERSION.
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

    def message(self, version: int) -> Message:
        if version < 3 and self.producer_id != -1:
            raise UnsupportedVersionError(
                f"INIT_PRODUCER_ID v{version} can't carry a producer id; brokers since 2.5 can",
            )
        return messages.init_producer_id.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            enable2_pc=self.enable_2pc,
            keep_prepared_txn=self.keep_prepared_txn,
        )

    def read(self, reader: WireReader, version: int) -> InitProducerIdResponse:
        """The response, whose epoch is higher than the one in this request."""
        answer = messages.init_producer_id.InitProducerIdResponse.read(reader, version)
        error, throttle_ms = error_code(answer.error_code), max(0, answer.throttle_time_ms)
        if error is not ErrorCode.NONE:
            return InitProducerIdResponse(error, -1, -1, throttle_ms)
        if answer.producer_id < 0 or answer.producer_epoch < 0:
            raise MalformedError("it gives a negative producer id or epoch")
        kept = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
        if (kept[0] < 0) != (kept[1] < 0):
            raise MalformedError("it names half of a transaction that is open")
        _check_epoch(answer, self.producer_id, self.producer_epoch)
        return InitProducerIdResponse(
            error, answer.producer_id, answer.producer_epoch, throttle_ms, *kept
        )


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
        return messages.find_coordinator.FindCoordinatorRequest(
            key=self.keys[0] if version < 4 else "",
            key_type=self.type.value,
            coordinator_keys=self.keys if version >= 4 else (),
        )

    def read(self, reader: WireReader, version: int) -> FindCoordinatorResponse:
        """The response, which has every key of this request once and no other."""
        answer = messages.find_coordinator.FindCoordinatorResponse.read(reader, version)
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
        topic = messages.add_partitions_to_txn.AddPartitionsToTxnTopic
        return messages.add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                topic(name=name, partitions=numbers)
                for name, numbers in by_topic(self.partitions).items()
            ],
        )

    def read(self, reader: WireReader, version: int) -> AddPartitionsToTxnResponse:
        """The response, which has every partition of this request once and no other."""
        answer = messages.add_partitions_to_txn.AddPartitionsToTxnResponse.read(reader, version)
        errors = once_each(
            (
                (
                    TopicPartition(topic.name, one.partition_index),
                    error_code(one.partition_error_code),
                )
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ),
            self.partitions,
        )
        return AddPartitionsToTxnResponse(errors, max(0, answer.throttle_time_ms))


@dataclass(frozen=True, slots=True)
class EndTxnResponse:
    """From version 5 on ``producer_id`` and ``producer_epoch`` are for the next transaction.

    Both are -1 below, and with an error.
    """

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class EndTxnRequest(ControlRequest[EndTxnResponse]):
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

    def message(self, version: int) -> Message:
        return messages.end_txn.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=self.committed,
        )

    def read(self, reader: WireReader, version: int) -> EndTxnResponse:
        """The response; its epoch, if it has one, is higher than that of the ended transaction."""
        answer = messages.end_txn.EndTxnResponse.read(reader, version)
        error, throttle_ms = error_code(answer.error_code), max(0, answer.throttle_time_ms)
        producer_id, epoch = answer.producer_id, answer.producer_epoch
        if error is not ErrorCode.NONE:
            producer_id, epoch = -1, -1
        elif (producer_id < 0) != (epoch < 0):
            raise MalformedError("it gives a producer id without an epoch, or the reverse")
        else:
            _check_epoch(answer, self.producer_id, self.producer_epoch)
        return EndTxnResponse(error, producer_id, epoch, throttle_ms)


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
        wire = messages.create_topics
        return wire.CreateTopicsRequest(
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

    def read(self, reader: WireReader, version: int) -> CreateTopicsResponse:
        """The response, which must have every topic of this request once and no other."""
        answer = messages.create_topics.CreateTopicsResponse.read(reader, version)
        errors = once_each(
            (
                (topic.name, (error_code(topic.error_code), topic.error_message))
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
        return messages.delete_topics.DeleteTopicsRequest(
            topic_names=[topic_name(topic) for topic in self.topics], timeout_ms=self.timeout_ms
        )

    def read(self, reader: WireReader, version: int) -> DeleteTopicsResponse:
        """The response, which must have every topic of this request once and no other."""
        answer = messages.delete_topics.DeleteTopicsResponse.read(reader, version)
        errors = once_each(
            ((topic.name, error_code(topic.error_code)) for topic in answer.responses),
            self.topics,
            "a topic",
        )
        return DeleteTopicsResponse(errors, max(0, answer.throttle_time_ms))


def _check_epoch(
    response: init_producer_id.InitProducerIdResponse | end_txn.EndTxnResponse,
    producer_id: int,
    epoch: int,
) -> None:
    """One (producer id, epoch) is one transaction: two with the same would join each other."""
    if response.producer_id == producer_id >= 0 and response.producer_epoch <= epoch:
        raise MalformedError(
            f"it returned epoch {response.producer_epoch} to a producer with epoch {epoch}"
        )


def api_ranges(keys: Iterable[ApiVersion]) -> dict[int, VersionRange]:
    """The versions of each API that we support."""
    ranges: dict[int, VersionRange] = {}
    for api in keys:
        if api.api_key not in _KNOWN_APIS:
            continue
        if not 0 <= api.min_version <= api.max_version:
            raise MalformedError(
                f"it offers versions {api.min_version} to {api.max_version} of an API"
            )
        if api.api_key in ranges:
            raise MalformedError("an API comes twice")
        ranges[api.api_key] = VersionRange(api.min_version, api.max_version)
    return ranges


def _levels(features: Sequence[FinalizedFeatureKey]) -> dict[str, int]:
    if len(features) > _MOST_FEATURES:
        raise MalformedError(f"it has {len(features)} features")
    levels = {feature.name: feature.max_version_level for feature in features}
    if len(levels) != len(features):
        raise MalformedError("a feature comes twice")
    return levels


def _coordinator(
    one: find_coordinator.FindCoordinatorResponse | find_coordinator.Coordinator,
) -> FoundCoordinator:
    error = error_code(one.error_code)
    if error is not ErrorCode.NONE:
        return FoundCoordinator(error, None, one.error_message)
    return FoundCoordinator(
        error, checked_node(one.node_id, one.host, one.port, None), one.error_message
    )
