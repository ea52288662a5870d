"""The control plane's answers: values of our own, and how they are read.

Owns: one frozen dataclass for each answer and its reader, on the bounded cursor of
``protocol/wire.py``. An answer is also checked for sense, so that nobody behind this room meets a
port 0, a broker that comes twice, or partition two billion. Never: requests
(``protocol/messages.py``, which names these values, too), nor what an error code means.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.wire import (
    INT64,
    MalformedError,
    WireReader,
    checked_node,
    error_code,
)

_KNOWN_APIS: Final = frozenset(int(key) for key in ApiKey)
_API_RANGE = struct.Struct(">hhh")  # API key, lowest, highest
_LEVELS = struct.Struct(">hh")  # highest, lowest
_PARTITION = struct.Struct(">hii")  # error code, partition, leader
_PARTITION_V7 = struct.Struct(">hiii")  # leader epoch
_PRODUCER = struct.Struct(">ihqh")  # throttle time, error code, producer id, epoch
_THROTTLE_AND_ERROR = struct.Struct(">ih")
_PARTITION_ERROR = struct.Struct(">ih")  # partition, error code
_IDENTITY = struct.Struct(">qh")  # producer id, epoch
_TOPIC_DETAIL = struct.Struct(">ih")  # partitions, replication factor
_NO_ID = bytes(16)
_MOST_FEATURES = 256
_RELIABLE_EPOCHS = 9  # Java: MetadataResponse.hasReliableLeaderEpochs


@dataclass(frozen=True, slots=True)
class ApiVersionsResponse:
    """What a broker speaks. APIs that this client does not know are left out.

    ``error`` UNSUPPORTED_VERSION asks for a retry: at ``api_versions[API_VERSIONS].max`` when
    that is there (brokers since 2.4), else at 0. ``finalized_features`` are the cluster's feature
    levels, of epoch ``finalized_features_epoch`` (-1: the broker tells none).
    """

    error: ErrorCode
    api_versions: Mapping[int, VersionRange]
    finalized_features: Mapping[str, int] = field(default_factory=dict)
    finalized_features_epoch: int = -1
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """``leader`` -1: none now. ``leader_epoch`` -1: not known, or not to be relied on (< v9)."""

    error: ErrorCode
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """``topic_id`` is 16 bytes, or None when the broker has none or does not tell (< v10).

    No partition comes twice. The numbers may have gaps, but so few that a list indexed by
    partition takes no more memory than the answer's own size allows.
    """

    error: ErrorCode
    name: str
    topic_id: bytes | None
    internal: bool
    partitions: tuple[PartitionMetadata, ...]


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """Brokers and topics, neither twice. A leader need not be among the brokers.

    ``controller`` -1: none known. ``error`` is the whole answer's (v13: REBOOTSTRAP_REQUIRED).
    """

    brokers: tuple[Node, ...]
    cluster_id: str | None
    controller: int
    topics: tuple[TopicMetadata, ...]
    throttle_ms: int = 0
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    """``producer_id`` and ``producer_epoch`` hold only when ``error`` is NONE; -1 otherwise."""

    error: ErrorCode
    producer_id: int
    producer_epoch: int
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class Coordinator:
    """``node`` is None when ``error`` is not NONE; ``message`` is the broker's own text."""

    error: ErrorCode
    node: Node | None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse:
    """``coordinators`` by transactional id."""

    coordinators: Mapping[str, Coordinator]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnResponse:
    """``errors`` by partition: all NONE, or nothing was added."""

    errors: Mapping[TopicPartition, ErrorCode]
    throttle_ms: int = 0


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
class CreateTopicsResponse:
    """``errors`` maps each topic to its code and the broker's text."""

    errors: Mapping[str, tuple[ErrorCode, str | None]]
    throttle_ms: int = 0


def read_api_ranges(reader: WireReader) -> dict[int, VersionRange]:
    """The array of APIs and their versions, which every version of ApiVersions starts with."""
    ranges: dict[int, VersionRange] = {}
    for _ in range(reader.count(6)):
        key, lowest, highest = reader.unpack(_API_RANGE)
        reader.skip_tagged_fields()
        if key not in _KNOWN_APIS:
            continue
        if not 0 <= lowest <= highest:
            raise MalformedError(f"it offers versions {lowest} to {highest} of an API")
        if key in ranges:
            raise MalformedError("an API comes twice")
        ranges[key] = VersionRange(lowest, highest)
    return ranges


