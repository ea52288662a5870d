"""The given options from every source: which component owns each name, and which value counts.

Owns: the check of names for every source (the options of a write, ``configFile``,
``KafkaProducer``, ``kprod``): known, another component's, misspelt, given twice; and how the lines
of a ``configFile`` are merged with the options. Never: a value (``cross_checks``).

An option overrides a line of the file. The file may serve other clients, too: a line that belongs
to a consumer, an admin client, Connect or a schema registry is ignored, by name, with one warning.
Every other name in it is treated as an option: accepted, or an error.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files

from spark_kafka_sink.base.documentation import page_address
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded, safe_text
from spark_kafka_sink.base.security.allow_lists import check_config_file
from spark_kafka_sink.base.security.java_properties import property_lines
from spark_kafka_sink.base.security.local_files import UnusableFileError, decoded, read_file
from spark_kafka_sink.base.security.password import REPLACE_IT, Password
from spark_kafka_sink.base.security.secret_references import file_reference, is_one_reference
from spark_kafka_sink.base.suggestions import nearest_name
from spark_kafka_sink.config.named_columns import WITH_SCHEMA
from spark_kafka_sink.config.option import Option, Status
from spark_kafka_sink.config.option_table import (
    NO_MEANING_PREFIXES,
    PRODUCER_OPTIONS,
    REGISTRY_NAMES,
    SINK_OPTIONS,
)

#: The prefix of a producer's option among the options of a Spark write.
PREFIX = "kafka."

#: Options that Spark adds to every write, and one that its own Kafka sink lists but never reads:
#: taken without a word.
SPARK_OPTIONS = ("path", "checkpointLocation", "queryName", "includeHeaders")
SPARK_KEYS = frozenset(map(str.lower, SPARK_OPTIONS))


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
    """The source of a name: ``prefix`` is that of a producer's option there, ``sink`` whether it is
    a write and not a producer by itself, ``where`` the file, or nothing.
    """

    prefix: str
    sink: bool
    where: str = ""

    @property
    def takes_own(self) -> bool:
        """Whether the sink's own options are taken there."""
        return self.sink or bool(self.where)


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
    name = key.removeprefix(PREFIX)
    error = _known_elsewhere(name, shown, place)
    if error is None:
        what, hint = f"Unknown option '{shown}'{place.where}", _right_name(name, place)
        known = key in _SINK_BY_KEY or _DOTTED.fullmatch(key) is not None
        if hint is None and place.where and not known:
            return ConfigError(
                f"a line of the configFile{place.where} has a name that is no option's; it may be a"
                " secret, and is not shown",
                hint="is this the properties file that was meant?",
            )
        hint = hint or f"every option: kprod options, or {page_address('options')}"
        error = ConfigError(what, hint=hint, kind=Kind.UNKNOWN_OPTION)
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


def _known_elsewhere(name: str, shown: str, place: OptionSource) -> ConfigError | None:
    """The error for a name, without prefix, that has a meaning somewhere else."""
    kind, where = Kind.CONFIG, place.where
    option, foreign, own = PRODUCER_OPTIONS.get(name), foreign_options(), _SINK_BY_KEY.get(name)
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
        hint = f"use {place.prefix}{java}" if java else "remove it: Java's producer has none"
    elif owner is not None:
        what, kind = f"Option '{shown}'{where} belongs to {owner.component}", Kind.FOREIGN_OPTION
        hint = owner.instead
    elif own is not None and not own.internal and not place.takes_own:
        what = f"Option '{shown}'{where} is the Spark sink's; a producer has no such option"
        hint = "remove it, or write with format('kprod')"
    else:
        return None
    return ConfigError(what, hint=hint, kind=kind)


def _right_name(name: str, place: OptionSource) -> str | None:
    """The hint with the name, without prefix, as it is right in its place, or with the nearest."""
    inner = name.removeprefix("producer.").removeprefix("override.")
    if inner != name and inner in PRODUCER_OPTIONS:
        return f"write {place.prefix}{inner}: Connect's prefix means nothing here"
    own, option = _SINK_BY_KEY.get(name), PRODUCER_OPTIONS.get(name)
    if own is not None and not own.internal:
        return f"write {own.name}: the sink's own options take no prefix"
    if option is not None and option.status is Status.REMOVED:
        return option.note
    if option is not None:
        prefixed = f"options of Kafka's producer take the prefix: {place.prefix}{name}"
        return prefixed if place.prefix else f"write {name}: no prefix in this place"
    return _nearest(name.removeprefix(PREFIX), place)


