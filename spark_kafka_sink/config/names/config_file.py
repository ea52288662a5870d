"""Reads the option ``configFile``: a properties file of a Kafka client. The lines of the file are
added to the user's options.

* An option of the write overrides a line of the file.
* A secret in the file is replaced by a reference to its line.
* A line for another client, such as a consumer, an admin client or Connect, is ignored with a
  warning. Several clients can share the file.
* A line for a schema registry is also ignored in a write if neither ``valueFormat`` nor
  ``keyFormat`` is a format with a schema.
* Any other line is treated like an option of the write: an unknown name is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded, safe_text
from spark_kafka_sink.base.security.allow_lists import check_config_file
from spark_kafka_sink.base.security.java_properties import property_lines
from spark_kafka_sink.base.security.local_files import UnusableFileError, decoded, read_file
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.base.security.secret_references import file_reference, is_one_reference
from spark_kafka_sink.config.given_option import Given
from spark_kafka_sink.config.named_columns import WITH_SCHEMA
from spark_kafka_sink.config.names.foreign_options import is_left_out_of_files
from spark_kafka_sink.config.names.given import (
    CONFIG_FILE,
    SPARK_KEYS,
    GivenOptions,
    add_producer_option,
    folded,
)
from spark_kafka_sink.config.names.unknown_options import (
    PREFIX,
    SINK_BY_KEY,
    OptionSource,
    unknown_option,
)
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, REGISTRY_NAMES

#: Serializers with the same result as a column of text or bytes.
_AS_COLUMNS = ("StringSerializer", "ByteArraySerializer", "BytesSerializer", "ByteBufferSerializer")


def add_file(found: GivenOptions, location: str) -> None:
    """Adds the options in the file at ``location`` to ``found``. An option that is already in
    ``found`` stays unchanged.
    """
    shown = safe_text(location)
    where = f" (in {shown})"
    lines = GivenOptions(found.prefix)
    others: list[str] = []
    for key, name, value in folded(read_lines(location), PREFIX, where):
        if _is_anothers(key, value, found.prefix):
            others.append(name)
        else:
            _add_line(lines, key, Given(value, name, where), location)
    found.producer.update(lines.producer | found.producer)
    formats = ((lines.own | found.own).get(name) for name in ("valueFormat", "keyFormat"))
    needs_registry = any(one and str(one.value).strip().lower() in WITH_SCHEMA for one in formats)
    if found.prefix and not needs_registry:  # the registry's options are for another client then
        others += (name for name in REGISTRY_NAMES if lines.own.pop(name, None) is not None)
    found.own.update(lines.own | found.own)
    if not found.prefix:
        _warn_ignored(found, shown, "the Spark sink", lines.own)
    _warn_ignored(found, shown, "other clients", others)
    found.warnings.extend(lines.warnings)


def _warn_ignored(found: GivenOptions, file: str, whose: str, names: Iterable[str]) -> None:
    listed = ", ".join(map(safe_text, sorted(names)))
    if listed:
        text = f"{CONFIG_FILE} {file}: options of {whose} are ignored: {listed}"
        found.warnings.append(coded(Kind.WITHOUT_EFFECT, text))


def _is_anothers(key: str, value: object, prefix: str) -> bool:
    """Returns True if a line of the file is for another client. The caller ignores such a line.

    A line with a serializer for bytes or text also counts as a line for another client. Java's
    producer needs such a line, and the sink does not.
    """
    if prefix and key in ("key.serializer", "value.serializer"):
        return str(value).strip().rpartition(".")[2] in _AS_COLUMNS
    return key not in SINK_BY_KEY and is_left_out_of_files(key)


def _add_line(lines: GivenOptions, key: str, line: Given, location: str) -> None:
    own, option = SINK_BY_KEY.get(key), PRODUCER_OPTIONS.get(key)
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
    elif not add_producer_option(lines, key, line):
        place = OptionSource("", sink=bool(lines.prefix), where=line.where)
        raise unknown_option(line.name.lower(), line.shown, place)


def read_lines(location: str) -> list[tuple[str, str]]:
    """Reads the lines of the file at ``location`` as pairs (name, value). Raises ConfigError for a
    file that can't be read, and for a line that can't be parsed.
    """
    shown = safe_text(location)
    if "://" in location or location.startswith("dbfs:"):
        raise ConfigError(
            f"{CONFIG_FILE} {shown} is not a local path",
            hint="the path is read as a local file: mount the store, or give the local path"
            " (/Volumes/...)",
        )
    what = f"{CONFIG_FILE} {shown}"
    try:
        content = read_file(location, what, check=lambda path: check_config_file(path, what))
        return property_lines(decoded(content))
    except UnusableFileError as error:
        raise ConfigError(
            f"{CONFIG_FILE} {shown} can't be read: {error}",
            hint="the file is in Java's properties format, such as client.properties; a write reads"
            " the file on the driver, and its secrets on the executors as well",
        ) from None
