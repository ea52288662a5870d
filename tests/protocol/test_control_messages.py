"""The control plane: how requests are filled in, and which answers to them make no sense."""

from __future__ import annotations

import struct

import pytest
from hostile import refused
from kio.schema.errors import ErrorCode as KioErrorCode
from kio_oracle import Module, decode, read_request

from spark_kafka_sink.base.errors import (
    ErrorCode,
    InvalidTopicError,
    RemoteProtocolError,
    UnsupportedVersionError,
)
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.messages.delete_topics import DeleteTopicsRequest
from spark_kafka_sink.protocol.metadata import MetadataRequest
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.producer_ids import ProducerIdAndEpoch
from spark_kafka_sink.protocol.request import VersionRange
from spark_kafka_sink.protocol.topic_requests import NewTopic, create_topics
from spark_kafka_sink.protocol.transaction_requests import init_producer_id
from tests.fakes.kafka_messages import init_request
from tests.protocol.control_answers import (
    API_VERSIONS,
    CREATE_TOPICS,
    INIT_2PC,
    METADATA,
    TOPIC_ID,
    TOPIC_NAMES,
    api_versions,
    created_topics,
    deleted_topics,
    init_answer,
    metadata,
    milliseconds,
)

# --- requests


@pytest.mark.parametrize("version", range(5))
def test_api_versions_says_who_we_are_from_version_3_on(version: int) -> None:
    read = read_request(API_VERSIONS, version)
    if version >= 3:
        assert (read.client_software_name, read.client_software_version) == (
            "spark-kafka-sink",
            "0.1.0",
        )
    else:
        assert API_VERSIONS.encode(version) == [b""]


@pytest.mark.parametrize("version", range(4, 14))
@pytest.mark.parametrize("topics", [(), ("orders", "clicks")])
@pytest.mark.parametrize("create", [True, False])
def test_metadata_asks_for_some_topics_or_none(
    version: int, topics: tuple[str, ...], create: bool
) -> None:
    read = read_request(MetadataRequest(topics, create), version)
    assert tuple(t.name for t in read.topics) == topics
    assert read.allow_auto_topic_creation is create
    if version >= 10:
        assert all(topic.topic_id is None for topic in read.topics)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("transactional_id", [None, "job-7"])
def test_init_producer_id_carries_an_own_id_from_version_3_on(
    version: int, transactional_id: str | None
) -> None:
    read = read_request(init_request(transactional_id, 60_000), version)
    assert read.transactional_id == transactional_id
    assert read.transaction_timeout == milliseconds(60_000)
    bump = init_request(transactional_id, 60_000, 4711, 2)
    if version >= 3:
        read = read_request(bump, version)
        assert (read.producer_id, read.producer_epoch) == (4711, 2)
    else:
        with pytest.raises(UnsupportedVersionError, match="no place for producer_id"):
            bump.encode(version)


@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_two_phase_commit_is_asked_for_in_version_6_only(flags: tuple[bool, bool]) -> None:
    enable_2pc, keep_prepared_txn = flags
    request = init_producer_id(
        "job-7",
        60_000,
        ProducerIdAndEpoch(4711, 2),
        enable_2pc=enable_2pc,
        keep_prepared_txn=keep_prepared_txn,
    )
    assert request.versions == VersionRange(6, 6)
    read = read_request(request, 6)
    assert (read.enable2_pc, read.keep_prepared_txn) == flags
    assert (read.transactional_id, read.producer_id, read.producer_epoch) == ("job-7", 4711, 2)
    assert init_request("job-7", 60_000).versions == VersionRange(0, 5)


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics_carries_counts_and_configs(version: int) -> None:
    read = read_request(CREATE_TOPICS, version)
    orders, clicks = read.topics
    assert (orders.name, orders.num_partitions, orders.replication_factor) == ("orders", 3, 1)
    assert [(c.name, c.value) for c in orders.configs] == [("retention.ms", "1000")]
    assert clicks.configs == ()
    assert read.timeout == milliseconds(5_000)
    assert read.validate_only is False


@pytest.mark.parametrize("topic", [NewTopic("t"), NewTopic("t", 1), NewTopic("t", -1, 1)])
def test_create_topics_has_defaults_from_version_4_on(topic: NewTopic) -> None:
    request = create_topics([topic], 1000)
    with pytest.raises(UnsupportedVersionError):
        request.encode(3)
    assert read_request(request, 4).topics[0].name == "t"


def test_a_topic_name_too_long_for_the_wire_is_an_invalid_topic() -> None:
    with pytest.raises(InvalidTopicError, match="40000 bytes long"):
        MetadataRequest(("x" * 40_000,)).encode(12)


def test_a_topic_name_that_is_no_text_is_an_invalid_topic() -> None:
    with pytest.raises(InvalidTopicError, match="no text"):
        MetadataRequest(("file-\udcff",)).encode(12)


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
    assert response.throttle_time_ms == (7 if version >= 1 else 0)
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
    assert (response.throttle_time_ms, response.error) == (11, ErrorCode.NONE)
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
    data = metadata(13, error_code=KioErrorCode.rebootstrap_required)
    assert decode(METADATA, 13, data).error is ErrorCode.REBOOTSTRAP_REQUIRED


def test_a_leader_that_is_no_broker_and_a_gap_are_let_through() -> None:
    data = metadata(12, topics=lambda t, p: (t("t", (p(0, leader_id=99), p(3))),))
    partitions = decode(METADATA, 12, data).topics[0].partitions
    assert [p.leader for p in partitions] == [99, -1, -1, 1]


def test_version_6_names_the_transaction_that_was_kept_open() -> None:
    data = init_answer(6, ongoing_txn_producer_id=4711, ongoing_txn_producer_epoch=1)
    response = decode(INIT_2PC, 6, data)
    assert (response.producer_id, response.producer_epoch) == (4711, 2)
    assert (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch) == (4711, 1)
    response = decode(INIT_2PC, 6, init_answer(6))
    assert (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch) == (-1, -1)


@pytest.mark.parametrize("names", [(), ("orders",), ("orders", "clicks", "more"), ("orders",) * 2])
def test_create_topics_must_answer_for_what_was_asked(names: tuple[str, ...]) -> None:
    assert refused(lambda: decode(CREATE_TOPICS, 7, created_topics(7, names)))


@pytest.mark.parametrize("version", range(1, 6))
def test_delete_topics_names_each_once(version: int) -> None:
    request = DeleteTopicsRequest(topic_names=("a", "b"), timeout_ms=1000)
    assert tuple(read_request(request, version).topic_names) == ("a", "b")
    response = decode(request, version, deleted_topics(version, ("b", "a")))
    errors = {topic.name: topic.error_code for topic in response.responses}
    assert errors == dict.fromkeys(("a", "b"), ErrorCode.TOPIC_DELETION_DISABLED)
    for wrong in (("a",), ("a", "a"), ("a", "b", "c")):
        with pytest.raises(RemoteProtocolError):
            decode(request, version, deleted_topics(version, wrong))


@pytest.mark.parametrize("version", range(4, 14))
def test_the_names_of_all_topics_are_requested_and_read(version: int) -> None:
    sent = b"".join(TOPIC_NAMES.encode(version))
    assert Module("metadata", version, "request").read("MetadataRequest", sent).topics is None
    topics = decode(TOPIC_NAMES, version, metadata(version)).topics
    assert {topic.name for topic in topics} >= {"orders", "nope"}
