"""Reads and writes the bytes of one connection (Java's ``TransportLayer``). No call blocks.

This module has the interface :class:`TransportLayer`, and its implementation without encryption.
``tls`` implements the same interface with TLS, which has these additional states:

* The handshake needs several calls (``ready``).
* After a read, decrypted bytes may be left in a buffer (``has_bytes_buffered``).
* After a write, encrypted bytes may be left in a buffer (``has_pending_writes``).
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from typing import Protocol

from spark_kafka_sink.protocol.request import Buffer


class TransportLayer(Protocol):
    """The interface to read and write the bytes of a connection. Errors of the operating system are
    raised as OSError.
    """

    @property
    def socket(self) -> socket.socket:
        """The socket, whose events the selector watches."""
        ...

    def finish_connect(self) -> bool:
        """Returns True if the TCP connection is established, and False during the connection
        attempt. Raises OSError if the attempt has failed.
        """
        ...

    @property
    def ready(self) -> bool:
        """True if the TLS handshake is complete, so that the caller's bytes can be read and
        written. Always True without TLS.
        """
        ...

    def handshake(self) -> None:
        """Continues the TLS handshake, as far as this is possible without blocking. Raises
        AuthenticationError.
        """
        ...

    @property
    def wants_write(self) -> bool:
        """True if the handshake or an incomplete write needs a writable socket."""
        ...

    def read_into(self, target: memoryview) -> int:
        """Reads bytes into ``target``. Returns their number, which is 0 if there are no bytes now.

        Raises ConnectionError if the broker has closed the connection and all bytes were read.
        """
        ...

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Writes bytes of ``buffers``, which must be at most :data:`IOV_MAX` buffers. Returns the
        number of bytes that were accepted, which is 0 if the socket accepts none now.

        With TLS, an earlier call may have accepted bytes that are not written yet. These bytes are
        written first. If ``buffers`` is empty, only these bytes are written.
        """
        ...

    @property
    def has_bytes_buffered(self) -> bool:
        """True if received bytes are in a buffer of this layer. The socket has no event for these
        bytes.
        """
        ...

    @property
    def has_pending_writes(self) -> bool:
        """True if bytes that :meth:`write` has accepted are not written to the socket yet."""
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