def read_api_versions(reader: WireReader, version: int) -> ApiVersionsResponse:
    """ApiVersions v0 to v4, in the layout of ``version``."""
    error = error_code(reader.int16())
    ranges = read_api_ranges(reader)
    if error is ErrorCode.NONE and not ranges:
        raise MalformedError("it offers no API")
    throttle_ms = max(0, reader.int32()) if version >= 1 else 0
    epoch = -1
    features: dict[str, int] = {}
    for tag in reader.tagged_fields():
        if tag == 1:
            (epoch,) = reader.unpack(INT64)
        elif tag == 2:
            features = _finalized_features(reader)
    if epoch < 0:  # then the levels say nothing (ApiVersionsResponse.json)
        epoch, features = -1, {}
    return ApiVersionsResponse(error, ranges, features, epoch, throttle_ms)


def _finalized_features(reader: WireReader) -> dict[str, int]:
    features: dict[str, int] = {}
    count = reader.count(6)
    if count > _MOST_FEATURES:
        raise MalformedError(f"it has {count} features")
    for _ in range(count):
        name = reader.string()
        highest, _lowest = reader.unpack(_LEVELS)
        reader.skip_tagged_fields()
        if name in features:
            raise MalformedError("a feature comes twice")
        features[name] = highest
    return features


class _MetadataDecoder:
    """Reads one Metadata answer; equal replica lists become one tuple, as most of them are equal.

    ``_gaps`` counts partitions that are not there though a higher one is: whoever indexes by
    partition must make room for them, so that their number, too, is bounded by the bytes received.
    """

    __slots__ = ("_gaps", "_lists", "_most_gaps", "_reader", "_smallest_partition", "_version")

    def __init__(self, reader: WireReader, version: int) -> None:
        self._reader = reader
        self._version = version
        self._lists: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._gaps = 0
        self._most_gaps = 64 + reader.remaining // 16
        layout = _PARTITION if version < 7 else _PARTITION_V7
        arrays = 2 if version < 5 else 3
        self._smallest_partition = layout.size + (arrays + 1 if reader.flexible else 4 * arrays)

    def parse(self) -> MetadataResponse:
        reader, version = self._reader, self._version
        throttle_ms = max(0, reader.int32())
        brokers: dict[int, Node] = {}
        for _ in range(reader.count(11)):
            broker = self._broker()
            if broker.id in brokers:
                raise MalformedError(f"broker {broker.id} comes twice")
            brokers[broker.id] = broker
        cluster_id = reader.nullable_string()
        controller = reader.int32()
        topics: dict[str, TopicMetadata] = {}
        for _ in range(reader.count(8)):
            topic = self._topic()
            if topic.name in topics:
                raise MalformedError("a topic comes twice")
            topics[topic.name] = topic
        if 8 <= version <= 10:
            reader.int32()  # what we may do to the cluster: not asked
        error = error_code(reader.int16()) if version >= 13 else ErrorCode.NONE
        reader.skip_tagged_fields()
        return MetadataResponse(
            tuple(brokers.values()),
            cluster_id,
            max(-1, controller),
            tuple(topics.values()),
            throttle_ms,
            error,
        )

    def _broker(self) -> Node:
        reader = self._reader
        node_id = reader.int32()
        node = checked_node(node_id, reader.string(), reader.int32(), reader.nullable_string())
        reader.skip_tagged_fields()
        return node

    def _topic(self) -> TopicMetadata:
        reader, version = self._reader, self._version
        error = error_code(reader.int16())
        name = reader.string()  # null only for topics that were asked for by id
        topic_id = reader.raw(16) if version >= 10 else _NO_ID
        internal = reader.boolean()
        partitions: dict[int, PartitionMetadata] = {}
        highest = -1
        for _ in range(reader.count(self._smallest_partition)):
            partition = self._partition()
            number = partition.partition
            if number in partitions:
                raise MalformedError("a partition comes twice")
            partitions[number] = partition
            highest = max(highest, number)
        self._gaps += highest + 1 - len(partitions)
        if self._gaps > self._most_gaps:
            raise MalformedError("partitions are numbered far beyond their count")
        if version >= 8:
            reader.int32()  # what we may do to the topic: not asked
        reader.skip_tagged_fields()
        return TopicMetadata(
            error,
            name,
            None if topic_id == _NO_ID else topic_id,
            internal,
            tuple(partitions.values()),
        )

    def _partition(self) -> PartitionMetadata:
        reader, version = self._reader, self._version
        if version < 7:
            code, number, leader = reader.unpack(_PARTITION)
            epoch = -1
        else:
            code, number, leader, epoch = reader.unpack(_PARTITION_V7)
        replicas = self._node_ids()
        in_sync = self._node_ids()
        offline = self._node_ids() if version >= 5 else ()
        reader.skip_tagged_fields()
        if number < 0 or leader < -1 or epoch < -1:
            raise MalformedError("a partition, its leader or its leader epoch is negative")
        if version < _RELIABLE_EPOCHS:
            epoch = -1
        return PartitionMetadata(
            error_code(code), number, leader, epoch, replicas, in_sync, offline
        )

    def _node_ids(self) -> tuple[int, ...]:
        ids = self._reader.int32_array()
        if not ids:
            return ()
        known = self._lists.get(ids)
        if known is not None:
            return known
        if min(ids) < 0:
            raise MalformedError("a replica has a negative id")
        self._lists[ids] = ids
        return ids


