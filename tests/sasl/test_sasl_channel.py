"""SASL on a socket: in pieces, cut, too large, waiting for a token; and sessions renewed while
answers are under way.
"""

from __future__ import annotations

import select
import ssl
import struct
from contextlib import contextmanager

import pytest
import trustme

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import AuthenticationError, RemoteProtocolError
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.network.auth.login import StaticLogin
from spark_kafka_sink.network.auth.sasl_plain import PlainMechanism
from spark_kafka_sink.network.auth.sasl_scram import ScramMechanism
from spark_kafka_sink.network.channel.channel_builder import ChannelBuilder
from spark_kafka_sink.network.channel.selectable import ChannelStateKind
from spark_kafka_sink.producer.metrics.producer_metrics import ProducerMetrics
from tests.network.loopback import (
    Background,
    Driver,
    LoopbackServer,
    framed,
    read_frame,
    send_of,
)
from tests.sasl.scripted_broker import ScriptedBroker

LIFETIME = 10_000
AFTER = 9_600  # 95 % and a little


class Ahead(SystemClock):
    """The machine's clock, which a test moves forward."""

    __slots__ = ("offset",)

    def __init__(self):
        self.offset = 0

    def now_ms(self):
        return super().now_ms() + self.offset


class SlowLogin:
    """Has its credential when the test says so."""

    def __init__(self):
        self.ready = self.closed = False
        self.wakeup = None
        self.asked = 0

    def mechanism(self, host, now):
        self.asked += 1
        return PlainMechanism("alice", Password("correct horse")) if self.ready else None

    def attach(self, wakeup):
        self.wakeup = wakeup

    def close(self):
        self.closed = True


def plain(password="correct horse"):
    return StaticLogin(lambda: PlainMechanism("alice", Password(password)))


def sasl_driver(login=None, clock=None, **options):
    return Driver(builder=ChannelBuilder(None, login or plain(), "me"), clock=clock, **options)


class Session:
    """One connection of ``driver`` to a scripted broker, which the test drives frame by frame."""

    def __init__(self, driver, server, broker):
        self.driver, self.broker = driver, broker
        driver.connect(1, server.address)
        self.peer = server.accept()

    def next_frame(self):
        self.driver.poll_until(lambda: select.select([self.peer], [], [], 0)[0])
        payload = read_frame(self.peer)
        return struct.pack(">i", len(payload)) + payload

    def exchange(self):
        """One frame of the client's, answered."""
        self.peer.sendall(framed(self.broker.answer(self.next_frame())))

    def sent(self, correlation_id):
        """A request that goes out at once, and arrives."""
        done = len(self.driver.sends) + 1
        self.driver.selector.send(request(correlation_id))
        self.driver.poll_until(lambda: len(self.driver.sends) == done)
        return read_frame(self.peer)

    def authenticate(self, rounds=3):
        for _ in range(rounds):
            self.exchange()
        self.driver.poll_until(lambda: self.driver.selector.is_channel_ready(1))


@contextmanager
def connected(login=None, mechanism="PLAIN", rounds=0, **options):
    """A session of which so many of the client's frames were answered."""
    with LoopbackServer() as server, sasl_driver(login, **options) as driver:
        session = Session(driver, server, ScriptedBroker(mechanism))
        for _ in range(rounds):
            session.exchange()
        yield session


@contextmanager
def authenticated(login=None, **options):
    """A session of ``LIFETIME`` that has begun, and the clock that ends it."""
    clock, broker = Ahead(), ScriptedBroker("PLAIN", lifetime=LIFETIME)
    with LoopbackServer() as server, sasl_driver(login, clock, **options) as driver:
        session = Session(driver, server, broker)
        session.authenticate()
        yield session, clock


def request(correlation_id, body=b"body"):
    """A send that looks like one of NetworkClient's."""
    return send_of(1, struct.pack(">hhi", 0, 9, correlation_id) + body)


def response(correlation_id, body=b"answer"):
    return framed(struct.pack(">i", correlation_id) + body)


def test_a_broker_that_speaks_byte_by_byte_is_understood():
    login = StaticLogin(lambda: ScramMechanism("SCRAM-SHA-256", "alice", Password("correct horse")))
    with connected(login, "SCRAM-SHA-256") as session:
        driver = session.driver
        for _ in range(4):
            for byte in framed(session.broker.answer(session.next_frame())):
                session.peer.sendall(bytes([byte]))
                driver.poll(0)
        driver.poll_until(lambda: driver.selector.is_channel_ready(1))
        assert session.sent(0).endswith(b"body")
        session.peer.sendall(response(0))
        driver.poll_until(lambda: driver.receives)


def test_nothing_is_sent_before_the_broker_has_said_yes():
    with connected(rounds=2) as session:
        driver = session.driver
        answer = session.broker.answer(session.next_frame())
        assert not driver.selector.is_channel_ready(1)
        driver.selector.send(request(0))
        driver.poll(20)
        assert not driver.sends
        session.peer.sendall(framed(answer))
        driver.poll_until(lambda: driver.sends)
        assert read_frame(session.peer).endswith(b"body")


