"""Clusters of brokers that a stand-in for Java plays: what is started, awaited and left. The
same on the real thing: test_local_kafka.py.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import tarfile
from pathlib import Path

import pytest

from spark_kafka_sink.base.security.java_properties import parse_properties
from spark_kafka_sink.local_kafka import (
    KAFKA_VERSION,
    KafkaCluster,
    LocalKafkaError,
    NodeState,
    SchemaRegistry,
    ports,
    prepare,
    probe,
)
from spark_kafka_sink.local_kafka.__main__ import main
from spark_kafka_sink.local_kafka.distribution import cache_directory
from spark_kafka_sink.local_kafka.registry.schema_registry import REGISTRY_VERSION
from spark_kafka_sink.local_kafka.server_properties import read_properties
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory):
    """What is prepared once for these tests, by the first of them."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def machine(maven, java, shared_cache, monkeypatch):
    """Where nothing is fetched but by the stand-in for Maven Central."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))


@pytest.fixture
def new_machine(machine, monkeypatch, tmp_path):
    """One on which nothing is prepared."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


# --- what is prepared ----------------------------------------------------------------------------


@pytest.mark.usefixtures("new_machine")
def test_a_class_archive_is_written_once_and_used():
    first = prepare()
    assert first.class_archive is not None
    written = first.class_archive.stat().st_mtime_ns
    assert prepare() == first
    assert first.class_archive.stat().st_mtime_ns == written
    with KafkaCluster() as cluster:
        command = Path(f"/proc/{cluster.node(1).pid}/cmdline").read_text().split("\0")
    assert f"-XX:SharedArchiveFile={first.class_archive}" in command


@pytest.mark.usefixtures("new_machine")
def test_brokers_start_without_a_class_archive_too(monkeypatch, caplog):
    monkeypatch.setenv("NO_ARCHIVE", "1")
    with caplog.at_level(logging.WARNING):
        assert prepare().class_archive is None
    assert "the class archive can't be written, so brokers start more slowly" in caplog.text
    with KafkaCluster() as cluster:
        assert cluster.node(1).state is NodeState.RUNNING


def test_a_storage_not_formatted_shows_what_the_tool_said():
    cluster = KafkaCluster(format_options=("--feature", "nonsense=1"))
    with pytest.raises(LocalKafkaError, match=r"could not format the log\.dirs") as caught:
        cluster.start()
    assert caught.value.hint == "Unsupported feature: nonsense"
    assert not cluster.node(1).directory.exists()


# --- nodes ---------------------------------------------------------------------------------------


def test_three_nodes_are_formatted_as_one_cluster():
    """The tool runs once: the other nodes get a copy, with ids of their own."""
    with KafkaCluster(3) as cluster:
        files = [node.directory / "data" for node in cluster.nodes]
        metas = [read_properties(data / "meta.properties") for data in files]
        assert [meta["node.id"] for meta in metas] == ["1", "2", "3"]
        assert len({meta["cluster.id"] for meta in metas}) == 1
        assert len({meta["directory.id"] for meta in metas}) == 3
        assert all((data / "bootstrap.checkpoint").exists() for data in files)
        cluster.wait_until_in_sync()


def test_a_node_that_crashes_is_stopped_and_may_start_again():
    with KafkaCluster() as cluster:
        node = cluster.node(1)
        os.kill(node.pid, signal.SIGKILL)
        wait_for(lambda: node.state is NodeState.STOPPED, 60, "the end of the node")
        assert node.pid is None
        node.start()
        assert node.state is NodeState.RUNNING
        assert node.log_tail().splitlines() == ["starting"] * 2


@pytest.mark.parametrize(
    ("properties", "answers", "told"),
    [
        ({"num.io.threads": "0"}, {}, "ended while it was starting."),
        ({}, {"answers": False}, "was not ready after 0.2 s."),
        ({}, {"brokers": []}, "was not ready after 0.2 s."),
    ],
    ids=["ends", "answers nothing", "is not alive for the others"],
)
def test_a_node_that_does_not_start_is_an_error_with_its_log(properties, answers, told):
    with KafkaCluster() as cluster:
        node = cluster.node(1)
        node.stop()
        node.properties |= properties
        (node.directory / "answers.json").write_text(json.dumps(answers))
        with pytest.raises(LocalKafkaError, match=told) as caught:
            node.start(timeout=60 if properties else 0.2)
        assert caught.value.hint.splitlines()[:2] == ["the last lines of its log:", "starting"]


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({"answers": False}, "nothing"),
        ({"brokers": [2]}, "brokers [2] are alive, not yet all of [1]"),
        (
            {"in_sync": []},
            "partition 0 of orders has leader 1, replicas (1,), in sync ()",
        ),
    ],
    ids=["no answer", "not alive", "behind"],
)
def test_what_a_cluster_waits_for_is_named_when_time_is_up(answers, problem):
    with KafkaCluster() as cluster:
        told = cluster.node(1).directory / "answers.json"
        told.write_text(json.dumps(answers))
        with pytest.raises(LocalKafkaError) as caught:
            cluster.wait_until_in_sync(timeout=0.1)
        assert f"Node 1 is not ready after 0.1 s: {problem}." in str(caught.value)
        told.unlink()
        cluster.wait_until_in_sync()


