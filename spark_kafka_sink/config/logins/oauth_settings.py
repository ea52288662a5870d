"""The settings of OAUTHBEARER and AWS_MSK_IAM: the source of a token or of AWS credentials.

:data:`TokenSource` has a class for each source. For OAUTHBEARER, exactly one source must be set.
``network/auth/token_sources.py`` fetches the token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final
from urllib.parse import SplitResult, unquote, urlsplit

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.security.addresses import http_address, url_parts
from spark_kafka_sink.base.security.import_paths import is_import_path
from spark_kafka_sink.base.security.jaas_config import JaasEntry, without_shading
from spark_kafka_sink.base.security.password import Password, Text, as_password, shown_text, text_of
from spark_kafka_sink.base.security.secret_references import has_references
from spark_kafka_sink.config.logins.security_rules import (
    ENDPOINT_STORE_RULES,
    check_options,
    check_rules,
    login_modules,
)
from spark_kafka_sink.config.option import Status, Values
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS

_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - a name
_SCOPE: Final = "sasl.oauthbearer.scope"
_HANDLER: Final = "sasl.login.callback.handler.class"
_CLIENT_HANDLER: Final = "sasl.client.callback.handler.class"
_RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
_URLENCODE: Final = "sasl.oauthbearer.header.urlencode"
_OF_CREDENTIALS: Final = (_ID, _SECRET, _SCOPE, _URLENCODE)
#: Their names in the login module: Kafka's, then Strimzi's.
_IN_MODULE: Final = {
    _URL: ("oauth.token.endpoint.uri",),
    _ID: ("clientId", "oauth.client.id"),
    _SECRET: ("clientSecret", "oauth.client.secret"),
    _SCOPE: ("scope", "oauth.scope"),
}
_REFRESH: Final = (
    "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter",
    "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.buffer.seconds",
)  # fmt: skip
_IN_JAAS: Final = " in sasl.jaas.config"
_MODULE: Final = "OAuthBearerLoginModule"

_OAUTH_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_STRIMZI: Final = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
#: Java's classes with the behaviour that is the default here.
_ORDINARY: Final = {
    _STRIMZI,
    f"{_OAUTH_PACKAGE}OAuthBearerLoginCallbackHandler",
    f"{_OAUTH_PACKAGE}secured.OAuthBearerLoginCallbackHandler",
    f"{_OAUTH_PACKAGE}internals.OAuthBearerSaslClientCallbackHandler",
    f"{_OAUTH_PACKAGE}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
    f"{_OAUTH_PACKAGE}DefaultJwtRetriever",
    f"{_OAUTH_PACKAGE}ClientCredentialsJwtRetriever",
    f"{_OAUTH_PACKAGE}FileJwtRetriever",
}
_AWS: Final = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"

_UNSECURED_CLAIM: Final = re.compile(r"unsecuredLogin(String|Number|List)Claim_(.+)")
#: Options of the login module that count for one source, whatever the others are.
_OF_ONE_SOURCE: Final = re.compile(
    r"(?P<endpoint>clientId|clientSecret|scope|oauth\.(?:client|scope|audience).*|(?:oauth\.)?ssl\..*)"
    r"|(?P<unsecured>unsecuredLogin(?!Extension_).*)"
)
_EXTENSION: Final = re.compile(
    r"(?:extension_|unsecuredLoginExtension_|oauth\.sasl\.extension\.)(.+)"
)
#: RFC 7628: a key is letters, a value is printable.
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")


@dataclass(frozen=True, slots=True)
class StaticToken:
    """Source of a token: an option contains the token itself."""

    words: ClassVar = "the options themselves"
    token: Password


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Source of a token: a file that another program renews. The file is read again whenever a
    token is needed.
    """

    words: ClassVar = "a file"
    path: Text