#: What names of options, and an INI file's sections, look like; passwords, tokens and PEM don't.
_DOTTED = re.compile(r"[a-z][a-z0-9_-]{0,23}(\.[a-z0-9_-]{1,24}){1,6}|\[[a-z]{1,24}\]")
#: In names of secrets, whoever's they are.
_SECRET = re.compile(
    r"pass?w|pwd|secret|token$|credential|user\.info$|jaas|key\.pem$|(?:api|access)\.?key$"
)
#: What others call dlq: the nearest spelling would be ``topic``, which takes all rows.
_DEAD_LETTERS = "errors.deadletterqueue.topic.name"
#: Endings of options that are passwords by their type, and may be shown.
_PUBLIC = ("username", "certificates", "chain")


def _nearest(name: str, place: OptionSource) -> str | None:
    """The hint with the name that looks most like ``name``, which is in lower case."""
    own = SINK_OPTIONS if place.takes_own else {}
    options = (PRODUCER_OPTIONS | own).values()
    names = [o.name for o in options if o.suggested or (o.for_producer and not place.sink)]
    dead_letters = _DEAD_LETTERS in names and "dlq" in name
    found = _DEAD_LETTERS if dead_letters else nearest_name(name, names)
    if found is None:
        return None
    return f"did you mean {place.prefix if found in PRODUCER_OPTIONS else ''}{found}?"


CONFIG_FILE = "configFile"
_SINK_BY_KEY = {name.lower(): option for name, option in SINK_OPTIONS.items()}

#: Serializers with the same result as a column of text or bytes.
_AS_COLUMNS = ("StringSerializer", "ByteArraySerializer", "BytesSerializer", "ByteBufferSerializer")


@dataclass(frozen=True, slots=True)
class Given:
    """One option's value, with its name for messages (the documented spelling of a sink's option,
    else as written), and ``where``: a file or nothing.

    ``content`` is the secret in a line of a file, when ``value`` is the reference to that line. It
    is for checks in this process, and never leaves it.
    """

    value: object = field(repr=False)
    name: str
    where: str = ""
    content: Password | None = None

    @property
    def spelled(self) -> str:
        return self.shown + self.where

    @property
    def shown(self) -> str:
        return safe_text(self.name)

    def no_effect(self, why: str) -> str:
        """The warning that the option does nothing."""
        return coded(
            Kind.WITHOUT_EFFECT, f"Option '{self.shown}'{self.where} has no effect: {why}."
        )


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """``producer`` by Java's names, ``own`` (the sink's) by theirs. ``prefix`` is that of a
    producer's option in their source: ``kafka.``, or nothing.
    """

    prefix: str
    producer: dict[str, Given] = field(default_factory=dict)
    own: dict[str, Given] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def as_options(self) -> dict[str, str]:
        """The same without a ``configFile``: secrets of the file are references to its lines."""
        texts = {self.prefix + name: given.value for name, given in self.producer.items()}
        texts |= {n: given.value for n, given in self.own.items() if n != CONFIG_FILE}
        return {name: str(value) for name, value in texts.items()}


def given_options(options: Mapping[str, object], prefix: str) -> GivenOptions:
    """Check every name in ``options``, and in their ``configFile``.

    ``prefix`` is ``kafka.`` for a write, which accepts the sink's options, too, and empty for a
    producer without Spark. Raises ConfigError for a name that is not an option, and for a file that
    can't be read.
    """
    found = GivenOptions(prefix)
    for key, name, value in _folded(options.items()):
        _add_option(found, key, Given(value, name))
    file = found.own.get(CONFIG_FILE)
    if file is not None:
        location = SINK_OPTIONS[CONFIG_FILE].read(file.value, file.spelled)
        _add_file(found, str(location).strip().removeprefix("file://"))
    return found


def _add_option(found: GivenOptions, key: str, given: Given) -> None:
    own = _SINK_BY_KEY.get(key)
    if own is not None and (found.prefix or own.name == CONFIG_FILE):
        found.own[own.name] = replace(given, name=own.name)
    elif found.prefix and key in SPARK_KEYS:
        pass
    elif not (
        key.startswith(found.prefix)
        and _add_producer_option(found, key.removeprefix(found.prefix), given)
    ):
        source = OptionSource(found.prefix, sink=bool(found.prefix))
        raise unknown_option(key, given.shown, source)


def _add_producer_option(found: GivenOptions, name: str, given: Given) -> bool:
    """Take or refuse an option of the producer; False when ``name`` is not one."""
    option = PRODUCER_OPTIONS.get(name)
    if option is None:
        for beginning, note in NO_MEANING_PREFIXES.items():
            if name.startswith(beginning):
                found.warnings.append(given.no_effect(note))
                return True
        return False
    if option.status is Status.REFUSED and found.prefix:
        raise refused_option(option, given.shown, given.where)
    found.producer[name] = given
    return True


