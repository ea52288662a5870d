"""A real broker behind a proxy that cuts, swallows, holds: every row arrives once, in order."""

from __future__ import annotations

import threading
import time

import pytest

from spark_kafka_sink.base.errors import DeliveryError
from spark_kafka_sink.local_kafka import KafkaCluster
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.protocol.request import ApiKey
from tests.faults.load import check, config, write
from tests.faults.proxy import Action, Proxy, Side
from tests.real_kafka import AT_ONCE_S, RealKafka
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.faults, pytest.mark.broker, pytest.mark.timeout(180)]

ROWS = 30_000


@pytest.fixture(scope="module")
def proxied():
    """A broker that advertises the proxy's address, which is its bootstrap server; the proxy."""
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
            yield RealKafka(address, cluster), proxy


@pytest.fixture
def broker(proxied):
    return proxied[0]


@pytest.fixture
def proxy(proxied):
    proxied[1].clear()
    yield proxied[1]
    proxied[1].clear()


def written(broker: RealKafka, proxy: Proxy, **options: str) -> ProduceReport:
    """Every row arrives once and in order, and every fault was met."""
    topic = broker.unique_topic("fault", 3)
    producer = KafkaProducer(config(broker.bootstrap, **({"batch_size": "65536"} | options)))
    report = write(producer, topic, ROWS)
    producer.close(10_000)
    proxy.assert_all_fired()
    check(broker.bootstrap, topic, ROWS)
    return report


@pytest.mark.parametrize(
    ("at_byte", "nth"),
    [(0, 1), (3, 4), (4, 1), (30, 4), (61, 1), (120, 4), (5000, 1), (60_000, 4)],
)
def test_a_connection_cut_inside_a_request_loses_nothing(broker, proxy, at_byte, nth):
    proxy.add(ApiKey.PRODUCE, Action.CUT, Side.REQUEST, nth=nth, at_byte=at_byte)
    assert written(broker, proxy).retries >= 1


@pytest.mark.parametrize(("at_byte", "nth"), [(0, 1), (3, 4), (7, 1), (20, 4)])
def test_a_connection_cut_inside_a_response_doubles_nothing(broker, proxy, at_byte, nth):
    proxy.add(ApiKey.PRODUCE, Action.CUT, Side.RESPONSE, nth=nth, at_byte=at_byte)
    written(broker, proxy)


def test_many_cuts_on_both_sides_lose_and_double_nothing(broker, proxy):
    for nth in range(2, 40, 6):
        proxy.add(ApiKey.PRODUCE, Action.CUT, Side.REQUEST, nth=nth, at_byte=nth * 100)
        proxy.add(ApiKey.PRODUCE, Action.CUT, Side.RESPONSE, nth=nth + 2, at_byte=nth % 9)
    written(broker, proxy, batch_size="16384")


def test_a_lost_response_is_resent_after_request_timeout(broker, proxy):
    proxy.add(ApiKey.PRODUCE, Action.SWALLOW, Side.RESPONSE, nth=3)
    assert written(broker, proxy, request_timeout_ms="1500").retries >= 1


def test_a_held_response_delays_and_nothing_else(broker, proxy):
    fault = proxy.add(ApiKey.PRODUCE, Action.HOLD, Side.RESPONSE, nth=2)

    def release() -> None:
        fault.hit.wait(60)
        fault.release()

    releaser = threading.Thread(target=release)
    releaser.start()
    report = written(broker, proxy)
    releaser.join()
    assert report.duplicates == 0


def test_a_silent_broker_fails_the_attempt_in_delivery_timeout(broker, proxy):
    topic = broker.unique_topic("fault", 3)
    delivery_ms = int(4_000 * PATIENCE)
    producer = KafkaProducer(
        config(
            broker.bootstrap,
            request_timeout_ms=str(delivery_ms // 4),
            delivery_timeout_ms=str(delivery_ms),
            linger_ms="0",
            batch_size="65536",
        )
    )
    proxy.add(ApiKey.PRODUCE, Action.SWALLOW, Side.REQUEST, nth=3, times=10_000)
    start = time.monotonic()
    with pytest.raises(DeliveryError) as caught:
        write(producer, topic, ROWS)
    assert time.monotonic() - start < delivery_ms / 1000 + AT_ONCE_S
    assert topic in str(caught.value)
    assert "delivery.timeout.ms" in str(caught.value)
    assert not producer.reusable
    producer.close(1000)
    proxy.assert_all_fired()