@pytest.mark.parametrize(
    ("rounds", "words"),
    [(0, "is it a TLS port?"), (1, "the answer to SaslHandshake"), (2, "is the credential right?")],
)
def test_a_broker_that_hangs_up_is_guessed_at(rounds, words):
    with connected(rounds=rounds) as session:
        driver = session.driver
        session.next_frame()
        session.peer.close()
        driver.poll_until(lambda: driver.disconnected)
        state = driver.disconnected[1]
        assert state.kind is ChannelStateKind.AUTHENTICATE
        assert words in state.detail


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_every_frame_before_the_end_is_small(rounds):
    with connected(rounds=rounds) as session:
        driver = session.driver
        session.next_frame()
        session.peer.sendall(struct.pack(">i", 512 * 1024 + 1))
        driver.poll_until(lambda: driver.disconnected)
        assert isinstance(driver.disconnected[1].error, RemoteProtocolError)
        assert "524289" in driver.disconnected[1].detail


def test_a_connection_waits_for_its_credential_without_spinning():
    login = SlowLogin()
    with connected(login) as session:
        driver = session.driver
        asked = login.asked
        driver.poll(50)
        assert login.asked <= asked + 1, "nothing happened that would be worth asking again"
        login.ready = True
        login.wakeup()
        session.authenticate()
    assert login.closed


def test_a_broker_that_hangs_up_while_we_wait_is_noticed():
    login = SlowLogin()
    with connected(login) as session:
        driver = session.driver
        session.peer.close()
        driver.poll_until(lambda: driver.disconnected)
        assert "before we had a credential" in driver.disconnected[1].detail
        login.ready = True
        login.wakeup()
        driver.poll(5)  # the woken connection is gone


def test_a_broker_that_speaks_first_breaks_the_protocol():
    with connected(SlowLogin()) as session:
        driver = session.driver
        session.peer.sendall(framed(b"hello there"))
        driver.poll_until(lambda: driver.disconnected)
        assert "speaks first" in driver.disconnected[1].detail


def test_a_session_is_renewed_right_before_the_next_request():
    with authenticated() as (session, clock):
        driver = session.driver
        clock.offset = 8_000
        assert session.sent(0).endswith(b"body"), "80 % of its life are over"
        clock.offset = AFTER
        driver.poll(20)
        assert len(session.broker.heard) == 3, "an idle connection renews nothing"
        driver.selector.send(request(1))
        driver.poll(5)
        assert not driver.selector.is_channel_ready(1)
        session.authenticate(rounds=2)  # SaslHandshake, SaslAuthenticate
        driver.poll_until(lambda: len(driver.sends) == 2)
        assert struct.unpack_from(">i", read_frame(session.peer), 4) == (1,)
        clock.offset += 1_000
        assert session.sent(2), "the new session has just begun"


def told(metrics):
    """Of authentications, by name; those that are 0 or nothing are left out."""
    named = {metric.name: value for metric, value in metrics.snapshot().items()}
    return {name: v for name, v in named.items() if "authentication" in name and v > 0}


def test_authentications_and_renewals_are_counted_as_in_java():
    clock, broker = Ahead(), ScriptedBroker("PLAIN", lifetime=LIFETIME)
    metrics = ProducerMetrics(clock)
    with LoopbackServer() as server, sasl_driver(clock=clock, metrics=metrics) as driver:
        session = Session(driver, server, broker)
        session.authenticate()
        first = told(metrics)
        assert first.pop("successful-authentication-rate") > 0
        assert first == {
            "successful-authentication-total": 1,
            "successful-authentication-no-reauth-total": 1,
        }
        clock.offset = AFTER
        driver.selector.send(request(0))
        driver.poll(5)
        clock.offset += 70
        session.authenticate(rounds=2)
        second = told(metrics)
        assert second["successful-authentication-total"] == 1
        assert second["successful-reauthentication-total"] == 1
        assert second["reauthentication-latency-max"] >= 70
        driver.poll_until(lambda: driver.sends)
        assert {m.name: v for m, v in metrics.snapshot().items()}["network-io-total"] >= 1


def test_a_refusal_ends_the_connection_and_is_counted():
    metrics = ProducerMetrics(SystemClock())
    with connected(plain("wrong"), rounds=3, metrics=metrics) as session:
        driver = session.driver
        driver.poll_until(lambda: driver.disconnected)
        state = driver.disconnected[1]
        assert state.kind is ChannelStateKind.AUTHENTICATION_FAILED
        assert isinstance(state.error, AuthenticationError)
        assert "Invalid username or password" in state.detail
    found = told(metrics)
    assert found.pop("failed-authentication-rate") > 0
    assert found == {"failed-authentication-total": 1}