def _add_file(found: GivenOptions, location: str) -> None:
    """Add the lines of the file that no option overrides."""
    shown = safe_text(location)
    where = f" (in {shown})"
    lines = GivenOptions(found.prefix)
    others: list[str] = []
    for key, name, value in _folded(read_lines(location), PREFIX, where):
        if _is_anothers(key, value, found.prefix):
            others.append(name)
        else:
            _add_line(lines, key, Given(value, name, where), location)
    found.producer.update(lines.producer | found.producer)
    formats = ((lines.own | found.own).get(name) for name in ("valueFormat", "keyFormat"))
    needs_registry = any(one and str(one.value).strip().lower() in WITH_SCHEMA for one in formats)
    if found.prefix and not needs_registry:  # its options are another client's then
        others += (name for name in REGISTRY_NAMES if lines.own.pop(name, None) is not None)
    found.own.update(lines.own | found.own)
    if not found.prefix:
        _warn_ignored(found, shown, "the Spark sink's", lines.own)
    _warn_ignored(found, shown, "not a producer's", others)
    found.warnings.extend(lines.warnings)


def _warn_ignored(found: GivenOptions, file: str, whose: str, names: Iterable[str]) -> None:
    listed = ", ".join(map(safe_text, sorted(names)))
    if listed:
        text = f"{CONFIG_FILE} {file}: ignored what is {whose}: {listed}"
        found.warnings.append(coded(Kind.WITHOUT_EFFECT, text))


def _is_anothers(key: str, value: object, prefix: str) -> bool:
    """Whether a line belongs to another client, or is a serializer, which Java's producer requires
    and columns don't need.
    """
    if prefix and key in ("key.serializer", "value.serializer"):
        return str(value).strip().rpartition(".")[2] in _AS_COLUMNS
    return key not in _SINK_BY_KEY and is_left_out_of_files(key)


def _add_line(lines: GivenOptions, key: str, line: Given, location: str) -> None:
    own, option = _SINK_BY_KEY.get(key), PRODUCER_OPTIONS.get(key)
    if own is not None and (line.name.lower() != key or own.internal):
        own = None
    text, secret = str(line.value), any(one is not None and one.secret for one in (own, option))
    if secret and not is_one_reference(text):
        line = replace(line, value=file_reference(location, line.name), content=Password(text))
    if own is not None and own.name == CONFIG_FILE:
        raise ConfigError(
            f"Option '{line.shown}'{line.where} names another file", hint="remove that line"
        )
    if own is not None:
        lines.own[own.name] = replace(line, name=own.name)
    elif key in SPARK_KEYS:
        raise ConfigError(
            f"Option '{line.shown}'{line.where} is Spark's, which does not read this file",
            hint="give it to the write as an option",
        )
    elif not _add_producer_option(lines, key, line):
        place = OptionSource("", sink=bool(lines.prefix), where=line.where)
        raise unknown_option(line.name.lower(), line.shown, place)


def _folded(
    options: Iterable[tuple[str, object]], prefix: str = "", where: str = ""
) -> Iterator[tuple[str, str, object]]:
    """(lower-cased name without ``prefix``, name as written, value) of each option.

    One that comes twice, in whatever spelling, is an error, because it would be arbitrary which one
    counts. (Spark folds its options before; there the later one wins.)
    """
    seen: dict[str, str] = {}
    for name, value in options:
        key = name.lower().removeprefix(prefix)
        if key in seen:
            both = f"Options '{safe_text(seen[key])}' and '{safe_text(name)}'{where}"
            raise ConfigError(
                f"Option '{safe_text(name)}'{where} is there twice"
                if seen[key] == name
                else f"{both} are the same option: names don't depend on case",
                hint="remove one of them",
            )
        seen[key] = name
        yield key, name, value


def read_lines(location: str) -> list[tuple[str, str]]:
    """The file's lines, names as they are written. ConfigError for one that can't be read."""
    shown = safe_text(location)
    if "://" in location or location.startswith("dbfs:"):
        raise ConfigError(
            f"{CONFIG_FILE} {shown} is not a local path",
            hint="it is read as a file: mount it, or give its local path (/Volumes/...)",
        )
    what = f"{CONFIG_FILE} {shown}"
    try:
        content = read_file(location, what, check=lambda path: check_config_file(path, what))
        return property_lines(decoded(content))
    except UnusableFileError as error:
        raise ConfigError(
            f"{CONFIG_FILE} {shown} can't be read: {error}",
            hint="it is a file in Java's properties format, such as client.properties; a write"
            " reads it on the driver, and secrets in it on the executors too",
        ) from None