def read_metadata(reader: WireReader, version: int) -> MetadataResponse:
    """Metadata v4 to v13."""
    return _MetadataDecoder(reader, version).parse()


def read_init_producer_id(reader: WireReader, version: int) -> InitProducerIdResponse:  # noqa: ARG001 - as the others
    """InitProducerId v0 to v5: one layout, with tagged fields from v2 on."""
    throttle_ms, code, producer_id, epoch = reader.unpack(_PRODUCER)
    reader.skip_tagged_fields()
    error = error_code(code)
    if error is not ErrorCode.NONE:
        producer_id, epoch = -1, -1
    elif producer_id < 0 or epoch < 0:
        raise MalformedError("it gives a negative producer id or epoch")
    return InitProducerIdResponse(error, producer_id, epoch, max(0, throttle_ms))


def read_find_coordinator(
    reader: WireReader, version: int, only_key: str
) -> FindCoordinatorResponse:
    """FindCoordinator v1 to v6; before v4 it does not name its key, which is ``only_key``."""
    throttle_ms = max(0, reader.int32())
    coordinators: dict[str, Coordinator] = {}
    if version < 4:
        code = error_code(reader.int16())
        message = reader.nullable_string()
        node_id = reader.int32()
        host, port = reader.string(), reader.int32()
        coordinators[only_key] = _coordinator(code, message, node_id, host, port)
    else:
        for _ in range(reader.count(14)):
            key = reader.string()
            node_id = reader.int32()
            host, port = reader.string(), reader.int32()
            code = error_code(reader.int16())
            message = reader.nullable_string()
            reader.skip_tagged_fields()
            if key in coordinators:
                raise MalformedError("a key comes twice")
            coordinators[key] = _coordinator(code, message, node_id, host, port)
    reader.skip_tagged_fields()
    return FindCoordinatorResponse(coordinators, throttle_ms)


def _coordinator(
    code: ErrorCode, message: str | None, node_id: int, host: str, port: int
) -> Coordinator:
    if code is not ErrorCode.NONE:
        return Coordinator(code, None, message)
    return Coordinator(code, checked_node(node_id, host, port, None), message)


def read_add_partitions_to_txn(
    reader: WireReader,
    version: int,  # noqa: ARG001 - as the others
) -> AddPartitionsToTxnResponse:
    """AddPartitionsToTxn v0 to v3: one layout, flexible in v3."""
    throttle_ms = max(0, reader.int32())
    errors: dict[TopicPartition, ErrorCode] = {}
    for _ in range(reader.count(3)):
        topic = reader.string()
        for _ in range(reader.count(6)):
            partition, code = reader.unpack(_PARTITION_ERROR)
            reader.skip_tagged_fields()
            tp = TopicPartition(topic, partition)
            if tp in errors:
                raise MalformedError("a partition comes twice")
            errors[tp] = error_code(code)
        reader.skip_tagged_fields()
    reader.skip_tagged_fields()
    return AddPartitionsToTxnResponse(errors, throttle_ms)


def read_end_txn(reader: WireReader, version: int) -> EndTxnResponse:
    """EndTxn v0 to v5; v5 names the identity of the next transaction (KIP-890)."""
    throttle_ms, code = reader.unpack(_THROTTLE_AND_ERROR)
    producer_id, epoch = reader.unpack(_IDENTITY) if version >= 5 else (-1, -1)
    reader.skip_tagged_fields()
    error = error_code(code)
    if error is not ErrorCode.NONE:
        producer_id, epoch = -1, -1
    elif (producer_id < 0) != (epoch < 0):
        raise MalformedError("it gives a producer id without an epoch, or the reverse")
    return EndTxnResponse(error, producer_id, epoch, max(0, throttle_ms))


def read_create_topics(reader: WireReader, version: int) -> CreateTopicsResponse:
    """CreateTopics v2 to v7."""
    throttle_ms = max(0, reader.int32())
    errors: dict[str, tuple[ErrorCode, str | None]] = {}
    for _ in range(reader.count(6)):
        name = reader.string()
        if version >= 7:
            reader.raw(16)  # the topic's id: the next Metadata tells it
        code = error_code(reader.int16())
        message = reader.nullable_string()
        if version >= 5:
            reader.unpack(_TOPIC_DETAIL)
            for _ in range(reader.count(6)):
                reader.string()
                reader.nullable_string()
                reader.raw(3)  # read only, source, sensitive
                reader.skip_tagged_fields()
        reader.skip_tagged_fields()
        if name in errors:
            raise MalformedError("a topic comes twice")
        errors[name] = (code, message)
    reader.skip_tagged_fields()
    return CreateTopicsResponse(errors, throttle_ms)