def test_pending_answers_arrive_in_order_during_a_renewal():
    """A broker answers what it was asked before, and only then reads the handshake."""
    with authenticated() as (session, clock):
        driver = session.driver
        for correlation_id in range(3):
            session.sent(correlation_id)
        clock.offset = AFTER
        driver.selector.send(request(3))
        handshake = session.next_frame()
        big = b"x" * 600_000  # more than any frame of an authentication may have
        session.peer.sendall(response(0))
        session.peer.sendall(response(1) + response(2, big)[:1000])
        driver.poll_until(lambda: len(driver.receives) == 2)
        rest = response(2, big)[1000:] + framed(session.broker.answer(handshake))
        session.peer.setblocking(False)
        while rest:
            try:
                rest = rest[session.peer.send(rest) :]
            except BlockingIOError:
                driver.poll(5)
        session.peer.settimeout(10)
        session.authenticate(rounds=1)
        driver.poll_until(lambda: len(driver.sends) == 4)
        assert [struct.unpack_from(">i", p)[0] for p in driver.payloads()] == [0, 1, 2]
        assert len(driver.payloads()[2]) == 600_004
        assert struct.unpack_from(">i", read_frame(session.peer), 4) == (3,)
        assert not driver.disconnected


def test_a_renewal_waits_for_its_token_and_answers_still_arrive():
    """It is woken by its token, without any other event."""
    login = SlowLogin()
    login.ready = True
    with authenticated(login) as (session, clock):
        driver = session.driver
        session.sent(0)
        login.ready = False
        clock.offset = AFTER
        driver.selector.send(request(1))
        driver.poll(20)
        session.peer.sendall(response(0))
        driver.poll_until(lambda: driver.receives)
        assert len(driver.sends) == 1
        login.ready = True
        login.wakeup()
        session.authenticate(rounds=2)
        driver.poll_until(lambda: len(driver.sends) == 2)


def test_a_held_request_does_not_wake_for_a_writable_socket():
    with authenticated() as (session, clock):
        driver = session.driver
        clock.offset = AFTER
        driver.selector.send(request(0))
        session.next_frame()
        channel = driver.selector._channels[1]
        assert channel.sending
        assert not channel.wants_write


def test_a_frame_that_is_half_written_is_never_cut_by_a_renewal():
    with authenticated() as (session, clock):
        driver = session.driver
        big = bytes(range(256)) * 80_000  # 20 MB: more than all buffers on the way
        driver.selector.send(request(0, big))
        driver.poll(20)
        assert not driver.sends, "half of it is on its way"
        clock.offset = AFTER
        received = []
        with Background(lambda: received.append(read_frame(session.peer))):
            driver.poll_until(lambda: driver.sends)
        assert received[0][8:] == big
        driver.selector.send(request(1))
        session.authenticate(rounds=2)


@pytest.fixture(scope="module")
def tls():
    """Contexts of a server and of clients that trust it."""
    ca = trustme.CA()
    contexts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    ca.issue_cert("127.0.0.1").configure_cert(contexts[0])
    ca.configure_trust(contexts[1])
    return contexts


def test_a_session_over_tls_is_renewed_with_buffered_frames(tls):
    """What is left of a record lies above the socket, and no event reports it."""
    clock, broker = Ahead(), ScriptedBroker("PLAIN", lifetime=LIFETIME)
    builder = ChannelBuilder(lambda: tls[1], plain(), "me")
    with LoopbackServer() as server, Driver(builder=builder, clock=clock) as driver:
        session = Session(driver, server, broker)
        session.peer = tls[0].wrap_socket(
            session.peer, server_side=True, do_handshake_on_connect=False
        )
        server.connections[-1] = session.peer
        with Background(session.peer.do_handshake):
            driver.poll_until(session.peer.version)
        session.authenticate()
        for correlation_id in range(2):
            session.sent(correlation_id)
        clock.offset = AFTER
        driver.selector.send(request(2))
        handshake = session.next_frame()
        session.peer.sendall(response(0) + response(1) + framed(broker.answer(handshake)))
        session.authenticate(rounds=1)
        driver.poll_until(lambda: len(driver.sends) == 3)
        assert [struct.unpack_from(">i", p)[0] for p in driver.payloads()] == [0, 1]
        assert read_frame(session.peer).endswith(b"body")
        assert not driver.disconnected


def test_a_refused_renewal_fails_the_connection_after_answers():
    with authenticated() as (session, clock):
        driver = session.driver
        session.sent(0)
        session.broker.password = "another one"
        clock.offset = AFTER
        driver.selector.send(request(1))
        handshake = session.next_frame()
        session.peer.sendall(response(0) + framed(session.broker.answer(handshake)))
        session.exchange()
        driver.poll_until(lambda: driver.disconnected)
        assert [struct.unpack_from(">i", p)[0] for p in driver.payloads()] == [0]
        state = driver.disconnected[1]
        assert state.kind is ChannelStateKind.AUTHENTICATION_FAILED
        assert "rejects the re-authentication" in state.detail
        assert len(driver.sends) == 1
