r"""Secrets by reference: ``${env:NAME}``, ``${file:/path}`` and ``${file:/path:key}`` in options.

Owns: the syntax, which options take it, and looking a reference up. Never: when (whoever opens
connections does it, on the driver and on each executor alike).

What Spark sees, shows, logs and pickles is the reference. The value exists in the process that
talks to brokers, from the making of a network client on.

=====================  ===========================================================================
``${env:NAME}``        an environment variable of the process
``${file:/path}``      all of a file, without the newline at its end (a mounted secret)
``${file:/path:key}``  one line of a file in Java's properties format; references in it count too
=====================  ===========================================================================

The first and the third are those of Kafka's EnvVarConfigProvider and FileConfigProvider, which need
no ``config.providers`` here. A reference may be a part of a value. Within the quotes of
``sasl.jaas.config`` what comes in is escaped, so that a password with a quote ends no string.
Anything else in ``${}`` is text, because passwords may hold anything; but a whole value, or all
between two quotes of ``sasl.jaas.config``, that looks like another provider's reference is an
error. So is Databricks' ``{{secrets/scope/key}}``, which it replaces in a cluster's settings only.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from spark_kafka_sink.errors import ConfigError, safe_text
from spark_kafka_sink.java_properties import parse_properties, read_bounded
from spark_kafka_sink.options import Option, OptionType, OptionValue
from spark_kafka_sink.secrets import Password

_REFERENCE = re.compile(r"\$\{(?P<provider>env|file):(?P<what>[^}]*)\}")
#: ${provider:...} as the whole value: meant as a reference, and of a provider that is not here.
_OTHER_PROVIDER = re.compile(r"\$\{(?!(?:env|file):)(?P<provider>[A-Za-z][A-Za-z0-9_-]*):[^}]*\}")
_OTHER_IN_QUOTES = re.compile(rf"(?P<quote>['\"])\s*{_OTHER_PROVIDER.pattern}\s*(?P=quote)")
_DATABRICKS = re.compile(r"\{\{\s*secrets/[^}]*\}\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Values whose quotes mean something, and what Java's tokenizer reads in them as another thing.
_QUOTED = frozenset({"sasl.jaas.config"})
_ESCAPED = {ord("\\"): "\\\\", ord("\n"): "\\n", ord("\r"): "\\r"}

_FORMS = "${env:NAME}, ${file:/path} and ${file:/path:key} are understood"


class UnresolvedReferenceError(ConfigError):
    """A reference leads nowhere in this process."""

    @classmethod
    def of(cls, name: str, reference: str, problem: str, hint: str) -> UnresolvedReferenceError:
        host = platform.node()
        return cls(f"{name}: {safe_text(reference)} {problem}, on host {host}", hint=hint)

    def seen_by(self, role: str) -> UnresolvedReferenceError:
        """The same, with what the process is for: "the driver", "an executor"."""
        return type(self)(f"{self.message} ({role})", hint=self.hint)


def takes_references(option: Option) -> bool:
    """Secrets, users, paths and addresses of TLS and SASL; never a choice among known words."""
    if not option.name.startswith(("ssl.", "sasl.")) or option.rule is not None:
        return False
    return option.type in (OptionType.PASSWORD, OptionType.STRING)


def has_references(value: object) -> bool:
    """Whether ``value`` can't be read before its references are looked up."""
    text = value.value if isinstance(value, Password) else value
    return isinstance(text, str) and _REFERENCE.search(text) is not None


