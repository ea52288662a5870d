"""The network room against a real Kafka: what its simulation can't show."""

from __future__ import annotations

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.config.parsing import parse_producer_config
from tests.real_kafka import RealKafka


def test_a_canonical_name_leads_to_the_broker(kafka: RealKafka) -> None:
    given = {
        "bootstrap.servers": kafka.bootstrap,
        "client.dns.lookup": "resolve_canonical_bootstrap_servers_only",
    }
    topic = kafka.unique_topic("canonical", partitions=2)
    with AdminClient(parse_producer_config(given)) as admin:
        cluster = admin.describe_topics([topic], timeout_ms=20_000)
    assert len(cluster.topics[topic]) == 2
