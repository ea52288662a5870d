"""Which connection was not used for longest (Java's ``Selector.IdleExpiryManager``).

Owns: when each connection was last used. Never: closing one.
"""

from __future__ import annotations

from collections import OrderedDict


class IdleExpiryManager:
    """Connections by node id; times are milliseconds. ``max_idle_ms`` below 0: none expires."""

    __slots__ = ("_last_used", "_max_idle_ms")

    def __init__(self, max_idle_ms: int) -> None:
        self._max_idle_ms = max_idle_ms
        # Least recently used first.
        self._last_used: OrderedDict[int, int] = OrderedDict()

    def update(self, node_id: int, now: int) -> None:
        """The connection is used."""
        self._last_used[node_id] = now
        self._last_used.move_to_end(node_id)

    def remove(self, node_id: int) -> None:
        self._last_used.pop(node_id, None)

    def poll_expired(self, now: int) -> int | None:
        """A node whose connection was not used for too long; the longest first."""
        if self._max_idle_ms < 0 or not self._last_used:
            return None
        node_id, used = next(iter(self._last_used.items()))
        return node_id if now - used > self._max_idle_ms else None
