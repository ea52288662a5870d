"""Option names of other components: Spark, a Kafka source, a consumer, Connect, librdkafka ...

Owns: reading those names (``foreign_options.toml``), and the error for an unknown name, with the
nearest existing one. Never: an option of ours (``option_table``).

The error for another component's option names that component, so that users don't search for a
misspelling.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from spark_kafka_sink.base.documentation import page_address
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.password import REPLACE_IT
from spark_kafka_sink.config.option import Option, Status
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, SINK_OPTIONS
from spark_kafka_sink.config.suggestions import nearest_name

#: The prefix of a producer's option among the options of a Spark write.
PREFIX = "kafka."


#: Options that Spark adds to every write, and one that its own Kafka sink lists
#: but never reads: taken without a word.
SPARK_OPTIONS: dict[str, str] = {
    "path": "Spark passes the argument of save() and start(); a Kafka sink has no path",
    "checkpointLocation": "Spark's own: where a query keeps its progress",
    "queryName": "Spark's own: the name of a query",
    "includeHeaders": "Spark's Kafka sink takes it and never reads it: a headers column is written"
    " whenever there is one",
}

#: The same names as they arrive: folded.
SPARK_KEYS = frozenset(name.lower() for name in SPARK_OPTIONS)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose names these are, and what to do about one. ``in_files``: a client's properties file
    may have them as well as a producer's, so a line of theirs is skipped, by name.
    """

    component: str
    instead: str
    names: tuple[str, ...] = ()
    beginnings: tuple[str, ...] = ()
    in_files: bool = False

    def owns(self, key: str) -> bool:
        return key in map(str.lower, self.names) or (
            key.startswith(self.beginnings) and nearest_name(key, SINK_OPTIONS, _MISSPELT) is None
        )


#: So near to an option of ours that it is meant, although others have names with its beginning.
_MISSPELT = 0.9


@dataclass(frozen=True, slots=True)
class ForeignOptions:
    """``librdkafka`` has Java's names for its own, None where Java has nothing like it."""

    owners: Mapping[str, Owner]
    librdkafka: Mapping[str, str | None]


@cache
def foreign_options() -> ForeignOptions:
    """The names of other components, read when one is first looked for."""
    data = tomllib.loads(files(__package__).joinpath("foreign_options.toml").read_text("utf-8"))
    owners = {
        key: Owner(
            one["component"],
            one["instead"].replace("{formats}", page_address("formats")),
            tuple(one.get("names", "").split()),
            tuple(one.get("beginnings", "").split()),
            one.get("in_files", False),
        )
        for key, one in data["owners"].items()
    }
    alone = dict.fromkeys(data["librdkafka_only"]["names"].split())
    return ForeignOptions(owners, data["librdkafka"] | alone)


@dataclass(frozen=True, slots=True)
class OptionSource:
    """The source of a name: ``prefix`` is that of a producer's option there, ``own`` whether the
    sink's own options are taken there, ``sink`` whether it is a write that reads them and not a
    producer by itself, ``where`` the file, or nothing.
    """

    prefix: str
    own: bool
    sink: bool
    where: str = ""


def is_left_out_of_files(key: str) -> bool:
    """Whether a line of this name, lower-cased and without prefix, is another client's."""
    return any(one.in_files and one.owns(key) for one in foreign_options().owners.values())


def refused_option(option: Option, shown: str, where: str = "") -> ConfigError:
    """The error for an option of Java's producer that the sink never takes."""
    if option.name == "transactional.id":
        return ConfigError(
            f"Option '{shown}'{where} is not supported by the sink: all tasks would share one id"
            " and fence each other",
            hint="set deliveryGuarantee=exactly-once, which makes an id for every task;"
            " transactionalIdPrefix begins them",
        )
    return ConfigError(option.note, hint=f"remove {shown}; cast the column")


def unknown_option(key: str, shown: str, place: OptionSource) -> ConfigError:
    """The error for a name that is not an option in its place. ``key`` is lower-cased, ``shown`` as
    its user wrote it. What may be a secret under a wrong name was shown by others.
    """
    error = _unknown_name(key, shown, place)
    if place.where or not may_be_secret(key):
        return error
    hint = f"{error.hint}; {REPLACE_IT}" if error.hint else REPLACE_IT
    return ConfigError(error.message, hint=hint, kind=error.kind)


