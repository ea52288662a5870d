"""Non-blocking connections to brokers (Java's ``common.network.Selector``).

The selector has the sockets and waits for their events. It closes idle connections. It delivers
responses that arrived before their connection was closed. It does not know the content of a frame,
does not send a request again, and computes no backoff. One thread makes all calls. Only
:meth:`Selector.wakeup` may be called by any thread.

:meth:`Selector.send` only stores a frame. The next :meth:`Selector.poll` writes the frame, and then
waits for events. So most requests need only one system call (``sendmsg``).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket

from spark_kafka_sink.base.clock import NEVER, Clock
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    IllegalStateError,
    RemoteProtocolError,
)
from spark_kafka_sink.network.channel.channel_builder import ChannelBuilder
from spark_kafka_sink.network.channel.kafka_channel import KafkaChannel
from spark_kafka_sink.network.channel.poller import Poller, new_poller
from spark_kafka_sink.network.channel.selectable import (
    ChannelState,
    ChannelStateKind,
    NetworkReceive,
    NetworkSend,
    SelectorMetrics,
)
from spark_kafka_sink.network.channel.wakeup_pipe import WakeupPipe

_log = logging.getLogger(__name__)

# epoll has the same bits.
_READ = select.POLLIN
_WRITE = select.POLLOUT

#: epoll's timeout is an int of milliseconds. Waking up once a day costs nothing.
_LONGEST_SELECT_MS = 24 * 3600 * 1000


class Selector:
    """Implements ``Selectable`` with sockets. Only one thread may use it, except for
    :meth:`wakeup`.
    """

    def __init__(
        self,
        channel_builder: ChannelBuilder,
        clock: Clock,
        *,
        connections_max_idle_ms: int = -1,
        metrics: SelectorMetrics | None = None,
        poller: Poller | None = None,
    ) -> None:
        self._builder = channel_builder
        self._clock = clock
        self._metrics = metrics
        # Milliseconds of this poll spent waiting.
        self._waited_ms = 0
        self._poller = new_poller() if poller is None else poller
        # The channels that the poller watches, by their sockets' file numbers.
        self._watched: dict[int, KafkaChannel] = {}
        self._channels: dict[int, KafkaChannel] = {}
        # Closed by the peer or for idleness, with responses still to be delivered.
        self._closing: dict[int, KafkaChannel] = {}
        self._immediately_connected: list[KafkaChannel] = []
        # Channels with a send that was not attempted yet.
        self._unsent: list[KafkaChannel] = []
        # Channels whose transport has buffered bytes, for which there is no event (TLS).
        self._buffered_reads: dict[int, KafkaChannel] = {}
        # Channels that wait for a credential, which a wakeup reports.
        self._waiting: list[KafkaChannel] = []
        self._failed_sends: set[int] = set()
        self._max_idle_ms = connections_max_idle_ms
        # No connection expires for idleness before this time.
        self._next_idle_ms = NEVER
        #: The results of the last poll.
        self.completed_sends: list[NetworkSend] = []
        self.completed_receives: list[NetworkReceive] = []
        self.disconnected: dict[int, ChannelState] = {}
        self.connected: list[int] = []
        # The poll must return: there are results, or a channel completed its handshake, so that the
        # caller can send now.
        self._news = False
        self._pipe = WakeupPipe()
        self._wakeup_fd = self._pipe.reader.fileno()
        self._poller.register(self._wakeup_fd, _READ)
        channel_builder.attach(self.wakeup)

    # ---- Selectable ----

    def connect(
        self,
        node_id: int,
        host: str,
        address: tuple[str, int],
        send_buffer: int,
        receive_buffer: int,
    ) -> None:
        if node_id in self._channels or node_id in self._closing:
            raise IllegalStateError(f"there is already a connection to node {node_id}")
        ip, port = address
        remote = f"{host}:{port}" if host == ip else f"{host}:{port} ({ip})"
        sock = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.settimeout(0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if send_buffer >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
            if receive_buffer >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            code = sock.connect_ex(_socket_address(ip, port))
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
            channel = self._builder.build_channel(node_id, host, remote, sock)
        except BaseException:
            sock.close()
            raise
        self._channels[node_id] = channel
        channel.used_ms = self._clock.now_ms()
        if self._max_idle_ms >= 0:
            self._next_idle_ms = min(self._next_idle_ms, channel.used_ms + self._max_idle_ms)
        if code == 0:
            self._immediately_connected.append(channel)
        else:
            self._watch(channel)

    def send(self, send: NetworkSend) -> None:
        node_id = send.destination
        channel = self._channels.get(node_id)
        if channel is None:
            if node_id not in self._closing:
                raise IllegalStateError(f"there is no connection to node {node_id}")
            # The connection was closed, and its last responses are still being delivered: the next
            # poll reports the disconnect.
            self._failed_sends.add(node_id)
            return
        channel.set_send(send)
        self._unsent.append(channel)

    def poll(self, timeout_ms: int) -> int:
        """Reads and writes bytes until one of these events occurs. Returns the current time.

        * There is a result: a complete frame, a new or authenticated connection, or a disconnect.
        * Another thread calls :meth:`wakeup`.
        * ``timeout_ms`` is over.
        """
        if timeout_ms < 0:
            raise IllegalStateError("timeout should be >= 0")
        start = now = self._clock.now_ms()
        self.completed_sends, self.completed_receives, self.connected = [], [], []
        self.disconnected = {}
        self._news = False
        if self._closing:
            self._continue_closing()
        if self._unsent:
            self._write_unsent(now)
        if self._news or self._immediately_connected or self._buffered_reads:
            timeout_ms = 0
        deadline = NEVER if timeout_ms >= NEVER else now + timeout_ms
        # A partial write, for example, does not end the poll: another wait for events takes less
        # time than an iteration of the caller's loop.
        while True:
            woken, now = self._select(timeout_ms)
            if woken or timeout_ms == 0 or self._news:
                break
            if deadline < NEVER:
                timeout_ms = deadline - now
                if timeout_ms <= 0:
                    break
        if now > self._next_idle_ms:
            self._close_idle(now)
        end = self._clock.now_ms()
        if self._metrics is not None:
            waited, self._waited_ms = self._waited_ms, 0
            self._metrics.polled(
                self.completed_sends,
                self.completed_receives,
                self.connected,
                len(self._channels),
                waited,
                end - start - waited,
                end,
            )
        return end

    def is_channel_ready(self, node_id: int) -> bool:
        channel = self._channels.get(node_id)
        return channel is not None and channel.ready

    def close_channel(self, node_id: int) -> None:
        channel = self._channels.get(node_id) or self._closing.pop(node_id, None)
        if channel is not None:
            channel.kind = ChannelStateKind.LOCAL_CLOSE
            self._forget(channel)
            channel.close()

    def wakeup(self) -> None:
        self._pipe.wakeup()

    def close(self) -> None:
        if not self._pipe.begin_close():
            return
        with contextlib.ExitStack() as stack:
            stack.callback(self._builder.close)
            stack.callback(self._pipe.close)
            stack.callback(self._poller.close)
            for channel in (*self._channels.values(), *self._closing.values()):
                stack.callback(channel.close)
            self._channels.clear()
            self._closing.clear()

    # ---- one poll ----

    def _continue_closing(self) -> None:
        for node_id, channel in list(self._closing.items()):
            if node_id in self._failed_sends or not self._has_pending_receive(channel):
                del self._closing[node_id]
                self._finish_close(channel)
        self._failed_sends.clear()

    def _write_unsent(self, now: int) -> None:
        unsent, self._unsent = self._unsent, []
        for channel in unsent:
            # The channel was closed meanwhile.
            if channel.sending is None:
                continue
            if channel.ready:
                self._poll_channel(channel, _WRITE, now)
            else:
                self._watch(channel)

    def _select(self, timeout_ms: int) -> tuple[bool, int]:
        """Waits for events once, and handles them. Returns a pair. The first value is True if one
        event was a wakeup. The second value is the current time.
        """
        if timeout_ms == 0:
            events = self._poller.poll(0)
            now = self._clock.now_ms()
        else:
            longest = timeout_ms >= _LONGEST_SELECT_MS
            start = self._clock.now_ms()
            events = self._poller.poll((_LONGEST_SELECT_MS if longest else timeout_ms) / 1000)
            now = self._clock.now_ms()
            self._waited_ms += now - start
        if self._buffered_reads:
            buffered, self._buffered_reads = self._buffered_reads, {}
            for channel in buffered.values():
                self._poll_channel(channel, _READ, now)
        woken = False
        for fd, mask in events:
            if fd == self._wakeup_fd:
                woken = True
                self._pipe.consume()
            elif fd in self._watched:  # not closed by an event before this one
                self._poll_channel(self._watched[fd], mask, now)
        if woken and self._waiting:
            waiting, self._waiting = self._waiting, []
            self._poll_open(waiting, 0, now)
        if self._immediately_connected:
            connected, self._immediately_connected = self._immediately_connected, []
            self._poll_open(connected, _WRITE, now)
        return woken, now

    def _poll_open(self, channels: list[KafkaChannel], events: int, now: int) -> None:
        for channel in channels:
            if self._channels.get(channel.node_id) is channel:
                self._poll_channel(channel, events, now)

    def _poll_channel(self, channel: KafkaChannel, events: int, now: int) -> None:
        """Continues one connection after ``events``: connects, authenticates, reads, writes. If one
        of these steps fails, closes the connection.
        """
        channel.used_ms = now
        try:
            if not channel.connected:
                if not channel.finish_connect():
                    return
                self.connected.append(channel.node_id)
                self._news = True
            if channel.ready:
                # An error or a hang-up surfaces in a read, and in a write.
                if events & ~_WRITE or channel.transport.has_bytes_buffered:
                    self._read(channel, now)
                if events & ~_READ:
                    if channel.sending is not None:
                        self._write(channel, now)
                    else:
                        channel.flush()
            else:
                self._prepare(channel, events, now)
        except (AuthenticationError, RemoteProtocolError, OSError) as error:
            self._fail(channel, error)
        else:
            self._watch(channel)

    def _prepare(self, channel: KafkaChannel, events: int, now: int) -> None:
        """Continues the handshake and the authentication of a connection. If they are complete now,
        also reads and writes.
        """
        renewed = channel.reauthenticating
        channel.prepare(now)
        if (channel.ready or channel.reauthenticating) and (
            events & ~_WRITE or channel.transport.has_bytes_buffered
        ):
            self._read(channel, now)
        if channel.ready:
            self._news = True
            if self._metrics is not None:
                took = now - channel.reauthenticating_since if renewed else None
                self._metrics.authenticated(now, renewed_in_ms=took)
            if channel.sending is not None:
                self._write(channel, now)
        elif channel.waiting and channel not in self._waiting:
            self._waiting.append(channel)

    def _write(self, channel: KafkaChannel, now: int) -> None:
        send = channel.write(now)
        if send is not None:
            self.completed_sends.append(send)
            self._news = True
        elif channel.reauthenticating and channel.waiting:
            self._waiting.append(channel)

    def _read(self, channel: KafkaChannel, now: int) -> None:
        """Reads from a connection. One poll reads at most one frame of each connection, so that
        every connection gets its turn.
        """
        node_id = channel.node_id
        if not self.completed_receives or not self._has_received(node_id):
            receive = channel.read(now)
            if receive is not None:
                self.completed_receives.append(receive)
                self._news = True
        if channel.transport.has_bytes_buffered:
            self._buffered_reads[node_id] = channel

    def _has_received(self, node_id: int) -> bool:
        """True if this poll has already read a frame from the node ``node_id``."""
        return any(receive.source == node_id for receive in self.completed_receives)

    def _watch(self, channel: KafkaChannel) -> None:
        """Sets the events for which the poller watches a connection. Makes a system call only if
        the events have changed.
        """
        wanted = _READ
        if (channel.sending is not None and not channel.reauthenticating) or channel.wants_write:
            wanted |= _WRITE
        if wanted == channel.watched:
            return
        fd = channel.transport.socket.fileno()
        if channel.watched:
            self._poller.modify(fd, wanted)
        else:
            self._poller.register(fd, wanted)
            self._watched[fd] = channel
        channel.watched = wanted

    def _unwatch(self, channel: KafkaChannel) -> None:
        if channel.watched:
            fd = channel.transport.socket.fileno()
            self._poller.unregister(fd)
            del self._watched[fd]
            channel.watched = 0

    # ---- disconnects ----

    def _fail(self, channel: KafkaChannel, error: Exception) -> None:
        if isinstance(error, AuthenticationError):
            channel.kind = ChannelStateKind.AUTHENTICATION_FAILED
            channel.error = error
            channel.detail = error.message
            if self._metrics is not None:
                now, renewal = self._clock.now_ms(), channel.reauthenticating
                self._metrics.authentication_failed(now, renewal=renewal)
        elif isinstance(error, RemoteProtocolError):
            channel.kind = ChannelStateKind.PROTOCOL_ERROR
            channel.error = error
            channel.detail = error.message
        else:
            assert isinstance(error, OSError)
            channel.detail = error.strerror or str(error)
        _log.debug(
            "connection to node %d, %s, closed (%s): %s",
            channel.node_id,
            channel.remote,
            channel.kind.value,
            channel.detail,
        )
        self._close_gracefully(channel)

    def _close_idle(self, now: int) -> None:
        """Closes the connections that were not used for connections.max.idle.ms."""
        self._next_idle_ms = NEVER
        # No timer wakes a thread that sleeps. If a producer sleeps, its idle connections are closed
        # when the producer wakes up, before it can use them. By default, brokers close idle
        # connections one minute later than the client does.
        for channel in list(self._channels.values()):
            due = channel.used_ms + self._max_idle_ms
            if now <= due:
                self._next_idle_ms = min(self._next_idle_ms, due)
                continue
            channel.kind = ChannelStateKind.EXPIRED
            _log.debug("closing the connection to node %d: idle for too long", channel.node_id)
            self._close_gracefully(channel)

    def _close_gracefully(self, channel: KafkaChannel) -> None:
        """Closes a connection after an error. Before that, delivers the responses that have already
        arrived completely. They may be acknowledgements, and acknowledged batches need not be sent
        again.
        """
        self._forget(channel)
        with contextlib.suppress(ValueError):
            self.connected.remove(channel.node_id)
        if self._has_pending_receive(channel):
            self._closing[channel.node_id] = channel
        else:
            self._finish_close(channel)

    def _has_pending_receive(self, channel: KafkaChannel) -> bool:
        if channel.kind is not ChannelStateKind.READY:
            return False
        if self._has_received(channel.node_id):
            return True
        try:
            receive = channel.read(self._clock.now_ms())
        except (AuthenticationError, RemoteProtocolError, OSError) as error:
            if isinstance(error, RemoteProtocolError):
                channel.kind, channel.error = ChannelStateKind.PROTOCOL_ERROR, error
            elif isinstance(error, AuthenticationError):
                channel.kind, channel.error = ChannelStateKind.AUTHENTICATION_FAILED, error
                channel.detail = error.message
            return False
        if receive is None:
            return False
        self.completed_receives.append(receive)
        self._news = True
        return True

    def _forget(self, channel: KafkaChannel) -> None:
        """Removes a connection from all tables and from the poller. Does not close its socket."""
        node_id = channel.node_id
        if self._channels.get(node_id) is channel:
            del self._channels[node_id]
            self._buffered_reads.pop(node_id, None)
            if self._metrics is not None:
                self._metrics.connection_closed(len(self._channels), self._clock.now_ms())
        self._unwatch(channel)

    def _finish_close(self, channel: KafkaChannel) -> None:
        self.disconnected[channel.node_id] = channel.state()
        self._news = True
        channel.close()


def _socket_address(ip: str, port: int) -> tuple[str, int] | tuple[str, int, int, int]:
    """Converts an IP address and a port to the form that Python's sockets need. For an IPv6 address
    with a zone (``fe80::1%2``), the zone becomes a separate number.
    """
    address, _, zone = ip.partition("%")
    return (address, port, 0, int(zone)) if zone else (ip, port)
