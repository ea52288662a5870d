"""What is encoded and read by hand, Produce and Metadata, in every version against a real broker.

Generated messages are kio's in every version (``test_generated_messages.py``), and what a broker
says to those ``conformance/`` asks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.answers import decode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.frames import frame, parse_response_header
from spark_kafka_sink.protocol.metadata import MetadataRequest
from spark_kafka_sink.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
)
from spark_kafka_sink.protocol.request import Request
from tests.conformance.worlds import RealWorld
from tests.real_kafka import Consumed, RealKafka
from tests.records.test_records_batch import batch_of, encoded, golden_columns


def produce(topic: str, *partitions: int) -> ProduceRequest:
    data = batch_of(encoded(golden_columns()))
    parts = [memoryview(data)[:61], memoryview(data)[61:]]
    return ProduceRequest(
        -1,
        10_000,
        tuple(PartitionProduceData(TopicPartition(topic, p), parts, len(data)) for p in partitions),
    )


Call = Callable[[Request[Any], int], Any]


@pytest.fixture
def call(kafka: RealKafka) -> Iterator[Call]:
    """Our frames on a blocking socket to the broker, and our reading of its answers."""
    with RealWorld(kafka.bootstrap) as world:

        def exchange(request: Request[Any], version: int) -> Any:
            buffers, size = frame(request, version, 7, "protocol-test")
            data = b"".join(buffers)
            assert len(data) == size
            answer = world.exchange(1, data[4:], answered=True)
            assert answer is not None, "the broker closed the connection"
            correlation_id, body = parse_response_header(
                request.api_key, version, memoryview(answer)
            )
            assert correlation_id == 7
            return decode(request, version, body)

        yield exchange


@pytest.mark.parametrize("version", range(4, 14))
def test_metadata(call: Call, kafka: RealKafka, version: int) -> None:
    topic = kafka.unique_topic("metadata", partitions=3)
    response = call(MetadataRequest((topic, "no-such-topic"), False), version)
    assert response.error is ErrorCode.NONE
    assert len(response.brokers) == 1
    found = {t.name: t for t in response.topics}
    assert found["no-such-topic"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found[topic].error is ErrorCode.NONE
    assert [p.tp.partition for p in found[topic].partitions] == [0, 1, 2]
    assert {p.leader for p in found[topic].partitions} == set(response.brokers)
    assert {p.leader_epoch for p in found[topic].partitions} == {0 if version >= 9 else -1}
    assert (found[topic].topic_id is not None) == (version >= 10)
    assert call(MetadataRequest((), False), version).topics == ()


@pytest.mark.parametrize("version", range(3, 13))
def test_produce_and_read_back(
    call: Call,
    kafka: RealKafka,
    consume: Callable[..., Consumed],
    version: int,
) -> None:
    topic, other = kafka.unique_topic("produce", partitions=2), kafka.unique_topic("produce")
    batches = (*produce(topic, 1, 0).data, *produce(other, 0).data)
    request = ProduceRequest(-1, 10_000, (batches[0], batches[2], batches[1]))
    response = call(request, version)
    assert {p.tp for p in response.partitions} == {item.tp for item in batches}
    for partition in response.partitions:
        start = 0 if version >= 5 else -1
        assert partition == PartitionProduceResponse(
            partition.tp, ErrorCode.NONE, 0, log_start_offset=start
        )
    again = call(produce(topic, 0), version).partitions[0]
    assert again.base_offset == 3
    read = consume(other)
    assert read.keys == [b"k", None, b"k"]
    assert read.values == [b"v", b"v2", None]
    assert read.headers == [[], [("h", None), ("e", b"")], []]
    assert read.timestamps == [1700000000000, 1699999999995, 1700000001000]


@pytest.mark.parametrize("version", [7, 8, 12])
def test_a_refused_record_is_named_from_version_8_on(
    call: Call, kafka: RealKafka, version: int
) -> None:
    topic = kafka.unique_topic("compacted", configs={"cleanup.policy": "compact"})
    (partition,) = call(produce(topic, 0), version).partitions
    assert partition.error is ErrorCode.INVALID_RECORD
    if version >= 8:
        assert [error.batch_index for error in partition.record_errors] == [1]
        assert "key" in str(partition.record_errors[0].message)
        assert partition.error_message
