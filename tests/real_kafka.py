"""A real broker for tests: where it comes from, and how a test makes topics and reads them back.

Reading and topic making go through confluent-kafka, which shares no code with what is tested.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_kafka_sink.local_kafka import (
    KAFKA_VERSION,
    KafkaCluster,
    KafkaNode,
    LocalKafkaError,
    NodeState,
    prepare,
)
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

IMAGE = f"apache/kafka:{KAFKA_VERSION}"
CONF = Path(__file__).parents[1] / "conf" / "kafka"
TIMEOUT_S = 60.0 * PATIENCE
#: "At once" on a busy machine, where the wait that it must not be takes 60 s at least.
AT_ONCE_S = 30.0


class RealKafka:
    """What the fixtures ``kafka`` and ``kafka3`` give to a test.

    ``cluster`` is the local cluster behind it, or None when the broker runs in Docker.
    ``transaction_version`` is what the cluster writes (KIP-890).
    """

    def __init__(
        self, bootstrap: str, cluster: KafkaCluster | None = None, transaction_version: int = 2
    ) -> None:
        self.bootstrap = bootstrap
        self.cluster = cluster
        self.transaction_version = transaction_version

    @property
    def nodes(self) -> tuple[KafkaNode, ...]:
        assert self.cluster is not None, "a broker in Docker has no controls; use kafka3"
        return self.cluster.nodes

    def node(self, node_id: int) -> KafkaNode:
        return self.nodes[node_id - 1]

    def wait_until_in_sync(self) -> None:
        assert self.cluster is not None
        self.cluster.wait_until_in_sync()

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Make a topic, replicated as the broker's default says, and wait until it is led."""
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topic = NewTopic(name, num_partitions=partitions, config=dict(configs or {}))
        admin.create_topics([topic], operation_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = admin.list_topics(timeout=TIMEOUT_S).topics.get(name)
            if found is not None and len(found.partitions) == partitions:
                leaders = [p.leader for p in found.partitions.values() if p.error is None]
                if len(leaders) == partitions and min(leaders) >= 0:
                    break
            assert time.monotonic() < deadline, f"topic {name} is not in the metadata"
            time.sleep(0.02)
        # The metadata names leaders a moment before they lead; until then they refuse rows.
        some = {TopicPartition(name, p): OffsetSpec.latest() for p in range(partitions)[:32]}
        while True:
            try:
                for place in admin.list_offsets(some, request_timeout=TIMEOUT_S).values():
                    place.result(TIMEOUT_S)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return name

    def unique_topic(
        self, name: str = "topic", partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Make a topic that no other test has."""
        return self.create_topic(f"{name}-{uuid.uuid4().hex[:12]}", partitions, configs)


@dataclass(frozen=True, slots=True)
class Consumed:
    """A whole topic, ordered by partition and offset; equal positions belong together.

    Timestamps are milliseconds, or -1 when the record has none. Headers are a list of name and
    value pairs, empty when the record has none.
    """

    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[list[tuple[str, bytes | None]]] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def by_partition(self) -> dict[int, list[bytes | None]]:
        """The values of each partition that has any, in order."""
        found: dict[int, list[bytes | None]] = {}
        for partition, value in zip(self.partitions, self.values, strict=True):
            found.setdefault(partition, []).append(value)
        return found


def consume_topic(
    bootstrap: str,
    topic: str,
    *,
    isolation: str = "read_uncommitted",
    timeout: float = TIMEOUT_S,
    options: Mapping[str, Any] | None = None,
) -> Consumed:
    """Read ``topic`` from its beginning up to the end that it has now.

    The end offsets are asked for first; each partition is done when the reader stands there (a
    partition's end event is what counts, because offsets may have holes: transaction markers).
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"test-{uuid.uuid4()}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            **(options or {}),
        }
    )
    try:
        found = consumer.list_topics(topic, timeout=timeout).topics[topic]
        assert found.error is None, found.error
        waiting = {}
        for partition in found.partitions:
            place = TopicPartition(topic, partition)
            waiting[partition] = watermarks(consumer, place, timeout)[1]
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in waiting])
        messages = []
        deadline = time.monotonic() + timeout
        while waiting:
            assert time.monotonic() < deadline, f"{topic}: end not reached: {waiting}"
            for message in consumer.consume(10_000, timeout=0.2):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    partition, offset = _place_of(message)
                    if offset >= waiting.get(partition, 0):
                        waiting.pop(partition, None)
                else:
                    raise AssertionError(f"{topic}: {error}")
    finally:
        consumer.close()
    result = Consumed()
    for message in sorted(messages, key=_place_of):
        kind, timestamp = message.timestamp()
        result.keys.append(message.key())
        result.values.append(message.value())
        headers: Any = message.headers()
        result.headers.append(headers or [])
        result.timestamps.append(timestamp if kind else -1)
        partition, offset = _place_of(message)
        result.partitions.append(partition)
        result.offsets.append(offset)
    return result


