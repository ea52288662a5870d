"""``kprod convert``: converts the properties file of another client to a configFile.

This module has the command, and converts units. The option names are in ``config/names``. Secrets
are not copied: in place of a secret, the result has a reference to a property of the input file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.security.import_paths import names_jvm_classes
from spark_kafka_sink.base.security.secret_references import file_reference, is_one_reference
from spark_kafka_sink.cli.connection import FAILED, fail, one_line_errors
from spark_kafka_sink.config.names.config_file import read_lines
from spark_kafka_sink.config.names.foreign_options import foreign_options, is_left_out_of_files
from spark_kafka_sink.config.names.given_options import given_options
from spark_kafka_sink.config.names.unknown_options import PREFIX, OptionSource, unknown_option
from spark_kafka_sink.config.option import Option, OptionType, Status
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, SINK_OPTIONS
from spark_kafka_sink.config.parsing import sink_config_of

_SINK: Final = {name.lower(): option for name, option in SINK_OPTIONS.items()}
#: librdkafka's that have a name here and no value that fits.
_LOST: Final = {
    "queue.buffering.max.messages": "it counts records; kafka.buffer.memory counts bytes",
    "enable.ssl.certificate.verification": "certificates are always verified here",
}
_INTERCEPTORS: Final = "interceptor.classes"
_PARTITIONER: Final = "partitioner.class"
_LIBRDKAFKAS_PARTITIONER: Final = "consistent_random"
_MOST_SHOWN: Final = 300


class _Line(NamedTuple):
    """The conversion of one line of the file.

    * ``before``: the option's name in the file.
    * ``name``, ``value``: the new name and value. ``name`` is None if the option can't be
      converted.
    * ``why``: a remark for the user.
    """

    before: str
    name: str | None
    value: str = ""
    why: str = ""


def convert(file: Path) -> None:
    """Prints the converted properties on standard output, and the options that can't be converted
    on standard error.
    """
    with one_line_errors():
        lines = list(_converted(file))
    kept: dict[str, _Line] = {}
    for line in lines:
        if line.name is None:
            _report(f"lost: {line.before}: {line.why}")
        elif line.name in kept:
            _report(f"lost: {line.before}: {kept[line.name].before} became {line.name} already")
        else:
            kept[line.name] = line
            if line.why:
                _report(f"{line.before} is {line.name}: {line.why}")
    for name, line in kept.items():
        sys.stdout.write(f"{name}={_escaped(line.value)}\n")
    try:
        options = {
            name if name in SINK_OPTIONS else PREFIX + name: line.value
            for name, line in kept.items()
        }
        sink_config_of(given_options(options, PREFIX))
    except ConfigError as error:
        fail(error.message, error.hint, FAILED)


def _converted(file: Path) -> Iterator[_Line]:
    others = False
    names = set()
    for name, value in read_lines(str(file)):
        key = name.strip().removeprefix(PREFIX).lower()
        others = others or (key in foreign_options().librdkafka and key not in PRODUCER_OPTIONS)
        line = _line(name, key, str(value), file)
        names.add(line.name)
        yield line
    if others and _PARTITIONER not in names:
        why = "librdkafka's default; without it, keys go to other partitions than before"
        yield _Line("(nothing)", _PARTITIONER, _LIBRDKAFKAS_PARTITIONER, why)


def _line(name: str, key: str, value: str, file: Path) -> _Line:
    option = _SINK.get(key) or PRODUCER_OPTIONS.get(key)
    if option is not None and option.name == _INTERCEPTORS and names_jvm_classes(value):
        return _Line(name, None, why="classes of the JVM can't run in Python workers")
    if option is not None and option.status is Status.HONOURED:
        return _Line(name, option.name, _value(option, name, value, file))
    if option is not None:
        return _Line(name, None, why=option.note or f"it is {option.status.value}")
    if key in foreign_options().librdkafka:
        return _librdkafkas(name, key, value, file)
    if is_left_out_of_files(key):
        return _Line(name, None, why="it is another client's")
    error = unknown_option(key, safe_text(name), OptionSource("", sink=True))
    return _Line(name, None, why=error.hint or error.message)


def _librdkafkas(name: str, key: str, value: str, file: Path) -> _Line:
    java = foreign_options().librdkafka[key]
    if java is None or " " in java:
        return _Line(name, None, why="nothing here is like it" if java is None else f"use {java}")
    if key in _LOST:
        return _Line(name, None, why=_LOST[key])
    option = PRODUCER_OPTIONS[java]
    if key == "queue.buffering.max.kbytes" and value.isdecimal():
        value = str(int(value) * 1024)
    return _Line(name, java, _value(option, name, value, file), "Java's name")


def _value(option: Option, name: str, value: str, file: Path) -> str:
    """The value of an option in the result. For a secret, the value is a reference to the property
    ``name`` of the input file ``file``.
    """
    if option.type is not OptionType.PASSWORD or is_one_reference(value):
        return value
    return file_reference(str(file.resolve()), name)


def _report(*parts: str) -> None:
    sys.stderr.write(f"kprod: {safe_text(' '.join(_words(parts)), _MOST_SHOWN)}\n")


def _words(parts: Iterable[str]) -> Iterator[str]:
    return (word for part in parts for word in part.split())


def _escaped(value: str) -> str:
    """The value with escapes, so that java.util.Properties reads the same value."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
