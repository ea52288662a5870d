"""The options that the user has set, by name.

:class:`GivenOptions` has all options. Each option has the place where the user has set it: the
write, or a file. This module also finds names that are set twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.config.given_option import Given
from spark_kafka_sink.config.names.unknown_options import refused_option
from spark_kafka_sink.config.option import Status
from spark_kafka_sink.config.option_table import NO_MEANING_PREFIXES, PRODUCER_OPTIONS

CONFIG_FILE = "configFile"

#: Options that Spark adds to every write, and includeHeaders, which Spark's Kafka sink lists and
#: never reads. They are accepted without a warning.
SPARK_OPTIONS = ("path", "checkpointLocation", "queryName", "includeHeaders")
SPARK_KEYS = frozenset(map(str.lower, SPARK_OPTIONS))


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """All options that the user has set.

    ``producer`` has the options of the producer by Java's names. ``own`` has the options of the
    sink by their documented names. ``prefix`` is the prefix of a producer's option: ``kafka.`` for
    a write, empty for a producer without Spark.
    """

    prefix: str
    producer: dict[str, Given] = field(default_factory=dict)
    own: dict[str, Given] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def as_options(self) -> dict[str, str]:
        """Returns all options as one map from name to text, as if the user had set all of them on
        the write.

        The map has the lines of the ``configFile`` in place of the option ``configFile``. A secret
        from the file is replaced by a reference to its line.
        """
        texts = {self.prefix + name: given.value for name, given in self.producer.items()}
        texts |= {n: given.value for n, given in self.own.items() if n != CONFIG_FILE}
        return {name: str(value) for name, value in texts.items()}


def add_producer_option(found: GivenOptions, name: str, given: Given) -> bool:
    """Adds an option to ``found.producer`` and returns True. Returns False if ``name`` is no option
    of the producer.

    For a name that begins with one of ``NO_MEANING_PREFIXES``, such as ``metrics.context.x``, adds
    only a warning and returns True. Raises ConfigError for an option that the sink refuses, such as
    ``transactional.id``.
    """
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


def folded(
    options: Iterable[tuple[str, object]], prefix: str = "", where: str = ""
) -> Iterator[tuple[str, str, object]]:
    """Yields each option as (name in lower case without ``prefix``, name as written, value).

    Raises ConfigError if two names are equal or differ only in case. Options of a Spark write never
    have such names, because Spark has already merged them.
    """
    seen: dict[str, str] = {}
    for name, value in options:
        key = name.lower().removeprefix(prefix)
        if key in seen:
            # It would be arbitrary which of the two values counts.
            both = f"Options '{safe_text(seen[key])}' and '{safe_text(name)}'{where}"
            raise ConfigError(
                f"Option '{safe_text(name)}'{where} is there twice"
                if seen[key] == name
                else f"{both} are the same option: names don't depend on case",
                hint="remove one of them",
            )
        seen[key] = name
        yield key, name, value
