"""What becomes of rows that can't be sent: the options ``errors.*``.

Owns: their names, and :class:`DeadLetterOptions`. Never: their rows and defaults
(``option_table``), which rows can't be sent (``records/bad_rows/bad_rows.py``), a broker.

Names are Kafka Connect's; those that it does not have are at the end.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded

TOLERANCE: Final = "errors.tolerance"
TOPIC: Final = "errors.deadletterqueue.topic.name"
TOPIC_IN_STREAMS: Final = "errors.dead.letter.queue.topic.name"
REPLICAS: Final = "errors.deadletterqueue.topic.replication.factor"
CONTEXT: Final = "errors.deadletterqueue.context.headers.enable"
LOG: Final = "errors.log.enable"
MESSAGES: Final = "errors.log.include.messages"
MAX_RECORDS: Final = "errors.max.records"
MAX_FRACTION: Final = "errors.max.fraction"
MAX_VALUE: Final = "errors.deadletterqueue.max.value.bytes"


@dataclass(frozen=True, slots=True)
class DeadLetterOptions:
    """The options of a write with errors.tolerance=all. ``replicas`` -1: as brokers have it."""

    topic: str
    replicas: int
    context_headers: bool
    log: bool
    log_messages: bool
    max_records: int | None
    max_fraction: float | None
    max_value_bytes: int

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> DeadLetterOptions | None:
        """From the sink's options as they count; None with errors.tolerance=none. Raises
        ConfigError.
        """
        topic = _topic(options)
        if options[TOLERANCE] != "all":
            return None
        if topic is None:
            raise ConfigError(
                f"{TOLERANCE}=all needs {TOPIC}: rows that can't be sent would be lost",
                hint="name a topic for them, dlq.orders for example",
            )
        for name in ("topic", "reportTopic", "progressTopic", "commitLogTopic"):
            if options[name] == topic:
                raise ConfigError(
                    f"{TOPIC} and {name} are the same topic, '{topic}'",
                    hint="give dead letters a topic of their own",
                )
        return cls(
            topic,
            -1 if options[REPLICAS] is None else options[REPLICAS],
            options[CONTEXT],
            options[LOG],
            options[MESSAGES],
            options[MAX_RECORDS],
            options[MAX_FRACTION],
            options[MAX_VALUE],
        )


def without_effect(spelled: Mapping[str, str], tolerance: object) -> tuple[str, ...]:
    """The warning for others of these options, if they were given, with errors.tolerance=none:
    their names, and how these are ``spelled``.
    """
    idle = [t for n, t in spelled.items() if n.startswith("errors.") and n != TOLERANCE]
    if tolerance == "all" or not idle:
        return ()
    text = f"Without effect: {', '.join(idle)}, because {TOLERANCE} is none."
    return (coded(Kind.WITHOUT_EFFECT, text, f"set {TOLERANCE}=all, or remove them"),)


def refuse_compacted(options: DeadLetterOptions, compacted: Container[str]) -> None:
    """ConfigError when the topic of the letters is one of them: a letter without a key would be
    refused, one without a value would delete others, and all but the last of a key vanish.
    """
    if options.topic in compacted:
        raise ConfigError(
            f"{TOPIC} names {options.topic}, which is compacted (cleanup.policy): letters would be"
            " refused or deleted",
            hint="name another topic, or a missing one: it is created",
            kind=Kind.TOPIC_LIMIT,
        )


def _topic(options: Mapping[str, Any]) -> str | None:
    name: str | None = options[TOPIC]
    alias: str | None = options[TOPIC_IN_STREAMS]
    if None not in (name, alias) and name != alias:
        raise ConfigError(
            f"{TOPIC} and {TOPIC_IN_STREAMS} are two names of one option, and differ",
            hint=f"remove {TOPIC_IN_STREAMS}",
        )
    return alias if name is None else name
