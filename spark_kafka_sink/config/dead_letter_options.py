"""What becomes of rows that can't be sent: the options ``errors.*``.

Owns: their rows, which ``option_table`` takes, and :class:`DeadLetterOptions`. Never: which rows
these are (``records/bad_rows/bad_rows.py``), a broker.

Names are Kafka Connect's; those that it does not have are at the end.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.option import (
    INT_MAX,
    AtLeast,
    Between,
    Importance,
    OneOfAnyCase,
    Option,
    OptionType,
    TopicName,
)

_T = OptionType
_ON, _OFF = True, False
_MEDIUM, _LOW = Importance.MEDIUM, Importance.LOW
TOLERANCE: Final = "errors.tolerance"
TOPIC: Final = "errors.deadletterqueue.topic.name"
_TOPIC_IN_STREAMS: Final = "errors.dead.letter.queue.topic.name"
_REPLICAS: Final = "errors.deadletterqueue.topic.replication.factor"
_CONTEXT: Final = "errors.deadletterqueue.context.headers.enable"
_LOG: Final = "errors.log.enable"
_MESSAGES: Final = "errors.log.include.messages"
MAX_RECORDS: Final = "errors.max.records"
MAX_FRACTION: Final = "errors.max.fraction"
MAX_VALUE: Final = "errors.deadletterqueue.max.value.bytes"
_MOST_BYTES: Final = 65_536

DEAD_LETTER_OPTIONS: Final = (
    Option(TOLERANCE, _T.STRING, "none", _MEDIUM,
           "What becomes of rows that can't be sent: the first one fails its task (`none`), or each"
           " becomes a record of the topic of errors.deadletterqueue.topic.name, with the reason in"
           " its headers, in the same transaction as the rows (`all`). See dead-letters.md.",
           OneOfAnyCase(("none", "all"))),
    Option(TOPIC, _T.STRING, None, _MEDIUM,
           "The topic of the dead letters, which errors.tolerance=all requires. It is created when"
           " it is missing, with one partition. It must not be compacted, nor be a topic that the"
           " write has rows for.", TopicName()),
    Option(_TOPIC_IN_STREAMS, _T.STRING, None, _LOW,
           "Kafka Streams' name of errors.deadletterqueue.topic.name.", TopicName()),
    Option(_REPLICAS, _T.SHORT, None, _LOW,
           "The replicas of that topic, if it is created. Unset: as the brokers' configuration has"
           " it.", Between(1, 2**15 - 1), java_default="3",
           why="a cluster of one or two brokers, and one that decides by itself, refuse three"),
    Option(_CONTEXT, _T.BOOLEAN, _ON, _LOW,
           "Whether letters have the headers `__connect.errors.*` of Kafka Connect. Those named"
           " `__kprod.errors.*` they have always.", java_default="false",
           why="a letter without its reason is of no use"),
    Option(_LOG, _T.BOOLEAN, _OFF, _LOW,
           "Whether a task logs a warning for each reason in each Arrow batch: how many rows, and"
           " the numbers of the first ones."),
    Option(_MESSAGES, _T.BOOLEAN, _OFF, _LOW,
           "Whether that warning also shows topic, key and value of the first rows. They are data:"
           " executors' logs are read by more people than a topic."),
    Option(MAX_RECORDS, _T.LONG, None, _MEDIUM,
           "How many rows of a batch or micro-batch may become dead letters. With one more the"
           " whole batch fails, before it is decided.", AtLeast(0)),
    Option(MAX_FRACTION, _T.DOUBLE, None, _MEDIUM,
           "The same as a part of the rows that came in, 0 to 1.", Between(0, 1)),
    Option(MAX_VALUE, _T.INT, _MOST_BYTES, _LOW,
           "To how many bytes the value of a letter is cut.", Between(0, INT_MAX)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeadLetterOptions:
    """The options of a write with errors.tolerance=all. ``replicas`` -1: as brokers have it."""

    topic: str
    replicas: int = -1
    context_headers: bool = True
    log: bool = False
    log_messages: bool = False
    max_records: int | None = None
    max_fraction: float | None = None
    max_value_bytes: int = _MOST_BYTES

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
        for name in ("topic", "reportTopic", "commitLogTopic"):
            if options[name] == topic:
                raise ConfigError(
                    f"{TOPIC} and {name} are the same topic, '{topic}'",
                    hint="give dead letters a topic of their own",
                )
        return cls(
            topic,
            -1 if options[_REPLICAS] is None else options[_REPLICAS],
            options[_CONTEXT],
            options[_LOG],
            options[_MESSAGES],
            options[MAX_RECORDS],
            options[MAX_FRACTION],
            options[MAX_VALUE],
        )


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
    alias: str | None = options[_TOPIC_IN_STREAMS]
    if None not in (name, alias) and name != alias:
        raise ConfigError(
            f"{TOPIC} and {_TOPIC_IN_STREAMS} are two names of one option, and differ",
            hint=f"remove {_TOPIC_IN_STREAMS}",
        )
    return alias if name is None else name
