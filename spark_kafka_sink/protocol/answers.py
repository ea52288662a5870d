"""Decodes a response, and checks that it is consistent and fits its request.

:func:`decode` is for all APIs. The decoders in ``protocol/messages/`` check each field alone. This
module checks the following:

* Fields that belong together are consistent. If they are not, the response is an error.
* Each requested item, such as a partition, has exactly one item in the response. If it has not, the
  response is an error.
* Items that were not requested are dropped, as in other clients, because some services return all
  topics. So the size of the request limits the memory for the response.

The responses of Produce and Metadata are checked in ``produce.py`` and ``metadata.py``. The callers
handle the error codes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.frames import is_flexible
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.request import ApiKey, Request, check_version
from spark_kafka_sink.protocol.wire import (
    MalformedError,
    WireReader,
    checked_node,
    decoding,
)

if TYPE_CHECKING:
    from spark_kafka_sink.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
    )
    from spark_kafka_sink.protocol.messages.api_versions import (
        ApiVersionsRequest,
        ApiVersionsResponse,
    )
    from spark_kafka_sink.protocol.messages.create_topics import (
        CreateTopicsRequest,
        CreateTopicsResponse,
    )
    from spark_kafka_sink.protocol.messages.delete_topics import (
        DeleteTopicsRequest,
        DeleteTopicsResponse,
    )
    from spark_kafka_sink.protocol.messages.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResponse,
    )
    from spark_kafka_sink.protocol.messages.describe_producers import (
        DescribeProducersRequest,
        DescribeProducersResponse,
    )
    from spark_kafka_sink.protocol.messages.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumResponse,
    )
    from spark_kafka_sink.protocol.messages.describe_transactions import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
    )
    from spark_kafka_sink.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
    from spark_kafka_sink.protocol.messages.fetch import FetchRequest, FetchResponse
    from spark_kafka_sink.protocol.messages.find_coordinator import (
        FindCoordinatorRequest,
        FindCoordinatorResponse,
    )
    from spark_kafka_sink.protocol.messages.init_producer_id import (
        InitProducerIdRequest,
        InitProducerIdResponse,
    )
    from spark_kafka_sink.protocol.messages.list_offsets import (
        ListOffsetsRequest,
        ListOffsetsResponse,
    )
    from spark_kafka_sink.protocol.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchResponse,
    )
    from spark_kafka_sink.protocol.messages.sasl_handshake import (
        SaslHandshakeRequest,
        SaslHandshakeResponse,
    )
    from spark_kafka_sink.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    )

ResponseT = TypeVar("ResponseT")

#: Kafka has five; a broker may add others.
_MOST_MECHANISMS: Final = 100
#: A broker has some 350.
_MOST_SETTINGS: Final = 1_000
#: A response to ApiVersions, in version 0, that says UNSUPPORTED_VERSION and offers nothing.
_REFUSED: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big") + bytes(4)


def decode(request: Request[ResponseT], version: int, body: memoryview) -> ResponseT:
    """Decodes ``body``, the response to ``request``. Raises only RemoteProtocolError.

    Every item of the response's arrays is decoded here. So a malformed item raises the error here,
    and not later when a caller reads it.
    """
    api_key = request.api_key
    if api_key is ApiKey.API_VERSIONS and version > 0 and body[:2] == _REFUSED[:2]:
        return _refused_api_versions(request, body)
    # Produce checks itself, in as few calls as it can: it is read for each batch.
    read = request.read if api_key is ApiKey.PRODUCE else partial(_read, request)
    return decoding(api_key, version, body, read, flexible=is_flexible(api_key, version))


def _read(request: Request[ResponseT], reader: WireReader, version: int) -> ResponseT:
    check_version(request, version)
    response = request.read(reader, version)
    check = _CHECKS.get(request.api_key)
    if check is not None:
        response = check(request, response)
    _read_all(response)
    return response


def _refused_api_versions(request: Request[ResponseT], body: memoryview) -> ResponseT:
    """Reads the response of a broker that does not support the version of an ApiVersions request.
    Returns a response with the error code UNSUPPORTED_VERSION.

    Such a broker responds with version 0 of the response. Brokers of version 2.4 or newer also send
    the request versions that they support, and the result has these versions. Other servers, such
    as librdkafka's mock broker, send malformed bytes. For such bytes, the result has no versions.
    """
    try:
        response: Any = request.read(WireReader(bytes(body), flexible=False), 0)
        NodeApiVersions.of(response)
    except (MalformedError, struct.error, IndexError):
        return request.read(WireReader(_REFUSED, flexible=False), 0)
    return response  # type: ignore[no-any-return]


def _api_versions(
    _request: ApiVersionsRequest, response: ApiVersionsResponse
) -> ApiVersionsResponse:
    versions = NodeApiVersions.of(response)
    if response.error_code is ErrorCode.NONE and not versions.api_versions:
        raise MalformedError("it offers no API")
    return response


def _add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, response: AddPartitionsToTxnResponse
) -> AddPartitionsToTxnResponse:
    requested = ((topic.name, number) for topic in request.topics for number in topic.partitions)
    kept = _partitions_of(response.results_by_topic, requested, partitions="results_by_partition")
    return _with(response, "results_by_topic", kept)


def _create_topics(
    request: CreateTopicsRequest, response: CreateTopicsResponse
) -> CreateTopicsResponse:
    names = [topic.name for topic in request.topics]
    return _with(
        response, "topics", _items_of(response.topics, lambda one: one.name, names, "a topic")
    )


def _delete_topics(
    request: DeleteTopicsRequest, response: DeleteTopicsResponse
) -> DeleteTopicsResponse:
    names = request.topic_names
    kept = _items_of(response.responses, lambda one: one.name, names, "a topic")
    return _with(response, "responses", kept)


def _describe_configs(
    request: DescribeConfigsRequest, response: DescribeConfigsResponse
) -> DescribeConfigsResponse:
    kept = _items_of(
        response.results,
        lambda one: (one.resource_type, one.resource_name),
        [(one.resource_type, one.resource_name) for one in request.resources],
        "a resource",
    )
    for result in kept:
        if len(result.configs) > _MOST_SETTINGS:
            raise MalformedError(f"a resource has {len(result.configs)} settings")
        values: dict[str, str | None] = {}
        for setting in result.configs:
            if values.setdefault(setting.name, setting.value) != setting.value:
                raise MalformedError("a setting has two values")
    return _with(response, "results", kept)


def _describe_producers(
    request: DescribeProducersRequest, response: DescribeProducersResponse
) -> DescribeProducersResponse:
    requested = (
        (topic.name, number) for topic in request.topics for number in topic.partition_indexes
    )
    return _with(response, "topics", _partitions_of(response.topics, requested))


def _describe_quorum(
    request: DescribeQuorumRequest, response: DescribeQuorumResponse
) -> DescribeQuorumResponse:
    if response.error_code is not ErrorCode.NONE:
        return response  # then it has no partition
    requested = _partitions(request.topics, "topic_name")
    return _with(response, "topics", _partitions_of(response.topics, requested, "topic_name"))


def _describe_transactions(
    request: DescribeTransactionsRequest, response: DescribeTransactionsResponse
) -> DescribeTransactionsResponse:
    kept = _items_of(
        response.transaction_states,
        lambda one: one.transactional_id,
        request.transactional_ids,
        "a transactional id",
    )
    for one in kept:
        if one.error_code is not ErrorCode.NONE:
            continue
        if one.producer_id < -1 or one.producer_epoch < -1 or one.transaction_timeout_ms < 0:
            raise MalformedError("a producer id, epoch or timeout is negative")
        for topic in one.topics:
            if topic.partitions and min(topic.partitions) < 0:
                raise MalformedError("a partition is negative")
    return _with(response, "transaction_states", kept)


def _fetch(request: FetchRequest, response: FetchResponse) -> FetchResponse:
    if response.error_code is not ErrorCode.NONE:
        return response  # then it has no partition
    requested = _partitions(request.topics, "topic", "partition")
    kept = _partitions_of(response.responses, requested, "topic")
    for topic in kept:
        for one in topic.partitions:
            offsets = one.high_watermark, one.last_stable_offset + 1, one.log_start_offset + 1
            if one.error_code is ErrorCode.NONE and min(offsets) < 0:
                raise MalformedError("an offset is negative")
    return _with(response, "responses", kept)


def _find_coordinator(
    request: FindCoordinatorRequest, response: FindCoordinatorResponse
) -> FindCoordinatorResponse:
    if response.coordinators:
        keys = request.coordinator_keys
        kept = _items_of(response.coordinators, lambda one: one.key, keys, "a key")
        response = _with(response, "coordinators", kept)
    # Without a list it is a response below version 4: about the one key.
    for one in response.coordinators or (response,):
        if one.error_code is ErrorCode.NONE:
            checked_node(one.node_id, one.host, one.port, None)
    return response


def _list_offsets(
    request: ListOffsetsRequest, response: ListOffsetsResponse
) -> ListOffsetsResponse:
    kept = _partitions_of(response.topics, _partitions(request.topics))
    for topic in kept:
        for one in topic.partitions:
            if one.error_code is ErrorCode.NONE and one.offset < 0:
                raise MalformedError("an offset is negative")
    return _with(response, "topics", kept)


def _offset_fetch(
    request: OffsetFetchRequest, response: OffsetFetchResponse
) -> OffsetFetchResponse:
    groups = [group.group_id for group in request.groups]
    requested = {
        group.group_id: [
            (topic.name, number)
            for topic in group.topics or ()
            for number in topic.partition_indexes
        ]
        for group in request.groups
    }
    kept = [
        group
        if group.error_code is not ErrorCode.NONE
        else _with(group, "topics", _partitions_of(group.topics, requested[group.group_id]))
        for group in _items_of(response.groups, lambda one: one.group_id, groups, "a group")
    ]
    return _with(response, "groups", kept)


def _sasl_handshake(
    _request: SaslHandshakeRequest, response: SaslHandshakeResponse
) -> SaslHandshakeResponse:
    if len(response.mechanisms) > _MOST_MECHANISMS:
        raise MalformedError(f"it offers {len(response.mechanisms)} mechanisms")
    return response


def _init_producer_id(
    request: InitProducerIdRequest, response: InitProducerIdResponse
) -> InitProducerIdResponse:
    if response.error_code is not ErrorCode.NONE:
        return response
    if response.producer_id < 0 or response.producer_epoch < 0:
        raise MalformedError("it gives a negative producer id or epoch")
    _higher_epoch(request, response)
    return response


def _end_txn(request: EndTxnRequest, response: EndTxnResponse) -> EndTxnResponse:
    if response.error_code is not ErrorCode.NONE:
        return response
    if (response.producer_id < 0) != (response.producer_epoch < 0):
        raise MalformedError("it gives a producer id without an epoch, or the reverse")
    _higher_epoch(request, response)
    return response


def _higher_epoch(
    request: InitProducerIdRequest | EndTxnRequest,
    response: InitProducerIdResponse | EndTxnResponse,
) -> None:
    """Raises MalformedError if the response has the producer id of the request, and its epoch is
    not higher than the epoch of the request.

    With an equal epoch, the producer's next transaction would have the same producer id and epoch
    as its previous transaction. Brokers would then treat both as one transaction.
    """
    same_id = response.producer_id == request.producer_id >= 0
    if same_id and response.producer_epoch <= request.producer_epoch:
        raise MalformedError(
            f"it returned epoch {response.producer_epoch} to a producer with epoch "
            f"{request.producer_epoch}"
        )


def _txn_offset_commit(
    request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse
) -> TxnOffsetCommitResponse:
    kept = _partitions_of(response.topics, _partitions(request.topics))
    return _with(response, "topics", kept)


def _partitions(
    topics: Iterable[Any], name: str = "name", number: str = "partition_index"
) -> Iterator[tuple[str, int]]:
    """Yields each partition in ``topics`` as a pair: topic name and partition number. ``name`` and
    ``number`` are the names of the two fields in the message.
    """
    for topic in topics:
        for one in topic.partitions:
            yield getattr(topic, name), getattr(one, number)


def _partitions_of(
    topics: Sequence[Any],
    requested: Iterable[tuple[str, int]],
    name: str = "name",
    number: str = "partition_index",
    partitions: str = "partitions",
) -> Sequence[Any]:
    """Returns ``topics``, a part of a response, with only the ``requested`` partitions. If only one
    partition was requested, it is the first partition of the first topic in the result.

    ``name``, ``number`` and ``partitions`` are the names of fields in the message. Raises
    MalformedError if a requested partition is missing, or occurs twice.
    """
    missing = set(requested)
    wanted = frozenset(missing)
    kept: list[Any] = []
    surplus = False
    for topic in topics:
        topic_name, found = getattr(topic, name), getattr(topic, partitions)
        mine = []
        for one in found:
            key = topic_name, getattr(one, number)
            if key in wanted:
                _answered(missing, key, "a partition")
                mine.append(one)
        if mine:
            kept.append(topic if len(mine) == len(found) else replace(topic, **{partitions: mine}))
        surplus = surplus or not mine or len(mine) < len(found)
    if missing:
        raise MalformedError("a partition is missing")
    return kept if surplus else topics


def _items_of(
    items: Sequence[Any], key: Callable[[Any], Hashable], requested: Iterable[Hashable], what: str
) -> Sequence[Any]:
    """Returns ``items`` without the items that were not requested. ``key`` returns the key of an
    item, and ``requested`` has the keys of the request.

    Raises MalformedError if a requested key is missing, or occurs twice. ``what`` is the name of
    the items for the error message.
    """
    missing = set(requested)
    wanted = frozenset(missing)
    kept = []
    for one in items:
        if (found := key(one)) in wanted:
            _answered(missing, found, what)
            kept.append(one)
    if missing:
        raise MalformedError(f"{what} is missing")
    return kept if len(kept) < len(items) else items


def _answered(missing: set[Any], key: Hashable, what: str) -> None:
    if key not in missing:
        raise MalformedError(f"{what} comes twice")
    missing.remove(key)


def _with(message: ResponseT, field: str, kept: Sequence[Any]) -> ResponseT:
    """Returns a copy of ``message``. In the copy, the field with the name ``field`` has only the
    items in ``kept``.
    """
    if kept is getattr(message, field):
        return message
    changed: ResponseT = replace(message, **{field: kept})  # type: ignore[type-var]  # a dataclass
    return changed


def _read_all(struct: object) -> None:
    """Decodes every array item of a message once. Raises an error if an item is malformed."""
    for name in _arrays_of(type(struct)):  # type: ignore[arg-type]  # a class is hashable
        for item in getattr(struct, name):
            if _arrays_of(type(item)):  # type: ignore[arg-type]
                _read_all(item)


@cache
def _arrays_of(kind: type[object]) -> tuple[str, ...]:
    """The names of the fields of the class ``kind`` that have the type :class:`WireArray`."""
    fields = getattr(kind, "__annotations__", {})
    return tuple(name for name, hint in fields.items() if hint.startswith("WireArray["))


#: Called with the request and its response; returns the response without surplus, or raises
#: MalformedError.
_CHECKS: Final[Mapping[ApiKey, Callable[[Any, Any], Any]]] = MappingProxyType(
    {
        ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
        ApiKey.API_VERSIONS: _api_versions,
        ApiKey.CREATE_TOPICS: _create_topics,
        ApiKey.DELETE_TOPICS: _delete_topics,
        ApiKey.DESCRIBE_CONFIGS: _describe_configs,
        ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
        ApiKey.DESCRIBE_QUORUM: _describe_quorum,
        ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
        ApiKey.END_TXN: _end_txn,
        ApiKey.FETCH: _fetch,
        ApiKey.FIND_COORDINATOR: _find_coordinator,
        ApiKey.INIT_PRODUCER_ID: _init_producer_id,
        ApiKey.LIST_OFFSETS: _list_offsets,
        ApiKey.OFFSET_FETCH: _offset_fetch,
        ApiKey.SASL_HANDSHAKE: _sasl_handshake,
        ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    }
)
