"""Parses ``sasl.jaas.config``: a login module and its options, as Java's ``JaasConfig`` does.

The grammar is ``Module flag name=value ... ;``, with Java's quotes, escapes and comments. No error
contains a value, because each value can be a secret.

References to secrets stay in the parsed values. ``secret_references.resolve`` replaces them later,
so the content of a secret is never parsed as another option.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.security.password import HIDDEN, REPLACE_IT, Password, Text

#: The JVM packages that a vendor puts before the names of Kafka's and AWS's classes. Examples are
#: Databricks' packages kafkashaded. and shadedmskiam. Options of these vendors' users have such
#: names.
_SHADED: Final = re.compile(r"(?:[a-z0-9_]*shaded[a-z0-9_]*\.)+(?=(?:com|io|org|software)\.)")
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_BLANK: Final = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
#: A reference, which is one value whatever it contains (``secret_references``).
REFERENCE: Final = re.compile(r"\$\{(?:env|file):[^}\n\r]*\}")
#: A value without quotes: anything but blanks and special characters.
_WORD: Final = re.compile(rf"""(?:{REFERENCE.pattern}|[^\s"'=;])+""")
#: Java's StreamTokenizer.
_ESCAPES: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_OCTAL: Final = re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?")

#: The pattern of a login module's class name. Any other text can be a secret.
_CLASS: Final = re.compile(r"(?:[a-z][a-z0-9_]*\.)+[A-Z][A-Za-z0-9]*|[A-Z][A-Za-z0-9]*LoginModule")
_HINT: Final = 'it looks like: org.example.SomeLoginModule required username="..." password="...";'


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module: the name of its class, and its options. The values of options can be secrets.
    The prefix of a vendor is removed from the class name (:func:`without_shading`).
    """

    module: str = field(repr=False)
    options: dict[str, str] = field(repr=False)
    #: The references of the resolved options.
    references: dict[str, str] = field(default_factory=dict)
    #: The reference to the whole text, if it was one.
    reference: str | None = None

    def get(self, name: str) -> Text:
        """The value of the option ``name``, or an empty text if the option is not set. If the value
        comes from a reference to a secret, it is a Password that shows the reference.
        """
        value = self.options.get(name, "")
        reference = self.reference or self.references.get(name)
        return Password(value, reference) if value and reference is not None else value

    @property
    def name(self) -> str:
        """The class name of the login module without its package."""
        return self.module.rpartition(".")[2]

    @property
    def shown(self) -> str:
        """The class name of the login module, for messages.

        If the name comes from a reference to a secret, returns the reference. If the name does not
        look like a class name, returns ``[hidden]``, because the text can be a secret.
        """
        if self.reference is not None:
            return self.reference
        return safe_text(self.module) if _CLASS.fullmatch(self.module) else HIDDEN


#: The entry if the option sasl.jaas.config is not set: no login module, and no options.
NO_MODULE: Final = JaasEntry("", {})


def without_shading(name: str) -> str:
    """Removes the package that a vendor has put before Kafka's class name.

    Example: ``kafkashaded.org.apache.kafka.X`` becomes ``org.apache.kafka.X``.
    """
    shaded = _SHADED.match(name)
    return name if shaded is None else name[shaded.end() :]


def parse_jaas_config(text: str) -> JaasEntry:
    """Parses the text of ``sasl.jaas.config``. Raises ConfigError if the text is not valid, or has
    more than one login module.
    """
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
        self.text = text
        self.position = 0
        self._skip()

    @property
    def at_end(self) -> bool:
        return self.position == len(self.text)

    def accept(self, symbol: str) -> bool:
        if not self.text.startswith(symbol, self.position):
            return False
        self.position += 1
        self._skip()
        return True

    def word(self, what: str) -> str:
        found = _WORD.match(self.text, self.position)
        if found is None:
            raise _error(f"{what} is missing", self)
        self.position = found.end()
        self._skip()
        return found.group()

    def value(self, what: str) -> str:
        """Reads a word or a quoted text. In errors, ``what`` describes this word or text."""
        quote = self.text[self.position : self.position + 1]
        if quote not in ('"', "'"):
            return self.word(what)
        out: list[str] = []
        position = self.position + 1
        while True:
            character = self.text[position : position + 1]
            if character in ("", "\n", "\r"):
                raise _error("a quote is not closed", self)
            position += 1
            if character == quote:
                break
            if character == "\\":
                character, position = self._escaped(position)
            elif (reference := REFERENCE.match(self.text, position - 1)) is not None:
                character, position = reference.group(), reference.end()
            out.append(character)
        self.position = position
        self._skip()
        return "".join(out)

    def _escaped(self, position: int) -> tuple[str, int]:
        octal = _OCTAL.match(self.text, position)
        if octal is not None:
            return chr(int(octal.group(), 8)), octal.end()
        character = self.text[position : position + 1]
        if not character:
            raise _error("a quote is not closed", self)
        return _ESCAPES.get(character, character), position + 1

    def _skip(self) -> None:
        blank = _BLANK.match(self.text, self.position)
        if blank is not None:
            self.position = blank.end()


def _error(what: str, reader: _Reader) -> ConfigError:
    named = _CLASS.match(reader.text.strip()) is not None
    return ConfigError(
        f"sasl.jaas.config can't be read: {what} (at character {reader.position + 1})",
        hint=_HINT if named else f"{_HINT} {REPLACE_IT}",
        kind=Kind.LOGIN_MODULE,
    )