def may_be_secret(key: str) -> bool:
    """Whether the lower-cased name is a secret's: ours, another client's, or misspelt."""
    name = key.removeprefix(PREFIX)
    if name not in PRODUCER_OPTIONS and _SECRET.search(name) is not None:
        return True
    option = PRODUCER_OPTIONS.get(nearest_name(name, PRODUCER_OPTIONS) or "")
    return option is not None and option.secret and not option.name.endswith(_PUBLIC)


def _unknown_name(key: str, shown: str, place: OptionSource) -> ConfigError:
    name = key.removeprefix(PREFIX)
    elsewhere = _known_elsewhere(name, shown, place)
    if elsewhere is not None:
        return elsewhere
    ours = _SINK_NAMES.get(name)
    option = PRODUCER_OPTIONS.get(name)
    if ours is not None and place.own:
        return _unknown(shown, place, f"write {ours}: the sink's own options take no prefix")
    if ours is not None:
        return ConfigError(
            f"Option '{shown}'{place.where} is the Spark sink's; a producer has no such option",
            hint="remove it, or write with format('kprod')",
        )
    if option is not None and option.status is Status.REMOVED:
        return _unknown(shown, place, f"{option.doc[:-1]}; {option.note}")
    if option is not None:
        return _unknown(
            shown,
            place,
            f"options of Kafka's producer take the prefix: {place.prefix}{name}"
            if place.prefix
            else f"write {name}: no prefix in this place",
        )
    nearest = _nearest(name, place)
    internal = any(key == own.lower() for own in SINK_OPTIONS)
    if nearest is None and place.where and not internal and _DOTTED.fullmatch(key) is None:
        return ConfigError(
            f"a line of the configFile{place.where} has a name that is no option's; it may be a"
            " secret, and is not shown",
            hint="is this the properties file that was meant?",
        )
    return _unknown(shown, place, nearest or f"every option: {page_address('options')}")


def _known_elsewhere(name: str, shown: str, place: OptionSource) -> ConfigError | None:
    """The error for a name, without prefix, that has a meaning somewhere else."""
    prefix, where = place.prefix, place.where
    option = PRODUCER_OPTIONS.get(name)
    if place.sink and option is not None and option.status is Status.REFUSED:
        return refused_option(option, shown, where)
    if place.sink and name.endswith(".serializer"):
        return ConfigError(
            f"Option '{shown}'{where} has no meaning here: columns are written as the bytes they"
            " are",
            hint=f"remove {shown}; cast the column",
        )
    foreign = foreign_options()
    if name in foreign.librdkafka:
        java = foreign.librdkafka[name]
        return ConfigError(
            f"Option '{shown}'{where} is librdkafka's name; options have Java's names here",
            hint=f"use {prefix}{java}"
            if java
            else "Java's producer has nothing like it: remove it",
            kind=Kind.FOREIGN_OPTION,
        )
    for owner in foreign.owners.values():
        if owner.owns(name):
            return ConfigError(
                f"Option '{shown}'{where} belongs to {owner.component}",
                hint=owner.instead,
                kind=Kind.FOREIGN_OPTION,
            )
    rest = name.removeprefix("producer.").removeprefix("override.")
    if rest != name and rest in PRODUCER_OPTIONS:
        return _unknown(shown, place, f"write {prefix}{rest}: Connect's prefix means nothing here")
    return None


def _unknown(shown: str, place: OptionSource, hint: str) -> ConfigError:
    return ConfigError(
        f"Unknown option '{shown}'{place.where}", hint=hint, kind=Kind.UNKNOWN_OPTION
    )


#: What names of options, and an INI file's sections, look like; passwords, tokens and PEM don't.
_DOTTED = re.compile(r"[a-z][a-z0-9_-]{0,23}(\.[a-z0-9_-]{1,24}){1,6}|\[[a-z]{1,24}\]")
#: In names of secrets, whoever's they are.
_SECRET = re.compile(
    r"pass?w|pwd|secret|token$|credential|user\.info$|jaas|key\.pem$|(?:api|access)\.?key$"
)
#: Endings of options that are passwords by their type, and may be shown.
_PUBLIC = ("username", "certificates", "chain")

_SINK_NAMES = {o.name.lower(): o.name for o in SINK_OPTIONS.values() if not o.internal}


def _nearest(name: str, place: OptionSource) -> str | None:
    """The hint with the name that looks most like ``name``, which is in lower case."""
    options = [*PRODUCER_OPTIONS.values(), *(SINK_OPTIONS.values() if place.own else ())]
    names = [o.name for o in options if o.suggested or (o.for_producer and not place.sink)]
    found = nearest_name(name, names)
    if found is None:
        return None
    return f"did you mean {place.prefix if found in PRODUCER_OPTIONS else ''}{found}?"
