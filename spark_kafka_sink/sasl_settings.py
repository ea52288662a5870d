"""What the ``sasl.`` options say together: one mechanism, and what it needs.

Owns: the choice of the mechanism, the login modules of ``sasl.jaas.config`` that it may have, the
short form ``sasl.username`` and ``sasl.password``, and which of them contradict each other. Never:
a connection, a token, a file.

The driver asks for the settings to find mistakes before any task starts, and throws them away;
each producer asks again, where secrets by reference have their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.errors import ConfigError, safe_text
from spark_kafka_sink.jaas_config import JaasEntry, parse_jaas_config
from spark_kafka_sink.secret_references import has_references, is_one_reference
from spark_kafka_sink.secrets import Password

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
#: Every mechanism that is spoken here.
MECHANISMS: Final = (PLAIN, *SCRAM)
#: Java's default.
DEFAULT_MECHANISM: Final = "GSSAPI"

#: Login module (without package) to the mechanisms that it serves.
_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": SCRAM,
}


@dataclass(frozen=True, slots=True)
class UserAndPassword:
    """For PLAIN and SCRAM."""

    username: str
    password: Password


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """One mechanism, by its registered name, and what it needs."""

    mechanism: str
    user: UserAndPassword | None = None


def sasl_settings(options: Mapping[str, object]) -> SaslSettings:
    """The settings of ``options`` (the ``sasl.`` ones that were set, by Java's names).

    Raises ConfigError that names the options and never shows a secret.
    """
    entry = _jaas(options)
    mechanism = _mechanism(options, entry)
    if entry is not None:
        _check_module(entry, mechanism)
    return SaslSettings(mechanism, _user(options, entry, mechanism))


def _jaas(options: Mapping[str, object]) -> JaasEntry | None:
    text = text_of(options.get("sasl.jaas.config"))
    return parse_jaas_config(text) if text else None


def _mechanism(options: Mapping[str, object], entry: JaasEntry | None) -> str:
    given = text_of(options.get("sasl.mechanism"))
    mechanism = (given or DEFAULT_MECHANISM).upper()
    if mechanism in MECHANISMS:
        return mechanism
    if given:
        raise ConfigError(
            f"sasl.mechanism={safe_text(given)} is not supported",
            hint=f"supported are {', '.join(MECHANISMS)}",
        )
    serves = _MODULES.get(entry.name, ()) if entry is not None else ()
    raise ConfigError(
        f"sasl.mechanism is not set; Kafka's default, {DEFAULT_MECHANISM}, is not supported",
        hint=f"set it to {' or '.join(serves or MECHANISMS)}",
    )


def _check_module(entry: JaasEntry, mechanism: str) -> None:
    serves = _MODULES.get(entry.name)
    if serves is None:
        raise ConfigError(
            f"sasl.jaas.config: the login module {safe_text(entry.module)} is not known here",
            hint=f"known are {', '.join(_MODULES)}",
        )
    if mechanism not in serves:
        raise ConfigError(
            f"sasl.jaas.config has a {entry.name}, but sasl.mechanism is {mechanism}",
            hint=f"a {entry.name} goes with {' or '.join(serves)}",
        )


def _user(
    options: Mapping[str, object], entry: JaasEntry | None, mechanism: str
) -> UserAndPassword:
    short = {n for n in ("sasl.username", "sasl.password") if text_of(options.get(n))}
    if entry is not None:
        if short:
            raise ConfigError(
                f"sasl.jaas.config and {' and '.join(sorted(short))} are both set, and one of them"
                " would not count",
                hint="keep sasl.jaas.config, or sasl.username and sasl.password",
            )
        if entry.options.get("tokenauth", "").lower() == "true":
            raise ConfigError(
                "sasl.jaas.config: tokenauth=true (a delegation token) is not supported",
                hint="a delegation token ends with the JVM that renews it; use the user's own"
                " SCRAM credential",
            )
        username, password = entry.options.get("username"), entry.options.get("password")
        where = f"sasl.jaas.config: the {entry.name} needs username and password"
    else:
        username = text_of(options.get("sasl.username"))
        password = text_of(options.get("sasl.password"))
        where = f"sasl.mechanism={mechanism} needs sasl.username and sasl.password"
    if not username or not password:
        missing = (
            "both are"
            if not username and not password
            else ("the password is" if username else "the name is")
        )
        raise ConfigError(
            f"{where}; {missing} missing",
            hint="or sasl.jaas.config, as Kafka's Java client has it" if entry is None else None,
        )
    if "\0" in username or "\0" in password:
        raise ConfigError("a SASL name or password must not contain the character NUL")
    return UserAndPassword(username, Password(password))


def can_not_be_read_yet(options: Mapping[str, object]) -> bool:
    """The mechanism, or all of ``sasl.jaas.config``, is a reference that is looked up later.

    A reference within a login module's options stands for its value in every check.
    """
    return has_references(options.get("sasl.mechanism")) or is_one_reference(
        text_of(options.get("sasl.jaas.config"))
    )


def text_of(value: object) -> str:
    """An option's text; nothing set is the empty text."""
    if isinstance(value, Password):
        return value.value
    return "" if value is None else str(value)
