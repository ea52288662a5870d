"""Reads all options that the user has set, including the options in the ``configFile``, and checks
their names. The entry point is :func:`given_options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spark_kafka_sink.config.given_option import Given
from spark_kafka_sink.config.names.config_file import add_file
from spark_kafka_sink.config.names.given import (
    CONFIG_FILE,
    SPARK_KEYS,
    GivenOptions,
    add_producer_option,
    folded,
)
from spark_kafka_sink.config.names.unknown_options import SINK_BY_KEY, OptionSource, unknown_option
from spark_kafka_sink.config.option_table import SINK_OPTIONS


def given_options(options: Mapping[str, object], prefix: str) -> GivenOptions:
    """Checks the names of all ``options``. If ``configFile`` is set, also reads this file and
    checks the names of its options. Returns the options from both sources.

    ``prefix`` is ``kafka.`` for a write, and empty for a producer without Spark. Such a producer
    accepts no option of the sink except ``configFile``. If the file has options of the sink, the
    producer ignores them with a warning. Raises ConfigError for a name that is not an option, and
    for a file that can't be read.
    """
    found = GivenOptions(prefix)
    for key, name, value in folded(options.items()):
        _add_option(found, key, Given(value, name))
    file = found.own.get(CONFIG_FILE)
    if file is not None:
        location = SINK_OPTIONS[CONFIG_FILE].read(file.value, file.spelled)
        add_file(found, str(location).strip().removeprefix("file://"))
    return found


def _add_option(found: GivenOptions, key: str, given: Given) -> None:
    own = SINK_BY_KEY.get(key)
    if own is not None and (found.prefix or own.name == CONFIG_FILE):
        found.own[own.name] = replace(given, name=own.name)
    elif found.prefix and key in SPARK_KEYS:
        pass
    elif not (
        key.startswith(found.prefix)
        and add_producer_option(found, key.removeprefix(found.prefix), given)
    ):
        source = OptionSource(found.prefix, sink=bool(found.prefix))
        raise unknown_option(key, given.shown, source)
