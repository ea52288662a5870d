"""The exchange frame by frame: order, versions, correlation ids, sessions, and every refusal."""

from __future__ import annotations

import struct

import pytest

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ErrorCode,
    IllegalStateError,
    RemoteProtocolError,
)
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.network.auth.sasl_authenticator import (
    SaslClientAuthenticator,
    SaslState,
)
from spark_kafka_sink.network.auth.sasl_plain import PlainMechanism
from spark_kafka_sink.network.auth.sasl_scram import ScramMechanism
from spark_kafka_sink.protocol.frames import MIN_RESERVED_CORRELATION_ID
from tests.sasl.scripted_broker import (
    API_VERSIONS,
    AUTHENTICATE,
    HANDSHAKE,
    ScriptedBroker,
    api_versions,
    authenticate,
    handshake,
    hear,
    token_of,
)

REMOTE = "broker.example:9093"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def mechanism(name="PLAIN", password="correct horse"):
    if name == "PLAIN":
        return PlainMechanism("alice", Password(password))
    return ScramMechanism(name, "alice", Password(password))


def machine(*, share=0.0, encrypted=False):
    return SaslClientAuthenticator(REMOTE, "me", encrypted=encrypted, random=lambda: share)


def run(sasl, broker, name="PLAIN", *, password="correct horse", now=1000):
    frame = sasl.start(mechanism(name, password))
    while frame is not None:
        frame = sasl.receive(memoryview(broker.answer(frame)), now)


def answered(sasl, broker, rounds, how=None):
    """The frame that comes after so many answers of the broker."""
    frame = sasl.start(how or mechanism(broker.mechanism))
    for _ in range(rounds):
        frame = sasl.receive(memoryview(broker.answer(frame)), 0)
    return frame


def asked(sasl, rounds, name="PLAIN"):
    """The same, heard."""
    return hear(answered(sasl, ScriptedBroker(name), rounds))


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_gets_in_in_every_version(name, version):
    sasl, broker = machine(), ScriptedBroker(name, authenticate_version=version)
    run(sasl, broker, name)
    assert sasl.complete
    keys = [heard.api for heard in broker.heard]
    assert keys[:2] == [API_VERSIONS, HANDSHAKE]
    assert set(keys[2:]) == {AUTHENTICATE}
    assert len(keys) == (3 if name == "PLAIN" else 4)
    assert [h.version for h in broker.heard[:2]] == [0, 1]
    assert {h.version for h in broker.heard[2:]} == {version}
    assert {h.client_id for h in broker.heard} == {"me"}
    assert sasl.reauthenticate_at is None


def test_correlation_ids_stay_in_the_reserved_range():
    sasl, broker = machine(), ScriptedBroker("PLAIN", lifetime=60_000)
    for _ in range(10):
        run(sasl, broker)
    ids = [heard.correlation_id for heard in broker.heard]
    assert all(MIN_RESERVED_CORRELATION_ID <= i < 2**31 for i in ids)
    assert len(set(ids)) == 8
    assert [h.api for h in broker.heard].count(API_VERSIONS) == 1, "asked once a connection"


@pytest.mark.parametrize(
    ("share", "lifetime", "expected"),
    [
        (0.0, 1_000_000, 850_000),
        (0.5, 1_000_000, 900_000),
        (0.999, 1_000_000, 949_900),
        (0.0, 1_100, 1_001),
    ],
)
def test_a_session_is_renewed_at_85_to_95_percent_of_its_life(share, lifetime, expected):
    """And never within a second."""
    sasl, broker = machine(share=share), ScriptedBroker("PLAIN", lifetime=lifetime)
    run(sasl, broker, now=5_000)
    assert sasl.reauthenticate_at == 5_000 + expected


def test_a_session_without_an_end_follows_one_that_had_one():
    sasl, broker = machine(), ScriptedBroker("PLAIN", lifetime=10_000)
    run(sasl, broker)
    assert sasl.reauthenticate_at is not None
    broker.lifetime = 0
    run(sasl, broker)
    assert sasl.reauthenticate_at is None


def test_a_wrong_password_error_names_mechanism_and_broker_only():
    for name in MECHANISMS:
        sasl, broker = machine(), ScriptedBroker(name)
        with pytest.raises(AuthenticationError) as raised:
            run(sasl, broker, name, password="tr0mb0ne")
        error = raised.value
        assert name in error.message
        assert REMOTE in error.message
        assert "Authentication failed" in error.message
        assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "sasl.jaas.config" in (error.hint or "")
        assert "tr0mb0ne" not in str(error)
        assert sasl.state is SaslState.FAILED


def test_a_password_echoed_by_a_broker_is_in_no_message():
    sasl = machine()
    third = hear(answered(sasl, ScriptedBroker("PLAIN"), 2, mechanism(password="tr0mb0ne")))
    refusal = authenticate(third, error=58, message="no: tr0mb0ne\x1b[31m is wrong\n")
    with pytest.raises(AuthenticationError) as raised:
        sasl.receive(memoryview(refusal), 0)
    assert "tr0mb0ne" not in str(raised.value)
    assert "no: [hidden]\\x1b[31m is wrong\\n" in raised.value.message


def test_an_unknown_mechanism_error_lists_the_brokers_mechanisms():
    sasl = machine()
    answer = handshake(asked(sasl, 1), "SCRAM-SHA-512", "GSSAPI", error=33)
    with pytest.raises(AuthenticationError, match="it offers SCRAM-SHA-512, GSSAPI") as raised:
        sasl.receive(memoryview(answer), 0)
    assert "sasl.mechanism" in raised.value.hint


