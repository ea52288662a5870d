"""The control plane's answers: values of our own, and how they are read.

Owns: one frozen dataclass for each answer and its reader, on the bounded cursor of
``protocol/wire.py``. An answer is also checked for sense, and holds nothing that was not asked
for: what it takes is bounded by the question. Never: requests (``protocol/messages.py``, which
names these values, too), nor what an error code means. Metadata is in ``metadata_response.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
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
_PRODUCER = struct.Struct(">ihqh")  # throttle time, error code, producer id, epoch
_THROTTLE_AND_ERROR = struct.Struct(">ih")
_PARTITION_ERROR = struct.Struct(">ih")  # partition, error code
_IDENTITY = struct.Struct(">qh")  # producer id, epoch
_TOPIC_DETAIL = struct.Struct(">ih")  # partitions, replication factor
_MOST_FEATURES = 256


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
class Coordinator:
    """``node`` is None when ``error`` is not NONE; ``message`` is the broker's own text."""

    error: ErrorCode
    node: Node | None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse:
    """``coordinators`` by the key that was asked for."""

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


def read_init_producer_id(reader: WireReader, version: int) -> InitProducerIdResponse:
    """InitProducerId v0 to v6: tagged fields from v2 on, what was kept open in v6 (KIP-939)."""
    throttle_ms, code, producer_id, epoch = reader.unpack(_PRODUCER)
    kept = reader.unpack(_IDENTITY) if version >= 6 else (-1, -1)
    reader.skip_tagged_fields()
    error = error_code(code)
    if error is not ErrorCode.NONE:
        producer_id, epoch, kept = -1, -1, (-1, -1)
    elif producer_id < 0 or epoch < 0:
        raise MalformedError("it gives a negative producer id or epoch")
    elif (kept[0] < 0) != (kept[1] < 0):
        raise MalformedError("it names half of a transaction that is open")
    return InitProducerIdResponse(error, producer_id, epoch, max(0, throttle_ms), *kept)


def read_find_coordinator(
    reader: WireReader, version: int, asked: Sequence[str]
) -> FindCoordinatorResponse:
    """FindCoordinator v1 to v6; before v4 it does not name its key, the only one ``asked``."""
    throttle_ms = max(0, reader.int32())
    coordinators: dict[str, Coordinator] = {}
    unanswered = {key: key for key in asked}
    if version < 4:
        code = error_code(reader.int16())
        message = reader.nullable_string()
        node_id = reader.int32()
        host, port = reader.string(), reader.int32()
        coordinators[unanswered.popitem()[0]] = _coordinator(code, message, node_id, host, port)
    else:
        for _ in range(reader.count(14)):
            key = unanswered.pop(reader.string(), None)
            if key is None:
                raise MalformedError("a key comes twice, or was not asked for")
            node_id = reader.int32()
            host, port = reader.string(), reader.int32()
            code = error_code(reader.int16())
            message = reader.nullable_string()
            reader.skip_tagged_fields()
            coordinators[key] = _coordinator(code, message, node_id, host, port)
    reader.skip_tagged_fields()
    if unanswered:
        raise MalformedError("a key is missing")
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
    asked: Iterable[TopicPartition],
) -> AddPartitionsToTxnResponse:
    """AddPartitionsToTxn v0 to v3: one layout, flexible in v3."""
    throttle_ms, errors = read_partition_errors(reader, asked)
    return AddPartitionsToTxnResponse(errors, throttle_ms)


def read_partition_errors(
    reader: WireReader, asked: Iterable[TopicPartition]
) -> tuple[int, Mapping[TopicPartition, ErrorCode]]:
    """A throttle time (ms), and the code of each partition that was ``asked`` for and of no other:
    the whole of more than one API's answer.
    """
    throttle_ms = max(0, reader.int32())
    errors: dict[TopicPartition, ErrorCode] = {}
    unanswered = {tp: tp for tp in asked}
    for _ in range(reader.count(3)):
        topic = reader.string()
        for _ in range(reader.count(6)):
            partition, code = reader.unpack(_PARTITION_ERROR)
            reader.skip_tagged_fields()
            tp = unanswered.pop(TopicPartition(topic, partition), None)
            if tp is None:
                raise MalformedError("a partition comes twice, or was not asked for")
            errors[tp] = error_code(code)
        reader.skip_tagged_fields()
    reader.skip_tagged_fields()
    if unanswered:
        raise MalformedError("a partition is missing")
    return throttle_ms, errors


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


def read_create_topics(
    reader: WireReader, version: int, asked: Iterable[str]
) -> CreateTopicsResponse:
    """CreateTopics v2 to v7."""
    throttle_ms = max(0, reader.int32())
    errors: dict[str, tuple[ErrorCode, str | None]] = {}
    unanswered = {name: name for name in asked}
    for _ in range(reader.count(6)):
        name = unanswered.pop(reader.string(), None)
        if name is None:
            raise MalformedError("a topic comes twice, or was not asked for")
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
        errors[name] = (code, message)
    reader.skip_tagged_fields()
    if unanswered:
        raise MalformedError("a topic is missing")
    return CreateTopicsResponse(errors, throttle_ms)
