"""A broker process, with methods for tests to stop, kill and freeze it.

:class:`KafkaNode` has the process, its ports, its configuration file and its log. It does not know
the other nodes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path

from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.local_kafka import probe
from spark_kafka_sink.local_kafka.broker_process_group import BrokerProcessGroup
from spark_kafka_sink.local_kafka.errors import LocalKafkaError
from spark_kafka_sink.local_kafka.installation import Installation
from spark_kafka_sink.local_kafka.ports import HOST, ReservedPort
from spark_kafka_sink.local_kafka.server_properties import write_properties

#: Log lines shown when a node does not start, or crashed.
LOG_TAIL_LINES = 40

DEFAULT_START_TIMEOUT_S = 90.0
DEFAULT_STOP_TIMEOUT_S = 60.0
_POLL_S = 0.02


class NodeState(Enum):
    """The state of the process of a node."""

    STOPPED = "stopped"
    RUNNING = "running"
    FROZEN = "frozen"


#: Every allowed verb: (state, verb) -> next state.
_TRANSITIONS = {
    (NodeState.STOPPED, "start"): NodeState.RUNNING,
    (NodeState.RUNNING, "stop"): NodeState.STOPPED,
    (NodeState.RUNNING, "kill"): NodeState.STOPPED,
    (NodeState.FROZEN, "kill"): NodeState.STOPPED,
    (NodeState.RUNNING, "freeze"): NodeState.FROZEN,
    (NodeState.FROZEN, "thaw"): NodeState.RUNNING,
}


class KafkaNode:
    """A node of a :class:`~spark_kafka_sink.local_kafka.cluster.KafkaCluster`: a broker and
    controller. Not thread-safe.

    ``properties`` is the server configuration of the node. A change of ``properties`` takes effect
    at the next start of the node.
    """

    def __init__(
        self,
        node_id: int,
        *,
        installation: Callable[[], Installation],
        brood: BrokerProcessGroup,
        properties: dict[str, str],
        ports: Mapping[str, ReservedPort],
        jvm_options: Sequence[str],
    ) -> None:
        self.node_id = node_id
        self.properties = properties
        self.directory = brood.directory / f"node-{node_id}"
        self._installation = installation
        self._brood = brood
        self._ports = ports
        self._jvm_options = jvm_options
        self._process: subprocess.Popen[bytes] | None = None
        self._state = NodeState.STOPPED
        (self.directory / "tmp").mkdir(parents=True)

    def __repr__(self) -> str:
        return f"KafkaNode({self.node_id}, {self.address()}, {self.state.value})"

    @property
    def state(self) -> NodeState:
        """The state of the process. After a crash the state is STOPPED, as after a stop."""
        if self._process is not None and self._process.poll() is not None:
            self._state = NodeState.STOPPED
        return self._state

    @property
    def pid(self) -> int | None:
        """The process id of the broker, or None while the broker is stopped."""
        return None if self.state is NodeState.STOPPED or not self._process else self._process.pid

    @property
    def log_path(self) -> Path:
        """The path of the node's log. It has the output of the broker since its first start."""
        return self.directory / "server.log"

    @property
    def properties_path(self) -> Path:
        return self.directory / "server.properties"

    def port(self, listener: str = "PLAINTEXT") -> int:
        """The port of a listener for clients. It does not change when the node is restarted."""
        return self._ports[listener].port

    def address(self, listener: str = "PLAINTEXT") -> str:
        """The address of a listener for clients, such as ``127.0.0.1:19092``."""
        return f"{HOST}:{self.port(listener)}"

    # --- what a test does to a node --------------------------------------------------------------

    def start(self, *, wait: bool = True, timeout: float = DEFAULT_START_TIMEOUT_S) -> None:
        """Starts the broker. If ``wait`` is True, waits until the broker serves requests, for at
        most ``timeout`` seconds.

        In a cluster of three nodes, a node serves requests only if two nodes run. So start the
        first node with ``wait=False``. If the broker can't start, raises LocalKafkaError with the
        end of the node's log.
        """
        self._move("start")
        write_properties(self.properties_path, self.properties)
        options = [
            *self._jvm_options,
            f"-Djava.io.tmpdir={self.directory / 'tmp'}",
            f"-XX:ErrorFile={self.directory / 'hs_err.log'}",
        ]
        command = self._installation().server_command(self.properties_path, options)
        with self.log_path.open("ab") as log:
            self._process = self._brood.start(command, log, self.directory)
        if wait:
            self.wait_until_ready(timeout=timeout)

    def stop(self, *, timeout: float = DEFAULT_STOP_TIMEOUT_S) -> None:
        """Shuts the broker down cleanly (SIGTERM). Before the broker ends, it moves the leadership
        of its partitions to other brokers, and closes its logs.

        Raises LocalKafkaError if the process has not ended after ``timeout`` seconds.
        """
        process = self._move("stop")
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._state = NodeState.RUNNING
            raise self._error(f"did not stop within {timeout:g} s of SIGTERM.") from None

    def kill(self) -> None:
        """Kills the broker (SIGKILL), without a shutdown. Data that the broker has written to the
        page cache is not lost, unlike after a power failure.
        """
        process = self._move("kill")
        process.kill()
        process.wait()

    def freeze(self) -> None:
        """Freezes the broker process (SIGSTOP). Its connections stay open, and the operating system
        accepts new connections, but the broker does not respond to requests.
        """
        process = self._move("freeze")
        process.send_signal(signal.SIGSTOP)
        # The kernel stops the JVM's threads one by one, and one may answer meanwhile; the parent
        # is told when all stand still. (WNOWAIT leaves an exit for Popen to see.)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Continues a frozen broker process (SIGCONT). If the session of the broker expired while
        it was frozen, the controllers have removed the broker from the cluster.
        """
        self._move("thaw").send_signal(signal.SIGCONT)

    # --- readiness -------------------------------------------------------------------------------

    def wait_until_ready(
        self, *, nodes: frozenset[int] | None = None, timeout: float = DEFAULT_START_TIMEOUT_S
    ) -> None:
        """Waits until the broker responds to ApiVersions, and until its metadata have all ``nodes``
        as live brokers. If ``nodes`` is None, the metadata need to have only this node.

        Raises LocalKafkaError after ``timeout`` seconds, or when the process has ended. The error
        has the end of the node's log.
        """
        wanted = frozenset({self.node_id}) if nodes is None else nodes
        deadline = time.monotonic() + timeout
        while not self._is_ready(wanted):
            if self.state is NodeState.STOPPED:
                raise self._error("ended while it was starting.")
            if time.monotonic() >= deadline:
                raise self._error(f"was not ready after {timeout:g} s.")
            time.sleep(_POLL_S)

    def _is_ready(self, wanted: frozenset[int]) -> bool:
        host, port = self.probe_address
        if not probe.answers_api_versions(host, port):
            return False
        state = probe.cluster_state(host, port)
        return state is not None and wanted <= state.brokers

    @property
    def probe_address(self) -> tuple[str, int]:
        """The address to which :meth:`wait_until_ready` sends its requests: the listener that
        brokers use among themselves, which is always PLAINTEXT.
        """
        return HOST, self._ports["INTERNAL"].port

    def log_tail(self) -> str:
        """The last lines of the node's log."""
        try:
            text = self.log_path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join(text.splitlines()[-LOG_TAIL_LINES:]) or "(the log is empty)"

    # --- within ----------------------------------------------------------------------------------

    def _move(self, verb: str) -> subprocess.Popen[bytes]:
        """Changes the state of the node for the action ``verb``, such as "kill". Returns the
        process of the node.

        Raises IllegalStateError and changes nothing if the action is not allowed in the current
        state.
        """
        state = self.state
        target = _TRANSITIONS.get((state, verb))
        if target is None:
            raise IllegalStateError(f"Can't {verb} node {self.node_id}, which is {state.value}.")
        self._state = target
        return self._process  # type: ignore[return-value]  # None only before the first start

    def _error(self, what: str) -> LocalKafkaError:
        return LocalKafkaError(
            f"Kafka node {self.node_id} ({self.address()}) {what}",
            hint=f"the last lines of its log:\n{self.log_tail()}",
        )
