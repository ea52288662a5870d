"""The options that a user gave, by name, each with its source.

Owns: :class:`GivenOptions`, names that differ in case, and accepting or refusing a producer's
option. Never: a file (``config_file``), or a value (``cross_checks``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded, safe_text
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.config.names.unknown_options import refused_option
from spark_kafka_sink.config.option import Status
from spark_kafka_sink.config.option_table import NO_MEANING_PREFIXES, PRODUCER_OPTIONS

CONFIG_FILE = "configFile"

#: Options that Spark adds to every write, and includeHeaders, which Spark's Kafka sink lists and
#: never reads. They are accepted without a warning.
SPARK_OPTIONS = ("path", "checkpointLocation", "queryName", "includeHeaders")
SPARK_KEYS = frozenset(map(str.lower, SPARK_OPTIONS))


@dataclass(frozen=True, slots=True)
class Given:
    """The value of a given option, with its name for messages and its source.

    The name of a sink's option is in the documented spelling. Other names are as the user wrote
    them. ``where`` names the file of the option. It is empty if the option is not from a file. If
    ``value`` is a reference to a line of a file, ``content`` is the secret in that line.
    ``content`` serves checks in this process only, and is never pickled or logged.
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
        """The text of a warning that the option has no effect. ``why`` is the reason."""
        return coded(
            Kind.WITHOUT_EFFECT, f"Option '{self.shown}'{self.where} has no effect: {why}."
        )


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """All given options: ``producer`` by Java's names, ``own`` (the sink's options) by their names.

    ``prefix`` precedes a producer's options in their source: ``kafka.``, or empty.
    """

    prefix: str
    producer: dict[str, Given] = field(default_factory=dict)
    own: dict[str, Given] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def as_options(self) -> dict[str, str]:
        """The options as a map, including the lines of ``configFile`` but not ``configFile``
        itself. A secret from the file is a reference to its line.
        """
        texts = {self.prefix + name: given.value for name, given in self.producer.items()}
        texts |= {n: given.value for n, given in self.own.items() if n != CONFIG_FILE}
        return {name: str(value) for name, value in texts.items()}


def add_producer_option(found: GivenOptions, name: str, given: Given) -> bool:
    """Adds an option of the producer to ``found``. Returns False if ``name`` is not an option of
    the producer. Raises ConfigError if the sink does not accept the option.
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
    """Yields each option as (lower-case name without ``prefix``, name as written, value).

    Raises ConfigError for a name that is given twice, even in different letter case, because the
    choice of a value would be arbitrary. (Spark itself converts option names to lower case before;
    the later value then wins.)
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
