"""ListOffsets, Fetch, DescribeConfigs: requests against kio's reader, answers against its writer,
and liars.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from hostile import allocated, refused
from kio.schema.errors import ErrorCode as KioErrorCode
from kio_oracle import THROTTLE, Module, decode, ids_of, in_every_version, read_request, write

from spark_kafka_sink.base.errors import ErrorCode, InvalidTopicError, UnsupportedVersionError
from spark_kafka_sink.protocol.admin_messages import (
    ConfigResource,
    ConfigResourceType,
    DescribeConfigsRequest,
    ResourceConfigs,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.fetch_messages import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    ListOffsetsRequest,
    OffsetSpec,
    PartitionOffset,
)

A0, A3, B7 = TopicPartition("a", 0), TopicPartition("a", 3), TopicPartition("b", 7)
OFFSETS = ListOffsetsRequest((A0, B7, A3), OffsetSpec.LATEST)
FETCH = FetchRequest((FetchPartition(A0, 100), FetchPartition(B7, 7, 1024), FetchPartition(A3, 0)))
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "orders")
BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
CONFIGS = DescribeConfigsRequest((TOPIC, BROKER), ("cleanup.policy", "segment.bytes"))

ALL = in_every_version(OFFSETS, FETCH, CONFIGS)
IDS = ids_of(ALL)
OF_FETCH = range(4, 13)
OF_OFFSETS = range(2, 10)
OF_CONFIGS = range(1, 5)


# --- answers as kio writes them

ASKED = [("a", [3, 0]), ("b", [7])]


def list_offsets(
    version: int,
    topics: list[tuple[str, list[int]]] = ASKED,
    code: KioErrorCode = KioErrorCode.none,
    offset: int = 1234,
) -> bytes:
    kio = Module("list_offsets", version, "response")
    return write(
        kio.ListOffsetsResponse(
            throttle_time=THROTTLE,
            topics=tuple(
                kio.ListOffsetsTopicResponse(
                    name=topic,
                    partitions=tuple(
                        kio.ListOffsetsPartitionResponse(
                            partition_index=index,
                            error_code=code,
                            timestamp=-1,
                            offset=offset,
                            leader_epoch=5,
                        )
                        for index in partitions
                    ),
                )
                for topic, partitions in topics
            ),
        )
    )


def fetched(
    version: int,
    topics: list[tuple[str, list[int]]] = ASKED,
    top: KioErrorCode = KioErrorCode.none,
    **fields: Any,
) -> bytes:
    kio = Module("fetch", version, "response")
    aborted = fields.pop("aborted", ((4711, 90), (12, 95)))
    plain: dict[str, Any] = {
        "error_code": KioErrorCode.none,
        "high_watermark": 130,
        "last_stable_offset": 120,
        "log_start_offset": 3,
        "records": b"bytes",
    }
    return write(
        kio.FetchResponse(
            throttle_time=THROTTLE,
            error_code=top,
            session_id=0,
            responses=tuple(
                kio.FetchableTopicResponse(
                    topic=topic,
                    partitions=tuple(
                        kio.PartitionData(
                            partition_index=index,
                            aborted_transactions=None
                            if aborted is None
                            else tuple(
                                kio.AbortedTransaction(producer_id=pid, first_offset=first)
                                for pid, first in aborted
                            ),
                            **(plain | fields),
                        )
                        for index in partitions
                    ),
                )
                for topic, partitions in topics
            ),
        )
    )


def described(
    version: int,
    resources: tuple[tuple[int, str], ...] = (TOPIC, BROKER),
    code: KioErrorCode = KioErrorCode.none,
    names: tuple[str, ...] = ("cleanup.policy", "segment.bytes", "unset"),
    sensitive: bool = False,
) -> bytes:
    kio = Module("describe_configs", version, "response")
    synonym = kio.DescribeConfigsSynonym(name="log.x", value=None, source=5)
    return write(
        kio.DescribeConfigsResponse(
            throttle_time=THROTTLE,
            results=tuple(
                kio.DescribeConfigsResult(
                    error_code=code,
                    error_message="the broker's words" if code else None,
                    resource_type=kind,
                    resource_name=resource,
                    configs=tuple(
                        kio.DescribeConfigsResourceResult(
                            name=name,
                            value=None if name == "unset" else f"value of {name}",
                            read_only=False,
                            config_source=5,
                            is_sensitive=sensitive,
                            synonyms=(synonym, synonym),
                            config_type=2,
                            documentation="words" if version >= 3 else None,
                        )
                        for name in names
                    ),
                )
                for kind, resource in resources
            ),
        )
    )


def answer(request: Any, version: int) -> bytes:
    if isinstance(request, ListOffsetsRequest):
        return list_offsets(version)
    if isinstance(request, FetchRequest):
        return fetched(version)
    return described(version)


# --- requests


@pytest.mark.parametrize("version", OF_OFFSETS)
@pytest.mark.parametrize("spec", OffsetSpec)
def test_offsets_are_asked_for(version: int, spec: OffsetSpec) -> None:
    read = read_request(ListOffsetsRequest((A0, B7, A3, A0), spec), version)
    assert (read.replica_id, read.isolation_level) == (-1, 0)
    found = {
        topic.name: [(p.partition_index, p.timestamp) for p in topic.partitions]
        for topic in read.topics
    }
    wire = {OffsetSpec.LATEST: -1, OffsetSpec.EARLIEST: -2}[spec]
    assert found == {"a": [(0, wire), (3, wire)], "b": [(7, wire)]}


@pytest.mark.parametrize("version", OF_FETCH)
def test_a_fetch_asks_as_a_consumer_without_a_session(version: int) -> None:
    request = FetchRequest(FETCH.partitions, max_wait_ms=250, max_bytes=4096)
    read = read_request(request, version)
    assert (read.replica_id, read.isolation_level) == (-1, 0)
    assert (read.max_wait, read.min_bytes) == (dt.timedelta(milliseconds=250), 1)
    assert read.max_bytes == 4096
    found = {
        topic.topic: [
            (p.partition, p.fetch_offset, p.partition_max_bytes) for p in topic.partitions
        ]
        for topic in read.topics
    }
    default = 4 * 1024 * 1024
    assert found == {"a": [(0, 100, default), (3, 0, default)], "b": [(7, 7, 1024)]}
    if version >= 7:
        assert (read.session_id, read.session_epoch) == (0, -1)
        assert read.forgotten_topics_data == ()


@pytest.mark.parametrize("version", OF_CONFIGS)
@pytest.mark.parametrize("names", [None, ("cleanup.policy",)])
def test_configs_are_asked_for(version: int, names: tuple[str, ...] | None) -> None:
    read = read_request(DescribeConfigsRequest((TOPIC, BROKER, TOPIC), names), version)
    assert [(r.resource_type, r.resource_name) for r in read.resources] == [
        (2, "orders"),
        (4, "1"),
    ]
    assert {r.configuration_keys for r in read.resources} == {names}
    assert not read.include_synonyms


def test_a_topics_name_too_long_for_the_wire_is_an_invalid_topic() -> None:
    tp = TopicPartition("x" * 40_000, 0)
    for request in (ListOffsetsRequest((tp,)), FetchRequest((FetchPartition(tp, 0),))):
        with pytest.raises(InvalidTopicError):
            request.encode(request.versions.max)


@pytest.mark.parametrize(("request_", "version"), ALL, ids=IDS)
def test_a_version_outside_of_ours_is_refused(request_: Any, version: int) -> None:
    for wrong in (request_.versions.min - 1, request_.versions.max + 1):
        with pytest.raises(UnsupportedVersionError):
            request_.encode(wrong)
        with pytest.raises(UnsupportedVersionError):
            decode(request_, wrong, memoryview(b""))


# --- answers


@pytest.mark.parametrize("version", OF_OFFSETS)
def test_offsets_are_read(version: int) -> None:
    response = decode(OFFSETS, version, list_offsets(version))
    expected = PartitionOffset(ErrorCode.NONE, 1234)
    assert response.partitions == dict.fromkeys((A0, A3, B7), expected)
    assert response.throttle_ms == 9


def test_a_partition_with_an_error_has_no_offset() -> None:
    data = list_offsets(6, code=KioErrorCode.not_leader_or_follower)
    found = decode(OFFSETS, 6, data).partitions[B7]
    assert found == PartitionOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_an_end_before_the_beginning_is_refused() -> None:
    assert refused(lambda: decode(OFFSETS, 6, list_offsets(6, offset=-1)))


@pytest.mark.parametrize("version", OF_FETCH)
def test_what_was_fetched_is_read(version: int) -> None:
    response = decode(FETCH, version, fetched(version))
    assert (response.error, response.throttle_ms) == (ErrorCode.NONE, 9)
    assert response.partitions.keys() == {A0, A3, B7}
    plain = FetchedPartition(ErrorCode.NONE, 100, memoryview(b"bytes"), 120)
    assert response.partitions[A0] == plain
    committed = replace(FETCH, read_committed=True)
    assert read_request(committed, version).isolation_level == 1
    found = decode(committed, version, fetched(version)).partitions[A0]
    assert found == replace(plain, aborted=((4711, 90), (12, 95)))
    none = decode(committed, version, fetched(version, aborted=None)).partitions[A0]
    assert none == plain


@pytest.mark.parametrize("version", OF_FETCH)
def test_nothing_fetched_is_no_bytes(version: int) -> None:
    found = decode(FETCH, version, fetched(version, aborted=None, records=None)).partitions[B7]
    assert (found.fetch_offset, bytes(found.records)) == (7, b"")


@pytest.mark.parametrize("version", OF_FETCH)
def test_a_partition_that_was_not_fetched_has_only_its_error(version: int) -> None:
    data = fetched(version, error_code=KioErrorCode.offset_out_of_range, high_watermark=-1)
    found = decode(FETCH, version, data).partitions[A0]
    assert found == FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE, 100)


@pytest.mark.parametrize("version", range(7, 13))
def test_an_error_of_the_whole_fetch_needs_no_partitions(version: int) -> None:
    data = fetched(version, [], KioErrorCode.unknown_server_error)
    response = decode(FETCH, version, data)
    assert (response.error, response.partitions) == (ErrorCode.UNKNOWN_SERVER_ERROR, {})


@pytest.mark.parametrize("field", ["high_watermark", "last_stable_offset", "log_start_offset"])
def test_a_fetch_with_offsets_that_can_not_be_is_refused(field: str) -> None:
    assert refused(lambda: decode(FETCH, 12, fetched(12, **{field: -2})))


@pytest.mark.parametrize("version", OF_CONFIGS)
def test_configs_are_read(version: int) -> None:
    response = decode(CONFIGS, version, described(version))
    values = {
        "cleanup.policy": "value of cleanup.policy",
        "segment.bytes": "value of segment.bytes",
        "unset": None,
    }
    expected = ResourceConfigs(ErrorCode.NONE, values)
    assert response.resources == {TOPIC: expected, BROKER: expected}
    assert response.throttle_ms == 9


@pytest.mark.parametrize("version", OF_CONFIGS)
def test_a_secret_is_never_read(version: int) -> None:
    response = decode(CONFIGS, version, described(version, sensitive=True))
    assert set(response.resources[BROKER].values.values()) == {None}


def test_configs_that_may_not_be_read_have_their_error_only() -> None:
    data = described(4, code=KioErrorCode.cluster_authorization_failed)
    assert decode(CONFIGS, 4, data).resources[BROKER] == ResourceConfigs(
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED, {}, "the broker's words"
    )


OTHERS: list[list[tuple[str, list[int]]]] = [
    [],
    ASKED[:1],
    [*ASKED, ("c", [0])],
    [*ASKED, ("a", [0])],
    [("a", [3, 3]), ("b", [7])],
]


@pytest.mark.parametrize("topics", OTHERS)
@pytest.mark.parametrize("version", [4, 9])
def test_an_answer_about_other_partitions_is_refused(
    version: int, topics: list[tuple[str, list[int]]]
) -> None:
    assert refused(lambda: decode(OFFSETS, version, list_offsets(version, topics)))
    assert refused(lambda: decode(FETCH, version, fetched(version, topics)))
    assert refused(lambda: decode(FETCH, 12, fetched(12, topics)))


@pytest.mark.parametrize(
    "resources", [(), (TOPIC,), (TOPIC, TOPIC), (TOPIC, (2, "1")), (TOPIC, BROKER, (4, "2"))]
)
def test_an_answer_about_other_resources_is_refused(resources: Any) -> None:
    assert refused(lambda: decode(CONFIGS, 4, described(4, resources)))


def test_a_setting_that_comes_twice_is_refused() -> None:
    assert refused(lambda: decode(CONFIGS, 4, described(4, names=("a", "a"))))


# --- liars


@pytest.mark.parametrize(("request_", "version"), ALL, ids=IDS)
@pytest.mark.parametrize("count", [2**31 - 1, 10**6])
def test_a_claimed_count_allocates_nothing(request_: Any, version: int, count: int) -> None:
    head = b"\0" * (10 if isinstance(request_, FetchRequest) and version >= 7 else 4)
    for claim in (count.to_bytes(4, "big"), b"\xff\xff\xff\xff\x07"):
        body = head + claim + b"\0" * 64
        assert allocated(lambda body=body: decode(request_, version, body)) < 64 * 1024
