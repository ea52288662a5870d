"""An option that the user has set, with its spelling for messages.

:class:`Given` is one option, and :class:`GivenProducerOptions` are the options of a producer.
``names`` decides which options are accepted, and ``option`` parses the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import coded, safe_text
from spark_kafka_sink.base.security.password import Password


@dataclass(frozen=True, slots=True)
class Given:
    """The value of an option that the user has set, with texts for messages."""

    #: The value. For a secret in a file, a reference to the line of the secret.
    value: object = field(repr=False)
    #: The option's name for messages. For an option of the sink, the documented name. For any other
    #: option, the name as the user wrote it.
    name: str
    #: A text with the name of the file that has the option. Empty if the option is not from a file.
    where: str = ""
    #: The secret itself, for a secret in a file. It is only for checks in this process, and is
    #: never pickled or logged.
    content: Password | None = None

    @property
    def spelled(self) -> str:
        return self.shown + self.where

    @property
    def shown(self) -> str:
        return safe_text(self.name)

    def no_effect(self, why: str) -> str:
        """Creates the text of the warning that this option has no effect. ``why`` is the reason."""
        return coded(
            Kind.WITHOUT_EFFECT, f"Option '{self.shown}'{self.where} has no effect: {why}."
        )


@dataclass(frozen=True, slots=True)
class GivenProducerOptions:
    """The producer options that the user has set, by Java's names.

    In messages, ``prefix`` is put before these names: ``kafka.`` for a write, nothing for a
    producer without Spark.
    """

    given: Mapping[str, Given]
    prefix: str

    def spelled(self, name: str) -> str:
        """The option's name for a message, with the prefix that users write. For an option from a
        file, the result is the name in the file, followed by the file's name.
        """
        given = self.given.get(name)
        return given.spelled if given is not None and given.where else self.prefix + name

    def prefix_at(self, name: str) -> str:
        """Returns the prefix of the option ``name`` in messages. The prefix is empty if the user
        has set the option in a file, and ``prefix`` in all other cases.
        """
        return "" if self.given[name].where else self.prefix
