"""The error for a wrong option name, with a suggestion.

The hint of the error depends on the reason: the name belongs to other software, is refused, has the
wrong prefix, or is misspelt. If the name looks like the name of a secret, the hint also tells the
user to replace the secret by a new one. An option from a file does not get this additional hint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spark_kafka_sink.base.documentation import page_address
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.password import REPLACE_IT
from spark_kafka_sink.base.suggestions import nearest_name
from spark_kafka_sink.config.names.foreign_options import foreign_options
from spark_kafka_sink.config.option import Option, Status
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, SINK_OPTIONS, with_prefix

#: The prefix of a producer's option among the options of a Spark write.
PREFIX = "kafka."

_NO_NAME_IN_JAVA = "remove it: Java's producer has none"

SINK_BY_KEY = {name.lower(): option for name, option in SINK_OPTIONS.items()}


@dataclass(frozen=True, slots=True)
class OptionSource:
    """The place where the user has set an option: a write, a producer without Spark, or a file.

    * ``prefix``: the prefix of a producer's option in this place, ``kafka.`` or empty.
    * ``sink``: True if the options are for a write.
    * ``where``: a text with the file's name. Empty if the place is no file.
    """

    prefix: str
    sink: bool
    where: str = ""

    @property
    def accepts_sink_options(self) -> bool:
        """True if the sink's own options are accepted in this place. A write and a file accept
        them. A producer without Spark does not.
        """
        return self.sink or bool(self.where)


def refused_option(option: Option, shown: str, where: str = "") -> ConfigError:
    """Creates the error for an option that Java's producer accepts, but the sink refuses."""
    if option.name == "transactional.id":
        return ConfigError(
            f"Option '{shown}'{where} is not supported by the sink: all tasks would share one id"
            " and fence each other",
            hint="set deliveryGuarantee=exactly-once, which makes an id for every task;"
            " transactionalIdPrefix begins them",
        )
    return ConfigError(option.note, hint=f"remove {shown}; cast the column")


def unknown_option(key: str, shown: str, place: OptionSource) -> ConfigError:
    """Creates the error for a name that is no valid option in ``place``.

    ``key`` is the name in lower case, and ``shown`` the name as the user wrote it. If the name
    looks like the name of a secret, the hint tells the user to replace the secret by a new one,
    because Spark or a shell may have shown the secret. An option from a file does not get this
    hint.
    """
    name = key.removeprefix(PREFIX)
    error = _known_elsewhere(name, shown, place)
    if error is None:
        what, hint = f"Unknown option '{shown}'{place.where}", _right_name(name, place)
        known = key in SINK_BY_KEY or _DOTTED.fullmatch(key) is not None
        if hint is None and place.where and not known:
            return ConfigError(
                f"a line of the configFile{place.where} has a name that is no option's; it may be a"
                " secret, and is not shown",
                hint="is this the intended properties file?",
            )
        hint = hint or f"every option: kprod options, or {page_address('options')}"
        error = ConfigError(what, hint=hint, kind=Kind.UNKNOWN_OPTION)
    if place.where or not may_be_secret(key):
        return error
    hint = f"{error.hint}; {REPLACE_IT}" if error.hint else REPLACE_IT
    return ConfigError(error.message, hint=hint, kind=error.kind)


def may_be_secret(key: str) -> bool:
    """Returns True if a name looks like the name of a secret, even if the name is misspelt. ``key``
    is the name in lower case.
    """
    name = key.removeprefix(PREFIX)
    if name not in PRODUCER_OPTIONS and _SECRET.search(name) is not None:
        return True
    option = PRODUCER_OPTIONS.get(nearest_name(name, PRODUCER_OPTIONS) or "")
    return option is not None and option.secret and not option.name.endswith(_PUBLIC)


