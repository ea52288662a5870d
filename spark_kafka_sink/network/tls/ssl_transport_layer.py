"""TLS on the connection to a broker (Java's ``SslTransportLayer``): handshake, encryption and
close_notify.

OpenSSL reads from and writes to two buffers in memory (``ssl.MemoryBIO``), not the socket.
:class:`SslTransportLayer` transfers the bytes between the buffers and the socket. So no call
blocks, and bytes that OpenSSL writes during a read (a key update, an alert) are also sent. The
context forbids renegotiation, which TLS 1.3 does not have.

A server could send internal messages of TLS (key updates, tickets, requests to renegotiate) without
end, even before it shows a certificate. These limits protect the client:

* One call reads at most 64 KiB from the socket. After more than 64 KiB of internal messages, one
  call reads at most 4 KiB.
* After 1 MiB of internal messages with hardly any data between them, the connection is closed.
* If the server does not read our responses to its messages, the connection is closed.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Sequence
from typing import cast

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.network.tls.ssl_failures import explain
from spark_kafka_sink.network.transport_layer import PlaintextTransportLayer
from spark_kafka_sink.protocol.request import Buffer

#: The most that a TLS record carries.
_RECORD = 16384
#: The maximum number of bytes that are encrypted before the socket accepts them: enough for an
#: efficient system call.
_AHEAD = 16 * _RECORD
#: The maximum number of encrypted bytes in a single read.
_CHUNK = 4 * _RECORD
#: The maximum number of encrypted bytes in a single read, after more than :data:`_CHUNK` bytes
#: without data for the caller. 64 KiB could contain 2 400 key updates, which take tens of
#: milliseconds.
_SMALL_CHUNK = 4096
#: The maximum number of received bytes without data for the caller, including the handshake. (The
#: largest certificate chain that OpenSSL accepts has 100 KiB.) A byte for the caller lowers the
#: count only by ``_WORTH``, about the size of a record with one byte. Otherwise a server could
#: avoid the limit by one byte now and then.
_MOST_IDLE = 1024 * 1024
_WORTH = 64
#: Encrypted bytes that wait for the socket: our own, of which the last record may begin below
#: :data:`_AHEAD`, and 64 KiB of responses to the broker's TLS messages.
_MOST_UNSENT = _AHEAD + 2 * _RECORD + 4 * _RECORD


class SslTransportLayer:
    """A TLS client on top of a plaintext transport layer. The broker's certificate must be valid
    for ``host``.

    After the handshake, :attr:`ready` is true, and reads and writes transfer the caller's bytes.
    The methods raise these errors:

    * AuthenticationError: the handshake has failed. In TLS 1.3, the broker can reject the client's
      certificate only after the handshake. Then the first read raises this error.
    * ConnectionError: the broker has closed the connection, with or without close_notify.
    * ConnectionError: TLS fails after the caller has received data from the broker.
    * ConnectionError: the server exceeds one of the limits in the docstring of this module.
    """

    __slots__ = (
        "_accepted",
        "_chunk",
        "_encrypted",
        "_handshaken",
        "_idle",
        "_incoming",
        "_outgoing",
        "_plain",
        "_readable",
        "_record",
        "_remote",
        "_session",
        "_talked",
    )

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, host: str, remote: str
    ) -> None:
        self._plain = PlaintextTransportLayer(sock)
        self._remote = remote
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        #: Encrypted bytes from ``_outgoing`` that the socket has not accepted yet.
        self._encrypted = memoryview(b"")
        self._chunk = memoryview(bytearray(_CHUNK))
        self._record = memoryview(bytearray(_RECORD))
        self._handshaken = False
        #: True after the broker has sent bytes. If the connection ends later, the cause is not a
        #: wrong port.
        self._talked = False
        #: True after the broker has sent data after the handshake, which shows that the broker has
        #: accepted the client's certificate.
        self._accepted = False
        #: About the number of received encrypted bytes that have contained no data for the caller.
        self._idle = 0
        #: True if the last read has returned bytes, and more bytes may be in the buffers of this
        #: layer.
        self._readable = False

    @property
    def socket(self) -> socket.socket:
        return self._plain.socket

    def finish_connect(self) -> bool:
        return self._plain.finish_connect()

    # ---- handshake -----------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return self._handshaken

    def handshake(self) -> None:
        """Continues the handshake as far as this is possible without blocking, but reads a limited
        number of bytes (see ``_CHUNK``). The caller calls this method again after the next event of
        the socket.

        Raises AuthenticationError, ConnectionError.
        """
        idle = self._idle
        while not self._handshaken:
            try:
                self._session.do_handshake()
            except ssl.SSLWantReadError:
                self._send_handshake()
                self._refuse_flood()
                if not self._receive(idle):
                    return
            except ssl.SSLError as error:
                self._send_alert()
                raise self._failure(error) from error
            else:
                self._handshaken = True
                # The server may send application data together with its last handshake bytes.
                self._readable = self._incoming.pending > 0
        self._send_handshake()

    def _send_handshake(self) -> None:
        """Writes the bytes of the handshake to the socket.

        If the broker has closed the connection, raises the error that a read would raise.
        """
        try:
            self._flush()
        except ConnectionError as error:
            raise ConnectionError(self._handshake_cut()) from error

    @property
    def wants_write(self) -> bool:
        return self.has_pending_writes

    # ---- bytes ---------------------------------------------------------------------------------

    def read_into(self, target: memoryview) -> int:
        began = self._idle
        while True:
            try:
                # With a buffer it returns the number of bytes, despite its stub.
                count = cast("int", self._session.read(len(target), target))
            except ssl.SSLWantReadError:
                # Comes before each chunk, so that no more than one has its responses unsent.
                self._flush()  # a key update requires a response
                self._refuse_flood()
                if self._receive(began):
                    continue
                # Everything received is processed, so the socket's event signals more.
                self._readable = False
                return 0
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError) as error:
                raise ConnectionError("the broker closed the connection") from error
            except ssl.SSLError as error:
                raise self._failure(error) from error
            if count == 0:
                raise ConnectionError("the broker closed the connection")
            self._accepted = True
            if self._idle:
                self._idle = max(0, self._idle - _WORTH * count)
            self._readable = self._session.pending() > 0 or self._incoming.pending > 0
            return count

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Encrypts and sends the bytes of ``buffers``, until the socket accepts no more. Returns
        the number of bytes that were taken from ``buffers``.
        """
        taken = filled = 0
        if not self._flush():
            return 0
        for buffer in buffers:
            view = memoryview(buffer)
            while view:
                # Small buffers are joined into one TLS record. A Produce request may have hundreds
                # of buffers, and each record costs 29 bytes and a call of the cipher.
                piece = view[: _RECORD - filled]
                self._record[filled : filled + len(piece)] = piece
                filled += len(piece)
                view = view[len(piece) :]
                if filled < _RECORD:
                    continue
                taken += self._encrypt(filled)
                filled = 0
                if self._outgoing.pending >= _AHEAD and not self._flush():
                    return taken
        if filled:
            taken += self._encrypt(filled)
        self._flush()
        return taken

    def _encrypt(self, size: int) -> int:
        """Encrypts one TLS record into the outgoing buffer in memory."""
        try:
            written = self._session.write(self._record[:size])
        except ssl.SSLError as error:
            raise self._failure(error) from error
        assert written == size, "a memory buffer takes a whole record"
        return written

    @property
    def has_bytes_buffered(self) -> bool:
        return self._readable

    @property
    def has_pending_writes(self) -> bool:
        return len(self._encrypted) > 0 or self._outgoing.pending > 0

    # ---- the socket ----------------------------------------------------------------------------

    def _flush(self) -> bool:
        """Sends the encrypted bytes of the outgoing buffer. Returns True if the socket has accepted
        all of them.
        """
        while True:
            if not self._encrypted:
                if not self._outgoing.pending:
                    return True
                self._encrypted = memoryview(self._outgoing.read())
            sent = self._plain.write((self._encrypted,))
            if sent == 0:
                return False
            self._encrypted = self._encrypted[sent:]

    def _receive(self, idle: int) -> bool:
        """Reads encrypted bytes from the socket into OpenSSL's buffer, and adds their number to
        ``_idle``. Returns False if the socket has no bytes now, or if the limit is reached.

        :meth:`handshake` and :meth:`read_into` call this method in a loop. ``idle`` is the value of
        ``_idle`` before the loop. So ``_idle - idle`` is the number of encrypted bytes that the
        loop has read. The limit applies to this number.
        """
        left = idle + (_CHUNK if idle <= _CHUNK else _SMALL_CHUNK) - self._idle
        if left <= 0:
            return False
        chunk = self._chunk[:left]
        try:
            count = self._plain.read_into(chunk)
        except ConnectionError as error:
            if self._handshaken:
                # Not an error of TLS: frames have lengths, a cut one is noticed above.
                self._incoming.write_eof()
                return True
            raise ConnectionError(self._handshake_cut()) from error
        if count == 0:
            return False
        self._talked = True
        self._idle += count
        self._incoming.write(chunk[:count])
        return True

    def _refuse_flood(self) -> None:
        if self._idle > _MOST_IDLE:
            what = f"the server has sent {self._idle} bytes of TLS messages without any data"
        elif self._outgoing.pending + len(self._encrypted) > _MOST_UNSENT:
            what = "the server does not read our responses to its TLS messages"
        else:
            return
        raise ConnectionError(f"TLS to {self._remote} broke: {what}")

    def _handshake_cut(self) -> str:
        if self._talked:
            return (
                "the broker closed the connection during the TLS handshake (does it need a client "
                "certificate, or another TLS version?)"
            )
        return (
            "the broker closed the connection at the first byte of TLS: is it a PLAINTEXT or "
            "SASL_PLAINTEXT port?"
        )

    def _failure(self, error: ssl.SSLError) -> AuthenticationError | ConnectionError:
        what, hint = explain(error)
        if self._accepted:
            return ConnectionError(f"TLS to {self._remote} broke: {what}")
        return AuthenticationError(f"TLS to {self._remote} failed: {what}", hint=hint)

    def _send_alert(self) -> None:
        """Sends OpenSSL's alert to the broker, if the socket accepts it. The broker's log then has
        the reason.
        """
        with contextlib.suppress(OSError):
            self._flush()

    def close(self) -> None:
        """Sends close_notify if this is possible without blocking, and closes the socket."""
        try:
            if self._handshaken:
                # unwrap() waits for the broker's close_notify; ours is sent before it raises.
                with contextlib.suppress(ssl.SSLError, OSError, ValueError):
                    self._session.unwrap()
                with contextlib.suppress(OSError):
                    self._flush()
        finally:
            self._plain.close()
