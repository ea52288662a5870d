"""Transfers bytes over one socket (Java's ``TransportLayer``).

Owns: the :class:`TransportLayer` protocol, and its plaintext implementation. Never: frames,
requests, or waiting, because no call may block.

``tls`` implements the same protocol for TLS. A TLS handshake needs several calls. A read of TLS may
leave decrypted bytes in a buffer (``has_bytes_buffered``), and a write may leave encrypted bytes in
a buffer (``has_pending_writes``).
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from typing import Protocol

from spark_kafka_sink.protocol.request import Buffer


class TransportLayer(Protocol):
    """The bytes of a connection. Errors of the operating system are raised as OSError."""

    @property
    def socket(self) -> socket.socket:
        """The socket for the selector to watch."""
        ...

    def finish_connect(self) -> bool:
        """Whether the connection is established. False while it is connecting. Raises OSError if
        the connection failed.
        """
        ...

    @property
    def ready(self) -> bool:
        """Whether the handshake is complete, so that reads and writes transfer the
        caller's bytes.
        """
        ...

    def handshake(self) -> None:
        """Continues the handshake as far as possible without blocking. Raises
        AuthenticationError.
        """
        ...

    @property
    def wants_write(self) -> bool:
        """Whether the handshake or a pending write waits for the socket to become writable."""
        ...

    def read_into(self, target: memoryview) -> int:
        """Reads bytes into ``target``. Returns their number, which is 0 if there are no bytes now.

        Raises ConnectionError when the broker closed the connection and everything was read.
        """
        ...

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Writes bytes from at most :data:`IOV_MAX` of ``buffers``. Returns the number of accepted
        bytes, which is 0 if the socket accepts none now.

        Pending bytes are written first. With no buffers, only pending bytes are written.
        """
        ...

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether received bytes are buffered in this layer. The selector gets no event for such
        bytes.
        """
        ...

    @property
    def has_pending_writes(self) -> bool:
        """Whether bytes accepted by :meth:`write` are not yet written to the socket."""
        ...

    def close(self) -> None: ...


def _iov_max() -> int:
    try:
        limit = os.sysconf("SC_IOV_MAX")
    except (ValueError, OSError):
        limit = -1
    # POSIX guarantees 16; Linux and macOS have 1024.
    return limit if limit > 0 else 16


#: The maximum number of buffers of one ``sendmsg``.
IOV_MAX = _iov_max()

_BROKER_CLOSED = "the broker closed the connection"


class PlaintextTransportLayer:
    """The transport layer without encryption."""

    __slots__ = ("_recv_into", "_sendmsg", "socket")

    ready = True
    wants_write = False
    has_bytes_buffered = False
    has_pending_writes = False

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._recv_into = sock.recv_into
        self._sendmsg = sock.sendmsg

    def finish_connect(self) -> bool:
        error = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        try:
            self.socket.getpeername()
        except OSError as reason:
            # No error and no peer: still connecting (a spurious event).
            if reason.errno != errno.ENOTCONN:
                raise
            return False
        return True

    def handshake(self) -> None:
        """Does nothing."""

    def read_into(self, target: memoryview) -> int:
        try:
            count = self._recv_into(target)
        except BlockingIOError:
            return 0
        if count == 0:
            raise ConnectionError(_BROKER_CLOSED)
        return count

    def write(self, buffers: Sequence[Buffer]) -> int:
        try:
            return self._sendmsg(buffers)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        self.socket.close()
