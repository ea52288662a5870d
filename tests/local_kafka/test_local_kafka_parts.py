"""local_kafka without a broker: the JVM, the ports, the cache, the templates, the watcher."""

from __future__ import annotations

import base64
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.local_kafka import (
    KAFKA_3_VERSION,
    KAFKA_VERSION,
    KafkaCluster,
    LocalKafkaError,
    NodeState,
    installation,
    ports,
    prepare,
    probe,
    server_properties,
)
from spark_kafka_sink.local_kafka.broker_process_group import BrokerProcessGroup
from spark_kafka_sink.local_kafka.distribution import (
    RELEASES,
    Distribution,
    cache_lock,
    resolve,
)
from spark_kafka_sink.local_kafka.installation import ARCHIVE_ID, Installation
from spark_kafka_sink.local_kafka.java import Java, find_java, parse_major_version
from spark_kafka_sink.local_kafka.server_properties import (
    read_properties,
    template_directory,
    write_properties,
)
from tests.local_kafka.conftest import GOOD_MAVEN, script
from tests.network.loopback import serving
from tests.programs import is_running
from tests.waiting import wait_for

COORDINATES = RELEASES[KAFKA_VERSION]
ANY_JAVA = Java(Path("/nowhere/java"), 17, "0")


# --- the JVM -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25-ea" 2025-09-16', 25),
        ("command not understood", None),
    ],
)
def test_the_major_version_is_read_as_each_release_prints_it(text, major):
    assert parse_major_version(text) == major


def test_no_java_at_all_is_named_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalKafkaError, match="no java on PATH") as caught:
        find_java()
    assert "JDK 17" in caught.value.hint


def test_a_java_home_without_java_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(LocalKafkaError, match=f"JAVA_HOME is {tmp_path}"):
        find_java()


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("echo 'openjdk version \"11.0.2\"' >&2", r"needs Java 17 or newer, but .* is Java 11"),
        ("exit 3", r"gave no version \(exit status 3\)"),
    ],
    ids=["old", "no version"],
)
def test_a_java_that_can_not_run_kafka_is_refused(monkeypatch, tmp_path, version, says):
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin" / "java", f"#!/bin/sh\n{version}\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(LocalKafkaError, match=says):
        find_java()


# --- ports ---------------------------------------------------------------------------------------


