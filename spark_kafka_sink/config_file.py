"""The option ``configFile``: a Kafka client's properties file as options of a write.

Owns: which lines of such a file count, and how they join the options that were given. Never: an
option's meaning (``config``), looking a reference up (``secret_references``).

The driver reads the file when a write is planned. What is no secret becomes an option and
travels to the tasks with the others. **A secret never does**: it becomes a reference to its line,
``${file:/path:key}``, which whoever talks to brokers looks up in the same file. So a file that
holds secrets must also be on the executors, and one that only refers to secrets
(``sasl.password=${env:PASSWORD}``) need not be.

Options that were given win. The file may serve other clients too: what is not a producer's is left
out, with one warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.errors import ConfigError, safe_text
from spark_kafka_sink.foreign_options import PREFIX
from spark_kafka_sink.java_properties import parse_properties, read_bounded
from spark_kafka_sink.option_table import NO_MEANING_PREFIXES, PRODUCER_OPTIONS
from spark_kafka_sink.options import Status
from spark_kafka_sink.secret_references import file_reference, is_one_reference

OPTION = "configFile"


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """The options of a write, its ``configFile`` read; ``warnings`` are about that file."""

    options: dict[str, str]
    warnings: tuple[str, ...] = ()


def with_config_file(options: Mapping[str, str]) -> GivenOptions:
    """``options`` with the lines of the file that their ``configFile`` names, if they name one.

    Raises ConfigError for a file that can't be read.
    """
    key = next((name for name in options if name.lower() == OPTION.lower()), None)
    if key is None:
        return GivenOptions(dict(options))
    given = {name: value for name, value in options.items() if name != key}
    location = options[key].strip().removeprefix("file://")
    settings, left_out = _settings(location)
    taken = {name.lower() for name in given}
    given |= {name: value for name, value in settings.items() if name not in taken}
    if not left_out:
        return GivenOptions(given)
    names = ", ".join(map(safe_text, sorted(left_out)))
    return GivenOptions(
        given, (f"{OPTION} {safe_text(location)}: left out what is not a producer's: {names}",)
    )


def _settings(location: str) -> tuple[dict[str, str], list[str]]:
    """Options of the file with the prefix ``kafka.``, and the names that are not a producer's."""
    settings: dict[str, str] = {}
    left_out: list[str] = []
    for written, value in _read(location).items():
        name = written.strip().lower().removeprefix(PREFIX)
        option = PRODUCER_OPTIONS.get(name)
        if option is None or option.status is Status.REFUSED:
            if not name.startswith(tuple(NO_MEANING_PREFIXES)):
                left_out.append(written)
            continue
        if option.secret and not is_one_reference(value):
            settings[PREFIX + name] = file_reference(location, written)
        else:
            settings[PREFIX + name] = value
    return settings, left_out


def _read(location: str) -> dict[str, str]:
    shown = safe_text(location)
    if "://" in location or location.startswith("dbfs:"):
        raise ConfigError(
            f"{OPTION} {shown} is no local path",
            hint="the driver reads it as a file: mount it, or give its local path (/Volumes/...)",
        )
    try:
        return parse_properties(read_bounded(Path(location)))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"{OPTION} {shown} can't be read on the driver: {reason}",
            hint="it is a file in Java's properties format, such as client.properties; secrets in"
            " it are read on the executors too",
        ) from None
