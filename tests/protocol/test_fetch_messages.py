"""ListOffsets, Fetch, DescribeConfigs: which answers to them make no sense. (The bytes of their
requests: ``test_golden_requests.py``; that every answer is read: ``test_generated_messages.py``.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hostile import refused
from kio_oracle import THROTTLE_MS, by_topic, decode, in_every_version, response

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import (
    FetchedPartition,
    fetch,
    list_offsets,
    listed_offset,
)
from spark_kafka_sink.protocol.messages.fetch import FetchRequest
from spark_kafka_sink.protocol.messages.list_offsets import ListOffsetsRequest
from spark_kafka_sink.protocol.topic_requests import (
    ConfigResourceType,
    config_values,
)
from tests.fakes.kafka_messages import configs_request, fetch_request, offsets_request

A0, A3, B7 = TopicPartition("a", 0), TopicPartition("a", 3), TopicPartition("b", 7)
OFFSETS = offsets_request((A0, B7, A3))
FETCH = fetch_request((A0, 100), (B7, 7), (A3, 0))
ONE = fetch(A0, 100)
TOPIC = (ConfigResourceType.TOPIC, "orders")
BROKER = (ConfigResourceType.BROKER, "1")
CONFIGS = configs_request((TOPIC, BROKER), ("cleanup.policy", "segment.bytes"))

ALL = in_every_version(OFFSETS, FETCH, CONFIGS)
OF_FETCH = range(4, 13)
OF_CONFIGS = range(1, 5)


# --- answers as kio writes them

ASKED = [("a", [3, 0]), ("b", [7])]
JUST_A0 = [("a", [0])]


def listed_offsets(
    version: int,
    topics: list[tuple[str, list[int]]] = ASKED,
    code: ErrorCode = ErrorCode.NONE,
    offset: int = 1234,
) -> bytes:
    told = by_topic(topics, error_code=code, timestamp=-1, offset=offset, leader_epoch=5)
    return response("list_offsets", version, topics=told)


ABORTED = ((4711, 90), (12, 95))


def fetched(
    version: int,
    topics: list[tuple[str, list[int]]] = ASKED,
    top: ErrorCode = ErrorCode.NONE,
    **fields: Any,
) -> bytes:
    plain: dict[str, Any] = {
        "error_code": 0,
        "high_watermark": 130,
        "last_stable_offset": 120,
        "log_start_offset": 3,
        "aborted_transactions": [{"producer_id": p, "first_offset": o} for p, o in ABORTED],
        "records": b"bytes",
    }
    plain |= fields
    told = by_topic(topics, "topic", **plain)
    return response("fetch", version, error_code=top, session_id=0, responses=told)


def described(
    version: int,
    resources: tuple[tuple[int, str], ...] = (TOPIC, BROKER),
    code: ErrorCode = ErrorCode.NONE,
    names: tuple[str, ...] = ("cleanup.policy", "segment.bytes", "unset"),
    sensitive: bool = False,
) -> bytes:
    synonym = {"name": "log.x", "value": None, "source": 5}
    plain = {
        "read_only": False,
        "config_source": 5,
        "is_sensitive": sensitive,
        "synonyms": [synonym, synonym],
        "config_type": 2,
        "documentation": "words",
    }
    configs = [
        {"name": name, "value": None if name == "unset" else f"value of {name}", **plain}
        for name in names
    ]
    told = {
        "error_code": code,
        "error_message": "the broker's words" if code else None,
        "configs": configs,
    }
    results = [
        {"resource_type": kind, "resource_name": resource, **told} for kind, resource in resources
    ]
    return response("describe_configs", version, results=results)


def answer(request: Any, version: int) -> bytes:
    if isinstance(request, ListOffsetsRequest):
        return listed_offsets(version)
    if isinstance(request, FetchRequest):
        return fetched(version)
    return described(version)


def test_a_partition_with_an_error_needs_no_offset() -> None:
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    data = listed_offsets(6, [("b", [7])], code=code, offset=-1)
    found = listed_offset(decode(list_offsets(B7), 6, data))
    assert found.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_end_before_the_beginning_is_refused() -> None:
    assert refused(lambda: decode(OFFSETS, 6, listed_offsets(6, offset=-1)))


@pytest.mark.parametrize("version", OF_FETCH)
def test_what_was_fetched_is_read(version: int) -> None:
    assert decode(FETCH, version, fetched(version)).throttle_time_ms == THROTTLE_MS
    plain = FetchedPartition(ErrorCode.NONE, 100, memoryview(b"bytes"), 120)
    assert FetchedPartition.of(ONE, decode(ONE, version, fetched(version, JUST_A0))) == plain
    committed = fetch(A0, 100, read_committed=True)
    found = decode(committed, version, fetched(version, JUST_A0))
    assert FetchedPartition.of(committed, found) == replace(plain, aborted=ABORTED)
    none = decode(committed, version, fetched(version, JUST_A0, aborted_transactions=None))
    assert FetchedPartition.of(committed, none) == plain


@pytest.mark.parametrize("version", OF_FETCH)
def test_nothing_fetched_is_no_bytes(version: int) -> None:
    data = fetched(version, JUST_A0, aborted_transactions=None, records=None)
    found = FetchedPartition.of(ONE, decode(ONE, version, data))
    assert (found.fetch_offset, bytes(found.records)) == (100, b"")


@pytest.mark.parametrize("version", OF_FETCH)
def test_a_partition_that_was_not_fetched_has_only_its_error(version: int) -> None:
    code = ErrorCode.OFFSET_OUT_OF_RANGE
    data = fetched(version, JUST_A0, error_code=code, high_watermark=-1)
    found = FetchedPartition.of(ONE, decode(ONE, version, data))
    assert found == FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE, 100)


@pytest.mark.parametrize("version", range(7, 13))
def test_an_error_of_the_whole_fetch_needs_no_partitions(version: int) -> None:
    data = fetched(version, [], ErrorCode.UNKNOWN_SERVER_ERROR)
    found = FetchedPartition.of(ONE, decode(ONE, version, data))
    assert found == FetchedPartition(ErrorCode.UNKNOWN_SERVER_ERROR, 100)


@pytest.mark.parametrize("field", ["high_watermark", "last_stable_offset", "log_start_offset"])
def test_a_fetch_with_offsets_that_can_not_be_is_refused(field: str) -> None:
    assert refused(lambda: decode(FETCH, 12, fetched(12, **{field: -2})))


@pytest.mark.parametrize("version", OF_CONFIGS)
def test_configs_are_read(version: int) -> None:
    answered = decode(CONFIGS, version, described(version))
    values = {
        "cleanup.policy": "value of cleanup.policy",
        "segment.bytes": "value of segment.bytes",
        "unset": None,
    }
    assert [
        ((one.resource_type, one.resource_name), one.error_code, config_values(one))
        for one in answered.results
    ] == [(resource, ErrorCode.NONE, values) for resource in (TOPIC, BROKER)]


@pytest.mark.parametrize("version", OF_CONFIGS)
def test_a_secret_is_never_read(version: int) -> None:
    answered = decode(CONFIGS, version, described(version, sensitive=True))
    assert {v for one in answered.results for v in config_values(one).values()} == {None}


def test_configs_that_may_not_be_read_have_their_error_only() -> None:
    data = described(4, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    for one in decode(CONFIGS, 4, data).results:
        assert one.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert one.error_message == "the broker's words"
        assert config_values(one) == {}


OTHERS: list[list[tuple[str, list[int]]]] = [
    [],
    ASKED[:1],
    [*ASKED, ("a", [0])],
    [("a", [3, 3]), ("b", [7])],
    [*ASKED[:1], ("c", [0])],
]


@pytest.mark.parametrize("topics", OTHERS)
@pytest.mark.parametrize("version", [4, 9])
def test_an_answer_about_other_partitions_is_refused(
    version: int, topics: list[tuple[str, list[int]]]
) -> None:
    assert refused(lambda: decode(OFFSETS, version, listed_offsets(version, topics)))
    assert refused(lambda: decode(FETCH, version, fetched(version, topics)))
    assert refused(lambda: decode(FETCH, 12, fetched(12, topics)))


@pytest.mark.parametrize("resources", [(), (TOPIC,), (TOPIC, TOPIC), (TOPIC, (2, "1"))])
def test_an_answer_about_other_resources_is_refused(resources: Any) -> None:
    assert refused(lambda: decode(CONFIGS, 4, described(4, resources)))


def test_a_setting_that_comes_twice_alike_is_taken() -> None:
    response = decode(CONFIGS, 4, described(4, names=("a", "a")))
    assert len(response.results) == 2
