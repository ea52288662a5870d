"""The authentication of a connection before its first request (Java's ``Authenticator``).

* :class:`Authenticator`: the interface.
* :class:`PlaintextAuthenticator`: for the protocols PLAINTEXT and SSL. It does nothing.
* :class:`SaslAuthenticator`: sends and receives the frames of a SASL authentication.
  ``sasl_authenticator.py`` creates the content of these frames.

An authenticator uses no socket directly: a ``TransportLayer`` reads and writes the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spark_kafka_sink.base.errors import RemoteProtocolError
from spark_kafka_sink.network.frame_reader import FrameReader
from spark_kafka_sink.network.transport_layer import TransportLayer
from spark_kafka_sink.protocol.frames import MAX_RESPONSE_SIZE_BEFORE_READY

if TYPE_CHECKING:
    from spark_kafka_sink.network.auth.login import Login
    from spark_kafka_sink.network.auth.sasl_authenticator import SaslClientAuthenticator

_NOTHING = memoryview(b"")


class Authenticator(Protocol):
    """The interface of an authentication. ``KafkaChannel`` calls :meth:`authenticate` after each
    event of the socket, until :attr:`complete` is True.
    """

    @property
    def complete(self) -> bool: ...

    def authenticate(self, now: int) -> None:
        """Reads and writes the next frames of the authentication, as far as this is possible
        without blocking. Raises AuthenticationError.
        """
        ...

    @property
    def wants_write(self) -> bool:
        """True if the next step needs a writable socket, and False if it needs a readable
        socket.
        """
        ...

    @property
    def waiting(self) -> bool:
        """True while the login fetches the credential. After that, the login wakes the selector."""
        ...

    @property
    def reauthenticate_at(self) -> int | None:
        """The time (monotonic ms) from which on the connection must authenticate again before it
        sends the next request. The value is None if the session does not expire.
        """
        ...

    def begin_reauthentication(self) -> None:
        """Begins another authentication of an authenticated connection. :attr:`complete` becomes
        False.

        Responses to earlier requests may still arrive. So the channel continues to read all frames,
        and passes the frames of the authentication to :meth:`receive`.
        """
        ...

    def receive(self, payload: memoryview, now: int) -> None:
        """Handles a frame that the broker has sent for a re-authentication. This method is called
        only after :meth:`begin_reauthentication`.
        """
        ...

    def close(self) -> None: ...


class PlaintextAuthenticator:
    """The authenticator of the protocols PLAINTEXT and SSL. It is complete at once, because there
    is no SASL. (With SSL, the TLS handshake can authenticate the client by its certificate.)
    """

    __slots__ = ()

    complete = True
    wants_write = False
    waiting = False
    reauthenticate_at = None

    def authenticate(self, now: int) -> None:
        """Does nothing."""

    def begin_reauthentication(self) -> None:
        """Never called, because there is no session that expires."""

    def receive(self, payload: memoryview, now: int) -> None:
        """Never called, because there is no re-authentication."""

    def close(self) -> None:
        """Does nothing."""


class SaslAuthenticator:
    """Authenticates the connection to the broker ``host`` with SASL. Reads and writes frames
    through ``transport``.

    ``machine`` creates and checks the content of the frames. ``login`` has the credential.
    """

    __slots__ = (
        "_again",
        "_host",
        "_login",
        "_machine",
        "_out",
        "_reader",
        "_started",
        "_transport",
        "waiting",
    )

    def __init__(
        self, machine: SaslClientAuthenticator, login: Login, host: str, transport: TransportLayer
    ) -> None:
        self._machine = machine
        self._login = login
        self._host = host
        self._transport = transport
        # The peer is not authenticated yet: every frame must be small, not only the first.
        self._reader = FrameReader(limit=MAX_RESPONSE_SIZE_BEFORE_READY)
        self._out = _NOTHING
        self._started = False
        self._again = False
        self.waiting = False

    @property
    def complete(self) -> bool:
        return self._started and self._machine.complete

    @property
    def wants_write(self) -> bool:
        return len(self._out) > 0 or self._transport.has_pending_writes

    @property
    def reauthenticate_at(self) -> int | None:
        return self._machine.reauthenticate_at

    def authenticate(self, now: int) -> None:
        if not self._started:
            self._start(now)
        while self._flush() and not self.complete and not self._again:
            try:
                payload = self._reader.read_from(self._transport)
            except ConnectionError as error:
                raise ConnectionError(self._machine.describe_disconnect()) from error
            if payload is None:
                return
            if not self._started:
                raise RemoteProtocolError("the broker speaks first, which Kafka's brokers never do")
            self._handle_payload(payload, now)

    def _start(self, now: int) -> None:
        mechanism = self._login.mechanism(self._host, now)
        self.waiting = mechanism is None
        if mechanism is not None:
            self._started = True
            self._out = memoryview(self._machine.start(mechanism))

    def _handle_payload(self, payload: memoryview, now: int) -> None:
        following = self._machine.receive(payload, now)
        if following is not None:
            self._out = memoryview(following)

    def _flush(self) -> bool:
        """Writes the rest of the current frame. Returns True if the socket has accepted all
        bytes.
        """
        transport = self._transport
        while self._out:
            written = transport.write((self._out,))
            if written == 0:
                return False
            # An empty rest must not keep the frame, which may hold a password, alive.
            self._out = self._out[written:] if written < len(self._out) else _NOTHING
        if transport.has_pending_writes:
            transport.write(())
        return not transport.has_pending_writes

    def begin_reauthentication(self) -> None:
        self._started = False
        self._again = True

    def receive(self, payload: memoryview, now: int) -> None:
        self._handle_payload(payload, now)
        self._flush()

    def close(self) -> None:
        self._out = _NOTHING
