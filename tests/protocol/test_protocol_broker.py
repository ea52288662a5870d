"""Every request in every version against a real broker; an independent reader checks the log."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator

import pytest
from blocking_connection import BlockingConnection
from crc32c import crc32c

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages.api_versions import ApiVersionsRequest
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spark_kafka_sink.protocol.metadata import MetadataRequest
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
)
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange
from spark_kafka_sink.protocol.topic_requests import NewTopic, create_topics
from tests.fakes.kafka_messages import API_VERSIONS, init_request
from tests.real_kafka import Consumed, RealKafka

#: Records (k, v), (null, v2, with headers h: null and e: empty), (k, null); base 1700000000000.
GOLDEN = bytes.fromhex(
    "000000000000000000000052ffffffff02ccad2a7f0010000000020000018bcfe568000000018bcfe56be8"
    "00000000000003e80003000000070000000310000000026b0276001c0009020104763204026801026500"
    "1000d00f04026b0100"
)


def golden_batch(producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> bytes:
    """The golden batch, not transactional, of another producer."""
    body = bytearray(GOLDEN[21:])
    body[0:2] = b"\x00\x00"
    body[22:36] = struct.pack(">qhi", producer_id, epoch, sequence)
    return GOLDEN[:17] + crc32c(bytes(body)).to_bytes(4, "big") + bytes(body)


def produce(
    topic: str, *partitions: int, batch: bytes | None = None, acks: int = -1
) -> ProduceRequest:
    data = golden_batch() if batch is None else batch
    parts = [memoryview(data)[:61], memoryview(data)[61:]]
    return ProduceRequest(
        acks,
        10_000,
        tuple(PartitionProduceData(TopicPartition(topic, p), parts, len(data)) for p in partitions),
    )


def producer_id(
    connection: BlockingConnection, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse:
    """The answer, once the broker has fetched its block of ids: until then it says so."""
    deadline = time.monotonic() + 60
    while True:
        response = connection.call(request, version)
        if not response.error_code.retriable or time.monotonic() > deadline:
            return response


@pytest.fixture
def connection(kafka: RealKafka) -> Iterator[BlockingConnection]:
    with BlockingConnection(kafka.bootstrap) as opened:
        yield opened


def test_the_golden_batch_has_the_checksum_that_was_written_down() -> None:
    assert crc32c(GOLDEN[21:]).to_bytes(4, "big") == GOLDEN[17:21]


@pytest.mark.parametrize("version", range(5))
def test_api_versions(connection: BlockingConnection, version: int) -> None:
    response = connection.call(
        API_VERSIONS,
        version,
    )
    assert response.error_code is ErrorCode.NONE
    offered = NodeApiVersions.of(response)
    assert offered.latest_usable(ApiKey.PRODUCE, produce("t").versions) == 12
    assert offered.latest_usable(ApiKey.METADATA, MetadataRequest.versions) == 13
    asked = init_request("i", 1).versions
    assert offered.latest_usable(ApiKey.INIT_PRODUCER_ID, asked) == 5
    assert offered.transaction_version == (2 if version >= 3 else 0)


class FromTheFuture(ApiVersionsRequest):
    """ApiVersions in a version that no broker knows yet, decoded as version 4."""

    def encode(self, version: int) -> Buffers:
        return super().encode(4)


def test_a_version_that_the_broker_does_not_know_gets_its_range(
    connection: BlockingConnection,
) -> None:
    response = connection.call(FromTheFuture(versions=VersionRange(0, 99)), 99)
    assert response.error_code is ErrorCode.UNSUPPORTED_VERSION
    assert NodeApiVersions.of(response).api_versions[ApiKey.API_VERSIONS].max >= 4
    # The connection lives on.
    assert connection.call(API_VERSIONS, 0).error_code is ErrorCode.NONE


@pytest.mark.parametrize("version", range(4, 14))
def test_metadata(connection: BlockingConnection, kafka: RealKafka, version: int) -> None:
    topic = kafka.unique_topic("metadata", partitions=3)
    response = connection.call(MetadataRequest((topic, "no-such-topic"), False), version)
    assert response.error is ErrorCode.NONE
    assert len(response.brokers) == 1
    found = {t.name: t for t in response.topics}
    assert found["no-such-topic"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found[topic].error is ErrorCode.NONE
    assert [p.tp.partition for p in found[topic].partitions] == [0, 1, 2]
    assert {p.leader for p in found[topic].partitions} == set(response.brokers)
    assert {p.leader_epoch for p in found[topic].partitions} == {0 if version >= 9 else -1}
    assert (found[topic].topic_id is not None) == (version >= 10)
    assert connection.call(MetadataRequest((), False), version).topics == ()


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id(connection: BlockingConnection, version: int) -> None:
    request = init_request(None, 60_000)
    first, second = (producer_id(connection, request, version) for _ in range(2))
    assert first.error_code is second.error_code is ErrorCode.NONE
    assert first.producer_epoch == second.producer_epoch == 0
    assert 0 <= first.producer_id < second.producer_id


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics(connection: BlockingConnection, version: int) -> None:
    new = NewTopic(f"created-v{version}", 2, 1, {"retention.ms": "60000"})
    wrong = NewTopic(f"wrong-v{version}", 2, 1, {"no.such.config": "1"})
    response = connection.call(create_topics([new, wrong], 10_000), version)
    made = {topic.name: topic for topic in response.topics}
    assert (made[new.name].error_code, made[new.name].error_message) == (ErrorCode.NONE, None)
    assert made[wrong.name].error_code is ErrorCode.INVALID_CONFIG
    assert "no.such.config" in str(made[wrong.name].error_message)
    (again,) = connection.call(create_topics([new], 10_000), version).topics
    assert again.error_code is ErrorCode.TOPIC_ALREADY_EXISTS
    # CreateTopics answers when the controller knows; the broker's own metadata follow.
    deadline = time.monotonic() + 60
    while True:
        (topic,) = connection.call(MetadataRequest((new.name,), False), 12).topics
        if topic.error is ErrorCode.NONE or time.monotonic() > deadline:
            break
    assert len(topic.partitions) == 2


@pytest.mark.parametrize("version", range(3, 13))
def test_produce_and_read_back(
    connection: BlockingConnection,
    kafka: RealKafka,
    consume: Callable[..., Consumed],
    version: int,
) -> None:
    topic, other = kafka.unique_topic("produce", partitions=2), kafka.unique_topic("produce")
    batches = (*produce(topic, 1, 0).data, *produce(other, 0).data)
    request = ProduceRequest(-1, 10_000, (batches[0], batches[2], batches[1]))
    response = connection.call(request, version)
    assert {p.tp for p in response.partitions} == {item.tp for item in batches}
    for partition in response.partitions:
        start = 0 if version >= 5 else -1
        assert partition == PartitionProduceResponse(
            partition.tp, ErrorCode.NONE, 0, log_start_offset=start
        )
    again = connection.call(produce(topic, 0), version).partitions[0]
    assert again.base_offset == 3
    read = consume(other)
    assert read.keys == [b"k", None, b"k"]
    assert read.values == [b"v", b"v2", None]
    assert read.headers == [[], [("h", None), ("e", b"")], []]
    assert read.timestamps == [1700000000000, 1699999999995, 1700000001000]


@pytest.mark.parametrize("version", range(3, 13))
def test_produce_to_a_topic_that_is_not_there(connection: BlockingConnection, version: int) -> None:
    (partition,) = connection.call(produce("no-such-topic", 0), version).partitions
    assert partition.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition.base_offset == -1


@pytest.mark.parametrize("version", [7, 8, 12])
def test_a_refused_record_is_named_from_version_8_on(
    connection: BlockingConnection, kafka: RealKafka, version: int
) -> None:
    topic = kafka.unique_topic("compacted", configs={"cleanup.policy": "compact"})
    (partition,) = connection.call(produce(topic, 0), version).partitions
    assert partition.error is ErrorCode.INVALID_RECORD
    if version >= 8:
        assert [error.batch_index for error in partition.record_errors] == [1]
        assert "key" in str(partition.record_errors[0].message)
        assert partition.error_message


def test_log_append_time_is_reported(connection: BlockingConnection, kafka: RealKafka) -> None:
    configs = {"message.timestamp.type": "LogAppendTime"}
    topic = kafka.unique_topic("append-time", configs=configs)
    (partition,) = connection.call(produce(topic, 0), 12).partitions
    assert partition.log_append_time_ms > 1_700_000_000_000


def test_an_idempotent_batch_sent_twice_is_in_the_log_once(
    connection: BlockingConnection, kafka: RealKafka, consume: Callable[..., Consumed]
) -> None:
    topic = kafka.unique_topic("idempotent")
    producer = producer_id(connection, init_request(None, 60_000), 5)
    batch = golden_batch(producer.producer_id, producer.producer_epoch, 0)
    first, second = (
        connection.call(produce(topic, 0, batch=batch), 12).partitions[0] for _ in range(2)
    )
    assert (first.error, first.base_offset) == (ErrorCode.NONE, 0)
    assert (second.error, second.base_offset) == (ErrorCode.NONE, 0)
    hole = golden_batch(producer.producer_id, producer.producer_epoch, 9)
    (third,) = connection.call(produce(topic, 0, batch=hole), 12).partitions
    assert third.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(consume(topic)) == 3


def test_acks_0_brings_no_answer(
    connection: BlockingConnection, kafka: RealKafka, consume: Callable[..., Consumed]
) -> None:
    topic = kafka.unique_topic("acks-0")
    connection.send(produce(topic, 0, acks=0), 12)  # type: ignore[arg-type]
    # The broker answers in order: this answer is the first, and the batch is in the log by then.
    assert connection.call(API_VERSIONS, 4).error_code is ErrorCode.NONE
    assert len(consume(topic)) == 3
