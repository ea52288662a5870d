"""How large a request to each node may become (RequestSizes)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.local_kafka import KafkaCluster
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.sender.request_sizes import LARGEST, RequestSizes
from spark_kafka_sink.protocol.produce import PartitionProduceResponse
from spark_kafka_sink.records.record_columns import RecordColumns
from tests.fakes.accumulator_world import config_of
from tests.fakes.sender_world import BACKOFF, TP0, TP1, SenderWorld
from tests.real_kafka import RealKafka, consume_topic

MIB = 2**20
NODE = 1


def sizes_of(**options: object) -> RequestSizes:
    return RequestSizes(config_of(**options))


def grown(sizes: RequestSizes, node: int = NODE) -> int:
    """The size for ``node`` behind full requests that were answered at once."""
    for _ in range(10):
        sizes.answered(node, sizes.of(node), 5)
    return sizes.of(node)


def test_a_request_grows_beyond_max_request_size_to_4_mib():
    """A broker bounds a batch by message.max.bytes, but not a request."""
    sizes = sizes_of()
    assert sizes.of(NODE) == MIB
    sizes.answered(NODE, MIB, 5)
    assert sizes.of(NODE) == 2 * MIB
    assert grown(sizes) == LARGEST == 4 * MIB
    assert sizes.of(2) == MIB  # what one node takes says nothing of another


def test_a_larger_max_request_size_is_kept():
    assert sizes_of(max_request_size=16 * MIB).of(NODE) == 16 * MIB
    assert grown(sizes_of(max_request_size=16 * MIB)) == 16 * MIB


def test_requests_of_a_small_buffer_memory_do_not_grow():
    """Several are in flight, and others are being filled."""
    assert grown(sizes_of(buffer_memory=8 * MIB)) == MIB
    assert grown(sizes_of(buffer_memory=16 * MIB)) == 2 * MIB


def test_small_requests_say_nothing_of_large_ones():
    sizes = sizes_of()
    for _ in range(10):
        sizes.answered(NODE, 1000, 1)
    assert sizes.of(NODE) == MIB


def test_a_slow_node_gets_smaller_requests_again():
    sizes = sizes_of()
    grown(sizes)
    sizes.answered(NODE, 4 * MIB, 900)
    assert sizes.of(NODE) == 4 * MIB
    for expected in (2, 1, 1):
        sizes.answered(NODE, MIB, 1100)
        assert sizes.of(NODE) == expected * MIB


def test_no_request_exceeds_what_a_broker_closed_the_connection_at():
    """socket.request.max.bytes: the broker closes the connection, and gives no reason."""
    sizes, limit = sizes_of(), 3 * MIB
    lost = 0
    for _ in range(50):
        size = sizes.of(NODE)
        if size > limit:
            sizes.lost(NODE, size)
            lost += 1
        else:
            sizes.answered(NODE, size, 5)
    assert lost == 1
    assert sizes.of(NODE) == 2 * MIB


def test_a_lost_connection_does_not_bound_sizes_that_worked():
    sizes = sizes_of()
    sizes.lost(NODE, MIB)  # nothing was learned of it yet
    assert grown(sizes) == 4 * MIB
    sizes.answered(NODE, 4 * MIB, 5)
    sizes.lost(NODE, 4 * MIB)
    assert sizes.of(NODE) == 2 * MIB
    assert grown(sizes) == 4 * MIB


@given(
    rates=st.lists(st.integers(30_000, 200_000_000), min_size=1, max_size=5),
    timeout_ms=st.sampled_from([2_000, 30_000]),
)
def test_a_slow_link_never_carries_more_than_it_did(rates: list[int], timeout_ms: int):
    """On a link of some bytes a second a request takes no longer than before, or half a second."""
    sizes = sizes_of(request_timeout_ms=timeout_ms, delivery_timeout_ms=120_000)
    for rate in rates:
        for number in range(20):
            size = sizes.of(NODE)
            latency_ms = size * 1000 // rate
            least_ms = MIB * 1000 // rate
            if number > 3:  # the link has just become slower
                assert latency_ms <= max(least_ms, 1000)
            if latency_ms > timeout_ms:
                sizes.lost(NODE, size)
            else:
                sizes.answered(NODE, size, latency_ms)


@pytest.mark.parametrize("mbit", [1, 4, 10, 30])
def test_a_request_on_a_slow_link_is_as_small_as_javas(mbit: int):
    """4 MiB on 1 Mbit/s would take longer than request.timeout.ms."""
    sizes = sizes_of()
    for _ in range(20):
        assert sizes.of(NODE) == MIB
        sizes.answered(NODE, MIB, MIB * 8 // (mbit * 1000))


def test_the_sender_fills_requests_by_what_the_node_answered():
    """A request may carry several batches of max.request.size."""
    with SenderWorld(max_request_size=300, buffer_memory=1_000_000) as world:
        world.establish(TP0)
        world.establish(TP1)
        for tp in (TP0, TP1):
            world.append(tp, records=20)
            world.acknowledge(tp)
        world.round(3)
        for tp in (TP0, TP1):
            world.append(tp, records=20)
        world.prepare(*(PartitionProduceResponse(tp, ErrorCode.NONE, 0) for tp in (TP0, TP1)))
        world.round(2)
        assert [len(request.data) for request in world.client.produced] == [1, 1, 2]
        world.append(TP0, records=20)
        world.append(TP1, records=20)
        for _ in range(2):
            world.lose()
            world.round(ms=BACKOFF)
            assert len(world.client.produced[-1].data) == 2
        for tp in (TP0, TP1):
            world.acknowledge(tp)
        world.round(3, ms=BACKOFF)
        assert [len(request.data) for request in world.client.produced[-2:]] == [1, 1]


@pytest.mark.broker
def test_a_broker_with_its_defaults_takes_requests_of_4_mib(kafka, consume):
    """message.max.bytes, 1 MiB, bounds a batch and no request."""
    topic = kafka.unique_topic("large-requests", 12)
    config = config_of(bootstrap_servers=kafka.bootstrap, batch_size=512 * 1024)
    values = pa.array([b"%08d" % row * 128 for row in range(12_000)], pa.binary())
    with KafkaProducer(config) as producer:

        def largest() -> float:
            found = producer.metrics().items()
            return max(value for metric, value in found if metric.name == "request-size-max")

        # A slow machine may answer the first full requests too slowly for larger ones.
        sent = 0
        while not sent or (largest() < MIB and sent < 20):
            for _ in range(4):
                producer.send_columns(RecordColumns(len(values), topic, value=values))
            producer.flush()
            sent += 4
        assert MIB < largest() < 5 * MIB
    assert len(consume(topic)) == sent * len(values)


@pytest.mark.long
@pytest.mark.broker
def test_a_broker_that_takes_small_requests_closes_one_connection():
    """socket.request.max.bytes of 2 MB: every row arrives, in order."""
    overrides = {"socket.request.max.bytes": "2000000"}
    with KafkaCluster(overrides=overrides) as cluster:
        kafka = RealKafka(cluster.bootstrap, cluster)
        topic = kafka.unique_topic("small-requests", 12)
        rows, partitions = 20_000, (np.arange(20_000) % 12).astype(np.int32)
        config = config_of(bootstrap_servers=kafka.bootstrap, batch_size=512 * 1024)
        with KafkaProducer(config) as producer:
            producer.start_attempt()
            for first in range(0, 10 * rows, rows):
                values = [b"%010d" % row + b"x" * 1000 for row in range(first, first + rows)]
                producer.send_columns(
                    RecordColumns(
                        rows, topic, value=pa.array(values, pa.binary()), partition=partitions
                    )
                )
            assert producer.finish_attempt().rows == 10 * rows
        found = consume_topic(kafka.bootstrap, topic).by_partition()
        for values in found.values():
            numbers = [int((value or b"")[:10]) for value in values]
            assert numbers == sorted(set(numbers))
        assert sum(map(len, found.values())) == 10 * rows
