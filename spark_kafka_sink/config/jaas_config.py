"""``sasl.jaas.config``: one login module and its options, as Java's ``JaasConfig`` reads them.

Owns: the grammar ``Module flag name=value ... ;`` with Java's quotes, escapes and comments, which
options a module has (by ``LOGIN_MODULES``), and which of them Spark would show. Never: what a
module means (``sasl_settings.py``). No message shows a value: any of it may be a secret.

References stay in it unresolved: they are resolved one value at a time, after parsing
(``secret_references.resolve``), so that a resolved value can't become another option.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.security.password import HIDDEN, REPLACE_IT, Password, Text
from spark_kafka_sink.config.option import OptionType, Status
from spark_kafka_sink.config.security_options import (
    LOGIN_MODULES,
    MANY,
    LoginModule,
    check_rules,
)
from spark_kafka_sink.config.suggestions import letters, nearest_name

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
#: What a class's name looks like, and what an option's: anything else may be a secret.
_CLASS: Final = re.compile(r"(?:[a-z][a-z0-9_]*\.)+[A-Z][A-Za-z0-9]*|[A-Z][A-Za-z0-9]*LoginModule")
_OPTION: Final = re.compile(r"[A-Za-z][\w.-]{0,63}", re.ASCII)
#: Of what is read as more than text.
_TEXTS: Final = (OptionType.STRING, OptionType.PASSWORD, OptionType.LIST)

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
        """The class as messages name it; not a word that is none."""
        if self.reference is not None:
            return self.reference
        return safe_text(self.module) if _CLASS.fullmatch(self.module) else HIDDEN


#: What an absent sasl.jaas.config says.
NO_MODULE: Final = JaasEntry("", {})


def without_shading(name: str) -> str:
    """A class's name as Kafka has it, where Databricks put ``kafkashaded.`` before it."""
    return name.removeprefix(_SHADED)


def shown_by_spark(text: str, *, own_options: bool) -> tuple[str, ...]:
    """:func:`inline_secrets` of ``text`` when Spark's redaction would show it, because it has none
    of the redacted words.
    """
    return inline_secrets(text, own_options=own_options) if _REDACTED.search(text) is None else ()


def inline_secrets(text: str, *, own_options: bool) -> tuple[str, ...]:
    """Options of the login module that may be secrets and are inline in ``text``.

    () for a text that can't be parsed. With ``own_options`` the module has other options than its
    own, for a class of the user's.
    """
    try:
        entry = parse_jaas_config(text)
    except ConfigError:
        return ()
    found = []
    for name, value in entry.options.items():
        option = next(filter(None, (m.find(name) for m in LOGIN_MODULES.values())), None)
        may_be = own_options or entry.name not in LOGIN_MODULES if option is None else option.secret
        if may_be and not any(p.fullmatch(value) for p in (_NO_SECRET, _REFERENCE)):
            found.append(name)
    return tuple(found)


def check_options(entry: JaasEntry, module: LoginModule) -> None:
    """ConfigError for a name that ``module`` does not have, a value that breaks its rule, and a
    combination of which one would not count.
    """
    for name in entry.options:
        option = module.find(name)
        if option is None:
            raise _unknown(name, entry, module)
        if option.status is Status.REFUSED:
            raise ConfigError(
                f"sasl.jaas.config: {safe_text(name)} is not supported",
                hint=option.note,
                kind=Kind.LOGIN_MODULE,
            )
        value = entry.get(name)
        if not value:
            raise ConfigError(
                f"sasl.jaas.config: {safe_text(name)} is empty",
                hint="remove it, or give it a value: an empty one would be as good as none",
                kind=Kind.LOGIN_MODULE,
            )
        if option.rule is not None or option.type not in _TEXTS:
            hidden = value if isinstance(value, Password) else Password(value)
            option.read(hidden, f"{name}, in sasl.jaas.config,")
    check_rules(module.rules, entry.options, str, "sasl.jaas.config: ")


def _unknown(name: str, entry: JaasEntry, module: LoginModule) -> ConfigError:
    names = [n for n, o in module.options.items() if o.status is Status.HONOURED]
    beginnings = (n for n in names if n.endswith(MANY) and letters(name).startswith(letters(n)))
    near = next(beginnings, None) or nearest_name(name.lower(), names)
    option = None if near is None else module.options[near]
    hint = f"it has {', '.join(names)}"
    if near is not None:
        hint = f"did you mean {near}{'NAME' if near.endswith(MANY) else ''}?"
    if option is None or option.secret:
        hint = f"{hint}; {REPLACE_IT}"
    shown = safe_text(name) if _OPTION.fullmatch(name) else HIDDEN
    return ConfigError(
        f"sasl.jaas.config: {entry.name} has no option {shown}",
        hint=hint,
        kind=Kind.LOGIN_MODULE,
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
        """A word, or anything in quotes."""
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
            elif (reference := _REFERENCE.match(self.text, position - 1)) is not None:
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
