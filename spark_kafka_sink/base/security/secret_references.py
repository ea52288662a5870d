"""References to secrets in the values of options: their syntax, and their replacement by the
secret.

* ``${env:NAME}`` is an environment variable of the process, as in Kafka's EnvVarConfigProvider.
* ``${file:/path}`` is the content of a file, without the newline at its end. An example is a
  mounted secret.
* ``${file:/path:key}`` is the value of a key in a file in Java's properties format, as in Kafka's
  FileConfigProvider. The value may contain references.

A value may contain a reference together with other text. ``config.providers`` is not needed. Spark
shows, logs and pickles only the reference. The driver and each executor replace the reference when
they create a network client. So the secret is only in processes that open connections. A value from
a reference has the type Password, even if the value is a path or an address.

Any other ``${...}`` is plain text, because a password may contain any characters. Two kinds of
values are an error, because the user probably meant a reference:

* The whole value refers to a config provider other than ``env`` and ``file``. In
  ``sasl.jaas.config``, this also applies to each quoted text.
* The value contains Databricks' ``{{secrets/scope/key}}``. Databricks replaces it only in the
  settings of a cluster.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import replace

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.security import allow_lists
from spark_kafka_sink.base.security.jaas_config import JaasEntry, parse_jaas_config
from spark_kafka_sink.base.security.java_properties import parse_properties
from spark_kafka_sink.base.security.local_files import UnusableFileError, decoded, read_file
from spark_kafka_sink.base.security.password import HIDDEN, Password

REFERENCE = re.compile(r"\$\{(?P<provider>env|file):(?P<what>[^}]*)\}")
#: A whole value ${provider:...} with an unknown provider: the user probably meant a reference.
_OTHER_PROVIDER = re.compile(r"\$\{(?!(?:env|file):)(?P<provider>[A-Za-z][A-Za-z0-9_-]*):[^}]*\}")
_OTHER_IN_QUOTES = re.compile(rf"(?P<quote>['\"])\s*{_OTHER_PROVIDER.pattern}\s*(?P=quote)")
_DATABRICKS = re.compile(r"\{\{\s*secrets/[^}]*\}\}")
ENVIRONMENT_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOGIN_MODULE = "sasl.jaas.config"

#: Beginnings of the names of options that take references.
REFERABLE = ("ssl.", "sasl.", "schema.registry.", "basic.auth.", "bearer.auth.")

REFERENCE_FORMS = "${env:NAME}, ${file:/path} and ${file:/path:key} are understood"


class UnresolvedReferenceError(ConfigError):
    """A reference to a secret has no value in this process."""

    default_kind = Kind.UNRESOLVED_REFERENCE

    @classmethod
    def of(cls, name: str, reference: str, problem: str, hint: str) -> UnresolvedReferenceError:
        """Creates the error. ``name`` is the option, and ``problem`` is the reason why the
        ``reference`` has no value.
        """
        host = platform.node()
        return cls(f"{name}: {safe_text(reference)} {problem}, on host {host}", hint=hint)

    def seen_by(self, role: str) -> UnresolvedReferenceError:
        """Returns a copy of this error. The message of the copy also has the role of the process:
        "the driver" or "an executor".
        """
        return type(self)(f"{self.message} ({role})", hint=self.hint)


def has_references(value: object) -> bool:
    """True if ``value`` contains references that must be replaced.

    False for a value that comes from a reference, even if this value looks like another reference.
    """
    if isinstance(value, Password) and value.reference is not None:
        return False
    text = value.value if isinstance(value, Password) else value
    return isinstance(text, str) and REFERENCE.search(text) is not None


def is_one_reference(text: str) -> bool:
    """True if ``text`` is exactly one reference. Then the text itself is not a secret."""
    return REFERENCE.fullmatch(text.strip()) is not None


def file_reference(path: str, key: str) -> str:
    """Creates a reference to one line of a properties file: ``${file:<path>:<key>}``. Raises
    ConfigError if ``path`` or ``key`` has characters that are not possible in a reference.
    """
    if any(c in path for c in ":}") or any(c in key for c in ":}"):
        raise ConfigError(
            f"{safe_text(path)} can't be referred to: a path with ':' or '}}' has no ${{file:...}}",
            hint="give it another name",
            kind=Kind.NO_REFERENCE,
        )
    return f"${{file:{path}:{key}}}"


def check_forms(name: str, spelled: str, text: str, *, accepted: bool) -> None:
    """Raises ConfigError if the value ``text`` of an option contains a reference that is not
    supported.

    ``name`` is the option's name in Kafka, and ``spelled`` is the name in the message. If
    ``accepted`` is False, the option supports no references.
    """
    if accepted:
        refuse_others(name, spelled, text)
    for match in REFERENCE.finditer(text):
        reference, what = match.group(), match["what"]
        if not accepted:
            problem = "is not looked up in this option"
        elif match["provider"] == "env" and ENVIRONMENT_VARIABLE.fullmatch(what) is None:
            problem = "names no environment variable"
        elif match["provider"] == "file" and not what.partition(":")[0]:
            problem = "names no file"
        else:
            continue
        hint = "references are for secrets, users and paths of TLS, SASL and a schema registry"
        raise ConfigError(
            f"{spelled}: {safe_text(reference)} {problem}",
            hint=REFERENCE_FORMS if accepted else hint,
            kind=Kind.NO_REFERENCE,
        )


def refuse_others(name: str, spelled: str, text: str) -> None:
    """Raises ConfigError if ``text``, the value of an option, has a reference that this package
    does not replace. Without the error, the reference itself would be sent to a server as the
    password.

    Such references are ``${...}`` with a config provider other than ``env`` and ``file``, and
    Databricks' ``{{secrets/...}}``. ``name`` is the option's name in Kafka, and ``spelled`` is the
    name in the message.
    """
    other = _OTHER_PROVIDER.fullmatch(text.strip())
    if other is None and name == _LOGIN_MODULE:
        other = _OTHER_IN_QUOTES.search(text)
    # The name of the provider is shown, its argument is not.
    if other is not None:
        raise ConfigError(
            f"{spelled}: references of the provider {safe_text(other['provider'])!r} are not"
            " looked up",
            hint=REFERENCE_FORMS,
            kind=Kind.NO_REFERENCE,
        )
    if _DATABRICKS.search(text):
        raise ConfigError(
            f"{spelled}: {{{{secrets/...}}}} is not looked up here",
            hint="Databricks replaces this text in the environment variables of a cluster: set a"
            " variable to it there, and write ${env:NAME} here",
            kind=Kind.NO_REFERENCE,
        )


def resolve(options: Mapping[str, object]) -> dict[str, object]:
    """Replaces all references in the values of ``options`` by the secrets. The keys of ``options``
    are Kafka's names of the options. The result has the same keys.

    A value with a reference becomes a Password, which shows the reference. A sasl.jaas.config with
    references becomes a JaasEntry with Passwords.

    Raises UnresolvedReferenceError, with the option and the reference, if a reference has no value.
    Raises NotAllowedError if the operator's allow-lists do not allow a file or environment
    variable.
    """
    return {name: _resolved(name, value) for name, value in options.items()}


def _resolved(name: str, value: object) -> object:
    if not has_references(value):
        return value
    if isinstance(value, Password):
        if name == _LOGIN_MODULE:
            return _login_module(name, value.value)
        # Text around a reference may belong to the secret.
        shown = value.value.strip() if is_one_reference(value.value) else HIDDEN
        return Password(_not_empty(name, value.value), shown)
    text = f"{value}"
    return Password(_not_empty(name, text), safe_text(text))


def _login_module(name: str, text: str) -> JaasEntry:
    """Parses a sasl.jaas.config, and then replaces the references in its values."""
    whole = REFERENCE.fullmatch(text.strip())
    if whole is None:
        return _looked_up_values(name, parse_jaas_config(text), nested=True)
    # The whole value of the option is one reference: the secret is the whole login module.
    found = _look_up(name, whole)
    has_more = whole["provider"] == "file" and ":" in whole["what"]
    if has_more:
        refuse_others(name, name, found)
        again = REFERENCE.fullmatch(found.strip())
        if again is not None:
            found, has_more = _look_up(name, again), False
    try:
        entry = replace(parse_jaas_config(found), reference=whole.group())
    except ConfigError as error:
        raise ConfigError(f"{safe_text(whole.group())}: {error.message}", hint=error.hint) from None
    return _looked_up_values(name, entry, nested=False) if has_more else entry


def _looked_up_values(name: str, entry: JaasEntry, *, nested: bool) -> JaasEntry:
    options, references = dict(entry.options), {}
    for key, value in entry.options.items():
        if has_references(value):
            options[key] = _not_empty(f"{name}: {safe_text(key)}", value, nested=nested)
            references[key] = value.strip() if is_one_reference(value) else HIDDEN
    return replace(entry, options=options, references=references)


def _expand(name: str, text: str, *, nested: bool = True) -> str:
    """Replaces the references in ``text`` by their values. If a value is a line of a properties
    file and ``nested`` is True, also replaces the references in this line.
    """

    def one(match: re.Match[str]) -> str:
        found = _look_up(name, match)
        if not nested or match["provider"] != "file" or ":" not in match["what"]:
            return found
        refuse_others(name, name, found)
        return _expand(name, found, nested=False)

    return REFERENCE.sub(one, text)


def _not_empty(name: str, text: str, *, nested: bool = True) -> str:
    """Replaces the references in the value of an option. Raises an error if the result is empty,
    because an empty result would mean that the option is not set.
    """
    expanded = _expand(name.partition(": ")[0], text, nested=nested)
    if not expanded:
        hint = "an empty value would count as none: give it one, or remove the reference"
        raise UnresolvedReferenceError.of(name, text.strip(), "is empty", hint)
    return expanded


def _look_up(name: str, match: re.Match[str]) -> str:
    reference, what = match.group(), match["what"]
    if match["provider"] == "file":
        return _from_file(name, reference, what)
    allow_lists.check_variable(what, f"{name}: {safe_text(reference)}")
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
    shown = f"{name}: {safe_text(reference)}"
    hint = "the driver and every executor need the file, readable for the user who runs them"

    def check(path: str) -> None:
        allow_lists.check_file(path, shown, line=bool(key))

    try:
        text = decoded(read_file(location, shown, check=check))
    except UnusableFileError as error:
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