def _place_of(message: Message) -> tuple[int, int]:
    """Partition and offset, which only a produced message can be without."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def watermarks(
    consumer: Consumer, place: TopicPartition, timeout: float = TIMEOUT_S
) -> tuple[int, int]:
    """The first offset and the end. A topic made a moment ago, or a node that was bounced, has
    leaders in the metadata that do not lead yet; they are awaited.

    (confluent-kafka, which waits for that in its own fetches, does not do so here.)
    """
    from confluent_kafka import KafkaError, KafkaException

    deadline = time.monotonic() + timeout
    while True:
        try:
            low, high = consumer.get_watermark_offsets(place, timeout=timeout)
        except KafkaException as error:
            code = error.args[0].code()
            if code != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return low, high


# --- where the broker comes from -----------------------------------------------------------------


def docker_answers() -> bool:
    """Whether a Docker daemon is there; KPROD_TEST_BROKER=local|docker overrules the question."""
    choice = os.environ.get("KPROD_TEST_BROKER", "")
    if choice:
        return choice == "docker"
    if "DOCKER_HOST" not in os.environ and not Path("/var/run/docker.sock").exists():
        return False  # docker's client would leave a socket open on its way to this answer
    try:
        import docker

        client = docker.from_env(timeout=5)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except Exception:  # whatever is wrong with Docker, the answer is no
        return False


@contextmanager
def local_broker(
    version: str = KAFKA_VERSION,
    *,
    transaction_version: int = 2,
    overrides: Mapping[str, str] | None = None,
) -> Iterator[RealKafka]:
    """One node as a local process, with ``overrides`` of its settings.

    A machine that can't fetch an older Kafka skips the tests that want it; under CI they fail.
    """
    if version != KAFKA_VERSION:
        try:
            prepare(version)
        except LocalKafkaError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(error.message)
    # A 3.9 has no other version than 1, and no flag for it.
    options = ("--feature", f"transaction.version={transaction_version}")
    with KafkaCluster(
        version=version,
        format_options=options if version == KAFKA_VERSION else (),
        overrides=dict(overrides or {}),
    ) as cluster:
        yield RealKafka(cluster.bootstrap, cluster, transaction_version)


@contextmanager
def one_broker() -> Iterator[RealKafka]:
    """One node, in Docker when a daemon answers, else as a local process."""
    if docker_answers():
        with kafka_container() as bootstrap:
            yield RealKafka(bootstrap)
    else:
        with local_broker() as broker:
            yield broker


def heal(cluster: KafkaCluster) -> None:
    """Bring every node back up, whatever a test did to it."""
    for node in cluster.nodes:
        if node.state is NodeState.FROZEN:
            node.thaw()
        elif node.state is NodeState.STOPPED:
            node.start(wait=False)
    for node in cluster.nodes:
        node.wait_until_ready()
    cluster.wait_until_in_sync()


@contextmanager
def kafka_container() -> Iterator[str]:
    """``apache/kafka`` with our own server settings; gives its bootstrap address.

    The address that a broker advertises must be the one that Docker maps to it, which is known
    only when the container runs. So the container starts with a shell that waits for a script,
    and the script comes when the port is known.
    """
    from testcontainers.core.container import DockerContainer

    from spark_kafka_sink.local_kafka import probe

    script, client_port = "/tmp/start-kafka.sh", 9092

    class ApacheKafkaContainer(DockerContainer):
        """testcontainers has no class for Apache's own image."""

        def __init__(self) -> None:
            wait = f"while [ ! -f {script} ]; do sleep 0.1; done; exec bash {script}"
            super().__init__(IMAGE, command=f"sh -c '{wait}'", ports=[client_port])

        def start(self) -> ApacheKafkaContainer:
            super().start()
            host = self.get_container_host_ip()
            port = int(self.get_exposed_port(client_port))
            settings = {
                "KAFKA_NODE_ID": "1",
                "KAFKA_LISTENERS": f"PLAINTEXT://:{client_port},INTERNAL://:9093,CONTROLLER://:9094",
                "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{host}:{port},INTERNAL://localhost:9093",
                "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
                    "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
                ),
                "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
            }
            lines = [f"export {name}='{value}'" for name, value in settings.items()]
            start = "\n".join([*lines, "exec /etc/kafka/docker/run", ""])
            template = (CONF / "one-node.properties").read_bytes()
            # What is mounted there is taken, and the environment is appended to it.
            self.copy_into_container(template, "/mnt/shared/config/server.properties", 0o644)
            # The script comes last: the shell inside runs it the moment it is there.
            self.copy_into_container(start.encode(), script, 0o755)
            deadline = time.monotonic() + TIMEOUT_S
            while not probe.answers_api_versions(host, port):
                if time.monotonic() > deadline:
                    output, errors = self.get_logs()
                    tail = (output + errors).decode(errors="replace")[-4000:]
                    raise AssertionError(f"{IMAGE} did not come up:\n{tail}")
                time.sleep(0.05)
            return self

        @property
        def bootstrap(self) -> str:
            return f"{self.get_container_host_ip()}:{self.get_exposed_port(client_port)}"

    with ApacheKafkaContainer() as container:
        yield container.bootstrap
