"""Rules for the ``ssl.`` and ``sasl.`` options: when an option has an effect, and which options
can't be combined.

This module also has the options of each login module (``login_modules.toml``), and finds secrets
that Spark would show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.security.jaas_config import REFERENCE, JaasEntry, parse_jaas_config
from spark_kafka_sink.base.security.password import HIDDEN, REPLACE_IT, Password, text_of
from spark_kafka_sink.base.security.secret_references import is_one_reference
from spark_kafka_sink.base.suggestions import letters, nearest_name
from spark_kafka_sink.config.option import (
    Check,
    Option,
    OptionType,
    Status,
    alike,
    any_case,
    one_of,
    refuse,
)
from spark_kafka_sink.config.option_table import (
    GSSAPI,
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    SCRAM,
    SECURITY_OPTIONS,
)

#: The families of options that ``security.protocol`` makes count.
COUNTING = {
    "PLAINTEXT": (),
    "SSL": ("ssl.",),
    "SASL_PLAINTEXT": ("sasl.",),
    "SASL_SSL": ("ssl.", "sasl."),
}

#: Secrets that Spark's default ``spark.sql.redaction.options.regex`` (secret, password, token,
#: access key, in a name or a value) does not hide.
NOT_HIDDEN_BY_SPARK = (
    "ssl.keystore.key",
    "sasl.oauthbearer.assertion.private.key.passphrase",
)

_FOR_A_WHILE = ", and anyone who reads it can use it until it expires"
#: Mechanisms that need TLS, and the effect without TLS. None: the mechanism is not known yet.
IN_THE_CLEAR = {
    None: "with PLAIN or a token, the secret is sent in the clear",
    "PLAIN": "the password is sent in the clear",
    "OAUTHBEARER": f"the token is sent in the clear{_FOR_A_WHILE}",
    "AWS_MSK_IAM": f"the signed request is sent in the clear{_FOR_A_WHILE}",
}

_BY_NAME = (PLAIN, *SCRAM)
#: Options, by name or beginning, that some mechanisms ignore.
_OF_MECHANISMS = {
    "sasl.username": _BY_NAME,
    "sasl.password": (*_BY_NAME, OAUTHBEARER),
    "sasl.oauthbearer.": (OAUTHBEARER,),
    "sasl.kerberos.service.name": (GSSAPI,),
}

#: OpenSSL's default suites of TLS 1.3.
TLS_1_3_SUITES: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)


def _rule(given: str, unless: str, message: str) -> Check:
    """Creates a check for options that make no sense together. The check fails if all options in
    ``given`` are set and no option in ``unless`` is set.

    ``given`` and ``unless`` are lists such as ``ssl.keystore.key ssl.keystore.type=PEM``. An item
    ``name=value`` counts as set only if the option has this value. ``message`` is the text of the
    error. It is Java's text if Java has this check.
    """
    items = sorted(given.split())
    shown = [
        f"<{name}>{equals}{value}" for name, equals, value in (i.partition("=") for i in items)
    ]
    needed = " or ".join(f"<{name}>" for name in sorted(unless.split()))
    return Check(
        given,
        message,
        f"set {needed}, or remove {shown[0]}" if needed else f"keep one of {' and '.join(shown)}",
        unless=unless,
        kind=Kind.KEY_STORE if needed else Kind.NO_EFFECT,
    )


def check_rules(
    rules: Iterable[Check], values: Mapping[str, object], spelled: Callable[[str], str] = str
) -> None:
    """Raises ConfigError for the first of ``rules`` that fails. An option with an empty value
    counts as not set.
    """
    refuse(rules, {name for name, value in values.items() if text_of(value)}, values, spelled)


STORE_RULES = (
    _rule("ssl.truststore.certificates ssl.truststore.location", "",
          "Both SSL trust store location and separate trust certificates are specified."),
    _rule("ssl.truststore.certificates ssl.truststore.password", "",
          "SSL trust store password cannot be specified for PEM format."),
    _rule("ssl.truststore.type=PEM ssl.truststore.password", "",
          "SSL trust store password cannot be specified for PEM format."),
    _rule("ssl.truststore.password", "ssl.truststore.location",
          "SSL trust store is not specified, but trust store password is specified."),
    _rule("ssl.truststore.type", "ssl.truststore.location ssl.truststore.certificates",
          "ssl.truststore.type is set, and there is no truststore"),
    _rule("ssl.keystore.key ssl.keystore.location", "",
          "Both SSL key store location and separate private key are specified."),
    _rule("ssl.keystore.certificate.chain ssl.keystore.location", "",
          "Both SSL key store location and separate certificate chain are specified."),
    _rule("ssl.keystore.key", "ssl.keystore.certificate.chain",
          "SSL private key is specified, but certificate chain is not specified."),
    _rule("ssl.keystore.certificate.chain", "ssl.keystore.key",
          "SSL certificate chain is specified, but private key is not specified"),
    _rule("ssl.keystore.key ssl.keystore.password", "",
          "SSL key store password cannot be specified with PEM format, only key password may be"
          " specified."),
    _rule("ssl.keystore.type=PEM ssl.keystore.password", "",
          "SSL key store password cannot be specified with PEM format, only key password may be"
          " specified."),
    _rule("ssl.keystore.password", "ssl.keystore.location",
          "SSL key store is not specified, but key store password is specified."),
    _rule("ssl.keystore.type", "ssl.keystore.location ssl.keystore.key",
          "ssl.keystore.type is set, and there is no keystore"),
    _rule("ssl.key.password", "ssl.keystore.location ssl.keystore.key",
          "ssl.key.password is set, and there is no private key that it could open"),
)  # fmt: skip


def _in_module(rules: Iterable[Check]) -> tuple[Check, ...]:
    sentences = ((one, f"sasl.jaas.config: {one.sentence}") for one in rules)
    return tuple(replace(one, sentence=text, kind=Kind.NO_EFFECT) for one, text in sentences)


#: The options of a token endpoint.
ENDPOINT_STORE_RULES = _in_module(STORE_RULES)

#: How the beginning of many options' names ends.
MANY: Final = ("_", ".")


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A known login module of ``sasl.jaas.config``: its mechanisms, and its options by name.

    An option name that ends in ``_`` or ``.`` means all names that begin with it.
    """

    mechanisms: tuple[str, ...]
    options: Mapping[str, Option]
    rules: tuple[Check, ...] = ()

    def find(self, name: str) -> Option | None:
        if name.endswith(MANY):
            return None
        beginnings = (b for b in self.options if b.endswith(MANY) and name.startswith(b))
        return self.options.get(next(beginnings, name))


