"""The configuration of one ``format("kprod")`` write: the producer's, and the sink's own options.

Owns: the value :class:`SinkConfig`, and the delivery guarantee that results from the options.
Never: the rule or the default of one option (``option_table``), combinations of the sink's options
(``sink_checks``), combinations of the producer's options (``cross_checks``), combinations of schema
options (``schema_options``), a log line, a clock, an environment variable.

The driver parses the options once. The tasks get the result, and need not import the modules that
parse.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded
from spark_kafka_sink.base.topic_name import COMMIT_LOG_TOPIC
from spark_kafka_sink.config.named_columns import NamedColumns
from spark_kafka_sink.config.producer_config import ProducerConfig

if TYPE_CHECKING:
    from spark_kafka_sink.config.changelog import ChangeOptions
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
    #: The effective guarantee: "none" if another option switches idempotence off.
    delivery_guarantee: DeliveryGuarantee
    #: None if the option is not set: then the mode decides, see :meth:`preflight_for`.
    preflight: Preflight | None
    named_columns: NamedColumns
    #: None if the rows are not changes of a table.
    changes: ChangeOptions | None
    #: None if no format has a schema, and always in tasks: the driver fetches the schemas.
    schemas: SchemaOptions | None
    #: Limits of the whole write, and the largest number of tasks that run at the same time. None
    #: means no limit, here and in the next two fields.
    max_records_per_second: int | None
    max_bytes_per_second: int | None
    tasks_at_once: int | None
    #: The new connections of the whole write to one broker.
    connections_per_second: int | None
    max_leaders_per_task: int | None
    #: None with errors.tolerance=none.
    dead_letters: DeadLetterOptions | None
    report_path: str | None
    #: None: without a limit.
    report_topic: str | None
    report_listeners: tuple[str, ...]
    progress_listeners: tuple[str, ...]
    progress_topic: str | None
    #: None if the option is not set. This option and the options below have an effect with
    #: exactly-once only.
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
        from spark_kafka_sink.config.changelog import ChangelogMode, ChangeOptions
        from spark_kafka_sink.config.cross_checks import OptionReader
        from spark_kafka_sink.config.option import Status, refuse
        from spark_kafka_sink.config.option_table import SINK_OPTIONS
        from spark_kafka_sink.config.schema_options import schema_options
        from spark_kafka_sink.config.sink_checks import CHECKS, KEYLESS

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
        refuse(KEYLESS, {*own, *reader.given}, options | reader.values)
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
    from spark_kafka_sink.config.option import refuse
    from spark_kafka_sink.config.sink_checks import GUARANTEES

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
    reader.warnings += refuse(GUARANTEES, given, values)
    return requested if idempotent else DeliveryGuarantee.NONE
