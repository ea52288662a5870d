"""One connection to one broker: handshake, authentication, one send and one receive (KafkaChannel).

Owns: the transport layer, the authenticator, the frame on its way out and how far it got, the
frame on its way in, and why the connection ended. Never: the selector's events, nor more than one
send at a time.

On a record's way: the last stop before the socket. The buffers that the accumulator froze go to
``sendmsg`` as they lie; a partial write moves a view, it copies nothing.
"""

from __future__ import annotations

import logging

from spark_kafka_sink.errors import (
    AuthenticationError,
    IllegalStateError,
    RemoteProtocolError,
)
from spark_kafka_sink.network.authenticator import Authenticator
from spark_kafka_sink.network.frame_reader import FrameReader
from spark_kafka_sink.network.memory_pool import MemoryPool
from spark_kafka_sink.network.sasl_authenticator import MIN_RESERVED_CORRELATION_ID
from spark_kafka_sink.network.selectable import (
    ChannelState,
    ChannelStateKind,
    NetworkReceive,
    NetworkSend,
)
from spark_kafka_sink.network.transport_layer import IOV_MAX, TransportLayer
from spark_kafka_sink.protocol.frames import peek_correlation_id
from spark_kafka_sink.protocol.request import Buffer

_log = logging.getLogger(__name__)


