"""Who answers a script: a FakeCluster, or real brokers."""

from __future__ import annotations

import socket
import struct
from typing import Any, Protocol

from tests.fakes.fake_cluster import FakeCluster


class World(Protocol):
    def exchange(self, node: int, frame: bytes, *, answered: bool) -> bytes | None:
        """The answer's frame; None when the connection was closed, or nothing is awaited."""
        ...

    def pause(self) -> None: ...


class FakeWorld:
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster, self.now = cluster, 1000
        self._connections: dict[int, Any] = {}

    def exchange(self, node: int, frame: bytes, *, answered: bool) -> bytes | None:
        connection = self._connections.get(node)
        if connection is None or connection.closed:
            connection = self.cluster.connect(node)
            assert connection is not None, f"node {node} is down"
            self._connections[node] = connection
        connection.send(frame, self.now)
        told = connection.due(self.now)
        if connection.closed or not answered:
            assert not told
            return None
        assert len(told) == 1, told
        return told[0]

    def pause(self) -> None:
        self.now += 20


class RealWorld:
    """Blocking sockets, one for each node."""

    def __init__(self, bootstrap: str) -> None:
        places = [place.rsplit(":", 1) for place in bootstrap.split(",")]
        self._places = {n: (host, int(port)) for n, (host, port) in enumerate(places, 1)}
        self._sockets: dict[int, socket.socket] = {}

    def exchange(self, node: int, frame: bytes, *, answered: bool) -> bytes | None:
        if node not in self._sockets:
            self._sockets[node] = socket.create_connection(self._places[node], 30)
        connection = self._sockets[node]
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        if not answered:
            return None
        size = self._receive(connection, 4)
        if size is None:
            self._sockets.pop(node).close()
            return None
        return self._receive(connection, int.from_bytes(size, "big"))

    @staticmethod
    def _receive(connection: socket.socket, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                piece = connection.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            data += piece
        return data

    def pause(self) -> None:
        import time

        time.sleep(0.02)  # between two questions: the condition is the answer

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()

    def __enter__(self) -> RealWorld:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