def _known_elsewhere(name: str, shown: str, place: OptionSource) -> ConfigError | None:
    """Creates the error for a name that other software has as an option, or that is valid in a
    place other than ``place``. Returns None if the name is unknown. ``name`` has no prefix.
    """
    kind, where = Kind.CONFIG, place.where
    option, foreign, own = PRODUCER_OPTIONS.get(name), foreign_options(), SINK_BY_KEY.get(name)
    owner = next((one for one in foreign.owners.values() if one.owns(name)), None)
    if place.sink and option is not None and option.status is Status.REFUSED:
        return refused_option(option, shown, where)
    if place.sink and name.endswith(".serializer"):
        what = (
            f"Option '{shown}'{where} has no meaning here: columns are written as the bytes they"
            " are"
        )
        hint = f"remove {shown}; cast the column"
    elif name in foreign.librdkafka:
        java, kind = foreign.librdkafka[name], Kind.FOREIGN_OPTION
        what = f"Option '{shown}'{where} is librdkafka's name; options have Java's names here"
        hint = f"use {with_prefix(java, place.prefix)}" if java else _NO_NAME_IN_JAVA
    elif owner is not None:
        component = with_prefix(owner.component, place.prefix)
        what, kind = f"Option '{shown}'{where} belongs to {component}", Kind.FOREIGN_OPTION
        hint = with_prefix(owner.instead, place.prefix)
    elif own is not None and not own.internal and not place.accepts_sink_options:
        what = f"Option '{shown}'{where} is the Spark sink's; a producer has no such option"
        hint = "remove it, or write with format('kprod')"
    else:
        return None
    return ConfigError(what, hint=hint, kind=kind)


def _right_name(name: str, place: OptionSource) -> str | None:
    """Creates a hint with the name that the user probably meant. Returns None if no option name is
    similar.

    If ``name`` is an option with a wrong prefix for ``place``, the hint has the right prefix. If
    ``name`` is not an option, the hint has the most similar option name.
    """
    inner = name.removeprefix("producer.").removeprefix("override.")
    if inner != name and inner in PRODUCER_OPTIONS:
        return f"write {place.prefix}{inner}: Connect's prefix means nothing here"
    own, option = SINK_BY_KEY.get(name), PRODUCER_OPTIONS.get(name)
    if own is not None and not own.internal:
        return f"write {own.name}: the sink's own options take no prefix"
    if option is not None and option.status is Status.REMOVED:
        return with_prefix(option.note, place.prefix)
    if option is not None:
        prefixed = f"options of Kafka's producer take the prefix: {place.prefix}{name}"
        return prefixed if place.prefix else f"write {name}: no prefix in this place"
    return _nearest(name.removeprefix(PREFIX), place)


#: The form of option names and of an INI file's sections, but not of passwords, tokens and PEM.
_DOTTED = re.compile(r"[a-z][a-z0-9_-]{0,23}(\.[a-z0-9_-]{1,24}){1,6}|\[[a-z]{1,24}\]")
#: Parts of the names of secrets, of this package and of others.
_SECRET = re.compile(
    r"pass?w|pwd|secret|token$|credential|user\.info$|jaas|key\.pem$|(?:api|access)\.?key$"
)
#: The option for names with dlq: the nearest spelling would be ``topic``, which takes all rows.
_DEAD_LETTERS = "errors.deadletterqueue.topic.name"
#: Endings of options that are passwords by their type, and may be shown.
_PUBLIC = ("username", "certificates", "chain")


def _nearest(name: str, place: OptionSource) -> str | None:
    """Creates a hint with the option name that is most similar to ``name``. Returns None if no name
    is similar. ``name`` is in lower case.
    """
    own = SINK_OPTIONS if place.accepts_sink_options else {}
    options = (PRODUCER_OPTIONS | own).values()
    names = [o.name for o in options if o.suggested or (o.for_producer and not place.sink)]
    dead_letters = _DEAD_LETTERS in names and "dlq" in name
    found = _DEAD_LETTERS if dead_letters else nearest_name(name, names)
    if found is None:
        return None
    return f"did you mean {place.prefix if found in PRODUCER_OPTIONS else ''}{found}?"
