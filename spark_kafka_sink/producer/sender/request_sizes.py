"""Limits the size of the Produce requests to each node. The limit depends on how fast the node has
responded (docs/design/batches.md).

``batch_drainer.py`` chooses the batches of a request within this limit.
"""

from __future__ import annotations

from spark_kafka_sink.config.producer_config import ProducerConfig

# A broker limits the size of a batch by message.max.bytes, and the size of a request only by
# socket.request.max.bytes. Large requests save work for the producer and the broker. But a request
# must arrive within request.timeout.ms, and until then the broker sends no other response on this
# connection.

#: The largest limit in bytes. A link of 100 Mbit/s needs a third of a second for 4 MiB. (2 and 8
#: MiB cost more CPU a row.)
LARGEST = 4 * 1024 * 1024
#: If a node responds within this time in ms, or within this part of request.timeout.ms, its limit
#: doubles. If the response takes more than four times as long, the limit is halved. So 4 MiB are
#: sent over links of 32 Mbit/s and more.
_QUICK_MS = 250
_QUICK_PART = 16


class _NodeSize:
    """The sizes of the requests to one node, in bytes.

    * ``size``: the current limit.
    * ``answered``: the size of the largest request that got a response, at least
      max.request.size.
    * ``most``: the upper bound of the limit ``size``.
    """

    __slots__ = ("answered", "most", "size")

    def __init__(self, size: int, most: int) -> None:
        self.size = self.answered = size
        self.most = most


class RequestSizes:
    """The limit of the size of a request to each node, in bytes.

    The limit of a node begins at max.request.size, and is never smaller. A fast response doubles
    the limit, and a slow or missing response halves it.

    Each node also has an upper bound of its limit. This bound begins at 4 MiB or an eighth of
    buffer.memory, whichever is smaller. If max.request.size is larger than that, the limit is
    always max.request.size. Only :meth:`lost` lowers the bound.
    """

    __slots__ = ("_least", "_most", "_nodes", "_quick_ms")

    def __init__(self, config: ProducerConfig) -> None:
        self._least = config.max_request_size
        self._most = max(self._least, min(LARGEST, config.buffer_memory // 8))
        self._quick_ms = min(_QUICK_MS, config.request_timeout_ms // _QUICK_PART)
        self._nodes: dict[int, _NodeSize] = {}

    def of(self, node: int) -> int:
        """The limit of ``node`` in bytes: the largest sum of the sizes of the batches in the next
        request to this node.
        """
        found = self._nodes.get(node)
        return self._least if found is None else found.size

    def answered(self, node: int, size: int, latency_ms: int) -> None:
        """Changes the limit of ``node`` after a response. ``size`` is the size of the request in
        bytes, and ``latency_ms`` the time until the response arrived.

        A slow response halves the limit, but not below max.request.size. A fast response to a
        request of more than half of the limit doubles the limit, up to the node's upper bound.
        """
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = _NodeSize(self._least, self._most)
        found.answered = max(found.answered, size)
        if latency_ms > 4 * self._quick_ms:
            found.size = max(self._least, found.size // 2)
        elif latency_ms <= self._quick_ms and 2 * size > found.size:
            found.size = min(found.most, 2 * found.size)

    def lost(self, node: int, size: int) -> None:
        """Lowers the limit of ``node`` after a request of ``size`` bytes got no response, because
        of a disconnect or a timeout.

        If ``size`` is at most max.request.size, or if the node has never responded to a request,
        nothing changes. In all other cases:

        1. If ``size`` is larger than every request that the node has responded to, the upper bound
           of the limit falls. The new bound is the size of the largest request with a response, or
           max.request.size if that is larger. The bound does not rise again.
        2. The limit is halved, to at most the upper bound and at least max.request.size.
        """
        found = self._nodes.get(node)
        if found is None or size <= self._least:
            return
        # The broker may have closed the connection because of its socket.request.max.bytes (100 MiB
        # by default).
        if size > found.answered:
            found.most = found.answered
        found.size = max(self._least, min(found.most, found.size // 2))
