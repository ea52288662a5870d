"""The control plane: which answers to its requests make no sense.

The bytes of the requests: ``test_golden_requests.py``.
"""

from __future__ import annotations

import struct

import pytest
from hostile import refused
from kio_oracle import THROTTLE_MS, decode

from spark_kafka_sink.base.errors import (
    ErrorCode,
    InvalidTopicError,
    RemoteProtocolError,
    UnsupportedVersionError,
)
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.log_requests import describe_producers, fetch, list_offsets
from spark_kafka_sink.protocol.messages.delete_topics import DeleteTopicsRequest
from spark_kafka_sink.protocol.metadata import MetadataRequest
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.producer_ids import ProducerIdAndEpoch
from spark_kafka_sink.protocol.request import VersionRange
from spark_kafka_sink.protocol.topic_requests import NewTopic, create_topics
from spark_kafka_sink.protocol.transaction_requests import add_partitions_to_txn
from tests.protocol.control_answers import (
    API_VERSIONS,
    CREATE_TOPICS,
    METADATA,
    TOPIC_ID,
    api_versions,
    created_topics,
    deleted_topics,
    metadata,
    partition,
    topic,
)


@pytest.mark.parametrize("new", [NewTopic("t"), NewTopic("t", 1), NewTopic("t", -1, 1)])
def test_create_topics_has_defaults_from_version_4_on(new: NewTopic) -> None:
    request = create_topics([new], 1000)
    with pytest.raises(UnsupportedVersionError):
        request.encode(3)
    assert request.encode(4)


@pytest.mark.parametrize(
    ("topic", "why"), [("x" * 40_000, "40000 bytes long"), ("file-\udcff", "no text")]
)
def test_a_name_that_the_wire_can_not_carry_is_an_invalid_topic(topic: str, why: str) -> None:
    tp = TopicPartition(topic, 0)
    for request in (
        MetadataRequest((topic,)),
        add_partitions_to_txn("orders", ProducerIdAndEpoch(1, 0), [tp]),
        list_offsets(tp),
        fetch(tp, 0),
        describe_producers(tp),
    ):
        with pytest.raises(InvalidTopicError, match=why):
            request.encode(request.versions.max)


# --- answers


@pytest.mark.parametrize("version", range(5))
def test_api_versions_is_read(version: int) -> None:
    response = decode(API_VERSIONS, version, api_versions(version))
    assert response.error_code is ErrorCode.NONE
    versions = NodeApiVersions.of(response)
    assert versions.api_versions == {
        0: VersionRange(0, 12),
        3: VersionRange(0, 13),
        18: VersionRange(0, 4),
    }
    assert response.throttle_time_ms == (THROTTLE_MS if version >= 1 else 0)
    features = {"transaction.version": 2, "metadata.version": 29} if version >= 3 else {}
    assert versions.finalized_features == features
    assert versions.finalized_features_epoch == (41 if version >= 3 else -1)


def test_features_without_an_epoch_say_nothing() -> None:
    response = decode(API_VERSIONS, 3, api_versions(3, finalized_features_epoch=-1))
    assert NodeApiVersions.of(response).finalized_features == {}


UNSUPPORTED = b"\x00\x23"


@pytest.mark.parametrize("version", range(5))
def test_an_unknown_version_is_answered_in_version_0(version: int) -> None:
    body = UNSUPPORTED + struct.pack(">ihhh", 1, 18, 0, 3)
    response = decode(API_VERSIONS, version, body)
    assert response.error_code is ErrorCode.UNSUPPORTED_VERSION
    assert NodeApiVersions.of(response).api_versions == {18: VersionRange(0, 3)}


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize("rest", [b"", b"\x00", b"\x00" * 4, b"\x01\x00\x12\x00\x00", b"\x7f" * 9])
def test_only_the_code_of_an_unknown_version_must_be_sound(version: int, rest: bytes) -> None:
    response = decode(API_VERSIONS, version, UNSUPPORTED + rest)
    assert response.error_code is ErrorCode.UNSUPPORTED_VERSION
    assert NodeApiVersions.of(response).api_versions == {}


@pytest.mark.parametrize("version", range(4, 14))
def test_metadata_is_read(version: int) -> None:
    response = decode(METADATA, version, metadata(version))
    assert response.brokers == {
        1: Node(1, "b1.example", 9092, "r1"),
        2: Node(2, "::1", 65535),
    }
    assert (response.cluster_id, response.controller) == ("cluster", 2)
    assert (response.throttle_time_ms, response.error) == (THROTTLE_MS, ErrorCode.NONE)
    orders, nope = response.topics
    assert (orders.name, orders.internal, orders.error) == ("orders", False, ErrorCode.NONE)
    assert orders.topic_id == (TOPIC_ID.bytes if version >= 10 else None)
    zero, one = orders.partitions
    assert (zero.tp, zero.leader, zero.replicas) == (TopicPartition("orders", 0), 1, (1, 2, 3))
    assert zero.offline == ((3,) if version >= 5 else ())
    assert zero.leader_epoch == (5 if version >= 9 else -1)
    assert list(orders.partitions.errors()) == [(1, ErrorCode.LEADER_NOT_AVAILABLE)]
    assert one.leader == -1
    assert (nope.error, nope.internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)
    assert (nope.topic_id, len(nope.partitions)) == (None, 0)


def test_metadata_13_has_an_error_of_its_own() -> None:
    data = metadata(13, error=ErrorCode.REBOOTSTRAP_REQUIRED)
    assert decode(METADATA, 13, data).error is ErrorCode.REBOOTSTRAP_REQUIRED


def test_a_leader_that_is_no_broker_and_a_gap_are_let_through() -> None:
    data = metadata(12, topic("t", partition(0, leader_id=99), partition(3)))
    partitions = decode(METADATA, 12, data).topics[0].partitions
    assert [p.leader for p in partitions] == [99, -1, -1, 1]


@pytest.mark.parametrize("names", [(), ("orders",), ("orders", "more"), ("orders",) * 2])
def test_create_topics_must_answer_for_what_was_asked(names: tuple[str, ...]) -> None:
    assert refused(lambda: decode(CREATE_TOPICS, 7, created_topics(7, names)))


@pytest.mark.parametrize("version", range(1, 6))
def test_delete_topics_names_each_once(version: int) -> None:
    request = DeleteTopicsRequest(topic_names=("a", "b"), timeout_ms=1000)
    response = decode(request, version, deleted_topics(version, ("b", "a")))
    errors = {one.name: one.error_code for one in response.responses}
    assert errors == dict.fromkeys(("a", "b"), ErrorCode.TOPIC_DELETION_DISABLED)
    for wrong in (("a",), ("a", "a"), ("a", "c")):
        with pytest.raises(RemoteProtocolError):
            decode(request, version, deleted_topics(version, wrong))