def test_a_reserved_port_is_free_for_the_broker_only():
    held = ports.reserve()
    try:
        with pytest.raises(LocalKafkaError, match=f"Port {held.port} of 127.0.0.1"):
            ports.reserve(held.port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((ports.HOST, held.port))
        for _ in range(2):  # a broker, and the same broker after a bounce
            with socket.socket() as broker:
                broker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                broker.bind((ports.HOST, held.port))
                broker.listen()
                socket.create_connection((ports.HOST, held.port)).close()
    finally:
        held.release()
    ports.reserve(held.port).release()


def test_ports_are_outside_the_kernels_ephemeral_range():
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    held = [ports.reserve() for _ in range(20)]
    try:
        assert len({h.port for h in held}) == 20
        assert all(h.port < max(low, 32768) for h in held)
    finally:
        for h in held:
            h.release()


def test_a_machine_without_a_free_port_is_an_error(monkeypatch):
    held = ports.reserve()
    monkeypatch.setattr(random, "choice", lambda _: held.port)
    with pytest.raises(LocalKafkaError, match="No free TCP port was found") as caught:
        ports.reserve()
    assert "end the processes that hold so many ports" in caught.value.hint
    held.release()
    ports.reserve().release()


# --- the probe -----------------------------------------------------------------------------------


def frame(body: bytes, correlation_id: int = 1) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


@pytest.mark.parametrize(
    ("answer", "ready"),
    [
        (frame(struct.pack(">hi", 0, 0)), True),
        (frame(struct.pack(">hi", 35, 0)), False),
        (frame(struct.pack(">hi", 0, 0), correlation_id=2), False),
        (frame(b""), False),
        (struct.pack(">i", 2**31 - 1) + b"much", False),
        (struct.pack(">i", -1), False),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
        (b"", False),
    ],
)
def test_only_a_whole_answer_without_an_error_means_ready(answer, ready):
    with serving(lambda connection, _: connection.sendall(answer)) as address:
        assert probe.answers_api_versions(*address) is ready


def test_the_probe_reads_brokers_and_partitions_from_metadata():
    def text(value: bytes) -> bytes:
        return struct.pack(">h", len(value)) + value

    brokers = struct.pack(">i", 2) + b"".join(
        struct.pack(">i", id_) + text(b"host") + struct.pack(">ih", 9092, -1) for id_ in (1, 3)
    )
    partition = (
        struct.pack(">hii", 0, 0, 3) + struct.pack(">3i", 2, 3, 1) + struct.pack(">2i", 1, 3)
    )
    topics = struct.pack(">ih", 1, 0) + text(b"t") + b"\0" + struct.pack(">i", 1) + partition
    answer = frame(brokers + struct.pack(">i", 1) + topics)
    with serving(lambda connection, _: connection.sendall(answer)) as address:
        state = probe.cluster_state(*address)
    assert state is not None
    assert state.brokers == {1, 3}
    assert state.under_replicated == (probe.PartitionState("t", 0, 3, (3, 1), (3,)),)


@given(st.binary(max_size=80))
def test_no_bytes_make_the_metadata_reader_fail_in_another_way(data):
    try:
        reader = probe._Reader(data)
        for _ in range(reader.int32()):
            probe._topic(reader)
    except ValueError:
        pass


# --- the cache -----------------------------------------------------------------------------------


def runs(tmp_path: Path) -> int:
    path = tmp_path / "runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


def resolve_once(version=KAFKA_VERSION):
    with cache_lock(version) as directory:
        return resolve(ANY_JAVA, directory, version)


def test_jars_are_fetched_once(maven, tmp_path):
    first, second = resolve_once(), resolve_once()
    assert first == second
    assert {jar.name for jar in first.jars} == {c.file for c in COORDINATES}
    assert runs(tmp_path) == 1


@pytest.mark.parametrize("harm", ["a jar is gone", "a jar is cut", "the list is gone"])
def test_a_damaged_cache_is_fetched_again(maven, tmp_path, harm):
    home = resolve_once().home
    if harm == "a jar is gone":
        next((home / "jars").iterdir()).unlink()
    elif harm == "a jar is cut":
        next((home / "jars").iterdir()).write_bytes(b"PK")
    else:
        (home / "files.json").unlink()
    assert len(resolve_once().jars) == len(COORDINATES)
    assert runs(tmp_path) == 2


@pytest.mark.parametrize(
    ("mvn", "said"),
    [
        ("#!/bin/sh\necho no such host; exit 1\n", "no such host"),
        ("#!/bin/sh\nexit 0\n", "not brought"),
    ],
)
def test_a_failed_resolver_leaves_nothing_that_looks_complete(
    maven, monkeypatch, tmp_path, mvn, said
):
    script(maven, mvn)
    # The second resolver, PySpark's Ivy, is called with a java that does not exist.
    with pytest.raises(LocalKafkaError, match="could not be fetched") as caught:
        resolve_once()
    assert said in caught.value.hint
    assert "Ivy" in caught.value.hint
    assert [p.name for p in (tmp_path / "cache" / "spark_kafka_sink").iterdir()] == [
        next(p.name for p in (tmp_path / "cache" / "spark_kafka_sink").glob("*.lock"))
    ]
    script(maven, GOOD_MAVEN)
    assert len(resolve_once().jars) == len(COORDINATES)


def test_without_maven_and_pyspark_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as if it were not installed
    with pytest.raises(LocalKafkaError, match="needs Maven or PySpark") as caught:
        resolve_once()
    assert "pip install 'spark-kafka-sink[spark]'" in caught.value.hint


@pytest.mark.parametrize("jar", ["ivy-2.5.3.jar", "no-ivy.jar"])
def test_the_ivy_of_spark_home_comes_before_pysparks(maven, monkeypatch, tmp_path, jar):
    script(maven, "#!/bin/sh\nexit 1\n")
    java = script(tmp_path / "java", '#!/bin/sh\necho "$@"\nexit 1\n')
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / jar).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with cache_lock() as directory, pytest.raises(LocalKafkaError) as caught:
        resolve(Java(java, 17, "0"), directory)
    asked = caught.value.hint.partition("-jar ")[2].split()[0]
    assert (asked == str(tmp_path / "jars" / jar)) == (jar == "ivy-2.5.3.jar")
    assert Path(asked).name.startswith("ivy-")


RESOLVE_IN_A_PROCESS = """
from pathlib import Path
from spark_kafka_sink.local_kafka.distribution import cache_lock, resolve
from spark_kafka_sink.local_kafka.java import Java
with cache_lock() as directory:
    print(len(resolve(Java(Path("/nowhere/java"), 17, "0"), directory).jars))
"""


