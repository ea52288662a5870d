"""What a server says is shown, but for what it got in secret."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.security.password import HIDDEN, Password, without_secrets
from spark_kafka_sink.network.auth.login import StaticLogin
from spark_kafka_sink.network.auth.sasl_plain import PlainMechanism
from spark_kafka_sink.network.auth.sasl_scram import ScramLogin
from tests.security.canaries import forms, new_canary, search

ORDINARY = st.text("abc xyz:'()-.0123", max_size=60)


@given(ORDINARY, ORDINARY, st.sampled_from([n for n in forms("x" * 40) if n != "half"]))
def test_no_form_of_a_secret_comes_through(before, after, form):
    secret = new_canary()
    told = before + forms(secret)[form].decode("latin-1") + after
    shown = without_secrets(told, ["another", secret])
    assert form == "utf-16" or not search([("shown", shown.encode())], {"it": secret})


@given(st.text(max_size=20), st.text(max_size=20))
def test_basic_credentials_that_are_sent_back_hide_the_answer(user, after):
    secret = new_canary()
    basic = base64.b64encode(f"{user}:{secret}{after}".encode(errors="replace")).decode()
    assert without_secrets(f"you sent {basic}, which is wrong", [secret]) == HIDDEN


@given(ORDINARY)
def test_what_holds_no_secret_stays_as_it_is(text):
    assert without_secrets(text, [new_canary(), ""]) == text


@pytest.mark.parametrize("secret", ["pw", "a%b", "ü"])
def test_a_short_secret_is_replaced_and_the_rest_stays(secret):
    said = f"invalid password {secret} for user alice"
    assert without_secrets(said, [secret]) == f"invalid password {HIDDEN} for user alice"


@pytest.mark.parametrize(
    "told",
    [
        str.upper,
        str.title,
        lambda s: "".join(f"&#{ord(c)};" for c in s),
        lambda s: "".join(f"&#x{ord(c):x};" for c in s),
        lambda s: "".join(f"%{ord(c):02x}" for c in s),
        lambda s: base64.b32encode(s.encode()).decode(),
        lambda s: base64.b32encode(f"client:{s}:x".encode()).decode().lower(),
    ],
)
def test_neither_does_one_in_other_letters(told):
    secret = new_canary()
    assert without_secrets(f"you sent {told(secret)}, which is wrong", [secret]) == HIDDEN


def test_a_name_behind_a_reference_is_a_secret_of_each_mechanism():
    """A broker may name the user that it does not know."""
    hidden = Password("canary-of-alice", "${env:WHO}")
    plain = StaticLogin(lambda: PlainMechanism(hidden, Password("pw")))
    scram = ScramLogin("SCRAM-SHA-256", hidden, Password("pw\u00a0x"))
    for login in (plain, scram):
        mechanism = login.mechanism("b", 0)
        assert "canary-of-alice" in mechanism.secrets
        assert b"canary-of-alice" in mechanism.first()
    assert scram.mechanism("b", 0).refused()  # the prepared form comes next
    assert "canary-of-alice" in scram.mechanism("b", 0).secrets
    assert "alice" not in PlainMechanism("alice", Password("pw")).secrets
