"""Decoding an answer: it is well-formed, makes sense, and is one to its request.

Owns: :func:`decode`, and the check of each API. The layout is bounded by ``protocol/messages/``;
here are the rules between fields, and that everything that was requested is answered once, and
nothing else: so what a response takes is bounded by the request. Never: the meaning of an error
code. Produce and Metadata, which are read into columns, check themselves (``produce.py``,
``metadata.py``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    from spark_kafka_sink.protocol.messages.sasl_authenticate import (
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
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
    """The whole ``body`` of the response to ``request``. Raises RemoteProtocolError, nothing else.

    Every item of its arrays has been read once, so that reading one again raises nothing.
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
        check(request, response)
    _read_all(response)
    return response


def _refused_api_versions(request: Request[ResponseT], body: memoryview) -> ResponseT:
    """A broker that does not have the version responds with version 0. Only the code is needed:
    brokers since 2.4 send the supported range after it, others send it malformed (librdkafka's mock
    does).
    """
    try:
        response: Any = request.read(WireReader(bytes(body), flexible=False), 0)
        NodeApiVersions.of(response)
    except (MalformedError, struct.error, IndexError):
        return request.read(WireReader(_REFUSED, flexible=False), 0)
    return response  # type: ignore[no-any-return]


def _api_versions(_request: ApiVersionsRequest, response: ApiVersionsResponse) -> None:
    versions = NodeApiVersions.of(response)
    if response.error_code is ErrorCode.NONE and not versions.api_versions:
        raise MalformedError("it offers no API")


def _add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, response: AddPartitionsToTxnResponse
) -> None:
    _each_once(
        _partitions(response.results_by_topic, partitions="results_by_partition"),
        ((topic.name, number) for topic in request.topics for number in topic.partitions),
    )


def _create_topics(request: CreateTopicsRequest, response: CreateTopicsResponse) -> None:
    _each_once(
        (topic.name for topic in response.topics),
        (topic.name for topic in request.topics),
        "a topic",
    )


def _delete_topics(request: DeleteTopicsRequest, response: DeleteTopicsResponse) -> None:
    _each_once((topic.name for topic in response.responses), request.topic_names, "a topic")


def _describe_configs(request: DescribeConfigsRequest, response: DescribeConfigsResponse) -> None:
    _each_once(
        ((one.resource_type, one.resource_name) for one in response.results),
        ((one.resource_type, one.resource_name) for one in request.resources),
        "a resource",
    )
    for result in response.results:
        if len(result.configs) > _MOST_SETTINGS:
            raise MalformedError(f"a resource has {len(result.configs)} settings")
        if len({setting.name for setting in result.configs}) != len(result.configs):
            raise MalformedError("a setting comes twice")


def _describe_producers(
    request: DescribeProducersRequest, response: DescribeProducersResponse
) -> None:
    _each_once(
        _partitions(response.topics),
        ((topic.name, number) for topic in request.topics for number in topic.partition_indexes),
    )


def _describe_quorum(request: DescribeQuorumRequest, response: DescribeQuorumResponse) -> None:
    if response.error_code is not ErrorCode.NONE:
        return  # then it has no partition
    _each_once(
        _partitions(response.topics, "topic_name"), _partitions(request.topics, "topic_name")
    )


def _describe_transactions(
    request: DescribeTransactionsRequest, response: DescribeTransactionsResponse
) -> None:
    ids = (one.transactional_id for one in response.transaction_states)
    _each_once(ids, request.transactional_ids, "a transactional id")
    for one in response.transaction_states:
        if one.error_code is not ErrorCode.NONE:
            continue
        if one.producer_id < -1 or one.producer_epoch < -1 or one.transaction_timeout_ms < 0:
            raise MalformedError("a producer id, epoch or timeout is negative")
        for topic in one.topics:
            if topic.partitions and min(topic.partitions) < 0:
                raise MalformedError("a partition is negative")


def _fetch(request: FetchRequest, response: FetchResponse) -> None:
    if response.error_code is not ErrorCode.NONE:
        return  # then it has no partition
    _each_once(
        _partitions(response.responses, "topic"), _partitions(request.topics, "topic", "partition")
    )
    for topic in response.responses:
        for one in topic.partitions:
            offsets = one.high_watermark, one.last_stable_offset + 1, one.log_start_offset + 1
            if one.error_code is ErrorCode.NONE and min(offsets) < 0:
                raise MalformedError("an offset is negative")


def _find_coordinator(request: FindCoordinatorRequest, response: FindCoordinatorResponse) -> None:
    if response.coordinators:
        keys = (one.key for one in response.coordinators)
        _each_once(keys, request.coordinator_keys, "a key")
    # Without a list it is a response below version 4: about the one key.
    for one in response.coordinators or (response,):
        if one.error_code is ErrorCode.NONE:
            checked_node(one.node_id, one.host, one.port, None)


