"""The hint of a user's code that gives no token works when it is followed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.base.security.import_paths import find_function
from spark_kafka_sink.config.logins.oauth_settings import TokenProvider
from spark_kafka_sink.network.auth.token_sources import token_fetcher
from tests.sasl.identity_provider import settings_of

HANDLER = "sasl.login.callback.handler.class"
END = 4_000_000_000


class GivesBytes:
    def token(self) -> bytes:
        return b"t"


class GivesText:
    def token(self) -> tuple[str, int]:
        return "t", END


class Fails:
    def token(self) -> tuple[str, int]:
        raise KeyError("not there")


class FailsForNow:
    def token(self) -> tuple[str, int]:
        raise TimeoutError("not yet")


class HasNoMethod:
    pass


NO_FUNCTION = 7


def a_function(value: object) -> object:
    return value


def fetch(source: type) -> str:
    provider = TokenProvider(f"{source.__module__}:{source.__name__}", HANDLER)
    fetched = token_fetcher(settings_of(provider), SystemClock())("host")
    return fetched.value.value.value


def test_text_or_a_pair_makes_a_token() -> None:
    with pytest.raises(AuthenticationError) as raised:
        fetch(GivesBytes)
    assert (
        raised.value.hint == "token() returns text, or a pair of text and seconds since the epoch"
    )
    assert fetch(GivesText) == "t"


def test_the_method_of_a_hint_makes_a_token() -> None:
    with pytest.raises(ConfigError) as raised:
        fetch(HasNoMethod)
    assert raised.value.hint == "it returns a token, or a pair of the token and its end in seconds"
    assert fetch(GivesText) == "t"


def test_an_oserror_of_the_code_may_be_tried_again() -> None:
    with pytest.raises(AuthenticationError) as raised:
        fetch(Fails)
    hint = f"it is the code that {HANDLER} names; an OSError would be tried again"
    assert raised.value.hint == hint
    with pytest.raises(OSError, match="FailsForNow"):
        fetch(FailsForNow)


def test_a_function_of_one_argument_is_taken() -> None:
    def found(name: str) -> Callable[[object], object]:
        return find_function(f"{__name__}:{name}", "partitioner", "view")

    with pytest.raises(ConfigError) as raised:
        found("NO_FUNCTION")
    assert raised.value.hint == "name a function that takes one argument, the view"
    assert found("a_function") is a_function
