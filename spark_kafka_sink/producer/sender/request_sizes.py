"""Limits the size of a Produce request to each node.

Owns: the size limit of each node, which is adjusted according to the time of the node's responses.
Never: the choice of batches, a clock. A broker limits a batch by message.max.bytes, but a request
only by socket.request.max.bytes (100 MiB). A large request saves work on both sides. But the whole
request must arrive within request.timeout.ms, and its connection gets no other response until then.
"""

from __future__ import annotations

from spark_kafka_sink.config.producer_config import ProducerConfig

#: A third of a second on a link of 100 Mbit/s. (2 and 8 MiB cost more CPU a row.)
LARGEST = 4 * 1024 * 1024
#: If a node answers within this time, or this part of request.timeout.ms, its size doubles; if it
#: takes four times as long, its size is halved. So 4 MiB go to links of 32 Mbit/s and more.
_QUICK_MS = 250
_QUICK_PART = 16


class _NodeSize:
    """The request sizes of one node, in bytes.

    ``size`` is the current limit. ``most`` is an upper bound below sizes that the broker seems to
    reject. ``answered`` is the largest size with a response.
    """

    __slots__ = ("answered", "most", "size")

    def __init__(self, size: int, most: int) -> None:
        self.size = self.answered = size
        self.most = most


class RequestSizes:
    """The size limit of requests to each node, in bytes. It is at least max.request.size, and at
    most 4 MiB or an eighth of buffer.memory.
    """

    __slots__ = ("_least", "_most", "_nodes", "_quick_ms")

    def __init__(self, config: ProducerConfig) -> None:
        self._least = config.max_request_size
        self._most = max(self._least, min(LARGEST, config.buffer_memory // 8))
        self._quick_ms = min(_QUICK_MS, config.request_timeout_ms // _QUICK_PART)
        self._nodes: dict[int, _NodeSize] = {}

    def of(self, node: int) -> int:
        """The largest total size of batches in the next request to ``node``, in bytes."""
        found = self._nodes.get(node)
        return self._least if found is None else found.size

    def answered(self, node: int, size: int, latency_ms: int) -> None:
        """Adjusts the limit of a node that responded after ``latency_ms`` to a request with
        ``size`` bytes.
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
        """Reduces the limit of a node after a request without a response: a disconnect or a
        timeout.

        A broker closes the connection if a request exceeds the broker's limit. So no later request
        is larger than the largest request that got a response.
        """
        found = self._nodes.get(node)
        if found is None or size <= self._least:
            return
        if size > found.answered:
            found.most = found.answered
        found.size = max(self._least, min(found.most, found.size // 2))
