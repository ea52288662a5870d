"""A secure local Kafka: each way in is taken by a client that shares no code with ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.base.security.java_properties import parse_properties
from spark_kafka_sink.local_kafka import KafkaCluster, LocalKafkaError, Security
from spark_kafka_sink.local_kafka.secure_files import MOUNTED, PORTS, write_secure_files
from spark_kafka_sink.local_kafka.server_properties import read_properties

ROOT = Path(__file__).parents[2]

WAYS = [
    ("SSL", ""),
    *((p, m) for p in ("SASL_SSL", "SASL_PLAINTEXT") for m in ("PLAIN", "SCRAM-SHA-256")),
    ("SASL_SSL", "SCRAM-SHA-512"),
    ("SASL_SSL", "OAUTHBEARER"),
]


def librdkafka(cluster, listener, mechanism, user):
    """The client options as librdkafka has them."""
    options = cluster.client_options(listener, mechanism, user)
    mine = {n: options[n] for n in ("bootstrap.servers", "security.protocol")}
    if "ssl.truststore.location" in options:
        mine["ssl.ca.location"] = options["ssl.truststore.location"]
    if "ssl.keystore.location" in options:
        mine["ssl.key.location"] = mine["ssl.certificate.location"] = options[
            "ssl.keystore.location"
        ]
    if mechanism == "OAUTHBEARER":
        mine |= {"enable.sasl.oauthbearer.unsecure.jwt": True}
        mine |= {"sasl.oauthbearer.config": f"principal={user}"}
    if mechanism:
        mine["sasl.mechanism"] = mechanism
    if mechanism not in ("", "OAUTHBEARER"):
        mine |= {"sasl.username": user, "sasl.password": cluster.security.passwords[user]}
    return mine


def may_write(cluster, listener, mechanism, user, topic):
    from confluent_kafka import KafkaError, Producer

    answers = []
    producer = Producer(librdkafka(cluster, listener, mechanism, user))
    producer.produce(topic, b"row", on_delivery=lambda error, _: answers.append(error))
    producer.flush(20)
    (error,) = answers
    assert error is None or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, error
    return error is None


@pytest.mark.parametrize(("listener", "mechanism"), WAYS, ids=[f"{p} {m}" for p, m in WAYS])
def test_alice_may_write_by_each_way_in_and_bob_may_not(secure_kafka, listener, mechanism):
    topic = secure_kafka.kafka.unique_topic("ways")
    assert may_write(secure_kafka.cluster, listener, mechanism, "alice", topic)
    assert not may_write(secure_kafka.cluster, listener, mechanism, "bob", topic)


def test_a_cluster_that_is_not_secure_has_no_client_options():
    cluster = KafkaCluster()
    with pytest.raises(IllegalStateError, match="secure=True"):
        cluster.client_options("PLAINTEXT")
    cluster.stop()


def test_no_password_is_in_an_argument_of_a_command_or_shown(tmp_path):
    security = Security.make(tmp_path / "security")
    shown = " ".join([repr(security), *security.format_options()])
    assert "--add-scram" in shown
    assert not any(password in shown for password in security.passwords.values())
    assert all(path.stat().st_mode & 0o077 == 0 for path in security.client_keys.values())


def test_docker_runs_the_same_secure_broker(tmp_path):
    """The settings are those of a local one but for addresses, directories and passwords."""
    directory = tmp_path / "secure"
    client = write_secure_files(directory)
    in_docker = read_properties(directory / "server.properties")
    cluster = KafkaCluster(secure=True)
    local = cluster.node(1).properties
    cluster.stop()
    assert in_docker.keys() == local.keys()
    different = {name for name in local if local[name] != in_docker[name]}
    assert different == {
        "listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs",
        "ssl.keystore.location", "ssl.truststore.location",
        *(f"listener.name.{n}.plain.sasl.jaas.config" for n in ("sasl_ssl", "sasl_plaintext")),
    }  # fmt: skip
    for name in ("ssl.keystore.location", "ssl.truststore.location"):
        assert (directory / Path(in_docker[name]).relative_to(MOUNTED)).exists()
    protocols = "listener.security.protocol.map"
    assert in_docker[protocols] == local[protocols]
    options = parse_properties(client.read_text())
    assert options["bootstrap.servers"] == "localhost:9292"
    assert Path(options["ssl.truststore.location"]).exists()


def test_the_secure_brokers_files_are_readable_by_us_only(tmp_path):
    directory = tmp_path / "secure"
    write_secure_files(directory)
    assert directory.stat().st_mode & 0o077 == 0
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    password = parse_properties((directory / "client.properties").read_text())["sasl.jaas.config"]
    password = password.split('password="')[1].split('"')[0]
    assert password not in (directory / "scram-users").read_text()
    with pytest.raises(LocalKafkaError, match="exists already"):
        write_secure_files(directory)


def test_docker_compose_mounts_them_and_gives_their_ports():
    text = (ROOT / "docker-compose.yml").read_text()
    service = text.partition("  kafka-secure:")[2].partition("\n\n")[0]
    assert f"./.secure:{MOUNTED}:ro" in service
    assert f"{MOUNTED}/start.sh" in service
    ports = [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+):\1", service)]
    assert ports == list(PORTS.values())
    assert "/.secure/" in (ROOT / ".gitignore").read_text().split()
