"""The given options from every source: which component owns each name, and which value counts.

Owns: the check of names for every source (the options of a write, ``configFile``,
``KafkaProducer``, ``kprod``): known, another component's, misspelt, given twice; and how the lines
of a ``configFile`` are merged with the options. Never: a value (``cross_checks``).

An option overrides a line of the file. The file may serve other clients, too: a line that belongs
to a consumer, an admin client, Connect or a schema registry is ignored, by name, with one warning.
Every other name in it is treated as an option: accepted, or an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded, safe_text
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.config.files.config_file import OPTION as CONFIG_FILE
from spark_kafka_sink.config.files.config_file import location_of, read_lines
from spark_kafka_sink.config.option import Option, Status
from spark_kafka_sink.config.option_table import NO_MEANING_PREFIXES, PRODUCER_OPTIONS, SINK_OPTIONS
from spark_kafka_sink.config.schemas.schema_options import is_registry_option, needs_registry
from spark_kafka_sink.config.secret_references import file_reference, is_one_reference
from spark_kafka_sink.config.unknown_options import (
    PREFIX,
    SPARK_KEYS,
    OptionSource,
    is_left_out_of_files,
    refused_option,
    unknown_option,
)

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
        _add_file(found, location_of(SINK_OPTIONS[CONFIG_FILE].read(file.value, file.spelled)))
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
        sink = bool(found.prefix)
        raise unknown_option(key, given.shown, OptionSource(found.prefix, own=sink, sink=sink))


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
    for name, line in lines.producer.items():
        found.producer.setdefault(name, line)
    if found.prefix and not _has_schemas(lines.own | found.own):
        others += [name for name in lines.own if is_registry_option(name)]
        for name in filter(is_registry_option, list(lines.own)):
            del lines.own[name]
    for name, line in lines.own.items():
        found.own.setdefault(name, line)
    if not found.prefix:
        _warn_ignored(found, shown, "the Spark sink's", lines.own)
    _warn_ignored(found, shown, "not a producer's", others)
    found.warnings.extend(lines.warnings)


def _has_schemas(own: Mapping[str, Given]) -> bool:
    """Whether the write needs a registry; else its options in a file are another client's."""
    names = ("valueFormat", "keyFormat")
    return needs_registry(tuple(own[name].value for name in names if name in own))


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
    own = _SINK_BY_KEY.get(key)
    if own is not None and line.name.lower() == key and not own.internal:
        if own.name == CONFIG_FILE:
            raise ConfigError(
                f"Option '{line.shown}'{line.where} names another file", hint="remove that line"
            )
        lines.own[own.name] = replace(_without_secret(own, line, location), name=own.name)
    elif key in SPARK_KEYS:
        raise ConfigError(
            f"Option '{line.shown}'{line.where} is Spark's, which does not read this file",
            hint="give it to the write as an option",
        )
    elif not _add_producer_option(
        lines, key, _without_secret(PRODUCER_OPTIONS.get(key), line, location)
    ):
        place = OptionSource("", own=True, sink=bool(lines.prefix), where=line.where)
        raise unknown_option(line.name.lower(), line.shown, place)


def _without_secret(option: Option | None, line: Given, location: str) -> Given:
    """``line``, with a secret replaced by the reference to the line."""
    text = str(line.value)
    if option is None or not option.secret or is_one_reference(text):
        return line
    return replace(line, value=file_reference(location, line.name), content=Password(text))


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