@pytest.mark.parametrize(("encrypted", "protocol"), [(False, "PLAINTEXT"), (True, "SSL")])
def test_a_port_without_sasl_is_an_error_with_the_right_protocol(encrypted, protocol):
    sasl = machine(encrypted=encrypted)
    answer = handshake(asked(sasl, 1), error=34)
    with pytest.raises(AuthenticationError, match="does not require SASL") as raised:
        sasl.receive(memoryview(answer), 0)
    assert f"type {protocol}?" in raised.value.hint


def test_a_broker_without_sasl_requests_is_too_old():
    for answer in ({"authenticate": None}, {"handshake": 0}):
        sasl = machine()
        versions = api_versions(asked(sasl, 0), **answer)
        with pytest.raises(AuthenticationError, match="does not offer SaslHandshake v1"):
            sasl.receive(memoryview(versions), 0)


def test_a_broker_that_can_not_say_now_is_asked_again_later():
    sasl = machine()
    answer = authenticate(asked(sasl, 2), error=7)
    with pytest.raises(ConnectionError, match="REQUEST_TIMED_OUT 7"):
        sasl.receive(memoryview(answer), 0)


def test_a_broker_that_does_not_prove_itself_is_an_error():
    sasl = machine()
    liar = authenticate(asked(sasl, 3, "SCRAM-SHA-256"), b"v=" + b"A" * 43 + b"=")
    with pytest.raises(AuthenticationError, match="signature is wrong"):
        sasl.receive(memoryview(liar), 0)
    assert not sasl.complete


def test_a_yes_before_the_exchange_is_over_is_no_yes():
    sasl = machine()
    answer = authenticate(asked(sasl, 2, "SCRAM-SHA-256"), b"")
    with pytest.raises(AuthenticationError, match="could not prove its identity"):
        sasl.receive(memoryview(answer), 0)

    class Doubting(PlainMechanism):
        """Says all that it has to say, and has not seen what it wants."""

        def first(self):
            return b"hello"

    sasl = machine()
    frame = answered(sasl, ScriptedBroker("PLAIN"), 2, Doubting("alice", Password("x")))
    with pytest.raises(AuthenticationError, match="ends the exchange too early"):
        sasl.receive(memoryview(authenticate(hear(frame), b"")), 0)
    assert not sasl.complete


def test_plain_challenges_and_endless_challenges_are_refused():
    sasl = machine()
    challenge = authenticate(asked(sasl, 2), b"who?")
    with pytest.raises(AuthenticationError, match="which PLAIN does not have"):
        sasl.receive(memoryview(challenge), 0)

    class Chatty:
        name, complete, secrets, hint = "CHATTY", False, (), ""

        def first(self):
            return b""

        def refused(self):
            return False

        def answer(self, challenge):
            return b"go on"

    sasl = machine()
    frame = answered(sasl, ScriptedBroker("CHATTY"), 2, Chatty())
    for _ in range(15):
        frame = sasl.receive(memoryview(authenticate(hear(frame), b"?")), 0)
    with pytest.raises(AuthenticationError, match="have no end"):
        sasl.receive(memoryview(authenticate(hear(frame), b"?")), 0)


def test_an_unmatched_correlation_id_breaks_the_protocol():
    sasl, broker = machine(), ScriptedBroker("PLAIN")
    frame = sasl.start(mechanism())
    stranger = struct.pack(">i", 7) + broker.answer(frame)[4:]
    with pytest.raises(RemoteProtocolError, match="correlation id 7"):
        sasl.receive(memoryview(stranger), 0)
    sasl = machine()
    run(sasl, ScriptedBroker("PLAIN"))
    with pytest.raises(RemoteProtocolError, match="sent a response without a request"):
        sasl.receive(memoryview(stranger), 0)


def test_a_second_start_before_the_end_is_a_bug_of_the_caller():
    sasl = machine()
    sasl.start(mechanism())
    with pytest.raises(IllegalStateError, match="the answer to ApiVersions"):
        sasl.start(mechanism())


def test_the_second_authentication_repeats_the_handshake():
    sasl, broker = machine(), ScriptedBroker("PLAIN", lifetime=10_000)
    run(sasl, broker)
    hello = hear(sasl.start(mechanism()))
    assert hello.api == HANDSHAKE
    assert not sasl.complete
    with pytest.raises(AuthenticationError, match="rejects the re-authentication"):
        sasl.receive(memoryview(handshake(hello, error=34)), 0)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("version", [0, 2])
def test_every_broker_message_cut_at_any_byte_is_an_error(name, version):
    steps = 3 if name == "PLAIN" else 4
    for step in range(steps):
        broker = ScriptedBroker(name, authenticate_version=version, lifetime=1000)
        sasl = machine()
        frame = answered(sasl, broker, step)
        whole = broker.answer(frame)
        for cut in range(len(whole)):
            again = machine()
            again.__dict__.update(sasl.__dict__)
            with pytest.raises((RemoteProtocolError, AuthenticationError)):
                again.receive(memoryview(whole[:cut]), 0)
            assert again.state is SaslState.FAILED
        with pytest.raises(RemoteProtocolError):
            sasl.receive(memoryview(whole + b"\x00"), 0)


def test_the_password_is_in_no_repr():
    sasl = machine()
    assert b"correct horse" in token_of(asked(sasl, 2))
    assert "correct horse" not in repr(vars(sasl))


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_hang_up_before_the_handshake_names_its_step(encrypted):
    """A TLS port is guessed at only where none was expected."""
    machine = SaslClientAuthenticator("b:1", None, encrypted=encrypted)
    assert machine.describe_disconnect().endswith("before we had a credential")
    machine.start(PlainMechanism("alice", Password("correct horse")))
    said = machine.describe_disconnect()
    assert "closed the connection instead of sending" in said
    assert ("is it a TLS port?" in said) == (not encrypted)
