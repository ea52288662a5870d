"""One blocking socket to a broker: the least that can send our frames and read the answers."""

from __future__ import annotations

import socket
from typing import Self, TypeVar

from spark_kafka_sink.protocol.answers import decode
from spark_kafka_sink.protocol.frames import (
    MAX_RESPONSE_SIZE,
    frame,
    frame_size,
    parse_response_header,
)
from spark_kafka_sink.protocol.request import Request

T = TypeVar("T")


class BlockingConnection:
    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(",", maxsplit=1)[0].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=20)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, request: Request[object], version: int) -> int:
        self._correlation_id += 1
        buffers, size = frame(request, version, self._correlation_id, "protocol-test")
        data = b"".join(buffers)
        assert len(data) == size
        self._socket.sendall(data)
        return self._correlation_id

    def call(self, request: Request[T], version: int) -> T:
        sent = self.send(request, version)  # type: ignore[arg-type]
        payload = memoryview(self._read(frame_size(self._read(4), MAX_RESPONSE_SIZE)))
        correlation_id, body = parse_response_header(request.api_key, version, payload)
        assert correlation_id == sent
        return decode(request, version, body)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            assert part, "the broker closed the connection"
            data += part
        return bytes(data)
