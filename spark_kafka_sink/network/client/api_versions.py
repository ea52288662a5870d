"""What each connected node speaks, and who has yet to be asked (Java's ``ApiVersions``, and
``NetworkClient.nodesNeedingApiVersionsFetch``).

Owns: the answers to ApiVersions by node, the nodes that need that request, in which version, and
the version in which another request goes to a node. Never: sending, or the connection's state.
"""

from __future__ import annotations

from enum import Enum

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol.api_versions import NodeApiVersions
from spark_kafka_sink.protocol.control_messages import ApiVersionsRequest, ApiVersionsResponse
from spark_kafka_sink.protocol.request import ApiKey, Request


class Fetched(Enum):
    """What an answer to ApiVersions means."""

    KNOWN = "the node can be used"
    AGAIN = "it is to be asked in a lower version"
    REFUSED = "the connection is of no use"


class ApiVersions:
    """By node id. ``request`` is what each node is asked first."""

    __slots__ = ("_known", "needing_fetch", "request")

    def __init__(self, request: ApiVersionsRequest) -> None:
        self.request = request
        self._known: dict[int, NodeApiVersions] = {}
        #: The nodes to ask, each with the version to ask in.
        self.needing_fetch: dict[int, int] = {}

    def of(self, node_id: int) -> NodeApiVersions | None:
        """What the node answered; None while it is not known."""
        return self._known.get(node_id)

    def usable_version(self, node_id: int, request: Request[object]) -> int:
        """The latest that both speak; ours before the node has answered.

        Raises UnsupportedVersionError when there is none.
        """
        known, ours = self._known.get(node_id), request.versions
        return ours.max if known is None else known.latest_usable(request.api_key, ours)

    def connected(self, node_id: int) -> None:
        """The node must be asked, as soon as its channel is ready."""
        self.needing_fetch[node_id] = self.request.versions.max

    def fetching(self, node_id: int) -> None:
        """The node is being asked."""
        del self.needing_fetch[node_id]

    def answered(self, node_id: int, version: int, response: ApiVersionsResponse) -> Fetched:
        """Take the answer of a node that was asked in ``version``."""
        if response.error is ErrorCode.UNSUPPORTED_VERSION and version > 0:
            # Brokers since 2.4 say what they support. One that says what it just refused, or
            # nothing, gets 0.
            offered = response.api_versions.get(ApiKey.API_VERSIONS)
            lower = 0 if offered is None else offered.max
            self.needing_fetch[node_id] = lower if 0 <= lower < version else 0
            return Fetched.AGAIN
        if response.error is not ErrorCode.NONE:
            return Fetched.REFUSED
        self._known[node_id] = NodeApiVersions(
            response.api_versions,
            response.finalized_features,
            response.finalized_features_epoch,
        )
        return Fetched.KNOWN

    def disconnected(self, node_id: int) -> None:
        """The next connection may lead to a broker of another version."""
        self._known.pop(node_id, None)
        self.needing_fetch.pop(node_id, None)
