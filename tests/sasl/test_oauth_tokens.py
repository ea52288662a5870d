"""Tokens: from a local identity provider, a file, a class of one's own; kept, renewed, refused."""

from __future__ import annotations

import threading
import traceback
from dataclasses import replace

import pytest
import trustme

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.config.logins.oauth_settings import ClientCredentials, TokenProvider
from spark_kafka_sink.config.logins.sasl_settings import sasl_settings
from spark_kafka_sink.network.auth.login import FetchedCredential
from spark_kafka_sink.network.auth.login_factory import new_login
from spark_kafka_sink.network.auth.oauth_token import (
    Token,
    checked_token,
    expiry_of,
    fetched,
    unsecured_token,
)
from spark_kafka_sink.network.auth.sasl_mechanism import SaslError
from spark_kafka_sink.network.auth.sasl_oauthbearer import OAuthBearerMechanism
from spark_kafka_sink.network.auth.token_sources import token_fetcher
from tests.fakes.clock import FakeClock
from tests.sasl.identity_provider import RULE, IdentityProvider, jwt, settings_of
from tests.secure_kafka import key_file

SECRET = "s3cr3t"


@pytest.fixture
def provider():
    with IdentityProvider() as found:
        yield found


def fetch(options, clock=None):
    settings = sasl_settings(options).login
    return token_fetcher(settings, clock or SystemClock(), lambda: 0.0)("broker")


# ---- the message ----


def test_a_token_travels_with_its_extensions():
    token = Token(Password("abc.def.ghi"), (("logicalCluster", "lkc-1"), ("pool", "p 1")))
    bearer = OAuthBearerMechanism(token)
    assert bearer.first() == (
        b"n,,\x01auth=Bearer abc.def.ghi\x01logicalCluster=lkc-1\x01pool=p 1\x01\x01"
    )
    assert bearer.complete
    assert bearer.answer(b"") is None
    assert "abc" not in repr(token)


def test_an_objection_is_heard_once_and_is_no_success():
    bearer = OAuthBearerMechanism(Token(Password("abc")))
    bearer.first()
    assert bearer.answer(b'{"status":"invalid_token"}') == b"\x01"
    assert not bearer.complete
    with pytest.raises(SaslError, match="after it rejected"):
        bearer.answer(b"")


# ---- tokens and their life ----


def test_the_end_of_a_jwt_is_read_and_other_tokens_have_none():
    assert expiry_of(jwt(exp=1234.5), "it") == 1234.5
    for token in ("opaque", "a.b", "a.b.c", "a." + "A" * 5 + ".c", jwt(exp="soon"), jwt(exp=True)):
        assert expiry_of(token, "it") is None


@pytest.mark.parametrize("text", ["", "a b", "a\x01auth=Bearer b", "a\nb", "\u00e4", "x" * 300_000])
def test_what_could_break_out_of_the_message_is_no_token(text):
    with pytest.raises(AuthenticationError, match="the file is not a token"):
        checked_token(text, "the file")


@pytest.mark.parametrize(
    ("life_s", "rule", "refresh_s"),
    [
        (3600, RULE, 2880),  # 80 %
        (1000, RULE, 700),  # not in the last 300 s
        (361, RULE, 61),
        (350, RULE, 280),  # too short for buffer and minimum: 80 %
        (3600, replace(RULE, window_factor=0.5), 1800),
        (3600, replace(RULE, buffer_seconds=3000), 600),
        (3600, replace(RULE, buffer_seconds=3590, min_period_seconds=5), 10),
    ],
)
def test_a_token_is_renewed_when_javas_client_would(life_s, rule, refresh_s):
    token = Token(Password("x"))
    found = fetched(
        token, expires_at=1000 + life_s, wall_ms=1_000_000, rule=rule, where="t", random=lambda: 0.0
    )
    assert found == FetchedCredential(token, refresh_s * 1000, life_s * 1000)


def test_an_expired_token_is_reported_as_expired():
    token = Password(jwt(exp=5))
    with pytest.raises(AuthenticationError, match="the token of the options has expired"):
        fetch({"sasl.mechanism": "OAUTHBEARER", "sasl.password": token})


# ---- the token endpoint ----


def test_an_audience_is_asked_for(provider):
    """Auth0 and others give no token of Kafka's without one."""
    source = ClientCredentials(
        provider.url, "client", Password(SECRET), 30_000, 30_000, audience="kafka://orders"
    )
    token_fetcher(settings_of(source), SystemClock())("b")
    (asked,) = provider.asked
    assert asked.form["audience"] == ["kafka://orders"]


