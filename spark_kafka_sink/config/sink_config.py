"""The configuration of one ``format("kprod")`` write: the producer's, and the sink's own options.

Owns: the value :class:`SinkConfig`, the delivery guarantee that results from the options, and
:data:`CHECKS`, a row for each combination of the sink's options that is an error. Never: the rule
or the default of one option (``option_table``), combinations of the producer's options
(``cross_checks``), combinations of schema options (``schema_options``), a log line, a clock, an
environment variable.

The driver parses the options once. The tasks get the result, and need not import the modules that
parse.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded
from spark_kafka_sink.base.topic_name import COMMIT_LOG_TOPIC
from spark_kafka_sink.config.changelog import ChangelogMode, ChangeOptions
from spark_kafka_sink.config.named_columns import (
    ALL_COLUMNS,
    ColumnFormat,
    NamedColumns,
    column_names,
    struct_name,
)
from spark_kafka_sink.config.option import TXN_ADVICE, Check, Status, Values, refuse
from spark_kafka_sink.config.producer_config import ProducerConfig

if TYPE_CHECKING:
    from spark_kafka_sink.config.cross_checks import OptionReader
    from spark_kafka_sink.config.names.given import GivenOptions
    from spark_kafka_sink.config.schema_options import SchemaOptions

MISSING_BOOTSTRAP = (
    "Kafka option bootstrap.servers is not set. Please make sure it is set and retry."
)

#: An option that the package sets itself (``datasource/write/write_context.py``).
TXN_CONTEXT = "txnContext"

_TOLERANCE: Final = "errors.tolerance"
_LETTERS: Final = "errors.deadletterqueue.topic.name"
_LETTERS_IN_STREAMS: Final = "errors.dead.letter.queue.topic.name"
_NULLS: Final = "jsonIgnoreNullFields"
#: Set by the package itself (``datasource/session/session_settings.py``).
_NULLS_OF_SESSION: Final = "sessionIgnoreNullFields"
_CHANGELOG: Final = "changelog"
_MODE: Final = "changelog.mode"
_EXACTLY_ONCE: Final = "deliveryGuarantee=exactly-once"
_PARTITIONER: Final = "partitioner.class"
_OF_ONE_WRITE = ("txnVersion", TXN_CONTEXT)
_FINGERPRINT_LENGTH = 16


class DeliveryGuarantee(StrEnum):
    """The delivery guarantee of each row (option ``deliveryGuarantee``)."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


