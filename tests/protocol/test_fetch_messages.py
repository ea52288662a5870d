"""ListOffsets, Fetch, DescribeConfigs: how requests are filled in, by kio's reader, and which
answers to them make no sense. (That every answer is read: ``test_generated_messages.py``.)
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from hostile import refused
from kio.schema.errors import ErrorCode as KioErrorCode
from kio_oracle import THROTTLE, Module, decode, in_every_version, read_request, write

from spark_kafka_sink.base.errors import ErrorCode, InvalidTopicError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import (
    FetchedPartition,
    OffsetSpec,
    fetch,
    list_offsets,
    listed_offset,
)
from spark_kafka_sink.protocol.messages.fetch import FetchRequest
from spark_kafka_sink.protocol.messages.list_offsets import ListOffsetsRequest
from spark_kafka_sink.protocol.topic_requests import (
    ConfigResourceType,
    config_values,
    describe_configs,
)
from tests.fakes.kafka_messages import configs_request, fetch_request, offsets_request

A0, A3, B7 = TopicPartition("a", 0), TopicPartition("a", 3), TopicPartition("b", 7)
OFFSETS = offsets_request((A0, B7, A3), OffsetSpec.LATEST)
FETCH = fetch_request((A0, 100), (B7, 7), (A3, 0))
ONE = fetch(A0, 100)
TOPIC = (ConfigResourceType.TOPIC, "orders")
BROKER = (ConfigResourceType.BROKER, "1")
CONFIGS = configs_request((TOPIC, BROKER), ("cleanup.policy", "segment.bytes"))

ALL = in_every_version(OFFSETS, FETCH, CONFIGS)
OF_FETCH = range(4, 13)
OF_OFFSETS = range(2, 10)
OF_CONFIGS = range(1, 5)


# --- answers as kio writes them

ASKED = [("a", [3, 0]), ("b", [7])]
JUST_A0 = [("a", [0])]


def listed_offsets(
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
        return listed_offsets(version)
    if isinstance(request, FetchRequest):
        return fetched(version)
    return described(version)


# --- requests


@pytest.mark.parametrize("version", OF_OFFSETS)
@pytest.mark.parametrize("spec", OffsetSpec)
def test_offsets_are_asked_for(version: int, spec: OffsetSpec) -> None:
    read = read_request(list_offsets(A3, spec), version)
    assert (read.replica_id, read.isolation_level) == (-1, 0)
    found = {
        topic.name: [(p.partition_index, p.timestamp) for p in topic.partitions]
        for topic in read.topics
    }
    wire = {OffsetSpec.LATEST: -1, OffsetSpec.EARLIEST: -2}[spec]
    assert found == {"a": [(3, wire)]}


@pytest.mark.parametrize("version", OF_FETCH)
def test_a_fetch_asks_as_a_consumer_without_a_session(version: int) -> None:
    read = read_request(fetch(B7, 7, max_bytes=1024), version)
    assert (read.replica_id, read.isolation_level) == (-1, 0)
    assert (read.max_wait, read.min_bytes) == (dt.timedelta(0), 1)
    assert read.max_bytes == 16 * 1024 * 1024
    found = {
        topic.topic: [
            (p.partition, p.fetch_offset, p.partition_max_bytes) for p in topic.partitions
        ]
        for topic in read.topics
    }
    assert found == {"b": [(7, 7, 1024)]}
    if version >= 7:
        assert (read.session_id, read.session_epoch) == (0, -1)
        assert read.forgotten_topics_data == ()


@pytest.mark.parametrize("version", OF_CONFIGS)
@pytest.mark.parametrize("names", [None, ("cleanup.policy",)])
def test_configs_are_asked_for(version: int, names: tuple[str, ...] | None) -> None:
    asked = describe_configs(ConfigResourceType.TOPIC, ("orders", "clicks", "orders"), names)
    read = read_request(asked, version)
    assert [(r.resource_type, r.resource_name) for r in read.resources] == [
        (2, "orders"),
        (2, "clicks"),
    ]
    assert {r.configuration_keys for r in read.resources} == {names}
    assert not read.include_synonyms


def test_a_topics_name_too_long_for_the_wire_is_an_invalid_topic() -> None:
    tp = TopicPartition("x" * 40_000, 0)
    for request in (list_offsets(tp), fetch(tp, 0)):
        with pytest.raises(InvalidTopicError):
            request.encode(request.versions.max)


# --- answers


def test_a_partition_with_an_error_needs_no_offset() -> None:
    code = KioErrorCode.not_leader_or_follower
    data = listed_offsets(6, [("b", [7])], code=code, offset=-1)
    found = listed_offset(decode(list_offsets(B7), 6, data))
    assert found.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_end_before_the_beginning_is_refused() -> None:
    assert refused(lambda: decode(OFFSETS, 6, listed_offsets(6, offset=-1)))


@pytest.mark.parametrize("version", OF_FETCH)
def test_what_was_fetched_is_read(version: int) -> None:
    response = decode(FETCH, version, fetched(version))
    assert (response.error_code, response.throttle_time_ms) == (ErrorCode.NONE, 9)
    plain = FetchedPartition(ErrorCode.NONE, 100, memoryview(b"bytes"), 120)
    assert FetchedPartition.of(ONE, decode(ONE, version, fetched(version, JUST_A0))) == plain
    committed = fetch(A0, 100, read_committed=True)
    assert read_request(committed, version).isolation_level == 1
    found = decode(committed, version, fetched(version, JUST_A0))
    aborted = ((4711, 90), (12, 95))
    assert FetchedPartition.of(committed, found) == replace(plain, aborted=aborted)
    none = decode(committed, version, fetched(version, JUST_A0, aborted=None))
    assert FetchedPartition.of(committed, none) == plain


@pytest.mark.parametrize("version", OF_FETCH)
def test_nothing_fetched_is_no_bytes(version: int) -> None:
    data = fetched(version, JUST_A0, aborted=None, records=None)
    found = FetchedPartition.of(ONE, decode(ONE, version, data))
    assert (found.fetch_offset, bytes(found.records)) == (100, b"")


@pytest.mark.parametrize("version", OF_FETCH)
def test_a_partition_that_was_not_fetched_has_only_its_error(version: int) -> None:
    code = KioErrorCode.offset_out_of_range
    data = fetched(version, JUST_A0, error_code=code, high_watermark=-1)
    found = FetchedPartition.of(ONE, decode(ONE, version, data))
    assert found == FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE, 100)


@pytest.mark.parametrize("version", range(7, 13))
def test_an_error_of_the_whole_fetch_needs_no_partitions(version: int) -> None:
    data = fetched(version, [], KioErrorCode.unknown_server_error)
    found = FetchedPartition.of(ONE, decode(ONE, version, data))
    assert found == FetchedPartition(ErrorCode.UNKNOWN_SERVER_ERROR, 100)


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
    assert [
        ((one.resource_type, one.resource_name), one.error_code, config_values(one))
        for one in response.results
    ] == [(resource, ErrorCode.NONE, values) for resource in (TOPIC, BROKER)]
    assert response.throttle_time_ms == 9


@pytest.mark.parametrize("version", OF_CONFIGS)
def test_a_secret_is_never_read(version: int) -> None:
    response = decode(CONFIGS, version, described(version, sensitive=True))
    assert {v for one in response.results for v in config_values(one).values()} == {None}


def test_configs_that_may_not_be_read_have_their_error_only() -> None:
    data = described(4, code=KioErrorCode.cluster_authorization_failed)
    for one in decode(CONFIGS, 4, data).results:
        assert one.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert one.error_message == "the broker's words"
        assert config_values(one) == {}


OTHERS: list[list[tuple[str, list[int]]]] = [
    [],
    ASKED[:1],
    [*ASKED, ("c", [0])],
    [*ASKED, ("a", [0])],
    [("a", [3, 3]), ("b", [7])],
    # The first partition of the first topic is read, where one was requested.
    [("a", []), *ASKED],
]


@pytest.mark.parametrize("topics", OTHERS)
@pytest.mark.parametrize("version", [4, 9])
def test_an_answer_about_other_partitions_is_refused(
    version: int, topics: list[tuple[str, list[int]]]
) -> None:
    assert refused(lambda: decode(OFFSETS, version, listed_offsets(version, topics)))
    assert refused(lambda: decode(FETCH, version, fetched(version, topics)))
    assert refused(lambda: decode(FETCH, 12, fetched(12, topics)))


@pytest.mark.parametrize(
    "resources", [(), (TOPIC,), (TOPIC, TOPIC), (TOPIC, (2, "1")), (TOPIC, BROKER, (4, "2"))]
)
def test_an_answer_about_other_resources_is_refused(resources: Any) -> None:
    assert refused(lambda: decode(CONFIGS, 4, described(4, resources)))


def test_a_setting_that_comes_twice_is_refused() -> None:
    assert refused(lambda: decode(CONFIGS, 4, described(4, names=("a", "a"))))