@dataclass(frozen=True, slots=True)
class UnsecuredToken:
    """Source of a token: Kafka's unsigned tokens for development. The client creates the token
    itself, from the JSON ``claims``. The token is valid for ``life_s`` seconds.
    """

    words: ClassVar = "unsecuredLogin... in sasl.jaas.config"
    claims: tuple[tuple[str, str | float | tuple[str, ...]], ...] = field(repr=False)
    life_s: int


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Source of a token: the token endpoint ``url``, with a client id and secret (client
    credentials grant, RFC 6749, 4.4).

    ``tls`` are the ``ssl.`` options for the connection to the endpoint.
    """

    words: ClassVar = "a token endpoint"
    url: Text
    client_id: Text
    client_secret: Password
    connect_timeout_ms: int
    read_timeout_ms: int
    scope: Text | None = None
    audience: Text | None = None
    urlencode: bool = False
    tls: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenProvider:
    """Source of a token: a user's Python class or function, with the import path ``path``.

    ``option`` is the name of the option that has this import path. ``options`` are the options of
    the login module in ``sasl.jaas.config``. If the class has a method ``configure``, the method
    gets them.
    """

    words: ClassVar = "your own class"
    path: str
    option: str
    options: tuple[tuple[str, Password], ...] = ()


@dataclass(frozen=True, slots=True)
class AwsLogin:
    """Source of AWS credentials: a role to assume, a profile, or a function. If no field is set,
    the source is AWS's default credential chain.

    ``provider`` is the import path of a user's function, which returns a botocore session, a boto3
    session or credentials. ``sts_region`` is the region of the AWS service that assumes the role.
    """

    words: ClassVar = "AWS's credentials"
    profile: Text | None = None
    role_arn: Text | None = None
    role_session_name: Text | None = None
    role_external_id: Password | None = None
    sts_region: Text | None = None
    provider: Text | None = None


#: ``words`` are its name in messages.
TokenSource = (
    StaticToken | TokenFile | UnsecuredToken | ClientCredentials | TokenProvider | AwsLogin
)


@dataclass(frozen=True, slots=True)
class RefreshRule:
    """The options ``sasl.login.refresh.*``: the time at which a token is refreshed.

    * ``window_factor``: the token is refreshed after this share of its lifetime.
    * ``window_jitter``: a random number from 0 to ``window_jitter`` is added to ``window_factor``.
    * ``min_period_seconds``: the token is refreshed after this time at the earliest.
    * ``buffer_seconds``: the token is refreshed at least this time before its expiry.

    If the lifetime is at most ``min_period_seconds`` + ``buffer_seconds``, only ``window_factor``
    and ``window_jitter`` count, as in Java.
    """

    window_factor: float
    window_jitter: float
    min_period_seconds: int
    buffer_seconds: int


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """The settings of OAUTHBEARER. Backoffs are in milliseconds. ``extensions`` are pairs of name
    and value, which the client sends together with the token (KIP-342).
    """

    source: TokenSource
    extensions: tuple[tuple[str, str], ...] = field(repr=False)
    refresh: RefreshRule
    retry_backoff_ms: int
    retry_backoff_max_ms: int


def oauth_settings(options: Mapping[str, object], module: JaasEntry) -> OAuthSettings:
    """Reads the settings of OAUTHBEARER from the ``sasl.`` options, and from ``module``, the login
    module in ``sasl.jaas.config``. Raises ConfigError for a wrong setting.
    """
    _check_names(options, module)
    source = _source(options, module)
    _refuse_what_is_of_another_source(options, module, source)
    values = _effective(options)
    return OAuthSettings(
        source,
        _extensions(module),
        RefreshRule(*(values[name] for name in _REFRESH)),
        values["sasl.login.retry.backoff.ms"],
        values["sasl.login.retry.backoff.max.ms"],
    )


def aws_login(module: JaasEntry) -> AwsLogin:
    """Reads the source of AWS credentials from the options of the login module IAMLoginModule. All
    of these options are optional.
    """
    external_id = module.get("awsRoleExternalId")
    return AwsLogin(
        module.get("awsProfileName") or None,
        module.get("awsRoleArn") or None,
        module.get("awsRoleSessionName") or None,
        as_password(external_id) if external_id else None,
        module.get("awsStsRegion") or None,
        module.get("awsCredentialsProvider") or None,
    )


def names_own_class(options: Mapping[str, object]) -> bool:
    """Returns True if an option names a user's class as the source of the token. If so, the options
    of the login module are passed to that class, and are not checked here.
    """
    names = (_class_of(options, option) for option in (_HANDLER, _RETRIEVER))
    return any(name != _AWS and is_import_path(name) for name in names)


def is_known_handler(name: str) -> bool:
    """Returns True if ``name`` is one of the Java callback handler classes for OAUTHBEARER that
    this package replaces by its own code. The caller must have removed a vendor's prefix, such as
    ``kafkashaded.``, from ``name`` with :func:`without_shading`.
    """
    return name in _ORDINARY or name == _AWS


def _class_of(options: Mapping[str, object], option: str) -> str:
    """Returns the class that ``option`` names, without a vendor's package prefix. Returns an empty
    text if the option is not set, or names one of Java's classes in ``_ORDINARY``.

    The classes in ``_ORDINARY`` have no effect: this package always does their work.
    """
    name = without_shading(text_of(options.get(option)))
    return "" if name in _ORDINARY else name


def _check_names(options: Mapping[str, object], module: JaasEntry) -> None:
    """Checks the names of the login module's options. Raises ConfigError for an unknown name, and
    for the option ``sasl.username``, which has no meaning for a token.

    This is the first check, because later checks would report a misspelt option as missing.
    """
    if text_of(options.get("sasl.username")):
        raise _refused(
            "sasl.username is set, but sasl.mechanism is OAUTHBEARER, which has no names",
            hint=f"a client's id is {_ID}",
        )
    if not names_own_class(options):
        aws = _AWS in (_class_of(options, _HANDLER), _class_of(options, _CLIENT_HANDLER))
        check_options(module, login_modules()["IAMLoginModule" if aws else _MODULE])


def _refuse_what_is_of_another_source(
    options: Mapping[str, object], module: JaasEntry, source: TokenSource
) -> None:
    """Raises ConfigError for options that have no effect with ``source``. For example, a client id
    has no effect if the token comes from a file.
    """
    idle = []
    if not isinstance(source, ClientCredentials):
        idle = [n for n in _OF_CREDENTIALS if options.get(n) is True or text_of(options.get(n))]
    for name in () if isinstance(source, TokenProvider) else module.options:
        option, found = login_modules()[_MODULE].find(name), _OF_ONE_SOURCE.fullmatch(name)
        if option is not None and option.status is Status.NO_MEANING:
            continue
        of = {"endpoint": ClientCredentials, "unsecured": UnsecuredToken}
        if found is not None and not isinstance(source, of[found.lastgroup or ""]):
            idle.append(name + _IN_JAAS)
    words = source.words
    if isinstance(source, ClientCredentials) and text_of(source.url)[:5].lower() == "http:":
        idle += [name + _IN_JAAS for name, _ in source.tls]
        words = "a URL of http" if source.tls else words
    if idle:
        raise ConfigError(
            f"{' and '.join(idle)} would have no effect, because the token comes from {words}",
            hint="remove it: it is for a token from another place",
            kind=Kind.NO_EFFECT,
        )


def _source(options: Mapping[str, object], module: JaasEntry) -> TokenSource:
    """The source of the token, according to all options. Raises ConfigError if the options name no
    source or several sources.
    """
    token = shown_text(options.get("sasl.password"))
    inline = module.get("oauth.access.token")
    # AWS's class stands in both options; as the client's handler alone it makes the token, too.
    names_aws = _class_of(options, _CLIENT_HANDLER) == _AWS != _class_of(options, _HANDLER)
    named: dict[str, TokenSource | None] = {
        _HANDLER: _by_class(_HANDLER, options, module),
        _CLIENT_HANDLER: aws_login(module) if names_aws else None,
        _RETRIEVER: _by_class(_RETRIEVER, options, module),
        _URL: _by_url(options, module),
        "sasl.password (a token)": StaticToken(as_password(token)) if token else None,
        f"oauth.access.token{_IN_JAAS}": StaticToken(as_password(inline)) if inline else None,
        f"unsecuredLogin...{_IN_JAAS}": _unsecured(module),
    }
    found = {name: source for name, source in named.items() if source is not None}
    if len(found) > 1:
        raise _refused(
            f"the token of OAUTHBEARER comes from {' and '.join(found)}; one would not count",
            hint="keep one of them",
        )
    for source in found.values():
        return source
    raise _refused(
        "sasl.mechanism is OAUTHBEARER, and no option names the source of its token",
        hint=f"set {_URL}, {_HANDLER}, or sasl.password to the token itself",
    )


def _by_class(option: str, options: Mapping[str, object], module: JaasEntry) -> TokenSource | None:
    name = _class_of(options, option)
    if not name:
        return None
    if name == _AWS:
        return aws_login(module)
    if not is_import_path(name):
        raise _refused(
            f"{option}={safe_text(name)} can't be obeyed: it is Java, or no import path",
            hint="name a Python class with a method token() as package.module:Name; known of"
            f" Java's are {_AWS} and {_STRIMZI}",
        )
    given = tuple((key, as_password(module.get(key))) for key in sorted(module.options))
    return TokenProvider(name, option, given)


def _by_url(options: Mapping[str, object], module: JaasEntry) -> TokenSource | None:
    url = _either(options, _URL, module)
    if not url:
        return None
    # The value behind a reference is checked where it is looked up.
    parts = urlsplit("https://reference") if has_references(url) else _checked_url(url)
    if parts.scheme == "file":
        path = unquote(parts.path)
        return TokenFile(Password(path, url.reference) if isinstance(url, Password) else path)
    client_id, secret = (_either(options, option, module) for option in (_ID, _SECRET))
    if not client_id or not secret:
        missing = " and ".join(n for n, v in ((_ID, client_id), (_SECRET, secret)) if not v)
        raise _refused(
            f"{_URL} is set, and {missing} missing",
            hint="or clientId and clientSecret in sasl.jaas.config",
        )
    values = _effective(options)
    return ClientCredentials(
        url,
        client_id,
        as_password(secret),
        values["sasl.login.connect.timeout.ms"],
        values["sasl.login.read.timeout.ms"],
        _either(options, _SCOPE, module) or None,
        module.get("oauth.audience") or None,
        values[_URLENCODE],
        tuple(sorted(_endpoint_tls(module).items())),
    )


def _endpoint_tls(module: JaasEntry) -> dict[str, Text]:
    """Reads the ``ssl.`` options for the token endpoint from the login module. The checks are the
    same as for the brokers' ``ssl.`` options.
    """
    found: dict[str, Text] = {}
    for name in module.options:
        short, option = name.removeprefix("oauth."), login_modules()[_MODULE].find(name)
        if not short.startswith("ssl.") or option is None or option.status is Status.NO_MEANING:
            continue
        if short in found:
            raise _two_values(f"option {short}, also as oauth.{short},")
        found[short] = as_password(module.get(name)) if option.secret else module.get(name)
    check_rules(ENDPOINT_STORE_RULES, found)
    return found


def _checked_url(given: Text) -> SplitResult:
    """Parses the URL of the token endpoint. Raises ConfigError if the URL is not usable. The error
    does not show the URL, because the URL can contain a secret.
    """
    parts = url_parts(text_of(given))
    if parts is None or not (parts.scheme == "file" and parts.netloc in ("", "localhost")):
        hint = "https://host/path, or file:/path, with %XX for characters that are not ASCII"
        return http_address(_URL, given, hint, f"{_ID} and {_SECRET}")
    if not parts.path or parts.query or parts.fragment:
        raise _refused(
            f"{_URL} is a file's URL without a path, or with a query or a fragment, which a file"
            " does not have",
            hint="write '?' and '#' of a file's name as %3F and %23",
        )
    return parts


def _either(options: Mapping[str, object], option: str, module: JaasEntry) -> Text:
    """The value of an option that has a second name in the login module. Raises ConfigError if the
    two values differ.
    """
    inline = {name: module.get(name) for name in _IN_MODULE[option]}
    given = {option: shown_text(options.get(option))} | inline
    values = {name: value for name, value in given.items() if value}
    if len(set(map(text_of, values.values()))) > 1:
        raise _refused(
            f"{' and '.join(values)} are both set, to different values",
            hint=f"keep {option}; the others are in sasl.jaas.config",
        )
    return next(iter(values.values()), "")


def _unsecured(module: JaasEntry) -> UnsecuredToken | None:
    claims: dict[str, str | float | tuple[str, ...]] = {}
    for name, value in module.options.items():
        found = _UNSECURED_CLAIM.fullmatch(name)
        if found is None:
            continue
        kind, claim = found.groups()
        if claim in claims:
            raise _two_values(f"claim {claim}")
        if kind == "Number":
            claims[claim] = _number(name, value)
        elif kind == "List":
            claims[claim] = tuple(part for part in value[1:].split(value[:1]) if part)
        else:
            claims[claim] = value
    if not claims:
        return None
    name = "unsecuredLoginLifetimeSeconds"
    life = _number(name, module.options.get(name, "3600"))
    return UnsecuredToken(tuple(sorted(claims.items())), int(life))


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < 2**53:
        raise _refused(f"sasl.jaas.config: {safe_text(name)} is not a number")
    return value


def _extensions(module: JaasEntry) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for name, value in module.options.items():
        match = _EXTENSION.fullmatch(name)
        if match is None:
            continue
        if found.setdefault(match[1], value) != value:
            raise _two_values(f"extension {match[1]}")
        checked_extension(match[1], value)
    return tuple(sorted(found.items()))


def _two_values(what: str) -> ConfigError:
    return ConfigError(
        f"sasl.jaas.config: the {safe_text(what)} has two values, and one would not count",
        hint="keep one of them",
        kind=Kind.NO_EFFECT,
    )


def checked_extension(name: str, value: str) -> tuple[str, str]:
    """Returns ``(name, value)`` if this SASL extension is valid (KIP-342). Otherwise raises
    ConfigError.
    """
    if name == "auth" or _EXTENSION_NAME.fullmatch(name) is None:
        raise _refused(
            f"the SASL extension {safe_text(name)} can't be sent",
            hint="its name is letters, and not auth",
        )
    if _EXTENSION_VALUE.fullmatch(value) is None:
        raise _refused(f"the value of the SASL extension {name} is empty, or not ASCII text")
    return name, value


def _refused(what: str, hint: str | None = None) -> ConfigError:
    return ConfigError(what, hint=hint, kind=Kind.TOKEN_SOURCE)


def _effective(options: Mapping[str, object]) -> Values:
    """Returns the effective value of each producer option: the value in ``options``, or the
    default. No value is converted, because the values in ``options`` already have the types of
    their options.
    """
    given = {name: value for name, value in options.items() if value is not None}
    return {name: option.default for name, option in PRODUCER_OPTIONS.items()} | given
