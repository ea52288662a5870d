"""The API versions of each connected node, and the nodes whose versions must still be requested
(Java's ``ApiVersions``, and ``NetworkClient.nodesNeedingApiVersionsFetch``).

Owns: the ApiVersions responses by node, the nodes that still need an ApiVersions request with the
version of that request, and the version of other requests to a node. Never: sending, or the
connection's state.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.protocol.messages.api_versions import (
    VERSIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.request import ApiKey, Request

#: The versions of the request to a node that closes the connection in place of an answer (Azure
#: Event Hubs did so with version 4). Each is tried twice: a connection may be cut by chance.
FALLBACKS: Final = (VERSIONS.max, 3, 0)
_TRIES: Final = 2


class ApiVersionsOutcome(Enum):
    """The outcome of an ApiVersions response."""

    KNOWN = "the node can be used"
    RETRY = "to be retried in a lower version"
    REFUSED = "the connection can't be used"


class ApiVersions:
    """The API versions by node id. ``request`` is the ApiVersions request, the first request to
    each node.
    """

    __slots__ = ("_answered_in", "_asked", "_known", "_lost", "needing_fetch", "request")

    def __init__(self) -> None:
        # The version in KIP-511's form: letters, digits, dots and dashes, starting and ending
        # with a letter or digit.
        version = re.sub(r"[^a-zA-Z0-9.-]", "-", __version__).strip(".-") or "0"
        self.request = ApiVersionsRequest(
            client_software_name="spark-kafka-sink", client_software_version=version
        )
        self._known: dict[int, NodeApiVersions] = {}
        # The version of the request that each known node answered.
        self._answered_in: dict[int, int] = {}
        # Nodes with a request in flight, and how many of each node ended with their connection.
        self._asked: set[int] = set()
        self._lost: dict[int, int] = {}
        #: The nodes to query, each with the version of the request.
        self.needing_fetch: dict[int, int] = {}

    def of(self, node_id: int) -> NodeApiVersions | None:
        """The node's versions. None while they are unknown."""
        return self._known.get(node_id)

    def usable_version(self, node_id: int, request: Request[object]) -> int:
        """The latest version of ``request`` that client and node support. Before the node's
        ApiVersions response, it is the client's latest version.

        Raises UnsupportedVersionError if there is no common version. The ApiVersions request is
        special: a node may offer a version of it, and nevertheless close the connection when it
        gets that version. So a later ApiVersions request is sent in the version that the node has
        answered.
        """
        known, ours = self._known.get(node_id), request.versions
        if known is None:
            return ours.max
        if request.api_key is ApiKey.API_VERSIONS:
            return self._answered_in[node_id]
        return known.latest_usable(request.api_key, ours)

    def connected(self, node_id: int) -> None:
        """Marks the node as connected. Its versions must be requested as soon as its channel is
        ready.
        """
        stage = self._lost.get(node_id, 0) // _TRIES
        self.needing_fetch[node_id] = FALLBACKS[min(stage, len(FALLBACKS) - 1)]

    def fetching(self, node_id: int) -> None:
        """Records that the ApiVersions request was sent to the node."""
        del self.needing_fetch[node_id]
        self._asked.add(node_id)

    def answered(
        self, node_id: int, version: int, response: ApiVersionsResponse
    ) -> ApiVersionsOutcome:
        """Handles the ApiVersions response of a node to a request in ``version``."""
        self._asked.discard(node_id)
        versions = NodeApiVersions.of(response)
        if response.error_code is ErrorCode.UNSUPPORTED_VERSION and version > 0:
            # Brokers since 2.4 return the supported range. If that has the version just refused,
            # or is missing, use 0.
            offered = versions.api_versions.get(ApiKey.API_VERSIONS)
            lower = 0 if offered is None else offered.max
            self.needing_fetch[node_id] = lower if 0 <= lower < version else 0
            return ApiVersionsOutcome.RETRY
        if response.error_code is not ErrorCode.NONE:
            return ApiVersionsOutcome.REFUSED
        self._known[node_id] = versions
        self._answered_in[node_id] = version
        if node_id in self._lost:
            # The next connection begins with the second version: it has the cluster's features, and
            # a node that was cut off while it started must not stay at version 0.
            self._lost[node_id] = min(_TRIES, self._lost[node_id] // _TRIES * _TRIES)
        return ApiVersionsOutcome.KNOWN

    def disconnected(self, node_id: int) -> None:
        """Forgets the node's versions, because the next connection may reach a broker of another
        version.
        """
        if node_id in self._asked:
            self._asked.discard(node_id)
            self._lost[node_id] = self._lost.get(node_id, 0) + 1
        self._known.pop(node_id, None)
        self._answered_in.pop(node_id, None)
        self.needing_fetch.pop(node_id, None)