def _endpoint_tls_options() -> Iterator[Option]:
    """Yields the TLS options of a login module for its connections to the token endpoint. They are
    the TLS options of the connections to brokers, each under two names: the same name, such as
    ``ssl.truststore.location``, and the name with the prefix ``oauth.``.

    The host name of the endpoint is always verified, because the endpoint gets a secret.
    """
    for option in SECURITY_OPTIONS:
        for prefix in ("", "oauth.") if option.name.startswith("ssl.") else ():
            here = replace(option, name=prefix + option.name)
            if option.status not in (Status.HONOURED, Status.NO_MEANING):
                here = replace(here, status=Status.REFUSED)
            if option.name == "ssl.endpoint.identification.algorithm":
                here = replace(here, rule=one_of("https", same=any_case))
            yield here


@cache
def login_modules() -> Mapping[str, LoginModule]:
    """Returns the known login modules by class name, without the package. The first call reads
    ``login_modules.toml``.
    """
    import tomllib
    from importlib.resources import files

    text = files(__package__).joinpath("login_modules.toml").read_text("utf-8")
    return {name: _login_module(one) for name, one in tomllib.loads(text).items()}


def _login_module(data: Mapping[str, Any]) -> LoginModule:
    rows: list[Option] = []
    for one in data["options"]:
        type_, status = OptionType(one.get("type", "string")), Status[one.get("status", "HONOURED")]
        rows += alike(one["names"], type_, status, one.get("note", ""))
    if data.get("tls", False):
        rows += _endpoint_tls_options()
    rules = (_rule(r["given"], r.get("unless", ""), r["message"]) for r in data.get("rules", ()))
    return LoginModule(tuple(data["mechanisms"]), {o.name: o for o in rows}, _in_module(rules))


def is_security_option(name: str) -> bool:
    """Returns True if ``name`` is an option of TLS or SASL. Such an option has an effect only with
    some values of ``security.protocol``.
    """
    return name.startswith(("ssl.", "sasl."))


def mechanisms_of(name: str) -> tuple[str, ...]:
    """The SASL mechanisms that use the option ``name``."""
    counting = (m for beginning, m in _OF_MECHANISMS.items() if name.startswith(beginning))
    return next(counting, MECHANISMS)


#: Spark's default ``spark.redaction.regex``: a value that matches it is hidden completely.
_REDACTED: Final = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
#: Switches and counts.
_NO_SECRET: Final = re.compile(r"true|false|[0-9]{0,9}", re.IGNORECASE)
_OPTION: Final = re.compile(r"[A-Za-z][\w.-]{0,63}", re.ASCII)
#: Types of options that are only text; a value of any other type is parsed and checked.
_TEXTS: Final = (OptionType.STRING, OptionType.PASSWORD, OptionType.LIST)