def test_replicas_on_nodes_that_are_stopped_are_not_waited_for():
    with KafkaCluster() as cluster:
        behind = {"replicas": [1, 9], "in_sync": [1]}
        (cluster.node(1).directory / "answers.json").write_text(json.dumps(behind))
        cluster.wait_until_in_sync(timeout=0)


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def command(capsys):
    """``python -m spark_kafka_sink.local_kafka`` in this process: its exit, and what it printed."""
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}

    def run(*arguments):
        status = main(list(arguments))
        return (status, *capsys.readouterr())

    yield run
    for one, handler in before.items():
        signal.signal(one, handler)


def test_the_command_ends_with_the_log_of_a_node_that_ends(command):
    status, out, errors = command("--property", "seconds.to.live=0.2")
    address, port = out.strip().split(":")
    assert (status, address) == (1, ports.HOST)
    assert f"Kafka {KAFKA_VERSION} is ready; Ctrl-C stops it." in errors
    assert errors.endswith("node 1 has exited:\nstarting\n")
    assert not probe.answers_api_versions(address, int(port))


def test_the_command_of_a_secure_one_prints_a_clients_file(command):
    """One way in is in use; the others are comments, PLAINTEXT too."""
    _, out, _ = command("--secure", "--property", "seconds.to.live=0.1")
    used = parse_properties(out)
    assert used["security.protocol"] == "SASL_SSL"
    assert used["sasl.mechanism"] == "SCRAM-SHA-512"
    ways = [line for line in out.splitlines() if line.startswith(("# SSL", "# SASL"))]
    assert ways[0] == "# SSL"
    assert "# SASL_PLAINTEXT PLAIN" in ways
    assert len(ways) == 1 + 2 * 4
    assert out.startswith("# PLAINTEXT, for tools: bootstrap.servers=127.0.0.1:")
    assert 'username="bob"' in out.splitlines()[-1]


def test_the_command_only_prepares_or_only_writes_files(command, tmp_path):
    assert command("--prepare")[:2] == (0, f"{cache_directory() / f'kafka-{KAFKA_VERSION}'}\n")
    files = tmp_path / "secure"
    assert command("--write-secure-files", str(files))[:2] == (0, f"{files}/client.properties\n")
    status, out, errors = command("--write-secure-files", str(files))
    assert (status, out) == (1, "")
    assert f"{files} exists already." in errors


def test_a_property_of_the_command_has_a_name_and_a_value(command, capsys):
    for wrong in ("num.io.threads", "=1"):
        with pytest.raises(SystemExit) as caught:
            command("--property", wrong)
        assert caught.value.code == 2
        assert f"'{wrong}' is not name=value" in capsys.readouterr().err


# --- the schema registry -------------------------------------------------------------------------


@pytest.fixture
def registry_files(maven, monkeypatch, tmp_path):
    """Maven Central has the registry, too."""
    path = tmp_path / "some.tar.gz"
    (tmp_path / "runner").write_text("code")
    with tarfile.open(path, "w:gz") as files:
        files.add(tmp_path / "runner", "runner")
    monkeypatch.setenv("TAR", str(path))
    archive = f"apicurio-registry-app-{REGISTRY_VERSION}-all.tar.gz"
    monkeypatch.setenv("JARS", f"{os.environ['JARS']} {archive}")


@pytest.mark.usefixtures("new_machine", "registry_files")
def test_a_registry_is_fetched_and_unpacked_once(tmp_path):
    for _ in range(2):
        with SchemaRegistry() as registry:
            port = int(registry.url.split(":")[2].partition("/")[0])
            assert registry.url == f"http://127.0.0.1:{port}/apis/ccompat/v7"
            assert probe.answers_http(ports.HOST, port, "/apis/ccompat/v7/subjects")
        assert not probe.answers_http(ports.HOST, port, "/")
    assert (tmp_path / "runs").read_text() == "run\n"
    (home,) = cache_directory().glob("apicurio-*/")
    assert (home / "unpacked" / "runner").read_text() == "code"


@pytest.mark.usefixtures("registry_files")
def test_a_registry_that_does_not_start_shows_its_log(monkeypatch):
    monkeypatch.setenv("NO_REGISTRY", "1")
    registry = SchemaRegistry()
    with pytest.raises(LocalKafkaError, match="did not start") as caught:
        registry.start()
    assert caught.value.hint.splitlines() == ["starting", "Port already bound"]


def test_a_registry_without_java_gives_its_port_back(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    port = ports.reserve()
    port.release()
    with pytest.raises(LocalKafkaError, match="no bin/java"):
        SchemaRegistry(port=port.port).start()
    ports.reserve(port.port).release()


@pytest.mark.usefixtures("registry_files")
def test_the_command_prints_where_the_registry_is(command):
    """It ends with the command."""
    _, out, errors = command("--registry", "--property", "seconds.to.live=0.1")
    (port,) = re.findall(
        r"^Its schema registry is http://127.0.0.1:(\d+)/apis/", errors, re.MULTILINE
    )
    assert out.startswith("127.0.0.1:")
    assert not probe.answers_http(ports.HOST, int(port), "/")
