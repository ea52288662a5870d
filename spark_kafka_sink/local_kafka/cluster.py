"""A complete Apache Kafka cluster on this machine, which runs during a ``with`` block.

:class:`KafkaCluster` creates the configuration that all nodes share, starts the nodes, and removes
all processes and files at the end.
"""

from __future__ import annotations

import base64
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Self

from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.local_kafka import ports, probe
from spark_kafka_sink.local_kafka.broker_process_group import BrokerProcessGroup
from spark_kafka_sink.local_kafka.distribution import KAFKA_VERSION, release
from spark_kafka_sink.local_kafka.errors import LocalKafkaError
from spark_kafka_sink.local_kafka.installation import FULL_JVM, QUICK_JVM, Installation, prepare
from spark_kafka_sink.local_kafka.node import DEFAULT_START_TIMEOUT_S, KafkaNode, NodeState
from spark_kafka_sink.local_kafka.secure import LISTENERS, Security
from spark_kafka_sink.local_kafka.server_properties import (
    node_properties,
    read_properties,
    template_directory,
    with_overrides,
    write_properties,
)

_TEMPLATES = {1: "one-node.properties", 3: "three-nodes.properties"}
_PLAINTEXT: Mapping[str, str] = {"PLAINTEXT": "PLAINTEXT"}