def shown_by_spark(text: str, *, own_options: bool) -> tuple[str, ...]:
    """Finds the secrets that Spark would show in plans and event logs. ``text`` is the value of
    ``sasl.jaas.config``. Returns the names of the login module's options with these secrets.
    :func:`inline_secrets` explains ``own_options``.

    The result is empty if ``text`` contains a word such as "password" (``spark.redaction.regex``),
    because Spark then hides the whole text.
    """
    return inline_secrets(text, own_options=own_options) if _REDACTED.search(text) is None else ()


def refuse_inline(value: object, spelled: str, file: str) -> None:
    """Raises ConfigError if ``value`` is a secret as plain text, and not a reference to a secret.

    Call this function only for options whose values Spark shows in plans and event logs. The hint
    of the error has the words "or put", followed by the text ``file``. An example is "or put it
    into a configFile".
    """
    if isinstance(value, Password) and value.value and not is_one_reference(value.value):
        raise ConfigError(
            f"{spelled} is given inline, and Spark would show it: in plans, in its UI and in event"
            " logs",
            hint=f"give a reference, {spelled}=${{file:/path/to/it}} or ${{env:NAME}}, or put"
            f" {file}; {REPLACE_IT}",
            kind=Kind.INLINE_SECRET,
        )


def inline_secrets(text: str, *, own_options: bool) -> tuple[str, ...]:
    """Returns the names of the login module's options whose values are secrets as plain text.
    ``text`` is the value of ``sasl.jaas.config``. The result is empty if ``text`` can't be parsed.

    An option that no known login module has counts as a secret in two cases:

    * The login module is unknown.
    * ``own_options`` is true: a user's class may read the options.
    """
    try:
        entry = parse_jaas_config(text)
    except ConfigError:
        return ()
    found = []
    for name, value in entry.options.items():
        option = next(filter(None, (m.find(name) for m in login_modules().values())), None)
        unknown = own_options or entry.name not in login_modules()
        may_be = unknown if option is None else option.secret
        if may_be and not any(p.fullmatch(value) for p in (_NO_SECRET, REFERENCE)):
            found.append(name)
    return tuple(found)


def without_effect(entry: JaasEntry) -> Iterator[tuple[str, str]]:
    """Yields the options of the login module that have no effect in this package, each with the
    reason. The caller logs a warning for each such option.
    """
    module = login_modules().get(entry.name)
    for name in entry.options if module is not None else ():
        option = module.find(name) if module is not None else None
        if option is not None and option.note and option.status is Status.NO_MEANING:
            yield name, option.note


def check_options(entry: JaasEntry, module: LoginModule) -> None:
    """Checks all options in ``entry``, the parsed ``sasl.jaas.config``. Raises ConfigError for an
    invalid option.

    An option is invalid in three cases:

    * ``module`` does not have or does not support this option.
    * Its value is empty or wrong.
    * It contradicts the other options, or has no effect with them.
    """
    for name in entry.options:
        option, value = module.find(name), entry.get(name)
        if option is None:
            raise _unknown(name, entry, module)
        if option.status is Status.REFUSED:
            raise wrong_module(f"sasl.jaas.config: {safe_text(name)} is not supported", option.note)
        if not value:
            raise wrong_module(
                f"sasl.jaas.config: {safe_text(name)} is empty",
                "remove it, or give it a value: an empty one would be as good as none",
            )
        if option.rule is not None or option.type not in _TEXTS:
            where, text = f"{name}, in sasl.jaas.config,", text_of(value)
            if text != text.strip() and option.status is Status.HONOURED:  # (Java does not trim)
                raise option.error(text, "It must not begin or end with a blank", where)
            option.read(Password(text), where)
    check_rules(module.rules, entry.options)


def _unknown(name: str, entry: JaasEntry, module: LoginModule) -> ConfigError:
    names = [n for n, o in module.options.items() if o.status is Status.HONOURED]
    beginnings = (n for n in names if n.endswith(MANY) and letters(name).startswith(letters(n)))
    free = [n for n in names if n not in entry.options]
    near = next(beginnings, None) or nearest_name(name.lower(), free)
    option = None if near is None else module.options[near]
    hint = f"it has {', '.join(names)}"
    if near is not None:
        hint = f"did you mean {near}{'NAME' if near.endswith(MANY) else ''}?"
    if option is None or option.secret:
        hint = f"{hint}; {REPLACE_IT}"
    shown = safe_text(name) if _OPTION.fullmatch(name) else HIDDEN
    return wrong_module(f"sasl.jaas.config: {entry.name} has no option {shown}", hint)


def wrong_module(what: str, hint: str) -> ConfigError:
    """Creates the error for a wrong login module or for a wrong option in it."""
    return ConfigError(what, hint=hint, kind=Kind.LOGIN_MODULE)
