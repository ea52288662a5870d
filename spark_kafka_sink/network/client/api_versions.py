"""The API versions that each connected node supports (Java's ``ApiVersions``, and
``NetworkClient.nodesNeedingApiVersionsFetch``).

This module stores the ApiVersions response of each node. It knows the nodes to which an ApiVersions
request must still be sent, and chooses the version of other requests. ``network_client.py`` sends
the requests.
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

#: The versions of the ApiVersions request that are tried one after the other, if a node closes the
#: connection instead of responding. (Azure Event Hubs did so with version 4.) Each version is tried
#: twice, because a connection may also be closed for another reason.
FALLBACKS: Final = (VERSIONS.max, 3, 0)
_TRIES: Final = 2


class ApiVersionsOutcome(Enum):
    """The result of an ApiVersions response: the versions are known, the request must be repeated
    with another version, or the request has failed.
    """

    KNOWN = "the node can be used"
    RETRY = "to be retried in a lower version"
    REFUSED = "the connection can't be used"


class ApiVersions:
    """The supported API versions of each node, by node id. ``request`` is the ApiVersions request,
    which is the first request on each connection.
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
        # The nodes to which an ApiVersions request is in flight. ``_lost`` has for each node the
        # number of ApiVersions requests without a response, because the connection was closed.
        self._asked: set[int] = set()
        self._lost: dict[int, int] = {}
        #: The nodes to which an ApiVersions request must be sent, each with the version of this
        #: request.
        self.needing_fetch: dict[int, int] = {}

    def of(self, node_id: int) -> NodeApiVersions | None:
        """The API versions of a node, or None if its ApiVersions response has not arrived."""
        return self._known.get(node_id)

    def usable_version(self, node_id: int, request: Request[object]) -> int:
        """Returns the highest version of ``request`` that both the client and the node support.
        Raises UnsupportedVersionError if there is no common version.

        In two cases, the result is another version:

        * If the ApiVersions response of the node has not arrived, the result is the highest version
          of the client.
        * If ``request`` is another ApiVersions request, the result is the version that the node has
          already accepted on this connection.
        """
        known, ours = self._known.get(node_id), request.versions
        if known is None:
            return ours.max
        # Some nodes list a higher version of ApiVersions, but close the connection when they
        # receive a request of that version.
        if request.api_key is ApiKey.API_VERSIONS:
            return self._answered_in[node_id]
        return known.latest_usable(request.api_key, ours)

    def connected(self, node_id: int) -> None:
        """Notes that the connection to a node is established. An ApiVersions request must then be
        sent. Chooses the version of this request (:data:`FALLBACKS`).
        """
        stage = self._lost.get(node_id, 0) // _TRIES
        self.needing_fetch[node_id] = FALLBACKS[min(stage, len(FALLBACKS) - 1)]

    def fetching(self, node_id: int) -> None:
        """Notes that the ApiVersions request was sent to a node."""
        del self.needing_fetch[node_id]
        self._asked.add(node_id)

    def answered(
        self, node_id: int, version: int, response: ApiVersionsResponse
    ) -> ApiVersionsOutcome:
        """Stores the ApiVersions response of a node. Returns whether the node can be used now.
        ``version`` is the version of the request.

        If the response has an error, nothing is stored. After UNSUPPORTED_VERSION, the result is
        RETRY, and :attr:`needing_fetch` has the version for the next request.
        """
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
        """Removes the API versions of a node. The node's broker may have been upgraded before the
        next connection.
        """
        if node_id in self._asked:
            self._asked.discard(node_id)
            self._lost[node_id] = self._lost.get(node_id, 0) + 1
        self._known.pop(node_id, None)
        self._answered_in.pop(node_id, None)
        self.needing_fetch.pop(node_id, None)
