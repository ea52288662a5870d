"""local_kafka on the real thing: nodes start, bounce, die, freeze, and leave nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.local_kafka import (
    KAFKA_VERSION,
    KafkaCluster,
    LocalKafkaError,
    NodeState,
    ports,
    probe,
)
from spark_kafka_sink.local_kafka.server_properties import read_properties
from tests.real_kafka import RealKafka
from tests.waiting import wait_for

# Each test starts brokers of its own.
pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.timeout(300)]


def test_a_node_keeps_port_and_topics_over_restart_and_kill(consume):
    from confluent_kafka import Producer

    with KafkaCluster() as cluster:
        broker, node = RealKafka(cluster.bootstrap, cluster), cluster.node(1)
        topic, port = broker.unique_topic(partitions=2), node.port()
        for round_, end in enumerate((node.stop, node.kill)):
            producer = Producer({"bootstrap.servers": cluster.bootstrap})
            producer.produce(topic, value=str(round_).encode(), partition=0)
            assert producer.flush(30) == 0
            end()
            assert node.state is NodeState.STOPPED
            with pytest.raises(LocalKafkaError):
                ports.reserve(port)  # nobody else gets it meanwhile
            node.start()
            assert node.port() == port
        assert consume(topic, bootstrap=cluster.bootstrap).values == [b"0", b"1"]


def test_a_frozen_node_answers_nothing_until_it_is_thawed():
    with KafkaCluster() as cluster:
        node = cluster.node(1)
        node.freeze()
        assert node.state is NodeState.FROZEN
        assert not probe.answers_api_versions(*node.probe_address, timeout=0.3)
        node.thaw()
        node.wait_until_ready()
        assert node.state is NodeState.RUNNING


def test_a_failed_start_shows_the_log_and_leaves_nothing_behind():
    cluster = KafkaCluster(overrides={"num.io.threads": "0"})
    with pytest.raises(LocalKafkaError) as caught:
        cluster.start()
    assert "num.io.threads" in str(caught.value)
    assert not cluster.node(1).directory.exists()


def test_a_node_that_dies_at_its_start_is_reported_with_its_log():
    with KafkaCluster() as cluster:
        node = cluster.node(1)
        node.stop()
        node.properties["num.io.threads"] = "0"
        with pytest.raises(LocalKafkaError, match="ended while it was starting") as caught:
            node.start()
        assert "num.io.threads" in caught.value.hint


def test_three_nodes_go_on_when_one_is_gone(kafka3):
    topic = kafka3.unique_topic(partitions=3)
    # One probe waits for a second, and three nodes may be busy for longer.
    state = wait_for(
        lambda: probe.cluster_state(*kafka3.node(1).probe_address), 60, "the cluster's state"
    )
    assert state.brokers == {1, 2, 3}
    ours = [p for p in state.partitions if p.topic == topic]
    assert all(len(p.replicas) == 3 for p in ours)
    kafka3.node(2).kill()
    # Two of three controllers are a quorum, and the killed one's partitions get new leaders.
    kafka3.node(1).wait_until_ready(nodes=frozenset({1, 3}))
    kafka3.node(2).start()
    kafka3.wait_until_in_sync()


def test_clients_and_brokers_may_use_different_addresses():
    """Not read by librdkafka: it may ask the advertised address, where nothing listens."""
    told = {"advertised.listeners": "PLAINTEXT://127.0.0.1:9"}
    with KafkaCluster(overrides=told) as cluster:
        config = parse_producer_config({"bootstrap.servers": cluster.bootstrap})
        with AdminClient(config) as admin:
            (broker,) = admin.brokers(admin.deadline())
        assert (broker.host, broker.port) == ("127.0.0.1", 9)


def test_rows_are_kept_whatever_their_timestamps_are():
    """Kafka's default deletes those of more than seven days ago, at its first look 30 s after the
    start; tests and examples write the timestamps of their data.
    """
    from confluent_kafka import Consumer, Producer, TopicPartition

    looks = {"log.initial.task.delay.ms": "100", "log.retention.check.interval.ms": "100"}
    with KafkaCluster(overrides=looks) as cluster:
        broker = RealKafka(cluster.bootstrap, cluster)
        kept, short = broker.unique_topic(), broker.unique_topic(configs={"retention.ms": "1000"})
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for topic in (kept, short):
            producer.produce(topic, value=b"v", timestamp=1_357_000_000_000)
        assert producer.flush(30) == 0
        reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})

        def first_offset(topic):
            return reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[0]

        try:
            # As much as has been looked at twice: the second look began behind the first's end.
            wait_for(lambda: first_offset(short) == 1, 60, "the broker's look")
            producer.produce(short, value=b"v", timestamp=1_357_000_000_000)
            assert producer.flush(30) == 0
            wait_for(lambda: first_offset(short) == 2, 60, "the broker's next look")
            assert first_offset(kept) == 0
        finally:
            reader.close()


def command(directory, *arguments):
    """``python -m spark_kafka_sink.local_kafka``, with its files in ``directory``."""
    return subprocess.Popen(
        [sys.executable, "-m", "spark_kafka_sink.local_kafka", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(directory)},
    )


def test_what_a_secure_one_prints_is_a_clients_file(tmp_path):
    from confluent_kafka.admin import AdminClient

    process = command(tmp_path, "--secure")
    file = tmp_path / "client.properties"
    lines = takewhile(lambda line: not line.startswith("# org.apache"), process.stdout)
    file.write_text("".join(lines))
    options = read_properties(file)
    assert options["security.protocol"] == "SASL_SSL"
    admin = AdminClient(
        {n: options[n] for n in ("bootstrap.servers", "security.protocol", "sasl.mechanism")}
        | {"ssl.ca.location": options["ssl.truststore.location"], "sasl.username": "alice"}
        | {"sasl.password": options["sasl.jaas.config"].split('password="')[1].split('"')[0]}
    )
    assert admin.list_topics(timeout=20).brokers
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    file.unlink()
    assert list(tmp_path.iterdir()) == [], "the certificates are gone with the broker"


@pytest.mark.parametrize(
    ("end", "more"),
    [
        (signal.SIGINT, ()),
        (signal.SIGTERM, ()),
        pytest.param(signal.SIGTERM, ("--registry",), marks=pytest.mark.long),
    ],
)
def test_the_command_prints_the_address_and_ends_cleanly(end, more, tmp_path):
    process = command(tmp_path, *more)
    host, port = process.stdout.readline().strip().split(":")
    wait_for(lambda: probe.answers_api_versions(host, int(port)), 60, "the node's answer")
    process.send_signal(end)
    rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, ""), errors
    assert f"Kafka {KAFKA_VERSION} is ready" in errors
    registry = re.search(
        r"schema registry is http://[0-9.]+:([0-9]+)/apis/ccompat/v7$", errors, re.MULTILINE
    )
    assert bool(registry) == bool(more)
    assert registry is None or not probe.answers_http(host, int(registry[1]), "/")
    assert not probe.answers_api_versions(host, int(port))
    assert list(Path(tmp_path).iterdir()) == []
