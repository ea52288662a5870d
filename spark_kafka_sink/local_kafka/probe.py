"""Checks with small requests whether a broker or a schema registry serves requests.

A broker gets ApiVersions (version 0) or Metadata (version 1) on a short connection. A schema
registry gets an HTTP request. This module does not use the code of the producer, because tests of
the producer must not depend on the tested code.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_METADATA, _API_VERSIONS = 3, 18
_CORRELATION_ID = 1
#: A test cluster's answer is a few kilobytes; anything claiming more is not a Kafka broker.
_MAX_ANSWER = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition in the metadata that a broker returned."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The metadata that a broker returned: the ids of the live brokers, and all partitions."""

    brokers: frozenset[int]
    partitions: tuple[PartitionState, ...]

    @property
    def under_replicated(self) -> tuple[PartitionState, ...]:
        """The partitions that have no leader, or have a replica that is not in sync."""
        return tuple(
            p for p in self.partitions if p.leader < 0 or set(p.in_sync_replicas) != set(p.replicas)
        )


def answers_api_versions(host: str, port: int, timeout: float = 1.0) -> bool:
    """True if a Kafka broker at this address responds to ApiVersions without an error."""
    try:
        answer = _ask(host, port, _API_VERSIONS, 0, b"", timeout)
        return _Reader(answer).int16() == 0
    except (OSError, struct.error, ValueError):
        return False


def answers_http(host: str, port: int, path: str, timeout: float = 5.0) -> bool:
    """True if an HTTP server at this address returns the status 200 for the path ``path``."""
    try:
        with socket.create_connection((host, port), timeout) as sock, sock.makefile("rb") as answer:
            sock.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
            return answer.readline(64).split()[1:2] == [b"200"]
    except OSError:
        return False


def cluster_state(host: str, port: int, timeout: float = 1.0) -> ClusterState | None:
    """Requests the metadata from the broker at this address. Returns None if there is no complete
    response.
    """
    try:
        # A null array of topics asks for all of them (Metadata v1 and later).
        answer = _Reader(_ask(host, port, _METADATA, 1, struct.pack(">i", -1), timeout))
        brokers = frozenset(_broker_id(answer) for _ in range(answer.int32()))
        answer.int32()  # controller id
        partitions = [p for _ in range(answer.int32()) for p in _topic(answer)]
        return ClusterState(brokers, tuple(partitions))
    except (OSError, struct.error, ValueError):
        return None


def _broker_id(answer: _Reader) -> int:
    node_id = answer.int32()
    answer.string()  # host
    answer.int32()  # port
    answer.string()  # rack
    return node_id


def _topic(answer: _Reader) -> list[PartitionState]:
    answer.int16()  # error code
    name = answer.string() or ""
    answer.take(1)  # is internal
    partitions = []
    for _ in range(answer.int32()):
        answer.int16()  # error code
        partition, leader = answer.int32(), answer.int32()
        replicas = tuple(answer.int32() for _ in range(answer.int32()))
        in_sync = tuple(answer.int32() for _ in range(answer.int32()))
        partitions.append(PartitionState(name, partition, leader, replicas, in_sync))
    return partitions


def _ask(host: str, port: int, api: int, version: int, body: bytes, timeout: float) -> bytes:
    """Opens a connection, sends one request, and returns the body of the response."""
    # Request header v1: api key, api version, correlation id, a null client id.
    request = struct.pack(">hhih", api, version, _CORRELATION_ID, -1) + body
    with socket.create_connection((host, port), timeout) as connection:
        connection.settimeout(timeout)
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        if not 4 <= size <= _MAX_ANSWER:
            raise ValueError(f"an answer of {size} bytes")
        answer = _receive(connection, size)
    if struct.unpack_from(">i", answer)[0] != _CORRELATION_ID:
        raise ValueError("an answer to something else")
    return answer[4:]


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(min(size - len(received), 65536))
        if not piece:
            raise ValueError("the connection ended in the middle of an answer")
        received += piece
    return bytes(received)


class _Reader:
    """Reads big-endian fields from bytes, one after the other. Raises an error if there are not
    enough bytes.
    """

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise ValueError("the answer ends too early")
        piece = self._data[self._at : self._at + size]
        self._at += size
        return piece

    def int16(self) -> int:
        return int.from_bytes(self.take(2), signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), signed=True)

    def string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self.take(size).decode()