def is_one_reference(text: str) -> bool:
    """Nothing but a reference: there is nothing to hide."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def file_reference(path: str, key: str) -> str:
    """The reference to one line of a properties file. ConfigError for what has no such form."""
    if any(c in path for c in ":}") or any(c in key for c in ":}"):
        raise ConfigError(
            f"{safe_text(path)} can't be referred to: a path with ':' or '}}' has no ${{file:...}}",
            hint="give it another name",
        )
    return f"${{file:{path}:{key}}}"


def check_references(option: Option, value: OptionValue, spelled: str) -> None:
    """ConfigError for a reference where none is taken, or one that nobody understands.

    Looks nothing up: what a driver lacks an executor may have.
    """
    text = value.value if isinstance(value, Password) else value
    if not isinstance(text, str):
        return
    if takes_references(option):
        _refuse_others(option.name, spelled, text)
    if "${" not in text:
        return
    found = list(_REFERENCE.finditer(text))
    if found and not takes_references(option):
        raise ConfigError(
            f"{spelled}: {safe_text(found[0].group())} is not looked up in this option",
            hint="references are for secrets, users and paths of TLS and SASL",
        )
    for match in found:
        reference, what = match.group(), match["what"]
        if match["provider"] == "env" and _VARIABLE.fullmatch(what) is None:
            raise ConfigError(
                f"{spelled}: {safe_text(reference)} names no environment variable", hint=_FORMS
            )
        if match["provider"] == "file" and not what.partition(":")[0]:
            raise ConfigError(f"{spelled}: {safe_text(reference)} names no file", hint=_FORMS)


def _refuse_others(name: str, spelled: str, text: str) -> None:
    """ConfigError for somebody else's reference, which would go to the broker as a password."""
    other = _OTHER_PROVIDER.fullmatch(text.strip())
    if other is None and name in _QUOTED:
        other = _OTHER_IN_QUOTES.search(text)
    # The name of a provider is shown, what it was asked for is not.
    if other is not None:
        raise ConfigError(
            f"{spelled}: references of the provider {safe_text(other['provider'])!r} are not"
            " looked up",
            hint=_FORMS,
        )
    if _DATABRICKS.search(text):
        raise ConfigError(
            f"{spelled}: {{{{secrets/...}}}} is not looked up here",
            hint="Databricks replaces it in the environment variables of a cluster: give it to one"
            " there, and write ${env:NAME} here",
        )


def resolve(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """``options``, by Java's names, with every reference looked up here and now.

    Raises UnresolvedReferenceError, which names option and reference and never a content.
    """
    return {name: _resolved(name, value) for name, value in options.items()}


def _resolved(name: str, value: OptionValue) -> OptionValue:
    if isinstance(value, Password):
        return Password(_expand(name, value.value)) if has_references(value) else value
    return _expand(name, value) if isinstance(value, str) else value


def _expand(name: str, text: str) -> str:
    """``text`` with its references replaced; those in a properties file count once more."""
    escapes = name in _QUOTED

    def from_file(reference: str, what: str) -> str:
        found = _from_file(name, reference, what)
        if ":" not in what:
            return found
        _refuse_others(name, name, found)
        return _replace(found, lambda r, p, w: _look_up(name, r, p, w), escapes=escapes)

    def one(reference: str, provider: str, what: str) -> str:
        if provider == "file":
            return from_file(reference, what)
        return _look_up(name, reference, provider, what)

    return _replace(text, one, escapes=escapes)


def _replace(text: str, look_up: Callable[[str, str, str], str], *, escapes: bool) -> str:
    def one(match: re.Match[str]) -> str:
        found = look_up(match.group(), match["provider"], match["what"])
        quote = _open_quote(text[: match.start()]) if escapes else ""
        return found.translate(_ESCAPED | {ord(quote): f"\\{quote}"}) if quote else found

    return _REFERENCE.sub(one, text)


def _open_quote(before: str) -> str:
    """The quote that ``before`` leaves open, or nothing."""
    quote = ""
    for character in re.sub(r"\\.", "", before, flags=re.DOTALL):
        if character in "'\"":
            quote = quote or character if character != quote else ""
    return quote


def _look_up(name: str, reference: str, provider: str, what: str) -> str:
    if provider == "file":
        return _from_file(name, reference, what)
    value = os.environ.get(what)
    if value is None:
        raise UnresolvedReferenceError.of(
            name,
            reference,
            "names an environment variable that is not set",
            "the driver and every executor need it: a secret of the pod, the cluster's"
            " environment, or spark-env.sh; os.environ of a running session is too late",
        )
    return value


def _from_file(name: str, reference: str, what: str) -> str:
    location, _, key = what.partition(":")
    hint = "the driver and every executor need the file, readable for the user who runs them"
    try:
        text = read_bounded(Path(location))
    except OSError as error:
        problem = f"can't be read: {error.strerror or type(error).__name__}"
        raise UnresolvedReferenceError.of(name, reference, problem, hint) from None
    except ValueError as error:
        problem = f"can't be read: {error}"
        raise UnresolvedReferenceError.of(name, reference, problem, hint) from None
    if not key:
        return text.rstrip("\r\n")
    value = parse_properties(text).get(key)
    if value is None:
        raise UnresolvedReferenceError.of(
            name, reference, "names a key that the file does not have", hint
        )
    return value
