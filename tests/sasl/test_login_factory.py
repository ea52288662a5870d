"""Which login a producer gets by its settings, and who shares one."""

from __future__ import annotations

import base64
import threading

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.config.logins.sasl_settings import sasl_settings
from spark_kafka_sink.network.auth.login_factory import new_login
from tests.fakes.clock import FakeClock

IAM = "software.amazon.msk.auth.iam"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
HOST = "b-1.orders.kafka.eu-north-1.amazonaws.com"


@pytest.fixture
def keys(monkeypatch, tmp_path):
    """AWS's in the environment, which has no other credentials."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


def first_message(options, clock):
    login, woken = new_login(sasl_settings(options), clock), threading.Event()
    login.attach(woken.set)
    assert login.mechanism(HOST, clock.now_ms()) is None
    assert woken.wait(60)
    made = login.mechanism(HOST, clock.now_ms())
    login.close()
    return made.first()


def test_oauthbearer_with_amazons_handler_sends_a_signed_token(keys):
    """As their Java client: a signed URL in base64, in place of a token from an endpoint."""
    said = first_message(
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": OAUTH,
            "sasl.login.callback.handler.class": f"{IAM}.IAMOAuthBearerLoginCallbackHandler",
        },
        SystemClock(),
    )
    head, token = said.split(b"auth=Bearer ")
    token = token.rstrip(b"\x01")
    url = base64.urlsafe_b64decode(token + b"=" * (-len(token) % 4)).decode()
    assert head == b"n,,\x01"
    assert url.startswith("https://kafka.eu-north-1.amazonaws.com/?")
    assert "Action=kafka-cluster%3AConnect" in url
    assert "s3cr3t" not in url


made = []


def counted():
    """A user's own source of tokens."""
    made.append("token")
    return f"token-{len(made)}", 4_000_000_000


@pytest.mark.parametrize(("clock", "fetched"), [(SystemClock, 1), (FakeClock, 2)])
def test_only_producers_on_the_systems_clock_share_a_token(clock, fetched):
    """A token's age by another clock says nothing."""
    made.clear()
    options = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{__name__}:counted",
    }
    settings = sasl_settings(options)
    for _ in range(2):
        login, woken = new_login(settings, clock()), threading.Event()
        login.attach(woken.set)
        if login.mechanism(HOST, SystemClock().now_ms()) is None:
            assert woken.wait(60)
    assert len(made) == fetched