class KafkaChannel:
    """The connection ``node_id``, to ``remote`` (host, address and port as messages show them)."""

    __slots__ = (
        "_authenticator",
        "_buffers",
        "_connected",
        "_index",
        "_reader",
        "_remaining",
        "_send",
        "_transport",
        "detail",
        "error",
        "kind",
        "muted",
        "node_id",
        "reauthenticating",
        "remote",
        "starved",
        "watched",
    )

    def __init__(
        self,
        node_id: int,
        remote: str,
        transport: TransportLayer,
        authenticator: Authenticator,
        reader: FrameReader,
    ) -> None:
        self.node_id = node_id
        self.remote = remote
        #: Why the channel is as it is; the selector sets what it alone knows (EXPIRED, ...).
        self.kind = ChannelStateKind.NOT_CONNECTED
        self.detail: str | None = None
        self.error: AuthenticationError | RemoteProtocolError | None = None
        self.muted = False
        #: The next frame waits for memory; nothing is read until there is some.
        self.starved = False
        #: The session was about to end, and a new one is being asked for. A send waits for it;
        #: answers to the requests before it still arrive.
        self.reauthenticating = False
        #: The events that the selector watches for now. Its own note, kept here.
        self.watched = 0
        self._transport = transport
        self._authenticator = authenticator
        self._reader = reader
        self._connected = False
        self._send: NetworkSend | None = None
        self._buffers: list[Buffer] = []
        self._index = 0
        self._remaining = 0

    @property
    def transport(self) -> TransportLayer:
        return self._transport

    @property
    def connected(self) -> bool:
        return self._connected

    @property
    def ready(self) -> bool:
        """Connected, handshake done, authenticated: requests may go out."""
        return self._connected and self._transport.ready and self._authenticator.complete

    @property
    def sending(self) -> bool:
        return self._send is not None

    @property
    def wants_write(self) -> bool:
        """Something waits for the socket to take bytes (or for the connection to stand)."""
        if self.reauthenticating:
            return self._authenticator.wants_write
        if self._send is not None or not self._connected:
            return True
        transport = self._transport
        return transport.wants_write or (transport.ready and self._authenticator.wants_write)

    @property
    def waiting(self) -> bool:
        """For a credential: neither reading nor writing helps, a wakeup does."""
        return self._authenticator.waiting

    @property
    def has_bytes_buffered(self) -> bool:
        return self._transport.has_bytes_buffered

    def use_memory_pool(self, pool: MemoryPool) -> None:
        """Read no frame that ``pool`` has no memory for; before the first read."""
        self._reader.pool = pool

    def state(self) -> ChannelState:
        return ChannelState(self.kind, self.remote, self.detail, self.error)

    def finish_connect(self) -> bool:
        """True when the connection stands now. Raises OSError when it was refused."""
        if not self._transport.finish_connect():
            return False
        self._connected = True
        self.kind = ChannelStateKind.READY if self.ready else ChannelStateKind.AUTHENTICATE
        return True

    def prepare(self, now: int) -> None:
        """Go on with handshake and authentication. Raises AuthenticationError, OSError."""
        if not self._transport.ready:
            self._transport.handshake()
        if self._transport.ready and not self._authenticator.complete:
            self._authenticator.authenticate(now)
        if self.ready:
            self.kind = ChannelStateKind.READY

    def set_send(self, send: NetworkSend) -> None:
        """Begin ``send``. IllegalStateError while another is under way."""
        if self._send is not None:
            raise IllegalStateError(
                f"a send to {self.remote} was begun while another one is under way"
            )
        self._send = send
        self._buffers = list(send.buffers)
        self._index = 0
        self._remaining = send.size

    def write(self, now: int) -> NetworkSend | None:
        """Write what the socket takes; the send when all of it is written, else None.

        When the session is about to end, a new one is asked for first (KIP-368): between two
        frames, and without waiting for answers, because a broker takes up one request after the
        other and so has answered all of them when it reads the first of ours.
        """
        send = self._send
        if send is None or self.reauthenticating:
            return None
        due = self._authenticator.reauthenticate_at
        if due is not None and now >= due and self._remaining == send.size:
            self.reauthenticating = True
            self._authenticator.begin_again()
            self._authenticator.authenticate(now)
            return None
        if self._remaining > 0:
            self._write_buffers()
        elif self._transport.has_pending_writes:
            self._transport.write(())
        if self._remaining > 0 or self._transport.has_pending_writes:
            return None
        self._send = None
        self._buffers = []
        return send

    def flush(self) -> None:
        """Write what the transport has left to write of its own, when there is no send to do it: a
        TLS key update is answered in the middle of a read.
        """
        if self._transport.has_pending_writes:
            self._transport.write(())

    def _write_buffers(self) -> None:
        buffers, transport = self._buffers, self._transport
        count = len(buffers)
        while self._remaining > 0:
            index = self._index
            while index < count and not len(buffers[index]):
                index += 1
            if index == count:
                raise IllegalStateError(
                    f"a frame to {self.remote} ended {self._remaining} bytes before its size"
                )
            window = (
                buffers if index == 0 and count <= IOV_MAX else buffers[index : index + IOV_MAX]
            )
            written = transport.write(window)
            self._remaining -= written
            whole = written > 0
            # Advance over what was taken; the buffer in the middle becomes a view of its rest.
            left = written
            while left > 0:
                length = len(buffers[index])
                if left < length:
                    buffers[index] = memoryview(buffers[index])[left:]
                    whole = False
                    break
                left -= length
                index += 1
            self._index = index
            if not whole:
                # Blocked, or a part of a buffer: the socket is full, its event will tell.
                break
        if self._remaining < 0:
            raise IllegalStateError(
                f"a frame to {self.remote} is {-self._remaining} bytes longer than its size"
            )

    def read(self, now: int) -> NetworkReceive | None:
        """The next whole frame, or None. Raises RemoteProtocolError, ConnectionError, OSError,
        and AuthenticationError while :attr:`reauthenticating`.
        """
        reader = self._reader
        payload = reader.read_from(self._transport)
        if payload is None:
            self.starved = reader.starved
            return None
        if self.reauthenticating and peek_correlation_id(payload) >= MIN_RESERVED_CORRELATION_ID:
            self._authenticator.receive(payload, now)
            if self._authenticator.complete:
                self.reauthenticating = False
                _log.debug("authenticated again with node %d at %s", self.node_id, self.remote)
            if reader.pool is not None:
                reader.pool.release(len(payload))
            return None
        return NetworkReceive(self.node_id, payload, reader.pool)

    def close(self) -> None:
        self._send = None
        self._buffers = []
        self._reader.close()
        try:
            self._authenticator.close()
        finally:
            self._transport.close()
