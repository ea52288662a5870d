"""The definition of an option (type, rule, status), and the parsing of its value, as in Kafka's
``ConfigDef``.

:class:`Option` is one option, and :class:`Check` a rule for several options together. The options
themselves are in ``option_table``.

Messages are the same as Java's, because users search for them. They contain the value, shortened
and escaped, but never the value of a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded, safe_text
from spark_kafka_sink.base.security.password import HIDDEN, Password, text_of
from spark_kafka_sink.base.security.secret_references import REFERABLE, check_forms
from spark_kafka_sink.base.suggestions import letters, nearest_value, plain_number

#: The value of an option as a Python function takes it; Spark passes it on as text.
OptionText = str | int | float | bool

#: The hint for a batch write whose identity is wrong, or half of one.
TXN_ADVICE: Final = "set txnAppId to the job and its unit, such as a day, and txnVersion to 1"

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

#: The possible types of an option's value. Lists are tuples, so that a configuration can be hashed.
OptionValue = bool | int | float | str | tuple[str, ...] | Password | None

#: The characters that Java's String.trim removes: the space and every character below it.
_JAVA_BLANKS = "".join(map(chr, range(0x21)))
#: Longer ones can be no LONG, leading zeros aside.
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SHOWN_VALUE = re.compile(r"\{([a-zA-Z][\w.]*)\}")
_SHOWN_NAME = re.compile(r"<([a-z][\w.]*)>")
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")


class OptionType(Enum):
    """The type of an option (Java's ``ConfigDef.Type``). The value of a member is the name of the
    type in the documentation.
    """

    STRING = "string"
    BOOLEAN = "boolean"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"
    CLASS = "class"
    PASSWORD = "password"  # noqa: S105 - the name of a type


_BITS = {OptionType.SHORT: 16, OptionType.INT: 32, OptionType.LONG: 64}


class Status(Enum):
    """The treatment of an option if a user sets this option."""

    #: Read and obeyed.
    HONOURED = "honoured"
    #: Known and checked, but without any effect: one warning, unless it is set to nothing.
    NO_MEANING = "known, without effect"
    #: Java's producer had it once: one warning that names its successor.
    REMOVED = "removed by Kafka"
    #: Ignoring it would change what the user gets, and this version can't obey it: an error.
    LATER_REFUSED = "not supported by this version"
    #: Never accepted: an error with the reason.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for the value of one option (Java's ``ConfigDef.Validator``).

    ``words`` is the text of the rule in the documentation. ``checked`` is a function that gets the
    value. It returns the effective value, or raises ValueError with Java's message.
    """

    words: str
    checked: Callable[[Any], OptionValue]
    #: The only values, if they are few.
    choices: tuple[str, ...] = ()


def within(low: float, high: float | None = None, extra: int | None = None) -> Rule:
    """A rule for numbers from ``low`` to ``high``, both included (Java's ``Range``).

    ``extra`` is one more valid value outside the range, such as -1 for gzip's level.
    """

    def checked(value: float) -> float:
        if value == extra or (low <= value and (high is None or value <= high)):
            return value
        if extra is not None:
            raise ValueError(f"Value must be between {low} and {high} or equal to {extra}")
        raise ValueError(
            f"Value must be at least {low}" if value < low else f"Value must be no more than {high}"
        )

    words = f"at least {low}" if high is None else f"{low} to {high}"
    return Rule(words if extra is None else f"{words}, or {extra}", checked)


def any_case(text: str) -> str:
    """Converts ``text`` to a form that ignores case: ``"Gzip"`` and ``"gzip"`` both become
    ``"GZIP"``.
    """
    # The capital of a long s is an S, and of a dotless i an I: those are other words.
    return text.upper() if text.isascii() else text


def one_of(*choices: str, same: Callable[[str], str] = str, empty: str | None = None) -> Rule:
    """A rule that accepts one of ``choices`` (Java's ``ValidString``).

    ``same`` converts a text to a form for comparison. A text is accepted if a choice has the same
    form, and the effective value is this choice. Examples:

    * With :func:`any_case`, ``Gzip`` is accepted for ``gzip`` (Java's
      ``CaseInsensitiveValidString``).
    * With :func:`letters`, ``exactlyOnce`` is accepted for ``exactly-once``.

    The empty text is invalid if ``empty`` is None, and valid in all other cases. ``empty`` is the
    meaning of the empty text, for the documentation. If ``empty`` is "", the code that reads the
    option checks the empty text.
    """
    listed, by_text = ", ".join(choices), {same(choice): choice for choice in choices}
    if empty is not None:
        by_text[""] = ""

    def checked(value: str) -> str:
        found = by_text.get(same(value))
        if found is None:
            any_ = "" if same is str else " (case insensitive)"
            raise ValueError(f"String must be one of{any_}: {listed}")
        return found

    spelling = "" if same is str else " (any case)"
    if same is letters:
        spelling = " (any case; a hyphen may be an underscore, or missing)"
    words = f"one of {listed}{spelling}"
    return Rule(f"{words}, or empty: {empty}" if empty else words, checked, choices)


def _not_empty(value: str) -> str:
    if not value:
        raise ValueError("String must be non-empty")
    return value


#: ``NonEmptyString``: absent is fine, empty is not.
NOT_EMPTY = Rule("not empty", _not_empty)


@dataclass(frozen=True, slots=True)
class Option:
    """The definition of an option. Its description is in ``cli/options.toml``.

    A producer option has Java's ``name``, without the prefix ``kafka.``. Other options have names
    in camelCase. ``note`` is the reason for a ``status`` other than HONOURED. It is shown in the
    warning, in the error and in the documentation.
    """

    name: str
    type: OptionType
    default: OptionValue
    rule: Rule | None = None
    status: Status = Status.HONOURED
    note: str = ""
    #: ``KafkaProducer`` obeys it, although the sink does not: ``status`` is the sink's.
    for_producer: bool = False
    #: Set by this package only: read like any other, but not documented, and never suggested.
    internal: bool = False
    #: The default with deliveryGuarantee=exactly-once, where it is another one.
    exactly_once_default: OptionValue = None
    #: About rows and their topic, so that the writes of a ``transaction`` may differ in it; in any
    #: other option they would be decided elsewhere, or under other terms.
    of_one_write: bool = False
    #: The end of the hint for a wrong value, where its type does not show what to set.
    advice: str = ""

    @property
    def secret(self) -> bool:
        return self.type is OptionType.PASSWORD

    @property
    def attribute(self) -> str:
        """The name of the field that has this option's value in a configuration, such as
        ``batch_size`` for ``batch.size``.
        """
        return _attribute_of(self.name)

    def read(self, given: object, spelled: str) -> OptionValue:
        """Parses ``given`` by Java's rules (``ConfigDef.parseType``), and returns the effective
        value.

        ``given`` is text, or a value that already has the option's type. ``spelled`` is the
        option's name as the user writes it, for the hint. Raises ConfigError with Java's message.
        """
        if given is None:
            raise self.error(given, "Value must be non-null", spelled)
        text = self._text(given)
        try:
            return self._parsed(text)
        except ValueError as error:
            raise self.error(text, str(error), spelled) from None

    def error(
        self, given: object, rule: str, spelled: str, meant: str | None = None
    ) -> ConfigError:
        """Creates the error for the wrong value ``given``. The message has the text of Java's
        ConfigException: "Invalid value X for configuration Y: ...".

        * ``rule`` is the text after the last colon, such as "Value must be at least 0".
        * ``spelled`` is the name of the option as the user wrote it.
        * ``meant`` is the value that the user probably meant, for the hint.
        """
        shown = HIDDEN if self.secret else safe_text("null" if given is None else str(given))
        takes = f"{spelled} takes {self._taken()}" + (self.advice and f": {self.advice}")
        if meant is None and not self.secret and given is not None:
            meant = self._meant(str(given))
        return ConfigError(
            f"Invalid value {shown} for configuration {self.name}: {rule}",
            hint=takes if meant is None else f"did you mean {meant}? {takes}",
            kind=Kind.INVALID_VALUE,
        )

    @property
    def suggested(self) -> bool:
        """True if the error for a misspelt name may suggest this option to the user."""
        return not self.internal and self.status not in (Status.REMOVED, Status.REFUSED)

    def _meant(self, text: str) -> str | None:
        """Returns the valid value that is most similar to the wrong value ``text``, or None if no
        valid value is similar.
        """
        if self.rule is not None and self.rule.choices:
            return nearest_value(text, self.rule.choices)
        if self.type is OptionType.BOOLEAN:
            return nearest_value(text, ("true", "false"))
        meant = plain_number(text, self.name) if self.type in _BITS else None
        try:
            self._parsed(meant or "")
        except ValueError:
            return None
        return meant

    def _taken(self) -> str:
        """The text in a hint about the valid values and the default, such as "int, at least 0; the
        default is 5".
        """
        taken = "true or false" if self.type is OptionType.BOOLEAN else self.type.value
        taken += "" if self.rule is None else f", {self.rule.words}"
        if self.default in (None, "", ()):
            return f"{taken}; it has no default"
        shown = str(self.default).lower() if isinstance(self.default, bool) else self.default
        return f"{taken}; the default is {shown}"

    @staticmethod
    def _text(given: object) -> str:
        if isinstance(given, Password):
            return given.value
        if isinstance(given, bool):
            return "true" if given else "false"
        if isinstance(given, list | tuple):
            return ",".join(map(str, given))
        return str(given)

    def _parsed(self, text: str) -> OptionValue:
        """Parses ``text`` as a value of this option, and applies its rule. Raises ValueError with
        Java's message.
        """
        value: OptionValue = text.strip(_JAVA_BLANKS)
        trimmed = str(value)
        match self.type:
            case OptionType.PASSWORD:
                value = Password(trimmed)
            case OptionType.BOOLEAN:
                value = trimmed.lower() == "true"
                if not value and trimmed.lower() != "false":
                    raise ValueError("Expected value to be either true or false")
            case OptionType.LIST:
                value = tuple(_COMMA.split(trimmed)) if trimmed else ()
                if self.name.startswith("ssl.") and value and not any(value):
                    raise ValueError("Expected a list with an item")
            case OptionType.DOUBLE | OptionType.SHORT | OptionType.INT | OptionType.LONG:
                value = self._number(trimmed)
        return value if self.rule is None else self.rule.checked(value)

    def _number(self, text: str) -> float:
        bits = _BITS.get(self.type)
        if bits is None and _DOUBLE.fullmatch(text):
            return float(text)
        if bits and _INTEGER.fullmatch(text):
            value, limit = int(text), 1 << (bits - 1)
            if -limit <= value < limit:
                return value
        raise ValueError(f"Not a number of type {self.type.name}")


def alike(
    names: str,
    type_: OptionType = OptionType.STRING,
    status: Status = Status.HONOURED,
    note: str = "",
) -> Iterator[Option]:
    """Yields an option for each name in ``names``, which are separated by blanks. The options have
    no default, and differ only in their names.
    """
    return (Option(name, type_, None, None, status, note) for name in names.split())


@cache
def _attribute_of(name: str) -> str:
    """Converts an option name to an attribute name: ``batch.size`` to ``batch_size``,
    ``reportPath`` to ``report_path``. The results are cached, because each process converts the
    same names again and again.
    """
    return _CAPITAL.sub("_", name.replace(".", "_")).lower()


#: Effective values by the options' names.
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition about one option. If ``value`` is None, the condition is true if the user has set
    the option. Otherwise the condition is true if the option's effective value equals ``value``.
    """

    name: str
    value: str | None = None

    @staticmethod
    @cache  # the texts are those of the tables of checks
    def in_text(text: str) -> tuple[Condition, ...]:
        """Parses conditions such as ``batch.size acks=all``, which are separated by blanks."""
        items = (item.partition("=") for item in text.split())
        return tuple(Condition(name, value if equals else None) for name, equals, value in items)

    def holds(self, given: Container[str], values: Values) -> bool:
        """True if the user's options fulfil the condition. ``given`` are the names of the options
        that the user has set. ``values`` has the effective values of all options. Values are
        compared without regard to case.
        """
        if self.value is None:
            return self.name in given
        return text_of(values.get(self.name)).lower() == self.value.lower()


@dataclass(frozen=True, slots=True)
class Check:
    """A combination of options that is an error, or a warning if ``warns`` is true.

    The user's options have the combination if these are all true:

    * All conditions in ``given`` hold (:meth:`Condition.in_text` describes a condition).
    * No condition in ``unless`` holds.
    * The function ``broken`` returns true for the effective values.

    ``sentence`` and ``hint`` are the texts of the error. In them, ``{name}`` becomes the value of
    the option ``name``, and ``<name>`` its name as the user wrote it.
    """

    given: str
    sentence: str
    hint: str = ""
    broken: Callable[[Values], bool] = bool
    unless: str = ""
    kind: Kind | None = None
    warns: bool = False

    def applies(self, given: Container[str], values: Values) -> bool:
        """True if the user's options have the combination of this check."""
        needed, excuses = Condition.in_text(self.given), Condition.in_text(self.unless)
        return (
            all(one.holds(given, values) for one in needed)
            and not any(one.holds(given, values) for one in excuses)
            and self.broken(values)
        )

    def names(self) -> Iterator[str]:
        """All option names that occur in the check's conditions and texts."""
        for text in (self.given, self.unless):
            yield from (one.name for one in Condition.in_text(text))
        for text in (self.sentence, self.hint):
            yield from (found[1] for found in _SHOWN_VALUE.finditer(text))
            yield from (found[1] for found in _SHOWN_NAME.finditer(text))


def refuse(
    checks: Iterable[Check],
    given: Container[str],
    values: Values,
    spelled: Callable[[str], str] = str,
) -> list[str]:
    """Raises ConfigError for the first of ``checks`` that applies (:meth:`Check.applies`). A check
    with ``warns`` raises no error. If such a check applies, its text is one of the returned
    warnings.

    ``given`` are the names of the options that the user has set. ``values`` has the effective
    values of all options.
    """

    def filled(text: str) -> str:
        text = _SHOWN_VALUE.sub(lambda found: str(values[found[1]]), text)
        return _SHOWN_NAME.sub(lambda found: spelled(found[1]), text)

    warnings: list[str] = []
    for check in checks:
        if check.applies(given, values):
            sentence = filled(check.sentence)
            if not check.warns:
                raise ConfigError(sentence, hint=filled(check.hint) or None, kind=check.kind)
            warnings.append(coded(check.kind or Kind.CONFIG, sentence))
    return warnings


def takes_references(option: Option) -> bool:
    """True if the value of the option may be a reference such as ``${env:NAME}``.

    Such options are the secrets, user names, paths and addresses of TLS, SASL and a schema
    registry. An option with a fixed set of values accepts no references.
    """
    if not option.name.startswith(REFERABLE) or option.rule is not None:
        return False
    return option.type in (OptionType.PASSWORD, OptionType.STRING)


def check_references(option: Option, value: OptionValue, spelled: str) -> None:
    """Raises ConfigError for a reference that the option does not accept, or that has an
    unsupported form.

    References are not looked up here: an executor can have files and environment variables that the
    driver does not have.
    """
    text = value.value if isinstance(value, Password) else value
    if isinstance(text, str):
        check_forms(option.name, spelled, text, accepted=takes_references(option))
