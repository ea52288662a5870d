"""Reads frames from a connection. A frame is a 4-byte length and that number of bytes (Java's
NetworkReceive).

:class:`FrameReader` keeps the part of a frame that has arrived so far. Its buffer grows with the
bytes that arrive, so a wrong length can't cause a large allocation.
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
    """Reads frames from one connection, one after the other.

    * ``first_limit``: the maximum size of the first frame, in bytes. This limit is low, because the
      peer may not be a Kafka broker.
    * ``limit``: the maximum size of each later frame, in bytes.

    After RemoteProtocolError, the connection must be closed, because it is unknown where the next
    frame begins.
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
        """Reads bytes, and returns the next frame without its length. Returns None if the frame is
        not complete.

        Raises RemoteProtocolError for a length that no broker sends, ConnectionError if the broker
        has closed the connection, and other OSErrors of the socket.
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
        """Creates the buffer for the next frame, whose length has arrived."""
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
