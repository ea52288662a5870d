"""A real broker behind a proxy that cuts, swallows, holds: every row arrives once, in order."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from spark_kafka_sink.base.errors import DeliveryError, KafkaError
from spark_kafka_sink.local_kafka import KafkaCluster
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.protocol.request import ApiKey
from tests.faults.load import config, verdict, write
from tests.faults.proxy import Action, Proxy, Side
from tests.real_kafka import AT_ONCE_S

pytestmark = [pytest.mark.faults, pytest.mark.broker, pytest.mark.timeout(180)]

ROWS = 30_000


@pytest.fixture(scope="module")
def proxied():
    """A broker that advertises the proxy's address: (proxy, bootstrap through it)."""
    with Proxy() as proxy:
        address = f"127.0.0.1:{proxy.port}"
        cluster = KafkaCluster()
        node = cluster.node(1)
        direct = node.address()
        properties = node.properties
        properties["advertised.listeners"] = properties["advertised.listeners"].replace(
            f"PLAINTEXT://{direct}", f"PLAINTEXT://{address}"
        )
        assert address in properties["advertised.listeners"]
        with cluster:
            host, port = direct.rsplit(":", 1)
            proxy.target = (host, int(port))
            yield proxy, address


@pytest.fixture
def proxy(proxied):
    proxied[0].clear()
    yield proxied[0]
    proxied[0].clear()


@pytest.fixture
def bootstrap(proxied):
    return proxied[1]


def new_topic(bootstrap: str, partitions: int = 3) -> str:
    import uuid

    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"fault-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return name


@pytest.mark.parametrize(
    ("at_byte", "nth"),
    [(0, 1), (3, 4), (4, 1), (30, 4), (61, 1), (120, 4), (5000, 1), (60_000, 4)],
)
def test_a_connection_cut_inside_a_request_loses_nothing(proxy, bootstrap, at_byte, nth):
    topic = new_topic(bootstrap)
    producer = KafkaProducer(config(bootstrap, batch_size="65536"))
    fault = proxy.add(ApiKey.PRODUCE, Action.CUT, Side.REQUEST, nth=nth, at_byte=at_byte)
    report = write(producer, topic, ROWS)
    producer.close(10_000)
    proxy.assert_all_fired()
    assert report.retries >= 1
    found = verdict(bootstrap, topic, ROWS)
    assert found.clean, f"{found} after {fault}"


@pytest.mark.parametrize(("at_byte", "nth"), [(0, 1), (3, 4), (7, 1), (20, 4)])
def test_a_connection_cut_inside_a_response_doubles_nothing(proxy, bootstrap, at_byte, nth):
    topic = new_topic(bootstrap)
    producer = KafkaProducer(config(bootstrap, batch_size="65536"))
    fault = proxy.add(ApiKey.PRODUCE, Action.CUT, Side.RESPONSE, nth=nth, at_byte=at_byte)
    write(producer, topic, ROWS)
    producer.close(10_000)
    proxy.assert_all_fired()
    found = verdict(bootstrap, topic, ROWS)
    assert found.clean, f"{found} after {fault}"


def test_many_cuts_on_both_sides_lose_and_double_nothing(proxy, bootstrap):
    topic = new_topic(bootstrap)
    producer = KafkaProducer(config(bootstrap, batch_size="16384"))
    for nth in range(2, 40, 6):
        proxy.add(ApiKey.PRODUCE, Action.CUT, Side.REQUEST, nth=nth, at_byte=nth * 100)
        proxy.add(ApiKey.PRODUCE, Action.CUT, Side.RESPONSE, nth=nth + 2, at_byte=nth % 9)
    write(producer, topic, ROWS)
    producer.close(10_000)
    proxy.assert_all_fired()
    found = verdict(bootstrap, topic, ROWS)
    assert found.clean, str(found)


def test_a_lost_response_is_resent_after_request_timeout(proxy, bootstrap):
    topic = new_topic(bootstrap)
    producer = KafkaProducer(config(bootstrap, request_timeout_ms="1500", batch_size="65536"))
    proxy.add(ApiKey.PRODUCE, Action.SWALLOW, Side.RESPONSE, nth=3)
    report = write(producer, topic, ROWS)
    producer.close(10_000)
    proxy.assert_all_fired()
    assert report.retries >= 1
    found = verdict(bootstrap, topic, ROWS)
    assert found.clean, str(found)


def test_a_silent_broker_fails_the_attempt_in_delivery_timeout(proxy, bootstrap):
    topic = new_topic(bootstrap)
    producer = KafkaProducer(
        config(
            bootstrap,
            request_timeout_ms="1000",
            delivery_timeout_ms="4000",
            linger_ms="0",
            batch_size="65536",
        )
    )
    proxy.add(ApiKey.PRODUCE, Action.SWALLOW, Side.REQUEST, nth=3, times=10_000)
    start = time.monotonic()
    with pytest.raises(DeliveryError) as caught:
        write(producer, topic, ROWS)
    assert time.monotonic() - start < 4 + AT_ONCE_S
    assert topic in str(caught.value)
    assert "delivery.timeout.ms" in str(caught.value)
    assert not producer.reusable
    producer.close(1000)
    proxy.assert_all_fired()


def test_a_held_response_delays_and_nothing_else(proxy, bootstrap):
    topic = new_topic(bootstrap)
    producer = KafkaProducer(config(bootstrap, batch_size="65536"))
    fault = proxy.add(ApiKey.PRODUCE, Action.HOLD, Side.RESPONSE, nth=2)

    def release() -> None:
        fault.hit.wait(60)
        fault.release()

    releaser = threading.Thread(target=release)
    releaser.start()
    report = write(producer, topic, ROWS)
    releaser.join()
    producer.close(10_000)
    proxy.assert_all_fired()
    assert report.duplicates == 0
    found = verdict(bootstrap, topic, ROWS)
    assert found.clean, str(found)


def test_a_silent_peer_is_an_error_within_max_block_ms():
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        producer = KafkaProducer(config(address, max_block_ms="3000", request_timeout_ms="1000"))
        start = time.monotonic()
        with pytest.raises(KafkaError) as caught:
            write(producer, "nowhere", 10)
        assert 2.5 < time.monotonic() - start < 3 + AT_ONCE_S
        assert "nowhere" in str(caught.value)
        assert address in str(caught.value)
        producer.close(1000)


def test_a_new_topic_takes_every_row_without_a_stall(proxy, bootstrap):
    for _ in range(10):
        start = time.monotonic()
        topic = new_topic(bootstrap, partitions=13)
        producer = KafkaProducer(config(bootstrap, max_block_ms="60000"))
        write(producer, topic, 5000)
        producer.close(10_000)
        assert time.monotonic() - start < AT_ONCE_S
        found = verdict(bootstrap, topic, 5000)
        assert found.clean, str(found)