def test_two_processes_at_once_fetch_once(maven, monkeypatch, tmp_path):
    monkeypatch.setenv("DELAY", "0.5")
    command = [sys.executable, "-c", RESOLVE_IN_A_PROCESS]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [p.communicate(timeout=60)[0].strip() for p in both] == [str(len(COORDINATES))] * 2
    assert runs(tmp_path) == 1


def test_a_killed_fetch_is_cleared_away_by_the_next_one(maven, monkeypatch, tmp_path):
    monkeypatch.setenv("DELAY", "30")
    cache = tmp_path / "cache" / "spark_kafka_sink"
    # A session of its own, so that the whole family can be killed at once.
    process = subprocess.Popen([sys.executable, "-c", RESOLVE_IN_A_PROCESS], start_new_session=True)
    wait_for(lambda: runs(tmp_path) == 1, 60, "the start of the fetch")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert list(cache.glob("partial-*"))
    assert not list(cache.glob("kafka-*/"))
    monkeypatch.setenv("DELAY", "0")
    assert len(resolve_once().jars) == len(COORDINATES)
    assert not list(cache.glob("partial-*"))


def test_two_versions_have_separate_directories_and_locks(maven, monkeypatch, tmp_path):
    monkeypatch.setenv("JARS", " ".join({c.file for v in RELEASES.values() for c in v}))
    with cache_lock(KAFKA_VERSION):
        older = resolve_once(KAFKA_3_VERSION)
    newer = resolve_once()
    assert (older.version, newer.version) == (KAFKA_3_VERSION, KAFKA_VERSION)
    assert older.home != newer.home
    assert (resolve_once(KAFKA_3_VERSION), resolve_once()) == (older, newer)
    assert runs(tmp_path) == 2


@pytest.mark.parametrize("version", RELEASES)
def test_only_kafka_3_gets_the_way_from_log4j_1(version):
    names = {one.name for one in RELEASES[version]}
    assert ("log4j-1.2-api" in names) == version.startswith("3.")
    assert {one.version for one in RELEASES[version][:2]} == {version}


def test_the_archives_cluster_id_suits_kafka_3():
    """Before 3.9 it must be the base64 of 16 bytes; later ones take any text."""
    assert len(base64.urlsafe_b64decode(f"{ARCHIVE_ID}==")) == 16


