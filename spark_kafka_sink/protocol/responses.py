"""The control plane's answers: values of our own, and how they are read.

Owns: one frozen dataclass for each answer, and how it comes of Kafka's message
(``protocol/messages/``): checked for sense, and holding nothing that was not requested, so that
what it takes is bounded by the question. Never: requests (``protocol/control_messages.py``, which
names these values, too), nor what an error code means. Metadata is in ``metadata_response.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol import messages
from spark_kafka_sink.protocol.bodies import once_each
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.wire import MalformedError, WireReader, checked_node, error_code

if TYPE_CHECKING:
    from spark_kafka_sink.protocol.messages import find_coordinator
    from spark_kafka_sink.protocol.messages.api_versions import ApiVersion, FinalizedFeatureKey

_KNOWN_APIS: Final = frozenset(int(key) for key in ApiKey)
_MOST_FEATURES: Final = 256


@dataclass(frozen=True, slots=True)
class ApiVersionsResponse:
    """What a broker speaks. APIs that this client does not know are left out.

    ``error`` UNSUPPORTED_VERSION asks for a retry: at ``api_versions[API_VERSIONS].max`` when
    that is there (brokers since 2.4), else at 0. ``finalized_features`` are the cluster's feature
    levels, of epoch ``finalized_features_epoch`` (-1: the broker reports none).
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
class FoundCoordinator:
    """``node`` is None when ``error`` is not NONE; ``message`` is the broker's own text."""

    error: ErrorCode
    node: Node | None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse:
    """``coordinators`` by the key that was requested."""

    coordinators: Mapping[str, FoundCoordinator]
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


def api_ranges(keys: Iterable[ApiVersion]) -> dict[int, VersionRange]:
    """The versions of each API that we know."""
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


def read_api_versions(reader: WireReader, version: int) -> ApiVersionsResponse:
    """ApiVersions v0 to v4, in the layout of ``version``."""
    answer = messages.api_versions.ApiVersionsResponse.read(reader, version)
    error = error_code(answer.error_code)
    ranges = api_ranges(answer.api_keys)
    if error is ErrorCode.NONE and not ranges:
        raise MalformedError("it offers no API")
    epoch, features = answer.finalized_features_epoch, _levels(answer.finalized_features)
    if epoch < 0:  # then the levels say nothing (ApiVersionsResponse.json)
        epoch, features = -1, {}
    return ApiVersionsResponse(error, ranges, features, epoch, max(0, answer.throttle_time_ms))


def _levels(features: Sequence[FinalizedFeatureKey]) -> dict[str, int]:
    if len(features) > _MOST_FEATURES:
        raise MalformedError(f"it has {len(features)} features")
    levels = {feature.name: feature.max_version_level for feature in features}
    if len(levels) != len(features):
        raise MalformedError("a feature comes twice")
    return levels


def read_init_producer_id(reader: WireReader, version: int) -> InitProducerIdResponse:
    """InitProducerId v0 to v6; what was kept open in v6 (KIP-939)."""
    answer = messages.init_producer_id.InitProducerIdResponse.read(reader, version)
    error, throttle_ms = error_code(answer.error_code), max(0, answer.throttle_time_ms)
    if error is not ErrorCode.NONE:
        return InitProducerIdResponse(error, -1, -1, throttle_ms)
    if answer.producer_id < 0 or answer.producer_epoch < 0:
        raise MalformedError("it gives a negative producer id or epoch")
    kept = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
    if (kept[0] < 0) != (kept[1] < 0):
        raise MalformedError("it names half of a transaction that is open")
    return InitProducerIdResponse(
        error, answer.producer_id, answer.producer_epoch, throttle_ms, *kept
    )


def read_find_coordinator(
    reader: WireReader, version: int, requested: Sequence[str]
) -> FindCoordinatorResponse:
    """FindCoordinator v1 to v6; before v4 it does not name its key, the only one ``requested``."""
    answer = messages.find_coordinator.FindCoordinatorResponse.read(reader, version)
    if version < 4:
        coordinators = {requested[0]: _coordinator(answer)}
    else:
        coordinators = once_each(
            ((one.key, _coordinator(one)) for one in answer.coordinators), requested, "a key"
        )
    return FindCoordinatorResponse(coordinators, max(0, answer.throttle_time_ms))


def _coordinator(
    one: find_coordinator.FindCoordinatorResponse | find_coordinator.Coordinator,
) -> FoundCoordinator:
    error = error_code(one.error_code)
    if error is not ErrorCode.NONE:
        return FoundCoordinator(error, None, one.error_message)
    return FoundCoordinator(
        error, checked_node(one.node_id, one.host, one.port, None), one.error_message
    )


def read_add_partitions_to_txn(
    reader: WireReader, version: int, requested: Iterable[TopicPartition]
) -> AddPartitionsToTxnResponse:
    """AddPartitionsToTxn v0 to v3."""
    answer = messages.add_partitions_to_txn.AddPartitionsToTxnResponse.read(reader, version)
    errors = once_each(
        (
            (TopicPartition(topic.name, one.partition_index), error_code(one.partition_error_code))
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        ),
        requested,
    )
    return AddPartitionsToTxnResponse(errors, max(0, answer.throttle_time_ms))


def read_end_txn(reader: WireReader, version: int) -> EndTxnResponse:
    """EndTxn v0 to v5; v5 names the identity of the next transaction (KIP-890)."""
    answer = messages.end_txn.EndTxnResponse.read(reader, version)
    error, throttle_ms = error_code(answer.error_code), max(0, answer.throttle_time_ms)
    producer_id, epoch = answer.producer_id, answer.producer_epoch
    if error is not ErrorCode.NONE:
        producer_id, epoch = -1, -1
    elif (producer_id < 0) != (epoch < 0):
        raise MalformedError("it gives a producer id without an epoch, or the reverse")
    return EndTxnResponse(error, producer_id, epoch, throttle_ms)


def read_create_topics(
    reader: WireReader, version: int, requested: Iterable[str]
) -> CreateTopicsResponse:
    """CreateTopics v2 to v7."""
    answer = messages.create_topics.CreateTopicsResponse.read(reader, version)
    errors = once_each(
        (
            (topic.name, (error_code(topic.error_code), topic.error_message))
            for topic in answer.topics
        ),
        requested,
        "a topic",
    )
    return CreateTopicsResponse(errors, max(0, answer.throttle_time_ms))