class Preflight(StrEnum):
    """The driver's behaviour when it can't find the topic before the tasks start."""

    REQUIRED = "required"
    WARN = "warn"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOptions:
    """The options of dead letters, for a write with errors.tolerance=all. If ``replicas`` is None,
    the brokers' default number of replicas counts.
    """

    topic: str
    replicas: int | None
    context_headers: bool
    log: bool
    log_messages: bool
    max_records: int | None
    max_fraction: float | None
    max_value_bytes: int

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> DeadLetterOptions | None:
        """Reads the options of dead letters from the sink's checked options. Returns None with
        errors.tolerance=none.
        """
        if options[_TOLERANCE] == "none":
            return None
        return cls(
            topic=options[_LETTERS],
            replicas=options["errors.deadletterqueue.topic.replication.factor"],
            context_headers=options["errors.deadletterqueue.context.headers.enable"],
            log=options["errors.log.enable"],
            log_messages=options["errors.log.include.messages"],
            max_records=options["errors.max.records"],
            max_fraction=options["errors.max.fraction"],
            max_value_bytes=options["errors.deadletterqueue.max.value.bytes"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig:
    """The parsed options of one ``format("kprod")`` write.

    A field with the name of an option (``Option.attribute``) holds the given value of the option,
    or the option's default.
    """

    producer: ProducerConfig
    topic: str | None
    #: The effective one.
    delivery_guarantee: DeliveryGuarantee
    #: None: by mode, see :meth:`preflight_for`.
    preflight: Preflight | None
    named_columns: NamedColumns
    #: None: the rows are no changes of a table.
    changes: ChangeOptions | None
    #: None: no format has a schema; and in tasks, which get what follows from it.
    schemas: SchemaOptions | None
    #: Limits of the whole write, None: no limit; and the largest number of tasks that run at the
    #: same time.
    max_records_per_second: int | None
    max_bytes_per_second: int | None
    tasks_at_once: int | None
    #: The new connections of the whole write to one broker, None: no limit.
    connections_per_second: int | None
    #: None: no limit.
    max_leaders_per_task: int | None
    #: None with errors.tolerance=none.
    dead_letters: DeadLetterOptions | None
    report_path: str | None
    #: None: without a limit.
    report_topic: str | None
    report_listeners: tuple[str, ...]
    progress_listeners: tuple[str, ...]
    progress_topic: str | None
    #: None: none was given. The rest of these count with exactly-once only.
    transactional_id_prefix: str | None
    txn_app_id: str | None
    txn_version: int | None
    #: See ``datasource/write/write_context.py``.
    txn_context: str | None
    verify_replays: bool
    offsets_group: str | None
    #: "refuse" or "allow".
    offsets_group_in_use: str
    checkpoint_location: str | None
    commit_log_topic: str
    warnings: tuple[str, ...] = field(compare=False, repr=False)
    #: Equal for equal options (see :func:`_fingerprint`); for reports.
    fingerprint: str = field(compare=False)

    @classmethod
    def parse(cls, options: Mapping[str, object]) -> SinkConfig:
        """Parses the option map that Spark passes to a data source, and its ``configFile``.

        Raises only ConfigError.
        """
        from spark_kafka_sink.config.names.given_options import given_options
        from spark_kafka_sink.config.names.unknown_options import PREFIX

        return cls.of(given_options(options, PREFIX))

    @classmethod
    def of(cls, given: GivenOptions) -> SinkConfig:
        """Parses options whose names are already checked."""
        from spark_kafka_sink.config.cross_checks import OptionReader
        from spark_kafka_sink.config.option_table import SINK_OPTIONS
        from spark_kafka_sink.config.schema_options import schema_options

        reader = OptionReader(given)
        own = {
            name: SINK_OPTIONS[name].read(one.value, one.spelled) for name, one in given.own.items()
        }
        for name in [one for one in own if SINK_OPTIONS[one].status is Status.NO_MEANING]:
            del own[name]
            reader.warnings.append(given.own[name].no_effect(SINK_OPTIONS[name].note))
        if "bootstrap.servers" not in reader.given:
            raise ConfigError(
                MISSING_BOOTSTRAP,
                hint="set option kafka.bootstrap.servers",
                kind=Kind.MISSING_BOOTSTRAP,
            )
        if _LETTERS_IN_STREAMS in own:
            own.setdefault(_LETTERS, own[_LETTERS_IN_STREAMS])
        options = {n: own.get(n, option.default) for n, option in SINK_OPTIONS.items()}
        if _NULLS not in own and options[_NULLS_OF_SESSION] is not None:
            options[_NULLS] = options[_NULLS_OF_SESSION]
        if _NULLS not in own and options[_CHANGELOG] and options[_MODE] is ChangelogMode.DEBEZIUM:
            # As Debezium's own JSON: readers look for before and after.
            options[_NULLS] = False
        if options[_TOLERANCE] == "none":
            own = {name: value for name, value in own.items() if not name.startswith("errors.")}
            if idle := [o.spelled for n, o in given.own.items() if n not in {*own, _TOLERANCE}]:
                text = f"{', '.join(idle)}: without effect, because {_TOLERANCE} is none"
                hint = f"set {_TOLERANCE}=all, or remove them"
                reader.warnings.append(coded(Kind.WITHOUT_EFFECT, text, hint))
        asked = DeliveryGuarantee(str(options["deliveryGuarantee"]))
        guarantee = _guarantee(reader, asked, is_given="deliveryGuarantee" in own)
        partitioner = {_PARTITIONER: reader.values[_PARTITIONER]}
        refuse(CHECKS, own, options | partitioner | {"deliveryGuarantee": guarantee})
        refuse(_KEYLESS, {*own, *reader.given}, options | reader.values)
        values: dict[str, Any] = {SINK_OPTIONS[n].attribute: one for n, one in options.items()}
        producer = ProducerConfig.of(reader)
        named, preflight = NamedColumns.of(values), values["preflight"]
        values |= {
            "producer": producer,
            "delivery_guarantee": guarantee,
            "preflight": None if preflight is None else Preflight(preflight),
            "named_columns": named,
            "changes": ChangeOptions.of(values),
            "schemas": schema_options(own, options, named),
            "dead_letters": DeadLetterOptions.of(options),
            "warnings": producer.warnings,
            "fingerprint": _fingerprint(given),
        }
        return cls(**{one.name: values[one.name] for one in fields(cls)})

    @property
    def is_exactly_once(self) -> bool:
        return self.delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE

    @property
    def log_topics(self) -> tuple[str, ...]:
        """The topics of commit logs: the log of this write, and the default log. Rows must not be
        written to these topics.
        """
        return tuple({self.commit_log_topic, COMMIT_LOG_TOPIC})

    def preflight_for(self, *, streaming: bool) -> Preflight:
        """The value of the ``preflight`` option, or its default for the mode.

        The default is warn for streaming without exactly-once, and required in all other cases.
        """
        if self.preflight is not None:
            return self.preflight
        return Preflight.WARN if streaming and not self.is_exactly_once else Preflight.REQUIRED


def _fingerprint(given: GivenOptions) -> str:
    """A hash of option names and values as they were given.

    The hash leaves out the options of TLS, SASL and a registry's client, so that it contains no
    secret. It also leaves out the options that may differ between the writes of one query.
    """
    from spark_kafka_sink.base.security.secret_references import REFERABLE

    options = sorted(
        (name, value)
        for name, value in given.as_options().items()
        if not name.removeprefix(given.prefix).startswith(REFERABLE) and name not in _OF_ONE_WRITE
    )
    return hashlib.sha256(repr(options).encode()).hexdigest()[:_FINGERPRINT_LENGTH]


def _guarantee(
    reader: OptionReader, requested: DeliveryGuarantee, *, is_given: bool
) -> DeliveryGuarantee:
    """Reads the producer's options for the ``requested`` guarantee, and returns the effective
    guarantee.
    """
    from spark_kafka_sink.config.names.given import Given

    idempotence = "enable.idempotence"
    if requested is DeliveryGuarantee.NONE and idempotence not in reader.given:
        # Said before the cross-checks, so that none allows what only idempotence forbids, such as
        # six requests in flight.
        reader.given[idempotence] = Given("false", reader.prefix + idempotence)
    reader.exactly_once = requested is DeliveryGuarantee.EXACTLY_ONCE
    reader.read()
    idempotent = reader.values[idempotence] and reader.idempotence_off is None
    reason = reader.idempotence_off or "kafka.enable.idempotence is set to false"
    given = {"deliveryGuarantee"} if is_given else set()
    values = {"deliveryGuarantee": requested, idempotence: idempotent, "reason": reason}
    reader.warnings += refuse(_GUARANTEES, given, values)
    return requested if idempotent else DeliveryGuarantee.NONE


_GUARANTEES: Final = (
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
    """The checks that the topic of option ``name`` is not a commit log. The commit logs are the log
    of this write, and the default log that other writes use.
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


def _is_sticky(values: Values) -> bool:
    from spark_kafka_sink.config.option_table import STICKY_PARTITIONERS

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
_KEYLESS: Final = tuple(
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

#: In the order in which they are looked at.
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
    Check("onNullValue valueColumns valueFormat=json",
          "onNullValue would have no effect, because valueColumns become JSON, which is never null",
          "remove onNullValue, or write a column value that is null where it must be",
          lambda values: struct_name(values["valueColumns"]) is None, kind=Kind.NO_EFFECT),
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
