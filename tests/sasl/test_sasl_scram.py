"""SCRAM against the RFCs' own examples, against scramp's server, and against brokers that lie."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramMechanism as ScrampMechanism
from scramp.utils import saslprep as scramp_saslprep

from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.network.auth.sasl_mechanism import SaslError
from spark_kafka_sink.network.auth.sasl_scram import MAX_ITERATIONS, ScramLogin, ScramMechanism
from spark_kafka_sink.network.auth.saslprep import saslprep
from tests.protocol.hostile import allocated, work

BOTH = pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])


def client(name="SCRAM-SHA-256", user="user", password="pencil", nonce="rOprNGfwEbeRWgbNEkqO"):
    return ScramMechanism(name, user, Password(password), nonce=lambda: nonce)


def test_the_example_of_rfc_7677_comes_out_byte_for_byte():
    scram = client()
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert scram.answer(b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096") == (
        b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert not scram.complete
    assert scram.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert scram.complete


@BOTH
@pytest.mark.parametrize(
    ("user", "password"),
    [("alice", "secret"), ("a=b,c", "p,=\u00e4\u20ac"), ("\u00fc", "x" * 300), ("u", " ")],
)
def test_scramps_server_lets_us_in_and_is_believed(name, user, password):
    scramp = ScrampMechanism(name)
    info = scramp.make_auth_info(password, iteration_count=4096)
    seen = []
    server = scramp.make_server(lambda who: seen.append(who) or info)
    scram = ScramMechanism(name, user, Password(password))
    server.set_client_first(scram.first().decode())
    final = scram.answer(server.get_server_first().encode())
    server.set_client_final(final.decode())
    assert scram.answer(server.get_server_final().encode()) is None
    assert scram.complete
    assert seen == [user]


def test_no_two_exchanges_share_a_nonce():
    nonces = {ScramMechanism("SCRAM-SHA-256", "u", Password("p")).first() for _ in range(100)}
    assert len(nonces) == 100


FIRST = "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def bounded(answered, data):
    """A hostile server costs no more than its bytes."""
    answered()
    assert allocated(answered) <= 4 * len(data) + 64 * 1024
    assert work(answered) <= 4 * len(data) + 2500  # most of it pytest's


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (FIRST.replace("r=rOpr", "r=XOpr"), "nonce"),
        (FIRST.replace("qOx", "qO"), "nonce"),
        (FIRST.replace("i=4096", "i=4095"), "4095 iterations"),
        (FIRST.replace("i=4096", f"i={MAX_ITERATIONS + 1}"), "iterations"),
        (FIRST.replace("i=4096", "i=2147483647"), "iteration"),
        (FIRST.replace("i=4096", "i=" + "9" * 100_000), "longer than any"),
        (FIRST.replace("i=4096", "i=-4096"), "iteration"),
        (FIRST.replace("i=4096", "i=4_096"), "iteration"),
        (FIRST.replace("i=4096", "i=\u0664\u0660\u0669\u0666"), "iteration"),
        (FIRST.replace("s=W22", "s=W2 2"), "not base64"),
        ("," * 100_000, "longer than any|not one of SCRAM's"),
        (FIRST.replace("s=W22ZaJ0SNY7soEsUEjb6gQ==", "s="), "salt is empty"),
        ("m=must," + FIRST, "extension"),
        ("", "not one of SCRAM's"),
        ("e=other-error", "not one of SCRAM's"),
        (",".join(reversed(FIRST.split(","))), "not one of SCRAM's"),
    ],
)
def test_a_first_answer_that_breaks_a_rule_ends_the_exchange(message, words):
    data = message.encode()

    def answered():
        scram = client()
        with pytest.raises(SaslError, match=words) as raised:
            scram.answer(data)
        assert "pencil" not in str(raised.value)
        assert not scram.complete

    # What it wants computed is refused before it is: a hash a function, 2^31 of them.
    bounded(answered, data)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"v=" + base64.b64encode(bytes(32)), "signature is wrong"),
        (b"v=", "signature is wrong"),
        (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G", "not base64"),
        (b"v=" + b"A" * 100_000, "longer than any|signature is wrong"),
        (b"e=invalid-proof", r"refuses the proof \(invalid-proof\)"),
        (b"e=p4ssw0rd here", r"refuses the proof \(other-error\)"),
        (b"\xff", "not UTF-8"),
        (b"", "not one of SCRAM's"),
    ],
)
def test_a_broker_that_does_not_prove_itself_is_not_believed(message, words):
    def answered():
        scram = client()
        assert scram.answer(FIRST.encode()) is not None
        with pytest.raises(SaslError, match=words):
            scram.answer(message)
        assert not scram.complete

    bounded(answered, message)


def test_nothing_may_come_after_the_end():
    scram = client()
    scram.answer(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
                 b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")  # fmt: skip
    scram.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(SaslError, match="after the exchange is complete"):
        scram.answer(b"")


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode(errors="ignore")))
def test_any_answer_is_taken_or_refused_and_never_believed(message):
    scram = client()
    with pytest.raises(SaslError):
        scram.answer(message)
    assert not scram.complete
    scram = client()
    scram.answer(FIRST.encode())
    with pytest.raises(SaslError):
        scram.answer(message)
    assert not scram.complete


# ---- two forms of one password ----


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),  # RFC 4013, section 3: its five examples
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("\u0007", None),
        ("\u0627\u0031", None),
        ("a\u00a0b", "a b"),
        ("e\u0301", "\u00e9"),
        ("\u0627\u0628", "\u0627\u0628"),
        ("a\u0627", None),
        ("\u0627a\u0628", None),
        ("", ""),
    ],
)
def test_names_and_passwords_are_prepared_as_rfc_4013_has_it(text, prepared):
    assert saslprep(text) == prepared


@given(st.text(max_size=20))
def test_preparing_agrees_with_scramps_where_both_accept(text):
    ours = saslprep(text)
    try:
        theirs = scramp_saslprep(text)
    except Exception:
        return  # it refuses unassigned code points too, which a client may send
    assert ours == theirs
    assert saslprep(ours) == ours


def outcome(login, stored):
    """Whether a server that has stored that password lets us in."""
    scramp = ScrampMechanism("SCRAM-SHA-256")
    mechanism = login.mechanism("h", 0)
    salted = hashlib.pbkdf2_hmac("sha256", stored.encode(), b"salt of sixteen.", 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    info = (b"salt of sixteen.", hashlib.sha256(key).digest(), server_key, 4096)
    server = scramp.make_server(lambda user: info)
    server.set_client_first(mechanism.first().decode())
    try:
        server.set_client_final(mechanism.answer(server.get_server_first().encode()).decode())
    except Exception:
        return "in again" if mechanism.refused() else "out"
    mechanism.answer(server.get_server_final().encode())
    return "in"


def test_the_typed_form_is_tried_before_the_prepared_one():
    typed, prepared = "p\u00adss\u2168", "pssIX"
    login = ScramLogin("SCRAM-SHA-256", "u", Password(typed))
    assert [outcome(login, typed), outcome(login, typed)] == ["in", "in"]
    login = ScramLogin("SCRAM-SHA-256", "u", Password(typed))
    assert outcome(login, prepared) == "in again"
    assert [outcome(login, prepared), outcome(login, prepared)] == ["in", "in"]
    login = ScramLogin("SCRAM-SHA-256", "u", Password(typed))
    assert [outcome(login, "x") for _ in range(3)] == ["in again", "out", "out"]


def test_connections_that_are_refused_together_count_once():
    login = ScramLogin("SCRAM-SHA-256", "u", Password("\u00aa"))
    first, second = (login.mechanism("h", 0) for _ in range(2))
    assert first.refused()
    assert second.refused()
    assert not login.mechanism("h", 0).refused()


def test_ascii_has_one_form_and_one_chance():
    login = ScramLogin("SCRAM-SHA-256", "user", Password("p4ssw0rd, = and more"))
    assert not login.mechanism("h", 0).refused()
