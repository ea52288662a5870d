"""One connection to a broker (Java's KafkaChannel): its TLS handshake, its authentication, the
frame that is being sent, and the frame that is being received.

A channel sends one frame at a time and has no queue. The selector waits for the events of its
socket.

The record batches of a Produce request are passed to ``sendmsg`` without a copy. If the socket
accepts only a part of a frame, the rest is sent later from the same buffers.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from itertools import accumulate

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    IllegalStateError,
    RemoteProtocolError,
)
from spark_kafka_sink.network.auth.authenticator import Authenticator
from spark_kafka_sink.network.channel.selectable import (
    ChannelState,
    ChannelStateKind,
    NetworkReceive,
    NetworkSend,
)
from spark_kafka_sink.network.frame_reader import FrameReader
from spark_kafka_sink.network.transport_layer import IOV_MAX, TransportLayer
from spark_kafka_sink.protocol.frames import MIN_RESERVED_CORRELATION_ID, peek_correlation_id
from spark_kafka_sink.protocol.request import Buffer

_log = logging.getLogger(__name__)


class KafkaChannel:
    """The connection to the node ``node_id``. ``remote`` is the broker's host, address and port, as
    a text for error and log messages.
    """

    __slots__ = (
        "_authenticator",
        "_buffers",
        "_ends",
        "_reader",
        "_written",
        "connected",
        "detail",
        "error",
        "kind",
        "node_id",
        "ready",
        "reauthenticating",
        "reauthenticating_since",
        "remote",
        "sending",
        "transport",
        "used_ms",
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
        #: The state of the channel. The selector sets the states that only the selector can detect,
        #: such as EXPIRED.
        self.kind = ChannelStateKind.NOT_CONNECTED
        self.detail: str | None = None
        self.error: AuthenticationError | RemoteProtocolError | None = None
        #: True during a re-authentication. Sending the next frame waits until the re-authentication
        #: is complete. Responses to earlier requests still arrive.
        self.reauthenticating = False
        self.reauthenticating_since = 0
        #: ``watched`` has the events for which the selector watches the socket. ``used_ms`` is the
        #: time of the last use (monotonic ms). The selector sets both.
        self.watched = 0
        self.used_ms = 0
        self.transport = transport
        self.connected = False
        #: True if requests can be sent: the TCP connection, the TLS handshake and the
        #: authentication are complete.
        self.ready = False
        #: The frame being sent.
        self.sending: NetworkSend | None = None
        self._authenticator = authenticator
        self._reader = reader
        self._buffers: list[Buffer] = []
        # The end offset of each buffer in the frame, and the number of bytes written.
        self._ends: list[int] = []
        self._written = 0

    @property
    def wants_write(self) -> bool:
        """True while the channel waits for a writable socket: to write bytes, or to complete the
        TCP connection.
        """
        if self.reauthenticating:
            return self._authenticator.wants_write
        if self.sending is not None or not self.connected:
            return True
        transport = self.transport
        return transport.wants_write or (transport.ready and self._authenticator.wants_write)

    @property
    def waiting(self) -> bool:
        """True while the login fetches the credential for this connection. After that, the login
        wakes the selector.
        """
        return self._authenticator.waiting

    def state(self) -> ChannelState:
        return ChannelState(self.kind, self.remote, self.detail, self.error)

    def finish_connect(self) -> bool:
        """Returns True if the TCP connection is established. Raises OSError if the connection
        attempt has failed.
        """
        if not self.transport.finish_connect():
            return False
        self.connected = True
        self.ready = self.transport.ready and self._authenticator.complete
        self.kind = ChannelStateKind.READY if self.ready else ChannelStateKind.AUTHENTICATE
        return True

    def prepare(self, now: int) -> None:
        """Continues the TLS handshake and the authentication, as far as this is possible without
        blocking. Raises AuthenticationError and OSError.
        """
        if not self.transport.ready:
            self.transport.handshake()
        if self.transport.ready and not self._authenticator.complete:
            self._authenticator.authenticate(now)
        self.ready = self.transport.ready and self._authenticator.complete
        if self.ready:
            self.kind = ChannelStateKind.READY

    def set_send(self, send: NetworkSend) -> None:
        """Sets the next frame to send. Raises IllegalStateError if the previous frame is not
        written completely.
        """
        if self.sending is not None:
            raise IllegalStateError(
                f"a send to {self.remote} was begun while another one is in progress"
            )
        self._buffers = list(send.buffers)
        self._ends = list(accumulate(map(len, self._buffers)))
        self._written = 0
        if not self._ends or self._ends[-1] != send.size:
            raise IllegalStateError(
                f"a frame to {self.remote} of {send.size} bytes has {sum(map(len, send.buffers))}"
            )
        self.sending = send

    def write(self, now: int) -> NetworkSend | None:
        """Writes as many bytes of the current frame as the socket accepts. Returns the frame if it
        is now complete, otherwise None.

        If the SASL session expires soon, the channel authenticates again (KIP-368) before it sends
        the frame.
        """
        send = self.sending
        if send is None or self.reauthenticating:
            return None
        due = self._authenticator.reauthenticate_at
        if due is not None and now >= due and self._written == 0:
            # The channel does not wait for the responses to earlier requests. The broker handles
            # requests in order, so these responses arrive before the responses of the
            # authentication.
            self.reauthenticating, self.reauthenticating_since = True, now
            self._authenticator.begin_reauthentication()
            self._authenticator.authenticate(now)
            self.ready = self._authenticator.complete
            return None
        buffers, ends = self._buffers, self._ends
        if self._written == send.size:
            self.flush()
        while self._written < send.size:
            # Buffers may be empty: find the first one with an unwritten byte.
            index = bisect_right(ends, self._written)
            before = ends[index - 1] if index else 0
            window = buffers[index : index + IOV_MAX]
            if before < self._written:
                window[0] = memoryview(window[0])[self._written - before :]
            self._written += self.transport.write(window)
            if self._written < ends[-1] and self._written < ends[index : index + IOV_MAX][-1]:
                return None  # the socket is full; its event follows
        if self.transport.has_pending_writes:
            return None
        self.sending = None
        self._buffers = []
        return send

    def flush(self) -> None:
        """Writes the bytes that are still in a buffer of the transport layer: the rest of an
        earlier write, or a message of TLS itself (after a key update).
        """
        if self.transport.has_pending_writes:
            self.transport.write(())

    def read(self, now: int) -> NetworkReceive | None:
        """Reads bytes from the socket. Returns the next complete frame, or None if no frame is
        complete.

        Raises RemoteProtocolError, ConnectionError and OSError. During a re-authentication, also
        raises AuthenticationError.
        """
        payload = self._reader.read_from(self.transport)
        if payload is None:
            return None
        if self.reauthenticating and peek_correlation_id(payload) >= MIN_RESERVED_CORRELATION_ID:
            self._authenticator.receive(payload, now)
            self.ready = self._authenticator.complete
            if self.ready:
                self.reauthenticating = False
                _log.debug("authenticated again with node %d at %s", self.node_id, self.remote)
            return None
        return NetworkReceive(self.node_id, payload)

    def close(self) -> None:
        self.sending = None
        self._buffers = []
        try:
            self._authenticator.close()
        finally:
            self.transport.close()