def test_an_unknown_version_is_refused_with_those_that_are_known(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for refused in (lambda: KafkaCluster(version="3.9"), lambda: prepare("../4.3.1")):
        with pytest.raises(LocalKafkaError, match="is not known") as caught:
            refused()
        assert caught.value.hint == "versions: 4.3.1, 3.9.2, 3.0.2, 3.3.2, 4.4.0"
    assert list(tmp_path.iterdir()) == []


# --- templates -----------------------------------------------------------------------------------


def test_the_two_templates_differ_in_replication_only():
    one = read_properties(template_directory() / "one-node.properties")
    three = read_properties(template_directory() / "three-nodes.properties")
    assert one.keys() == three.keys()
    different = {name for name in one if one[name] != three[name]}
    assert all("replica" in name or name.endswith("min.isr") for name in different), different
    assert three["min.insync.replicas"] == "2"
    assert three["transaction.state.log.replication.factor"] == "3"


def test_docker_compose_runs_the_same_release_and_files():
    text = (Path(__file__).parents[2] / "docker-compose.yml").read_text()
    images = re.findall(r"image: (apache/kafka\S+)", text)
    assert set(images) == {f"apache/kafka:{KAFKA_VERSION}"}
    mounted = re.findall(r"\./conf/kafka/(\S+?):/mnt/shared/config/server.properties", text)
    assert mounted == ["one-node.properties", *["three-nodes.properties"] * 3]
    ids = re.findall(r"CLUSTER_ID: (?:&cluster )?([^\s*]+)", text)
    assert [len(i) for i in ids] == [22, 22]  # a Kafka Uuid
    assert all((template_directory() / name).exists() for name in mounted)


def test_a_written_file_reads_back(tmp_path):
    properties = {"log.dirs": "/tmp/a b", "sasl.jaas.config": 'X required a="b=c";', "empty": ""}
    write_properties(tmp_path / "p", properties)
    assert read_properties(tmp_path / "p") == properties
    # What Java would take for syntax is escaped.
    write_properties(tmp_path / "p", {"a": "back\\slash\nline", "b": " leading", "c": "ü"})
    assert (tmp_path / "p").read_bytes() == b"a=back\\\\slash\\nline\nb=\\ leading\nc=\\u00fc\n"


TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \t\f\r\n=:#!\\u0🙂"))


@given(properties=st.dictionaries(TEXT.filter(bool), TEXT, max_size=4))
def test_any_written_file_reads_back(properties, tmp_path_factory):
    """The escapes are Java's; what Kafka's tools write has them, too."""
    file = tmp_path_factory.getbasetemp() / "any.properties"
    write_properties(file, properties)
    assert read_properties(file) == properties


def test_an_emoji_is_two_escapes_as_in_java(tmp_path):
    write_properties(tmp_path / "p", {"a": "🙂"})
    assert (tmp_path / "p").read_bytes() == b"a=\\ud83d\\ude42\n"


@pytest.mark.parametrize(
    ("java", "says"),
    [("#!/bin/sh\nexec sleep 60\n", r"within 0\.1 s"), ("", "did not run")],
    ids=["slow", "no program"],
)
def test_a_storage_tool_without_an_end_is_an_error(monkeypatch, tmp_path, java, says):
    monkeypatch.setattr(installation, "_FORMAT_TIMEOUT_S", 0.1)
    program = Java(script(tmp_path / "java", java), 17, "0")
    there = Installation(program, Distribution(KAFKA_VERSION, tmp_path, ()), None)
    with pytest.raises(LocalKafkaError, match=f"storage tool .*{says}"):
        there.format_storage(tmp_path / "server.properties", ARCHIVE_ID)


def test_the_brokers_own_listener_stays_with_other_addresses():
    """Kafka refuses advertised listeners without the one that brokers use."""
    told = "PLAINTEXT://proxy:9"
    cluster = KafkaCluster(overrides={"advertised.listeners": told})
    host, port = cluster.node(1).probe_address
    cluster.stop()
    advertised = cluster.node(1).properties["advertised.listeners"]
    assert advertised == f"{told},INTERNAL://{host}:{port}"


def test_an_installation_without_templates_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(server_properties, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    with pytest.raises(LocalKafkaError, match=f"neither in {tmp_path}/a/b/conf nor") as caught:
        template_directory()
    assert "install spark-kafka-sink again" in caught.value.hint


# --- nodes that were never started ---------------------------------------------------------------


def test_a_verb_that_a_state_forbids_raises_and_changes_nothing():
    cluster = KafkaCluster()
    try:
        node = cluster.node(1)
        for verb in (node.stop, node.kill, node.freeze, node.thaw):
            with pytest.raises(IllegalStateError, match="node 1, which is stopped"):
                verb()
        assert node.state is NodeState.STOPPED
        assert node.pid is None
    finally:
        cluster.stop()
    with pytest.raises(IllegalStateError, match="used once"):
        cluster.start()
    assert not node.directory.exists()


def test_a_cluster_has_one_or_three_nodes():
    with pytest.raises(IllegalStateError, match="1 or 3 nodes, not 2"):
        KafkaCluster(2)


# --- the watcher ---------------------------------------------------------------------------------

PARENT = """
import sys, time
from pathlib import Path
from spark_kafka_sink.local_kafka.broker_process_group import BrokerProcessGroup
brood = BrokerProcessGroup()
(brood.directory / "data").mkdir()
with open("/dev/null", "wb") as nothing:
    child = brood.start(["sleep", "600"], nothing, brood.directory)
print(child.pid, brood.directory, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("frozen", [False, True])
def test_a_killed_parent_leaves_no_process_and_no_directory(frozen):
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, directory = parent.stdout.readline().split()
    assert is_running(int(pid))
    if frozen:
        os.kill(int(pid), signal.SIGSTOP)
    parent.kill()
    parent.communicate()
    wait_for(lambda: not is_running(int(pid)), 60, "the end of the child")
    wait_for(lambda: not Path(directory).exists(), 60, "the end of the directory")


def test_a_watcher_that_does_not_start_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(LocalKafkaError, match=r"did not start \(/bin/false\)"):
        BrokerProcessGroup()
    assert list(tmp_path.iterdir()) == []


def test_a_group_may_be_closed_twice(tmp_path):
    group = BrokerProcessGroup()
    with (tmp_path / "log").open("wb") as log:
        process = group.start(["sleep", "600"], log, tmp_path)
    for _ in range(2):
        group.close()
        assert process.returncode == -signal.SIGKILL
        assert not group.directory.exists()