class KafkaCluster:
    """A cluster of one or three KRaft nodes on fixed ports of 127.0.0.1. Each node is a broker and
    a controller.

    ::

        with KafkaCluster() as kafka:
            print(kafka.bootstrap)

    Args:
        nodes: 1 or 3.
        overrides: server properties for every node. They override the server properties of
            ``conf/kafka``. Example: to put a proxy before the clients' listener, set
            ``advertised.listeners`` to the address of the proxy. Brokers use a listener of their
            own among themselves. The cluster adds that listener to your ``advertised.listeners``.
        port: the client port of node 1. The other nodes use the following ports. Default: free
            ports. All ports are reserved until :meth:`stop`, even while a node is stopped.
        listeners: the listeners for clients, a mapping from name to security protocol. For a
            protocol other than PLAINTEXT, put the settings of the protocol into ``overrides``.
        heap: the maximum heap of each broker, as for ``-Xmx``.
        full_jvm: True to run the JVM as in production (both JIT compilers, G1), for benchmarks. The
            brokers then start more slowly than by default, but handle requests faster.
        format_options: further arguments of ``kafka-storage format``, for example
            ``("--feature", "transaction.version=0")``.
        secure: True to create the listeners SSL, SASL_SSL and SASL_PLAINTEXT in addition to
            PLAINTEXT and ``listeners``, with users, certificates and ACLs (``secure.py``).
            :attr:`security` has the passwords and files. :meth:`client_options` returns the
            options for a client. A setting in ``overrides`` also overrides a security setting.
        version: the version of Kafka, one of ``distribution.RELEASES``. Each version is downloaded
            when it is first used on the machine.

    The constructor reserves the ports, and :meth:`start` starts the processes. Between these two
    calls, you can change ``node(1).properties``. The data is in a temporary directory. A cluster
    can be started only once. It is not thread-safe.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        overrides: Mapping[str, str] | None = None,
        port: int | None = None,
        listeners: Mapping[str, str] = _PLAINTEXT,
        heap: str = "512m",
        full_jvm: bool = False,
        format_options: Sequence[str] = (),
        secure: bool = False,
        version: str = KAFKA_VERSION,
    ) -> None:
        if nodes not in _TEMPLATES:
            raise IllegalStateError(f"A local cluster has 1 or 3 nodes, not {nodes}.")
        release(version)
        self.version = version
        if secure:
            listeners = {**LISTENERS, **listeners}
        self._protocols = dict(listeners)
        self._first_listener = next(iter(listeners))
        self._format_options = tuple(format_options)
        self._installation: Installation | None = None
        self._started = False
        self._held: list[ports.ReservedPort] = []
        node_ids = range(1, nodes + 1)
        common = read_properties(template_directory() / _TEMPLATES[nodes])
        try:
            held = {
                node_id: self._reserve(
                    list(listeners), None if port is None else port + node_id - 1
                )
                for node_id in node_ids
            }
            self._brood = BrokerProcessGroup()
        except BaseException:
            self._release_ports()
            raise
        #: None unless the cluster is a secure one.
        self.security: Security | None = None
        if secure:
            self._make_secure(listeners, common)
        jvm = [*(FULL_JVM if full_jvm else QUICK_JVM), "-Xms64m", f"-Xmx{heap}"]
        self.nodes = self._make_nodes(held, listeners, common, overrides or {}, jvm)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """The value of ``bootstrap.servers`` for the first listener: the addresses of all nodes."""
        return self.bootstrap_of(self._first_listener)

    def bootstrap_of(self, listener: str) -> str:
        """The value of ``bootstrap.servers`` for the listener with the name ``listener``."""
        return ",".join(node.address(listener) for node in self.nodes)

    def client_options(
        self, listener: str, mechanism: str = "SCRAM-SHA-512", user: str = "alice"
    ) -> dict[str, str]:
        """The options for a client of a secure cluster, under Java's names. They include
        ``bootstrap.servers``.

        ``user`` is ``alice``, who has all rights, or ``bob``, who has only the rights that ACLs
        give him.
        """
        if self.security is None:
            raise IllegalStateError("Only a KafkaCluster(secure=True) has client options.")
        options = self.security.client_options(self._protocols[listener], mechanism, user)
        return {"bootstrap.servers": self.bootstrap_of(listener), **options}

    def node(self, node_id: int) -> KafkaNode:
        """The node with the id ``node_id``. The first id is 1."""
        return self.nodes[node_id - 1]

    def start(self, *, timeout: float = DEFAULT_START_TIMEOUT_S) -> None:
        """Starts all nodes, and waits until each node lists all nodes in its metadata. The first
        call on a machine downloads the jars of Kafka.

        If the cluster can't start, or is not ready after ``timeout`` seconds, raises
        LocalKafkaError with the end of a broker's log. Then all processes and data are removed. The
        time begins after the download.
        """
        if self._started:
            raise IllegalStateError("A KafkaCluster is used once; make another one.")
        self._started = True
        try:
            self._get_installation()
            self._format()
            deadline = time.monotonic() + timeout
            for node in self.nodes:
                node.start(wait=False)
            everyone = frozenset(node.node_id for node in self.nodes)
            for node in self.nodes:
                left = max(0.0, deadline - time.monotonic())
                node.wait_until_ready(nodes=everyone, timeout=left)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kills all nodes, removes the data, and releases the ports. A second call does nothing.

        The nodes are not shut down cleanly. To shut down a single node cleanly, call
        ``node(n).stop()``.
        """
        self._started = True
        # (A clean shutdown would take seconds: controllers that shut down at the same time wait for
        # each other.)
        for node in self.nodes:
            if node.state is not NodeState.STOPPED:
                node.kill()
        self._brood.close()
        self._release_ports()

    def wait_until_in_sync(self, *, timeout: float = DEFAULT_START_TIMEOUT_S) -> None:
        """Waits until the metadata of each running node lists all running nodes, and all replicas
        are in sync. Partitions with a replica on a stopped or frozen node are not checked. Call
        this before you restart the next node.

        Raises LocalKafkaError after ``timeout`` seconds. The error has the end of the log of a
        running node, and one of these problems:

        * The node does not respond.
        * The node does not list all running nodes.
        * The node lists a partition without a leader, or with a replica that is not in sync.
        """
        deadline = time.monotonic() + timeout
        running = [node for node in self.nodes if node.state is NodeState.RUNNING]
        wanted = frozenset(node.node_id for node in running)
        for node in running:
            while (problem := _not_in_sync(node, wanted)) is not None:
                if time.monotonic() >= deadline:
                    raise LocalKafkaError(
                        f"Node {node.node_id} is not ready after {timeout:g} s: {problem}.",
                        hint=f"the last lines of its log:\n{node.log_tail()}",
                    )
                time.sleep(0.05)

    # --- within ----------------------------------------------------------------------------------

    def _get_installation(self) -> Installation:
        if self._installation is None:
            self._installation = prepare(self.version)
        return self._installation

    def _make_secure(self, listeners: Mapping[str, str], common: dict[str, str]) -> None:
        """Creates certificates and users, and adds the settings for them to ``common``."""
        try:
            self.security = Security.make(self._brood.directory / "security")
        except BaseException:
            self._brood.close()
            self._release_ports()
            raise
        common |= self.security.server_properties(listeners)
        self._format_options += self.security.format_options()

    def _make_nodes(
        self,
        held: Mapping[int, Mapping[str, ports.ReservedPort]],
        listeners: Mapping[str, str],
        common: Mapping[str, str],
        overrides: Mapping[str, str],
        jvm_options: Sequence[str],
    ) -> tuple[KafkaNode, ...]:
        """Creates the nodes, without starting them.

        The properties of a node are ``common``, then the node's own properties, then ``overrides``.
        A later property replaces an earlier one with the same name.
        """
        voters = {node_id: its["CONTROLLER"].port for node_id, its in held.items()}
        nodes = []
        for node_id, its in held.items():
            own = node_properties(
                node_id,
                self._brood.directory / f"node-{node_id}" / "data",
                {name: (protocol, its[name].port) for name, protocol in listeners.items()},
                internal_port=its["INTERNAL"].port,
                voters=voters,
            )
            node = KafkaNode(
                node_id,
                installation=self._get_installation,
                brood=self._brood,
                properties=with_overrides({**common, **own}, overrides),
                ports=its,
                jvm_options=jvm_options,
            )
            nodes.append(node)
        return tuple(nodes)

    def _reserve(self, listeners: list[str], port: int | None) -> dict[str, ports.ReservedPort]:
        """Reserves a port for each listener of a node. ``port`` is the port of the first listener.
        If ``port`` is None, the first listener gets any free port.
        """
        reserved: dict[str, ports.ReservedPort] = {}
        for name in [*listeners, "INTERNAL", "CONTROLLER"]:
            reserved[name] = ports.reserve(port if name == listeners[0] else None)
            self._held.append(reserved[name])
        return reserved

    def _release_ports(self) -> None:
        for port in self._held:
            port.release()

    def _format(self) -> None:
        """Formats the storage of the first node with Kafka's storage tool, and copies the result to
        the other nodes.
        """
        # The copy saves the start of a JVM for each other node. It is possible because only two ids
        # in meta.properties differ between the nodes.
        first, *others = self.nodes
        cluster_id = _random_id()
        write_properties(first.properties_path, first.properties)
        self._get_installation().format_storage(
            first.properties_path, cluster_id, self._format_options
        )
        for node in others:
            data = node.directory / "data"
            shutil.copytree(first.directory / "data", data)
            identity = {
                "version": "1",
                "cluster.id": cluster_id,
                "node.id": str(node.node_id),
                "directory.id": _random_id(),
            }
            write_properties(data / "meta.properties", identity)


def _not_in_sync(node: KafkaNode, wanted: frozenset[int]) -> str | None:
    state = probe.cluster_state(*node.probe_address)
    if state is None:
        return "nothing"
    if not wanted <= state.brokers:
        return f"brokers {sorted(state.brokers)} are alive, not yet all of {sorted(wanted)}"
    behind = [p for p in state.under_replicated if set(p.replicas) <= wanted]
    if behind:
        p = behind[0]
        return (
            f"partition {p.partition} of {p.topic} has leader {p.leader}, "
            f"replicas {p.replicas}, in sync {p.in_sync_replicas}"
        )
    return None


def _random_id() -> str:
    """Creates a random Kafka Uuid: 16 random bytes in URL-safe base64 without padding.

    The Uuid never begins with a dash, because the storage tool would take such a Uuid for an
    option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
