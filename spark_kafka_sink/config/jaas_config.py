"""``sasl.jaas.config``: one login module and its options, as Java's ``JaasConfig`` reads them.

Owns: the grammar ``Module flag name=value ... ;`` with Java's quotes, escapes and comments, and
which options Spark would show. Never: what a module means (``sasl_settings.py``). No message shows
a part of the text: any of it may be a secret.

References stay in it unresolved: they are resolved one value at a time, after parsing
(``secret_references.resolve``), so that a resolved value can't become another option.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import ConfigError, safe_text
from spark_kafka_sink.security.password import Password, Text

#: Databricks ships Kafka's classes with this prefix, and its users' options have it.
_SHADED: Final = "kafkashaded."
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_BLANK: Final = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
#: A reference, which is one value whatever it contains (``secret_references``).
_REFERENCE: Final = re.compile(r"\$\{(?:env|file):[^}\n\r]*\}")
#: A value without quotes: anything but blanks and special characters.
_WORD: Final = re.compile(rf"""(?:{_REFERENCE.pattern}|[^\s"'=;])+""")
#: Java's StreamTokenizer.
_ESCAPES: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_OCTAL: Final = re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?")

#: Spark's default ``spark.redaction.regex``: a value that holds one of them is hidden whole.
_REDACTED: Final = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
#: Switches and counts.
_NO_SECRET: Final = re.compile(r"true|false|[0-9]{0,9}", re.IGNORECASE)
#: Options of the supported login modules that are not secrets.
_PUBLIC: Final = re.compile(
    r"username|clientId|scope|(?:oauth\.)?(?:client\.id|scope|audience|ssl\..*(?:location|type))"
    r"|extension_.+|unsecuredLogin.+|oauth\.ssl\.endpoint\.identification\.algorithm"
    r"|awsProfileName|awsRoleArn|awsRoleSessionName|awsRoleExternalId|awsStsRegion|awsDebugCreds"
    r"|awsCredentialsProvider|awsMaxRetries|awsMaxBackOffTimeMs"
    r"|serviceName|principal|keyTab|useKeyTab|storeKey|useTicketCache|ticketCache|renewTGT"
    r"|doNotPrompt|isInitiator|refreshKrb5Config|debug"
)

_HINT: Final = 'it looks like: org.example.SomeLoginModule required username="..." password="...";'


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module's class, without ``kafkashaded.``, and its options, which may be secrets."""

    module: str = field(repr=False)
    options: dict[str, str] = field(repr=False)
    #: The references of the resolved options.
    references: dict[str, str] = field(default_factory=dict)
    #: The reference to the whole text, if it was one.
    reference: str | None = None

    def get(self, name: str) -> Text:
        """The option's text, or ""; a resolved value keeps its reference."""
        value = self.options.get(name, "")
        reference = self.reference or self.references.get(name)
        return Password(value, reference) if value and reference is not None else value

    @property
    def name(self) -> str:
        """The class without its package."""
        return self.module.rpartition(".")[2]

    @property
    def shown(self) -> str:
        """The class as messages name it."""
        return self.reference or safe_text(self.module)


#: What an absent sasl.jaas.config says.
NO_MODULE: Final = JaasEntry("", {})


def without_shading(name: str) -> str:
    """A class's name as Kafka has it, where Databricks put ``kafkashaded.`` before it."""
    return name.removeprefix(_SHADED)


def shown_by_spark(text: str) -> tuple[str, ...]:
    """Options of the login module that may be secrets and are inline in ``text``, when Spark's
    redaction would show it, because it has none of the redacted words.

    References, and options that are not secrets, may be shown. () for a text that can't be parsed.
    """
    if _REDACTED.search(text) is not None:
        return ()
    try:
        entry = parse_jaas_config(text)
    except ConfigError:
        return ()
    return tuple(
        name
        for name, value in entry.options.items()
        if not any(
            pattern.fullmatch(text)
            for pattern, text in ((_PUBLIC, name), (_NO_SECRET, value), (_REFERENCE, value))
        )
    )


def parse_jaas_config(text: str) -> JaasEntry:
    """The one module of ``text``. ConfigError when it can't be read, or when there are two."""
    reader = _Reader(text)
    module = reader.word("the login module's class")
    flag = reader.word("the control flag (required)")
    if flag.lower() not in _FLAGS:
        raise _error("the word after the login module must be required", reader)
    options: dict[str, str] = {}
    while not reader.accept(";"):
        name = reader.value("an option's name, or the ; at the end")
        if not reader.accept("="):
            raise _error("an option has no =value", reader)
        value = reader.value("an option's value")
        if name in options:
            raise _error("an option comes twice", reader)
        options[name] = value
    if not reader.at_end:
        raise _error("there is more than one login module, or text, after the first ;", reader)
    return JaasEntry(without_shading(module), options)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self.position = 0
        self._skip()

    @property
    def at_end(self) -> bool:
        return self.position == len(self._text)

    def accept(self, symbol: str) -> bool:
        if not self._text.startswith(symbol, self.position):
            return False
        self.position += 1
        self._skip()
        return True

    def word(self, what: str) -> str:
        found = _WORD.match(self._text, self.position)
        if found is None:
            raise _error(f"{what} is missing", self)
        self.position = found.end()
        self._skip()
        return found.group()

    def value(self, what: str) -> str:
        """A word, or anything in quotes."""
        quote = self._text[self.position : self.position + 1]
        if quote not in ('"', "'"):
            return self.word(what)
        out: list[str] = []
        position = self.position + 1
        while True:
            character = self._text[position : position + 1]
            if character in ("", "\n", "\r"):
                raise _error("a quote is not closed", self)
            position += 1
            if character == quote:
                break
            if character == "\\":
                character, position = self._escaped(position)
            elif (reference := _REFERENCE.match(self._text, position - 1)) is not None:
                character, position = reference.group(), reference.end()
            out.append(character)
        self.position = position
        self._skip()
        return "".join(out)

    def _escaped(self, position: int) -> tuple[str, int]:
        octal = _OCTAL.match(self._text, position)
        if octal is not None:
            return chr(int(octal.group(), 8)), octal.end()
        character = self._text[position : position + 1]
        if not character:
            raise _error("a quote is not closed", self)
        return _ESCAPES.get(character, character), position + 1

    def _skip(self) -> None:
        blank = _BLANK.match(self._text, self.position)
        if blank is not None:
            self.position = blank.end()


def _error(what: str, reader: _Reader) -> ConfigError:
    return ConfigError(
        f"sasl.jaas.config can't be read: {what} (at character {reader.position + 1})",
        hint=_HINT,
        kind=Kind.LOGIN_MODULE,
    )
