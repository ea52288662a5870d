"""The whole network room against a real Kafka, and against a listener that is silent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.base.clock import NEVER, SystemClock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.client_factory import new_network_client
from spark_kafka_sink.network.client.client_request import ClientResponse
from spark_kafka_sink.network.client.network_client import NetworkClient
from spark_kafka_sink.protocol.cluster import Cluster, Node
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataResponse
from spark_kafka_sink.protocol.request import ApiKey
from tests.network.loopback import Background, LoopbackServer
from tests.network.simulated import FixedMetadata
from tests.real_kafka import AT_ONCE_S, RealKafka

CLOCK = SystemClock()


@contextmanager
def client_of(bootstrap: str, metadata: FixedMetadata, **options: str) -> Iterator[NetworkClient]:
    config = ProducerConfig.parse(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "network-test",
            **{k.replace("_", "."): v for k, v in options.items()},
        }
    )
    client = new_network_client(config, metadata, CLOCK)
    try:
        yield client
    finally:
        client.close()


def metadata_of(bootstrap: str, *, due: bool = False) -> FixedMetadata:
    servers = ProducerConfig.parse({"bootstrap.servers": bootstrap}).bootstrap_servers
    return FixedMetadata(tuple(Cluster.bootstrap(servers).nodes.values()), due=due)


def poll_until(client: NetworkClient, condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, client.connection_failures()
        client.poll(50, CLOCK.now_ms())


def test_connect_api_versions_and_metadata(kafka: RealKafka) -> None:
    metadata = metadata_of(kafka.bootstrap, due=True)
    with client_of(kafka.bootstrap, metadata) as client:
        poll_until(client, lambda: metadata.updates)
        ((_, response),) = metadata.updates
        assert response.cluster_id
        (node,) = response.brokers.values()
        assert node.id >= 0
        # The broker under its own id is another connection.
        poll_until(client, lambda: client.ready(node, CLOCK.now_ms()))
        versions = client.api_versions(node.id)
        assert versions is not None
        assert versions.api_versions[ApiKey.PRODUCE].max >= 12
        assert versions.finalized_features
        assert client.connection_failures() == {}


def test_pipelined_requests_are_answered_in_order(kafka: RealKafka) -> None:
    metadata = metadata_of(kafka.bootstrap)
    node = metadata.nodes()[0]
    responses: list[ClientResponse] = []
    with client_of(kafka.bootstrap, metadata) as client:
        poll_until(client, lambda: client.ready(node, CLOCK.now_ms()))
        began = CLOCK.now_ms()
        for _ in range(3):
            request = client.new_client_request(
                node.id,
                MetadataRequest(()),
                CLOCK.now_ms(),
                callback=responses.append,
            )
            client.send(request, CLOCK.now_ms())
            client.poll(0, CLOCK.now_ms())
        poll_until(client, lambda: len(responses) == 3)
        lasted = CLOCK.now_ms() - began
    for response in responses:
        assert isinstance(response.body, MetadataResponse)
        assert response.body.brokers
    ids = [r.request.correlation_id for r in responses]
    assert ids == sorted(ids)
    assert all(0 <= r.latency_ms <= lasted for r in responses)


def test_a_peer_that_never_answers_ends_with_a_reason() -> None:
    with LoopbackServer() as server:
        bootstrap = f"127.0.0.1:{server.address[1]}"
        metadata = metadata_of(bootstrap)
        node = metadata.nodes()[0]
        options = {"request_timeout_ms": "200", "delivery_timeout_ms": "1000", "linger_ms": "0"}
        with client_of(bootstrap, metadata, **options) as client:
            client.ready(node, CLOCK.now_ms())
            start = time.monotonic()
            while not client.connection_failed(node):
                client.poll(NEVER, CLOCK.now_ms())
            assert time.monotonic() - start < AT_ONCE_S
            (reason,) = client.connection_failures().values()
            assert "no response to API_VERSIONS within 200 ms" in reason


def test_a_parked_client_sleeps_until_it_is_woken(kafka: RealKafka) -> None:
    metadata = metadata_of(kafka.bootstrap)
    node: Node = metadata.nodes()[0]
    with client_of(kafka.bootstrap, metadata) as client:
        poll_until(client, lambda: client.ready(node, CLOCK.now_ms()))
        woken: list[float] = []

        def sleep() -> None:
            client.poll(NEVER, CLOCK.now_ms())
            woken.append(time.monotonic())

        with Background(sleep) as sleeper:
            sleeper.join(0.3)
            assert woken == []
            client.wakeup()
        assert len(woken) == 1


def test_a_canonical_name_leads_to_the_broker(kafka: RealKafka) -> None:
    given = {
        "bootstrap.servers": kafka.bootstrap,
        "client.dns.lookup": "resolve_canonical_bootstrap_servers_only",
    }
    topic = kafka.unique_topic("canonical", partitions=2)
    with AdminClient(ProducerConfig.parse(given)) as admin:
        cluster = admin.describe_topics([topic], timeout_ms=20_000)
    assert len(cluster.topics[topic]) == 2
