"""Reads the ``sasl.`` options: the mechanism and its settings.

A name and a password are in ``sasl.jaas.config``, or in the short form ``sasl.username`` and
``sasl.password``. It is an error if these options contradict each other.

The driver reads the settings only to find mistakes before a task starts. Each producer reads them
again on its own machine, where the secrets are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.security.jaas_config import (
    NO_MODULE,
    JaasEntry,
    parse_jaas_config,
    without_shading,
)
from spark_kafka_sink.base.security.password import (
    HIDDEN,
    REPLACE_IT,
    Password,
    Text,
    as_password,
    shown_text,
    text_of,
)
from spark_kafka_sink.base.security.secret_references import has_references, is_one_reference
from spark_kafka_sink.config.logins.oauth_settings import (
    AwsLogin,
    OAuthSettings,
    aws_login,
    is_known_handler,
    oauth_settings,
)
from spark_kafka_sink.config.logins.security_rules import check_options, login_modules, wrong_module
from spark_kafka_sink.config.option_table import AWS_MSK_IAM, GSSAPI, MECHANISMS, OAUTHBEARER

_JAAS: Final = "sasl.jaas.config"
_IAM_HANDLER: Final = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
#: Kafka's own, which it takes when none is named.
_KAFKAS_HANDLER: Final = "org.apache.kafka.common.security.authenticator.SaslClientCallbackHandler"
_HANDLERS: Final = ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class")


@dataclass(frozen=True, slots=True)
class UserAndPassword:
    """User name and password, the settings of PLAIN and SCRAM."""

    username: Text
    password: Password


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """The settings of GSSAPI (Kerberos). If ``keytab`` is None, the ticket comes from the cache
    that ``kinit`` has filled.
    """

    service_name: Text
    keytab: Text | None = None
    principal: Text | None = None


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """A SASL mechanism, such as ``SCRAM-SHA-512``, and its settings."""

    mechanism: str
    login: UserAndPassword | OAuthSettings | AwsLogin | KerberosSettings


def sasl_settings(options: Mapping[str, object]) -> SaslSettings:
    """Reads the mechanism and its settings from ``options``, the ``sasl.`` options that the user
    has set. The names of the options are Java's, without a prefix.

    Raises ConfigError if the options are not valid. The error names the options and never shows a
    secret.
    """
    entry = options.get(_JAAS)
    if not isinstance(entry, JaasEntry):
        entry = parse_jaas_config(text_of(entry)) if text_of(entry) else NO_MODULE
    mechanism = _mechanism(options, entry)
    if entry is not NO_MODULE:
        _check_module(entry, mechanism)
    _check_handlers(options, mechanism)
    if mechanism == OAUTHBEARER:
        return SaslSettings(mechanism, oauth_settings(options, entry))
    if mechanism == AWS_MSK_IAM:
        return SaslSettings(mechanism, aws_login(entry))
    login = _kerberos if mechanism == GSSAPI else _user
    return SaslSettings(mechanism, login(options, entry))


def can_not_be_read_yet(options: Mapping[str, object]) -> bool:
    """Returns True if the whole value of ``sasl.jaas.config`` is one reference, such as
    ``${file:/path}``. The login module is then unknown until the reference is replaced.

    Returns False if the value has a login module, and only an option of the module is a reference,
    such as ``password="${env:NAME}"``.
    """
    login_module = options.get(_JAAS)
    return has_references(login_module) and is_one_reference(text_of(login_module))


def names_a_known_module(login_module: str) -> bool:
    """Returns True if the text begins with the class name of a known login module. An error message
    may show that name. It must not show any other part of the text, because that part can be a
    secret.
    """
    first = login_module.split(None, 1)[:1]
    return any(without_shading(name).rpartition(".")[2] in login_modules() for name in first)


def _mechanism(options: Mapping[str, object], entry: JaasEntry) -> str:
    given = text_of(options.get("sasl.mechanism"))
    if given:
        return given.upper()  # one of MECHANISMS, as the option's rule has it
    serves = login_modules()[entry.name].mechanisms if entry.name in login_modules() else ()
    if text_of(options.get("sasl.kerberos.service.name")) or GSSAPI in serves:
        return GSSAPI
    raise _refused(
        f"sasl.mechanism is not set, and no other option shows that Kafka's default, {GSSAPI} "
        "(Kerberos), is intended",
        hint=f"set it to {' or '.join(serves or MECHANISMS)}",
    )


def _check_module(entry: JaasEntry, mechanism: str) -> None:
    module = login_modules().get(entry.name)
    if module is None:
        hint = f"known are {', '.join(login_modules())}"
        raise wrong_module(
            f"sasl.jaas.config: the login module {entry.shown} is not known here",
            f"{hint}; {REPLACE_IT}" if entry.shown == HIDDEN else hint,
        )
    if mechanism not in module.mechanisms:
        raise wrong_module(
            f"sasl.jaas.config has a {entry.name}, but sasl.mechanism is {mechanism}",
            f"a {entry.name} goes with {' or '.join(module.mechanisms)}",
        )
    if mechanism != OAUTHBEARER:  # there they depend on where the token comes from
        check_options(entry, module)


def _check_handlers(options: Mapping[str, object], mechanism: str) -> None:
    """Raises ConfigError if an option names a Java callback handler class that this package can't
    replace. There is no JVM to run the class.
    """
    client, login = (without_shading(text_of(options.get(name))) for name in _HANDLERS)
    if client and not _is_known(client, mechanism):
        raise _refused(
            f"{_HANDLERS[0]}={safe_text(client)} can't be obeyed: it is Java, or not of"
            f" sasl.mechanism={mechanism}",
            hint=f"leave it out; known here are {_IAM_HANDLER} for {AWS_MSK_IAM}, and for"
            f" {OAUTHBEARER} the classes that {_HANDLERS[1]} takes",
        )
    retriever = "sasl.oauthbearer.jwt.retriever.class"
    for name, given in ((_HANDLERS[1], login), (retriever, text_of(options.get(retriever)))):
        if given and mechanism != OAUTHBEARER and not _is_known(given, mechanism):
            raise _refused(
                f"{name} is set, but sasl.mechanism is {mechanism}",
                hint=f"this option names the source of the token of {OAUTHBEARER}; leave it out",
            )


def _is_known(handler: str, mechanism: str) -> bool:
    """Returns True if this package has a replacement for the Java class ``handler`` with this
    mechanism. A name with a vendor's prefix, such as ``kafkashaded.``, is not known here.
    """
    if mechanism == OAUTHBEARER:
        return is_known_handler(handler)
    return handler == (_IAM_HANDLER if mechanism == AWS_MSK_IAM else _KAFKAS_HANDLER)


def _user(options: Mapping[str, object], entry: JaasEntry) -> UserAndPassword:
    short = [n for n in ("sasl.password", "sasl.username") if text_of(options.get(n))]
    if entry is NO_MODULE:
        username = shown_text(options.get("sasl.username"))
        password = shown_text(options.get("sasl.password"))
        mechanism = text_of(options["sasl.mechanism"]).upper()
        where = f"sasl.mechanism={mechanism} needs sasl.username and sasl.password"
    elif short:
        raise _refused(
            f"sasl.jaas.config and {' and '.join(short)} are both set, and one of them"
            " would not count",
            hint=f"keep {_JAAS}, or sasl.username and sasl.password",
        )
    elif entry.options.get("tokenauth", "").lower() == "true":
        raise _refused(
            "sasl.jaas.config: tokenauth=true (a delegation token) is not supported",
            hint="use the user's own SCRAM credential",
        )
    else:
        username, password = entry.get("username"), entry.get("password")
        where = f"sasl.jaas.config: the {entry.name} needs username and password"
    if not username or not password:
        one = "the password is" if username else "the name is"
        missing = one if username or password else "both are"
        hint = 'in a login module they are username="..." password="..."'
        raise wrong_module(f"{where}; {missing} missing", hint)
    for text in map(text_of, (username, password)):
        if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
            raise _refused(
                "a SASL name or password must not contain the character NUL, or half of one"
            )
    return UserAndPassword(username, as_password(password))


def _kerberos(options: Mapping[str, object], module: JaasEntry) -> KerberosSettings:
    option = shown_text(options.get("sasl.kerberos.service.name"))
    inline = module.get("serviceName")
    if option and inline and text_of(option) != text_of(inline):
        raise _refused(
            "Conflicting serviceName values found in JAAS and Kafka configs value in JAAS file"
            f" {safe_text(f'{inline}')}, value in Kafka config {safe_text(f'{option}')}",
        )
    service = option or inline
    if not service:
        raise _refused(
            "No serviceName defined in either JAAS or Kafka config",
            hint="set sasl.kerberos.service.name to the brokers' service, usually kafka",
        )
    uses_keytab = text_of(module.get("useKeyTab")).lower() in ("", "true")
    keytab = module.get("keyTab") if uses_keytab else None
    return KerberosSettings(service, keytab or None, module.get("principal") or None)


def _refused(what: str, hint: str | None = None) -> ConfigError:
    return ConfigError(what, hint=hint, kind=Kind.SASL_SETTING)
