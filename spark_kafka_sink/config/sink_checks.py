"""The combinations of sink options that are an error or a warning.

:data:`CHECKS` has a row for each combination, in the order of the checks. :data:`GUARANTEES` and
:data:`KEYLESS` have the rows that also need producer options.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.topic_name import COMMIT_LOG_TOPIC
from spark_kafka_sink.config.named_columns import (
    ALL_COLUMNS,
    ColumnFormat,
    column_names,
    struct_name,
)
from spark_kafka_sink.config.option import TXN_ADVICE, Check, Values
from spark_kafka_sink.config.option_table import STICKY_PARTITIONERS

_TOLERANCE: Final = "errors.tolerance"
_LETTERS: Final = "errors.deadletterqueue.topic.name"
_LETTERS_IN_STREAMS: Final = "errors.dead.letter.queue.topic.name"
_CHANGELOG: Final = "changelog"
_MODE: Final = "changelog.mode"
_EXACTLY_ONCE: Final = "deliveryGuarantee=exactly-once"
_PARTITIONER: Final = "partitioner.class"

#: For an ``onNullValue`` without effect. Only the registry's schema may show this at planning.
NULL_VALUE_HINT: Final = "remove onNullValue, or write a column value that is null where it must be"

#: Checked when the guarantee is known that the producer's options allow; ``reason`` names the
#: option that switches idempotence off.
GUARANTEES: Final = (
    Check("deliveryGuarantee=none enable.idempotence=true",
          "deliveryGuarantee=none and kafka.enable.idempotence=true contradict each other",
          "deliveryGuarantee=at-least-once has idempotence"),
    Check("deliveryGuarantee enable.idempotence=false",
          "deliveryGuarantee={deliveryGuarantee} needs an idempotent producer, but {reason}",
          "remove that option, or set deliveryGuarantee=none", unless="deliveryGuarantee=none"),
    Check("enable.idempotence=false",
          "deliveryGuarantee is none because {reason}: rows can be lost or written twice. Set"
          " deliveryGuarantee=none if that is intended, otherwise remove the option.",
          unless="deliveryGuarantee=none", kind=Kind.WEAKER_GUARANTEE, warns=True),
)  # fmt: skip


def _need_exactly_once(names: str) -> Iterator[Check]:
    for name in names.split():
        yield Check(
            name,
            f"{name} needs deliveryGuarantee=exactly-once, and deliveryGuarantee is"
            " {deliveryGuarantee}",
            "set deliveryGuarantee=exactly-once, or remove that option",
            unless=_EXACTLY_ONCE,
        )


def _of_columns(part: str) -> Iterator[Check]:
    columns, format_ = f"{part}Columns", f"{part}Format"

    def more_than_one(values: Values) -> bool:
        names = () if struct_name(values[columns]) else column_names(values[columns])
        return len(names) > 1 or ALL_COLUMNS in names

    no_effect = f"{format_} would have no effect, because {columns} names no column"
    hint = f"set {columns}, or remove {format_}"
    yield Check(format_, no_effect, hint, unless=columns, kind=Kind.NO_EFFECT)
    several = f"{format_}=string takes one column, and {columns} names more"
    hint = f"name one column, or set {format_}=json"
    yield Check(f"{format_}=string {columns}", several, hint, more_than_one)


def _one_topic(one: str, other: str, hint: str) -> Check:
    return Check(
        one,
        f"{one} and {other} are the same topic, '{{{one}}}'",
        hint,
        lambda values: values[one] == values[other],
    )


_IS_LOG = (
    "the commit log holds the decisions of exactly-once writes, and a record of another client may"
    " replace one: use another topic"
)


def _not_the_commit_log(name: str) -> Iterator[Check]:
    """Yields two checks of the topic in the option ``name``. The topic must not be the commit log
    of this write. The topic must not be the default commit log.
    """
    yield _one_topic(name, "commitLogTopic", _IS_LOG)
    default = f"{name} is '{COMMIT_LOG_TOPIC}', the topic of the commit log"
    yield Check(name, default, _IS_LOG, lambda values: values[name] == COMMIT_LOG_TOPIC)


def _becomes_json(values: Values) -> bool:
    parts = ("valueColumns", "valueFormat"), ("keyColumns", "keyFormat")
    return any(values[columns] and values[as_] is ColumnFormat.JSON for columns, as_ in parts)


def _of_json(names: str) -> Iterator[Check]:
    for name in names.split():
        yield Check(
            name,
            f"{name} would have no effect, because no columns become JSON",
            f"set valueColumns or keyColumns with the format json, or remove {name}",
            lambda values: not _becomes_json(values),
            kind=Kind.NO_EFFECT,
        )


def _may_be_null(values: Values) -> bool:
    """True if a value that is made from ``valueColumns`` may be null. There are three cases:

    * ``valueColumns`` names a struct, such as ``payload.*``, and the struct is null.
    * The format is string, and the only column is null.
    * The only column is null, and the Avro or JSON schema does not describe a record. Such a schema
      comes from the user or from the registry. If the sink itself derives the schema of a value,
      the schema always describes a record.
    """
    columns, format_ = values["valueColumns"], values["valueFormat"]
    if struct_name(columns) is not None or format_ is ColumnFormat.STRING:
        return True
    has_schema = any(
        values[name] for name in ("valueSchema", "use.schema.id", "use.latest.version")
    )
    is_one = len(column_names(columns)) == 1
    return format_ in (ColumnFormat.AVRO, ColumnFormat.JSON_SCHEMA) and has_schema and is_one


def _is_sticky(values: Values) -> bool:
    return values[_PARTITIONER] in STICKY_PARTITIONERS


def _of_changelogs() -> Iterator[Check]:
    yield Check(
        _MODE,
        f"{_MODE} would have no effect, because changelog is not set",
        f"set changelog, or remove {_MODE}",
        unless=_CHANGELOG,
        kind=Kind.NO_EFFECT,
    )
    for other in ("error", "skip"):
        yield Check(
            f"{_CHANGELOG} onNullValue={other}",
            f"onNullValue={other} and changelog contradict each other: a delete becomes a null"
            " value",
            "remove onNullValue, or filter deletes out and remove changelog",
        )
    yield Check(
        f"{_CHANGELOG} onNullValue",
        "onNullValue would have no effect, because changelog decides: a delete becomes a tombstone,"
        " and an insert or update whose value is null is an error",
        "remove onNullValue",
        kind=Kind.NO_EFFECT,
    )
    enveloped = f"{_CHANGELOG} {_MODE}=debezium"
    envelopes = f"{_MODE}=debezium makes a value of several columns"
    yield Check(
        enveloped,
        f"{envelopes}, and valueColumns names none",
        "set valueColumns=* for all columns of the table",
        unless="valueColumns",
    )
    hint = "take json, avro, protobuf or json-schema"
    yield Check(f"{enveloped} valueFormat=string", f"{envelopes}, and valueFormat is string", hint)
    yield Check(
        f"{enveloped} valueColumns",
        f"{envelopes}, and valueColumns names the fields of one",
        "name columns, or set valueColumns=*",
        lambda values: struct_name(values["valueColumns"]) is not None,
    )


#: A partitioner that ignores keys, with changes of keys.
KEYLESS: Final = tuple(
    Check(
        f"{_CHANGELOG} {condition}",
        f"changelog and kafka.{condition} contradict each other: the records of a key would be in"
        " several partitions, without an order",
        "remove that option: the default partitioner goes by key",
    )
    for condition in (
        "partitioner.ignore.keys=true",
        "partitioner.class=RoundRobinPartitioner",
        "partitioner.class=random",
    )
)

_REPORTS = "reports are records of JSON: use a separate topic for them"
_PROGRESS = "progress is records of JSON: use a separate topic for it"

#: The wrong combinations of the sink's options, in the order in which they are checked.
CHECKS: Final = (
    *_need_exactly_once(
        "transactionalIdPrefix txnAppId txnVersion verifyReplays offsetsGroup offsetsGroupInUse"
        " commitLogTopic"),
    Check("txnAppId", "txnAppId is set and txnVersion is not: a write is known by both",
          TXN_ADVICE, unless="txnVersion"),
    Check("txnVersion", "txnVersion is set and txnAppId is not: a write is known by both",
          TXN_ADVICE, unless="txnAppId"),
    *(check for name in ("topic", "reportTopic", "progressTopic", _LETTERS)
      for check in _not_the_commit_log(name)),
    _one_topic("reportTopic", "topic", _REPORTS),
    _one_topic("progressTopic", "topic", _PROGRESS),
    _one_topic("progressTopic", "reportTopic", _PROGRESS),
    *_of_columns("key"),
    *_of_columns("value"),
    *_of_json("jsonIgnoreNullFields jsonPlainDecimals jsonTimestampFormat jsonTimestampNtzFormat"),
    Check("onNullKey", "onNullKey would have no effect, because keyColumns names no column",
          "set keyColumns, or remove onNullKey: a null in a column key is no key",
          unless="keyColumns", kind=Kind.NO_EFFECT),
    Check("onNullKey keyFormat=string",
          "onNullKey would have no effect, because keyFormat=string writes a null as no key",
          "remove onNullKey, or set another keyFormat", kind=Kind.NO_EFFECT),
    *_of_changelogs(),
    Check("onNullValue valueColumns",
          "onNullValue would have no effect, because valueColumns become a value with a field for"
          " each column, which is never null", NULL_VALUE_HINT,
          lambda values: not _may_be_null(values), kind=Kind.NO_EFFECT),
    Check("tasksAtOnce", "tasksAtOnce would have no effect, because there is no rate to divide",
          "set maxRecordsPerSecond, maxBytesPerSecond or connectionsPerSecond, or remove"
          " tasksAtOnce",
          unless="maxRecordsPerSecond maxBytesPerSecond connectionsPerSecond", kind=Kind.NO_EFFECT),
    Check("maxLeadersPerTask",
          "maxLeadersPerTask would have no effect, because"
          f" kafka.{_PARTITIONER}={{{_PARTITIONER}}} decides where rows without a key go",
          f"remove maxLeadersPerTask or kafka.{_PARTITIONER}",
          lambda values: not _is_sticky(values), kind=Kind.NO_EFFECT),
    Check(f"{_LETTERS} {_LETTERS_IN_STREAMS}",
          f"{_LETTERS} and {_LETTERS_IN_STREAMS} are two names of one option, and differ",
          f"remove {_LETTERS_IN_STREAMS}",
          lambda values: values[_LETTERS] != values[_LETTERS_IN_STREAMS]),
    Check(f"{_TOLERANCE}=all",
          f"{_TOLERANCE}=all needs {_LETTERS}: rows that can't be sent would be lost",
          "name a topic for them, dlq.orders for example", unless=_LETTERS),
    *(_one_topic(_LETTERS, other, "give dead letters their own topic")
      for other in ("topic", "reportTopic", "progressTopic")),
)  # fmt: skip