def test_client_credentials_bring_a_token_with_scope_and_life(provider):
    found = fetch(provider.options(sasl__oauthbearer__scope="kafka write"))
    assert expiry_of(found.value.value.value, "it") is not None
    assert found.expires_after_ms == pytest.approx(3_600_000, abs=20_000)
    (asked,) = provider.asked
    assert (asked.user, asked.password, asked.path) == ("client", SECRET, "/oauth2/token")
    assert asked.form == {"grant_type": ["client_credentials"], "scope": ["kafka write"]}


def test_an_opaque_token_lives_as_long_as_the_answer_says(provider):
    provider.answers = [(200, {"access_token": "opaque", "expires_in": 60})]
    assert fetch(provider.options()).expires_after_ms == pytest.approx(60_000, abs=5_000)
    provider.answers = [(201, {"id_token": "opaque"})]
    assert fetch(provider.options()) == FetchedCredential(Token(Password("opaque")), 0)


def test_names_are_url_encoded_only_when_asked_for(provider):
    provider.client_secret = "a b/c"
    fetch(provider.options())
    provider.answers = [(200, {"access_token": "t"})]
    options = provider.options() | {"sasl.oauthbearer.header.urlencode": True}
    fetch(options)
    assert [asked.password for asked in provider.asked] == ["a b/c", "a+b%2Fc"]


@pytest.mark.parametrize(
    ("status", "answer", "words"),
    [
        (401, {"error": "invalid_client", "error_description": f"{SECRET} is\nwrong"},
         ("answered 401: invalid_client - [hidden] is\\nwrong", "client secret")),
        (400, b"<html>", ("answered 400",)),
        (404, b"", ("answered 404", "URL")),
        (200, {"no": "token"}, ("without an access_token",)),
        (200, b"[" * 100_000, ("without an access_token",)),
        (200, b"x" * (1 << 20) + b"x", ("more than 1048576 bytes",)),
        (302, b"", ("answered 302", "redirects are not followed")),
        (200, {"access_token": "a b"}, ("is not a token",)),
    ],
)  # fmt: skip
def test_a_refusal_that_stays_one_is_an_error_at_once(provider, status, answer, words):
    provider.answers = [(status, answer)]
    provider.headers = {"Location": provider.url} if status == 302 else {}
    with pytest.raises(AuthenticationError) as raised:
        fetch(provider.options())
    for word in words:
        assert word in str(raised.value)
    assert SECRET not in str(raised.value)
    assert len(provider.asked) == 1


def test_what_may_pass_is_an_error_that_is_tried_again(provider):
    provider.answers = [(503, b""), (429, {"error": "slow_down"})]
    for words in ("answered 503", "answered 429: slow_down"):
        with pytest.raises(OSError, match=words):
            fetch(provider.options())
    provider.gate.clear()
    with pytest.raises(TimeoutError, match=r"sasl\.login\.read\.timeout\.ms"):
        fetch(provider.options() | {"sasl.login.read.timeout.ms": 50})
    options = provider.options()
    provider.__exit__()
    with pytest.raises(OSError, match=r"127\.0\.0\.1:\d+/oauth2/token can't be reached"):
        fetch(options)


def test_a_token_endpoint_over_tls_must_prove_itself(tmp_path):
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    right = key_file(tmp_path, "right", ca.issue_cert("127.0.0.1"))
    wrong = key_file(tmp_path, "wrong", ca.issue_cert("elsewhere.example"))
    trusting = {
        "sasl.jaas.config": Password(
            f'OAuthBearerLoginModule required ssl.truststore.location="{tmp_path}/ca.pem";'
        )
    }
    with IdentityProvider(key_file=right) as provider:
        assert fetch(provider.options() | trusting).value.value.value.startswith("ey")
        with pytest.raises(AuthenticationError, match="CA that is not trusted") as raised:
            fetch(provider.options())
        assert "within sasl.jaas.config" in raised.value.hint
        assert provider.url in str(raised.value)
        assert len(provider.asked) == 1, "whoever is not trusted gets no secret"
    with IdentityProvider(key_file=wrong) as provider:
        with pytest.raises(AuthenticationError, match="does not name this address"):
            fetch(provider.options() | trusting)
        assert not provider.asked