def _list_offsets(request: ListOffsetsRequest, response: ListOffsetsResponse) -> None:
    _each_once(_partitions(response.topics), _partitions(request.topics))
    for topic in response.topics:
        for one in topic.partitions:
            if one.error_code is ErrorCode.NONE and one.offset < 0:
                raise MalformedError("an offset is negative")


def _offset_fetch(request: OffsetFetchRequest, response: OffsetFetchResponse) -> None:
    groups = (group.group_id for group in request.groups)
    _each_once((group.group_id for group in response.groups), groups, "a group")
    requested = {
        group.group_id: [
            (topic.name, number)
            for topic in group.topics or ()
            for number in topic.partition_indexes
        ]
        for group in request.groups
    }
    for group in response.groups:
        if group.error_code is ErrorCode.NONE:
            _each_once(_partitions(group.topics), requested[group.group_id])


def _sasl_handshake(_request: SaslHandshakeRequest, response: SaslHandshakeResponse) -> None:
    if len(response.mechanisms) > _MOST_MECHANISMS:
        raise MalformedError(f"it offers {len(response.mechanisms)} mechanisms")


def _sasl_authenticate(
    _request: SaslAuthenticateRequest, response: SaslAuthenticateResponse
) -> None:
    if response.session_lifetime_ms < 0:
        raise MalformedError("the session's lifetime is negative")


def _init_producer_id(request: InitProducerIdRequest, response: InitProducerIdResponse) -> None:
    if response.error_code is not ErrorCode.NONE:
        return
    if response.producer_id < 0 or response.producer_epoch < 0:
        raise MalformedError("it gives a negative producer id or epoch")
    if (response.ongoing_txn_producer_id < 0) != (response.ongoing_txn_producer_epoch < 0):
        raise MalformedError("it names half of a transaction that is open")
    _higher_epoch(request, response)


def _end_txn(request: EndTxnRequest, response: EndTxnResponse) -> None:
    if response.error_code is not ErrorCode.NONE:
        return
    if (response.producer_id < 0) != (response.producer_epoch < 0):
        raise MalformedError("it gives a producer id without an epoch, or the reverse")
    _higher_epoch(request, response)


def _higher_epoch(
    request: InitProducerIdRequest | EndTxnRequest,
    response: InitProducerIdResponse | EndTxnResponse,
) -> None:
    """One (producer id, epoch) is one transaction: two with the same would join each other."""
    same_id = response.producer_id == request.producer_id >= 0
    if same_id and response.producer_epoch <= request.producer_epoch:
        raise MalformedError(
            f"it returned epoch {response.producer_epoch} to a producer with epoch "
            f"{request.producer_epoch}"
        )


def _txn_offset_commit(request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse) -> None:
    _each_once(_partitions(response.topics), _partitions(request.topics))


def _partitions(
    topics: Iterable[Any],
    name: str = "name",
    number: str = "partition_index",
    partitions: str = "partitions",
) -> Iterator[tuple[str, int]]:
    """Name and number of each partition; the others are a message's fields for them. A topic has
    one at least: the only partition of an answer is the first one of its first topic.
    """
    for topic in topics:
        found = getattr(topic, partitions)
        if not found:
            raise MalformedError("a topic has no partition")
        for one in found:
            yield getattr(topic, name), getattr(one, number)


def _each_once(
    answered: Iterable[object], requested: Iterable[object], what: str = "a partition"
) -> None:
    """Raises MalformedError, naming ``what``, for a duplicate, a missing or an unrequested one."""
    missing = set(requested)
    for one in answered:
        if one not in missing:
            raise MalformedError(f"{what} comes twice, or was not requested")
        missing.remove(one)
    if missing:
        raise MalformedError(f"{what} is missing")


def _read_all(struct: object) -> None:
    """An item of an array may be malformed, so that reading it raises: here, and not when used."""
    for name in _arrays_of(type(struct)):  # type: ignore[arg-type]  # a class is hashable
        for item in getattr(struct, name):
            if _arrays_of(type(item)):  # type: ignore[arg-type]
                _read_all(item)


@cache
def _arrays_of(kind: type[object]) -> tuple[str, ...]:
    """The fields of a message that are kept as bytes, each item of which is made when read."""
    fields = getattr(kind, "__annotations__", {})
    return tuple(name for name, hint in fields.items() if hint.startswith("WireArray["))


#: Called with the request and its response; raises MalformedError.
_CHECKS: Final[Mapping[ApiKey, Callable[[Any, Any], None]]] = MappingProxyType(
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
        ApiKey.SASL_AUTHENTICATE: _sasl_authenticate,
        ApiKey.SASL_HANDSHAKE: _sasl_handshake,
        ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    }
)
