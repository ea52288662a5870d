"""A broker on the loopback that answers as it should, but for one request: that one it lies to."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Self

from spark_kafka_sink.protocol.request import ApiKey
from tests.network.simulated import api_versions_body
from tests.protocol import metadata_bytes as m

TOPIC = b"t"
_VERSIONS = {
    ApiKey.PRODUCE: 8,
    ApiKey.METADATA: 8,
    ApiKey.API_VERSIONS: 4,
    ApiKey.INIT_PRODUCER_ID: 1,
}

#: The bytes to send, frame and all, given those of the honest answer's body and a correlation id.
Lie = Callable[[bytes, int], bytes]


def framed(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def produced(
    partition: int = 0, error: int = 0, offset: int = 0, topic: bytes = TOPIC, times: int = 1
) -> bytes:
    one = struct.pack(">ihqqq", partition, error, offset, -1, 0) + m.int32(0) + b"\xff\xff"
    return m.int32(1) + m.string(8, topic) + m.int32(times) + one * times + m.int32(0)


def identity(producer_id: int = 4711, epoch: int = 0, error: int = 0) -> bytes:
    return struct.pack(">ihqh", 0, error, producer_id, epoch)


class Liar:
    """``lies`` to requests of one kind; in pieces of a byte (or a 200th) when ``drips``."""

    def __init__(self, api_key: ApiKey, lie: Lie, *, drips: bool) -> None:
        self._api_key = api_key
        self._lie = lie
        self._drips = drips
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        #: How often it has lied.
        self.lied = 0

    def __enter__(self) -> Self:
        self._listener.settimeout(0.05)
        self._begin(self._accept)
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        self._listener.close()

    def _begin(self, work: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            connection.settimeout(0.05)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._begin(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        data = b""
        with connection:
            while not self._over.is_set():
                try:
                    data += (piece := connection.recv(65536))
                except TimeoutError:
                    continue
                except OSError:
                    return
                if not piece:
                    return
                while len(data) >= 4 and len(data) >= (size := 4 + int.from_bytes(data[:4], "big")):
                    request, data = data[4:size], data[size:]
                    try:
                        self._answer(connection, request)
                    except OSError:
                        return

    def _answer(self, connection: socket.socket, request: bytes) -> None:
        key, _version, correlation_id = struct.unpack_from(">hhi", request)
        honest = self._honest(ApiKey(key))
        if key != self._api_key:
            connection.sendall(framed(correlation_id, honest))
            return
        self.lied += 1
        lie = self._lie(honest, correlation_id)
        step = max(1, len(lie) // 200) if self._drips else max(1, len(lie))
        for at in range(0, len(lie), step):
            connection.sendall(lie[at : at + step])

    def _honest(self, api_key: ApiKey) -> bytes:
        match api_key:
            case ApiKey.API_VERSIONS:
                return api_versions_body(4, {key: (0, last) for key, last in _VERSIONS.items()})
            case ApiKey.METADATA:
                return self.metadata()
            case ApiKey.INIT_PRODUCER_ID:
                return identity()
            case _:
                return produced()

    def metadata(self) -> bytes:
        host, port = self.address
        partition = m.partition(8, 0, (1,), leader=1)
        return m.answer(8, [m.broker(8, 1, host.encode(), port)], [m.topic(8, TOPIC, [partition])])
