"""The broker addresses to which connections have failed, each with the reason. Error messages name
these addresses when no broker responds.

For each address, this module keeps the reason of the last failure, until the node responds. It does
not decide whether a connection is tried again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import warn
from spark_kafka_sink.network.channel.selectable import ChannelState, ChannelStateKind
from spark_kafka_sink.network.client.cluster_connection_states import ConnectionState
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.request import ApiKey

_log = logging.getLogger(__name__)

#: The numbers in a message. Two messages with the same reason can differ only in a number, such as
#: the time for which the client has waited.
_NUMBERS = re.compile(r"\d+")
#: The maximum number of reasons of a node that are logged as warnings, until the node responds.
_REASONS_OF_A_NODE = 64

#: The maximum number of stored addresses of one node.
_ADDRESSES_OF_A_NODE = 16

#: The likely cause if a listener accepts the connection and sends no valid response.
SILENT_LISTENER = "is it stopped or overloaded, a TLS or SASL listener, or not Kafka?"

#: The likely cause if a listener responds only to ApiVersions.
WANTS_SASL = "does it require SASL? Then set security.protocol to SASL_PLAINTEXT or SASL_SSL"

#: The possible first requests after ApiVersions.
_FIRST_REQUESTS = frozenset({ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.FIND_COORDINATOR})


class ConnectionFailures:
    """The addresses to which connections have failed. Only the sender thread changes them. Any
    thread may call :meth:`by_address`, because each change creates a new mapping.
    """

    __slots__ = ("_addresses", "_published", "_taken", "by_node", "logged")

    def __init__(self) -> None:
        self._addresses: dict[int, str] = {}
        self.by_node: dict[int, dict[str, str]] = {}
        #: The addresses and reasons of each node that were logged as warnings.
        self.logged: dict[int, set[tuple[str, str]]] = {}
        self._published: Mapping[str, str] = {}
        self._taken: dict[int, str] = {}

    def connecting(self, node_id: int, host: str, port: int, ip: str | None = None) -> None:
        """Stores the address to which a connection attempt begins."""
        address = f"{host}:{port}"
        self._addresses[node_id] = address if ip in (None, host) else f"{address} ({ip})"

    def address(self, node_id: int) -> str:
        return self._addresses.get(node_id, "an unknown address")

    def record(self, node_id: int, reason: str) -> None:
        """Stores the reason why the connection to a node has failed, and logs it. A new reason is
        logged as a warning, and a known reason at the level DEBUG.

        Two reasons are the same if they differ only in numbers, such as times. After the node has
        responded to a request other than ApiVersions, every reason is new again.
        """
        address = self.address(node_id)
        reasons = self.by_node.setdefault(node_id, {})
        self._taken[node_id] = f"{address}: {reason}"
        changed = reasons.pop(address, None) != reason
        reasons[address] = reason
        if len(reasons) > _ADDRESSES_OF_A_NODE:
            del reasons[next(iter(reasons))]
        if changed:
            self._publish()
        logged = self.logged.setdefault(node_id, set())
        cause = address, _NUMBERS.sub("", reason)
        news = cause not in logged and len(logged) < _REASONS_OF_A_NODE
        if news:
            logged.add(cause)
        level = logging.WARNING if news else logging.DEBUG
        # A bootstrap server has no node id yet; its negative id is internal.
        source = f"node {node_id} at" if node_id >= 0 else "bootstrap server"
        warn(_log, Kind.NOT_CONNECTED, "%s %s: %s", source, address, reason, level=level)

    def record_disconnect(
        self,
        node_id: int,
        before: ConnectionState | None,
        state: ChannelState,
        oldest: ApiKey | None = None,
    ) -> None:
        """Stores the reason why a connection was closed. A connection that was closed because it
        was idle is not a failure.

        ``before`` is the state that the connection had until it was closed. ``oldest`` is the API
        of the connection's oldest request in flight.
        """
        detail = state.detail
        if state.kind is ChannelStateKind.EXPIRED or detail is None:
            return
        if state.error is not None:
            hint = state.error.hint
            self.record(node_id, detail if hint is None else f"{detail} ({hint})")
        elif state.kind is ChannelStateKind.AUTHENTICATE and (":" in detail or "?" in detail):
            # Texts of TLS and SASL have these marks, the operating system's have not.
            self.record(node_id, detail)
        elif state.kind is ChannelStateKind.AUTHENTICATE:
            self.record(node_id, f"{detail} during the handshake ({SILENT_LISTENER})")
        elif state.kind is ChannelStateKind.READY and before is not ConnectionState.READY:
            self.record(node_id, f"{detail} before ApiVersions was answered ({SILENT_LISTENER})")
        elif oldest in _FIRST_REQUESTS and state.kind is ChannelStateKind.READY:
            # A SASL listener answers only ApiVersions before authentication.
            self.record(node_id, f"{detail} at the first request after ApiVersions ({WANTS_SASL})")
        else:
            self.record(node_id, detail)

    def take(self) -> Mapping[int, str]:
        """Returns the last connection failure of each node, by node id. The result contains only
        nodes with a failure since the last call of this method. A failure is a text with the
        address and the reason.
        """
        taken = self._taken
        if taken:
            self._taken = {}
        return taken

    def connected(self, node_id: int) -> None:
        """Notes that a node responded to ApiVersions. From now on, messages do not contain the
        earlier failures of this node. The reasons that were logged are still known, so the same
        warning is not logged again.
        """
        # An example for logged reasons: a SASL listener responds to ApiVersions of a client without
        # SASL, and then closes the connection at the next request. If the reasons were forgotten,
        # each attempt would log a warning.
        if self.by_node.pop(node_id, None) is not None:
            self._publish()

    def answered(self, node_id: int) -> None:
        """Notes that a node responded to a request other than ApiVersions. All its failures are
        forgotten.
        """
        self.logged.pop(node_id, None)
        self.connected(node_id)

    def retain(self, nodes: Iterable[Node]) -> None:
        """Forgets the failures of all nodes that are not in ``nodes``."""
        if self.logged:
            gone = set(self.logged)
            gone.difference_update(node.id for node in nodes)
            for node_id in gone:
                self.answered(node_id)

    def by_address(self) -> dict[str, str]:
        return dict(self._published)

    def _publish(self) -> None:
        self._published = {
            address: reason
            for reasons in self.by_node.values()
            for address, reason in reasons.items()
        }
