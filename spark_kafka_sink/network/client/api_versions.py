"""The API versions of each connected node, and the nodes still to query (Java's ``ApiVersions``,
and ``NetworkClient.nodesNeedingApiVersionsFetch``).

Owns: the ApiVersions responses by node, the nodes that need that request and in which version, and
the version of other requests to a node. Never: sending, or the connection's state.
"""

from __future__ import annotations

import re
from enum import Enum

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.request import ApiKey, Request


class ApiVersionsOutcome(Enum):
    """The outcome of an ApiVersions response."""

    KNOWN = "the node can be used"
    RETRY = "to be retried in a lower version"
    REFUSED = "the connection can't be used"


class ApiVersions:
    """By node id. ``request`` is the first request to each node."""

    __slots__ = ("_known", "needing_fetch", "request")

    def __init__(self) -> None:
        # The version in KIP-511's form: letters, digits, dots and dashes, starting and ending
        # with a letter or digit.
        version = re.sub(r"[^a-zA-Z0-9.-]", "-", __version__).strip(".-") or "0"
        self.request = ApiVersionsRequest(
            client_software_name="spark-kafka-sink", client_software_version=version
        )
        self._known: dict[int, NodeApiVersions] = {}
        #: The nodes to query, each with the version of the request.
        self.needing_fetch: dict[int, int] = {}

    def of(self, node_id: int) -> NodeApiVersions | None:
        """The node's versions; None while unknown."""
        return self._known.get(node_id)

    def usable_version(self, node_id: int, request: Request[object]) -> int:
        """The latest version that both support; the client's latest before the node's response.

        Raises UnsupportedVersionError when there is none.
        """
        known, ours = self._known.get(node_id), request.versions
        return ours.max if known is None else known.latest_usable(request.api_key, ours)

    def connected(self, node_id: int) -> None:
        """The node must be queried as soon as its channel is ready."""
        self.needing_fetch[node_id] = self.request.versions.max

    def fetching(self, node_id: int) -> None:
        """The request to the node is sent."""
        del self.needing_fetch[node_id]

    def answered(
        self, node_id: int, version: int, response: ApiVersionsResponse
    ) -> ApiVersionsOutcome:
        """Handle the response of a node to a request in ``version``."""
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
        return ApiVersionsOutcome.KNOWN

    def disconnected(self, node_id: int) -> None:
        """The next connection may reach a broker of another version."""
        self._known.pop(node_id, None)
        self.needing_fetch.pop(node_id, None)
