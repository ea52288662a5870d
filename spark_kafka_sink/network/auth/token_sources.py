"""Functions that fetch OAuth tokens: from an endpoint, a file, or the user's code.

:func:`token_fetcher` returns such a function. The functions may block, so they must run on the
thread of a login. This module starts no thread.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable, Mapping
from typing import TypeVar

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    ErrorCode,
    KafkaError,
    safe_text,
)
from spark_kafka_sink.base.security import import_paths
from spark_kafka_sink.base.security.allow_lists import check_file, check_url
from spark_kafka_sink.base.security.local_files import UnusableFileError, read_file
from spark_kafka_sink.base.security.password import Password, Text, text_of
from spark_kafka_sink.config.logins.oauth_settings import (
    AwsLogin,
    ClientCredentials,
    OAuthSettings,
    StaticToken,
    TokenFile,
    TokenProvider,
    UnsecuredToken,
    checked_extension,
)
from spark_kafka_sink.network.auth.login import FetchedCredential
from spark_kafka_sink.network.auth.oauth_token import (
    Token,
    checked_token,
    expiry_of,
    fetched,
    seconds,
    unsecured_token,
)
from spark_kafka_sink.network.auth.token_endpoint import request_token
from spark_kafka_sink.network.tls.ssl_context import ssl_context

T = TypeVar("T")

_URL = "sasl.oauthbearer.token.endpoint.url"


def token_fetcher(
    settings: OAuthSettings, clock: Clock, random: Callable[[], float] = _random.random
) -> Callable[[str], FetchedCredential[Token]]:
    """Returns a function that fetches a token. Its argument, the broker's host, is not used.

    Raises ConfigError if the user's token provider can't be imported or does not have the right
    methods. Raises NotAllowedError for a file or an endpoint that is not on the operator's
    allow-lists.
    """
    ask = _asker(settings, clock)

    def fetch(host: str) -> FetchedCredential[Token]:
        del host
        token, expires_at, extensions, where = ask()
        text = checked_token(token, where)
        pairs = dict(settings.extensions) | dict(extensions)
        return fetched(
            Token(Password(text), tuple(sorted(pairs.items()))),
            expires_at=expiry_of(text, where) if expires_at is None else expires_at,
            wall_ms=clock.wall_ms(),
            rule=settings.refresh,
            where=where,
            random=random,
        )

    return fetch


#: Token, its expiry in seconds since the epoch (None: in the token), extensions, and its origin.
_Answer = tuple[str, float | None, Mapping[str, str], str]


def _asker(settings: OAuthSettings, clock: Clock) -> Callable[[], _Answer]:
    match settings.source:
        case StaticToken(token):
            return lambda: (token.value, None, {}, "the options")
        case TokenFile(path):
            check_file(text_of(path), f"{_URL}: {safe_text(f'{path}')}")
            return lambda: (_read(path), None, {}, safe_text(f"{path}"))
        case UnsecuredToken(claims, life_s):
            made = dict(claims)
            return lambda: (
                unsecured_token(made, clock.wall_ms(), life_s), None, {}, "sasl.jaas.config"
            )  # fmt: skip
        case ClientCredentials() as client:
            check_url(text_of(client.url), f"{_URL}={safe_text(f'{client.url}')}")
            _check_stores(client)
            return lambda: _from_endpoint(client, clock)
        case TokenProvider() as provider:
            return _from_provider(provider)
        case AwsLogin():  # pragma: no cover - signs for each broker, see login_factory.py
            raise ConfigError("AWS signs its tokens and has no fetcher")


def _check_stores(client: ClientCredentials) -> None:
    """Reads the truststore and key store of the token endpoint, so that a wrong store is an error
    before the first request. Each request reads the stores again.
    """
    try:
        ssl_context(dict(client.tls))
    except ConfigError as error:
        # The ``ssl.`` options for the connections to brokers have the same names.
        message = f"sasl.jaas.config: {error.message}"
        raise type(error)(message, hint=error.hint, kind=error.kind) from None


def _read(path: Text) -> str:
    shown = safe_text(f"{path}")
    what = f"{_URL}: {shown}"
    try:
        content = read_file(text_of(path), what, check=lambda it: check_file(it, what))
        return content.decode("ascii")
    except UnicodeDecodeError:
        return "\0"  # refused by checked_token, like every other text that is no token
    except UnusableFileError as error:
        raise AuthenticationError(
            f"SASL OAUTHBEARER: the token file {shown} can't be read: {error}",
            hint="the file must be on the driver and on every executor",
            code=ErrorCode.SASL_AUTHENTICATION_FAILED,
        ) from None


def _from_endpoint(client: ClientCredentials, clock: Clock) -> _Answer:
    grant = request_token(client)
    expires_at = expiry_of(grant.token.value, grant.where)
    if expires_at is None and grant.expires_in is not None:
        expires_at = clock.wall_ms() / 1000 + grant.expires_in
    return grant.token.value, expires_at, {}, grant.where


def _from_provider(settings: TokenProvider) -> Callable[[], _Answer]:
    """Returns a function that fetches tokens by the user's token provider.

    The provider is callable, or has a method ``token()``. The call returns a token, or a pair of a
    token and its expiry in seconds since the epoch. Two other methods are optional:

    * ``configure(options)`` is called once, with the options of the login module.
    * ``extensions()`` is called for each token.
    """
    provider = import_paths.make(settings.path, settings.option)
    configure = getattr(provider, "configure", None)
    if callable(configure):
        options = {name: value.value for name, value in settings.options}
        _guarded(settings, "configure", lambda: configure(options))
    ask = getattr(provider, "token", provider)
    if not callable(ask):
        raise ConfigError(
            f"{settings.option}: {settings.path} has no method token()",
            hint="it returns a token, or a pair of the token and its end in seconds",
            kind=Kind.TOKEN_SOURCE,
        )
    extensions = getattr(provider, "extensions", dict)

    def call() -> _Answer:
        answer = _guarded(settings, "token", ask)
        pair = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
        token, expires_at = pair
        if not isinstance(token, str) or not isinstance(expires_at, int | float | None):
            raise AuthenticationError(
                f"SASL OAUTHBEARER: {settings.path} gave no token but {type(answer).__name__}",
                hint="token() returns text, or a pair of text and seconds since the epoch",
                code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            )
        given = _guarded(settings, "extensions", lambda: dict(extensions()))
        pairs = dict(checked_extension(str(k), str(v)) for k, v in given.items())
        end = seconds(expires_at, f"the end of the token of {settings.path}")
        return token, end, pairs, settings.path

    return call


def _guarded(settings: TokenProvider, what: str, call: Callable[[], T]) -> T:
    """Calls ``call``, a function of the user's code, and returns its result. Raises these errors:

    * OSError, if ``call`` raises OSError. Then the fetch is repeated.
    * The same KafkaError, if ``call`` raises a KafkaError.
    * AuthenticationError, if ``call`` raises SystemExit or any other Exception.

    The text of the user's exception may contain a secret. So the raised OSError or
    AuthenticationError has only the class of the exception and its place in the code.
    """
    try:
        return call()
    except KafkaError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code may raise anything
        passes = isinstance(error, OSError)
        why = f"{settings.path}: {what}() raised {import_paths.place_of(error)}"
    # Not within the handler: the context would bring that text, and a traceback shows it.
    if passes:
        raise OSError(why)
    raise AuthenticationError(
        f"SASL OAUTHBEARER: {why}",
        hint=f"it is the code that {settings.option} names; an OSError would be tried again",
        code=ErrorCode.SASL_AUTHENTICATION_FAILED,
    )