def test_https_to_a_port_that_speaks_http_may_pass(provider):
    options = provider.options()
    options["sasl.oauthbearer.token.endpoint.url"] = provider.url.replace("http:", "https:")
    with pytest.raises(OSError, match=r"https://127\.0\.0\.1.* can't be reached: .*SSL"):
        fetch(options)


# ---- other sources ----


def test_a_file_is_read_each_time(tmp_path):
    path = tmp_path / "the token"
    options = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
    }
    with pytest.raises(AuthenticationError, match=f"{path} can't be read"):
        fetch(options)
    for text in ("one", "two"):
        path.write_text(f"{text}\n")
        assert fetch(options).value.value == Password(text)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(AuthenticationError, match="is not a token"):
        fetch(options)
    path.write_text(jwt(exp=5))
    with pytest.raises(AuthenticationError, match="has expired"):
        fetch(options)


def test_kafkas_unsecured_tokens_say_who_we_are():
    token = unsecured_token({"sub": "alice", "scope": ("a",)}, 1_000_000, 60)
    assert token.endswith(".")
    assert expiry_of(token, "it") == 1060


class Provider:
    """A double of a user's own class."""

    options: dict[str, str]

    def configure(self, options):
        self.options = dict(options)

    def token(self):
        return f"token-of-{self.options['who']}", 1_700_001_060.0

    def extensions(self):
        return {"logicalCluster": "lkc-1"}


def plain_function():
    return "just-a-token"


def broken():
    raise ValueError(SECRET)


def wrong():
    return 7


def away():
    raise ConnectionError(f"https://vault/?key={SECRET}")


def leaving():
    raise SystemExit(SECRET)


def ends(when):
    return lambda: ("token", when)


for_ever, no_time = ends(float("inf")), ends(float("nan"))


class Wrong:
    """Its ``configure`` fails, with a secret in its text."""

    def configure(self, options):
        raise ValueError(f"{SECRET} {options}")

    def token(self):
        return "token"


class WrongExtensions(Wrong):
    def configure(self, options): ...

    def extensions(self):
        raise ValueError(SECRET)


NEITHER = 5


def from_path(name, **options):
    pairs = tuple((k, Password(v)) for k, v in options.items())
    source = TokenProvider(f"{__name__}:{name}", "sasl.login.callback.handler.class", pairs)
    return token_fetcher(settings_of(source), FakeClock(1_000_000), lambda: 0.0)


def test_a_users_class_provides_tokens_with_life_and_extensions():
    found = from_path("Provider", who="me")("broker")
    assert found.value == Token(Password("token-of-me"), (("logicalCluster", "lkc-1"),))
    assert found.expires_after_ms == 60_000
    assert from_path("plain_function")("b").value == Token(Password("just-a-token"))


def test_a_class_that_is_not_a_provider_is_refused():
    with pytest.raises(ConfigError, match=r"has no method token\(\)"):
        from_path("NEITHER")
    with pytest.raises(ConfigError, match="can't be imported"):
        from_path("Missing")
    with pytest.raises(AuthenticationError, match="gave no token but int"):
        from_path("wrong")("b")
    with pytest.raises(OSError, match=r"away: token\(\) raised ConnectionError in away") as raised:
        from_path("away")("b")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", r"token\(\) raised ValueError in broken \(test_oauth_tokens\.py:\d+\)"),
        ("leaving", r"token\(\) raised SystemExit in leaving"),
        ("Wrong", r"configure\(\) raised ValueError in configure"),
        ("WrongExtensions", r"extensions\(\) raised ValueError in extensions"),
        ("for_ever", "the end of the token of .* is not a valid number of seconds"),
        ("no_time", "the end of the token of .* is not a valid number of seconds"),
    ],
)
def test_an_error_of_a_users_code_is_located_and_not_shown(name, words):
    with pytest.raises(AuthenticationError, match=words) as raised:
        from_path(name, who="me")("b")
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    assert raised.value.__cause__ is raised.value.__context__ is None


def test_producers_of_one_process_share_a_token(provider):
    settings = sasl_settings(provider.options())
    first, second = (new_login(settings, SystemClock()) for _ in range(2))
    woken = threading.Event()
    first.attach(woken.set)
    assert first.mechanism("h", SystemClock().now_ms()) is None
    assert woken.wait(60)
    for login in (first, second):
        assert login.mechanism("h", SystemClock().now_ms()) is not None
    assert len(provider.asked) == 1
    other = sasl_settings(provider.options(sasl__oauthbearer__scope="other"))
    assert new_login(other, SystemClock()).mechanism("h", 0) is None
