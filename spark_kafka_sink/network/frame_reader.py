"""Reads frames from a stream: a 4-byte length, then as many bytes (Java's NetworkReceive).

Owns: the state of the frame being received on one connection, and the rule that its buffer grows
with the received bytes, never with the announced length. Never: the content of a frame.

This is the first step in the processing of a response.
"""

from __future__ import annotations

from spark_kafka_sink.network.transport_layer import TransportLayer
from spark_kafka_sink.protocol.frames import (
    LENGTH_SIZE,
    MAX_RESPONSE_SIZE,
    MAX_RESPONSE_SIZE_BEFORE_READY,
    frame_size,
)

#: Bytes allocated before the first byte of a frame arrives; from there the buffer doubles.
FIRST_BUFFER_SIZE = 32 * 1024


class FrameReader:
    """Reads frames from one transport layer, one at a time.

    The first frame of a connection is limited to ``first_limit`` bytes, because before its first
    response, the peer may be no broker. After RemoteProtocolError the position in the stream is
    unknown, so the connection must be closed.
    """

    __slots__ = (
        "_buffer",
        "_filled",
        "_first_limit",
        "_limit",
        "_prefix",
        "_size",
        "_started",
    )

    def __init__(
        self,
        *,
        first_limit: int = MAX_RESPONSE_SIZE_BEFORE_READY,
        limit: int = MAX_RESPONSE_SIZE,
    ) -> None:
        self._limit = limit
        self._first_limit = min(first_limit, limit)
        self._started = False
        self._prefix = bytearray(LENGTH_SIZE)
        self._size = -1
        self._buffer = self._prefix
        self._filled = 0

    def read_from(self, transport: TransportLayer) -> memoryview | None:
        """The next frame without its length. None if the frame has not arrived completely.

        Raises RemoteProtocolError for a length that no broker sends, ConnectionError at the end of
        the stream, and every OSError of the socket.
        """
        while True:
            if self._filled == len(self._buffer):
                if self._buffer is self._prefix:
                    self._begin()
                elif self._filled == self._size:
                    return self._finish()
                else:
                    missing = self._size - self._filled
                    self._buffer += bytes(min(missing, self._filled))
            with memoryview(self._buffer) as whole:
                count = transport.read_into(whole[self._filled :])
            if count == 0:
                return None
            self._filled += count

    def _begin(self) -> None:
        """Allocates a buffer for the frame whose length has arrived."""
        limit = self._limit if self._started else self._first_limit
        self._size = frame_size(bytes(self._prefix), limit, first=not self._started)
        self._buffer = bytearray(min(self._size, FIRST_BUFFER_SIZE))
        self._filled = 0

    def _finish(self) -> memoryview:
        # The view alone keeps the buffer; the next frame gets its own.
        payload = memoryview(self._buffer).toreadonly()
        self._started = True
        self._size = -1
        self._buffer = self._prefix
        self._filled = 0
        return payload
