"""The configuration of one ``format("kprod")`` write: the producer's, and the sink's own options.

Owns: the value :class:`SinkConfig`, and which delivery guarantee the options amount to. Never: a
log line, a clock, an environment variable. The driver parses once, the tasks get the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.cross_checks import OptionReader
from spark_kafka_sink.config.dead_letters import DeadLetterOptions
from spark_kafka_sink.config.given_options import Given, GivenOptions, given_options
from spark_kafka_sink.config.named_columns import NamedColumns
from spark_kafka_sink.config.option import OptionValue
from spark_kafka_sink.config.option_table import COMMIT_LOG_TOPIC, SINK_OPTIONS
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.rate_limits import RateLimits
from spark_kafka_sink.config.schemas.schema_options import SchemaOptions, schema_options
from spark_kafka_sink.config.secret_references import REFERABLE
from spark_kafka_sink.config.unknown_options import PREFIX

MISSING_BOOTSTRAP = (
    "Kafka option bootstrap.servers is not set. Please make sure it is set and retry."
)

#: An option that the package sets itself (``datasource/write/write_context.py``).
TXN_CONTEXT = "txnContext"

_OF_ONE_WRITE = ("txnVersion", TXN_CONTEXT)
_FINGERPRINT_LENGTH = 16

#: Options that mean nothing without exactly-once.
_OF_EXACTLY_ONCE = (
    "transactionalIdPrefix",
    "txnAppId",
    "txnVersion",
    "verifyReplays",
    "offsetsGroup",
    "offsetsGroupInUse",
    "twoPhaseCommit",
    "commitLogTopic",
)


class DeliveryGuarantee(StrEnum):
    """The delivery guarantee of each row (option ``deliveryGuarantee``)."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


class Preflight(StrEnum):
    """What the driver does when it can't find the topic before the tasks start."""

    REQUIRED = "required"
    WARN = "warn"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig:
    """The options of one ``format("kprod")`` write, read."""

    producer: ProducerConfig
    topic: str | None
    delivery_guarantee: DeliveryGuarantee
    #: None: by mode, see :meth:`preflight_for`.
    preflight: Preflight | None
    report_path: str | None
    named_columns: NamedColumns = field(default_factory=NamedColumns)
    #: None: no format has a schema; and in tasks, which get what follows from it.
    schemas: SchemaOptions | None = None
    rate_limits: RateLimits = field(default_factory=RateLimits)
    #: None with errors.tolerance=none.
    dead_letters: DeadLetterOptions | None = None
    #: Of report_path; None: without a limit.
    report_retention_bytes: int | None = None
    report_retention_ms: int | None = None
    report_topic: str | None = None
    report_listeners: tuple[str, ...] = ()
    progress_listeners: tuple[str, ...] = ()
    #: None: none was given. The rest of these count with exactly-once only.
    transactional_id_prefix: str | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    #: See ``datasource/write/write_context.py``.
    txn_context: str | None = None
    verify_replays: bool = True
    offsets_group: str | None = None
    offsets_group_may_be_used: bool = False
    checkpoint_location: str | None = None
    two_phase_commit: bool = False
    commit_log_topic: str = COMMIT_LOG_TOPIC
    warnings: tuple[str, ...] = field(default=(), compare=False, repr=False)
    #: Equal for equal options (see :func:`_fingerprint`); for reports.
    fingerprint: str = field(default="", compare=False)

    @classmethod
    def parse(cls, options: Mapping[str, object]) -> SinkConfig:
        """Read the option map that Spark hands to a data source, and its ``configFile``.

        Raises ConfigError; nothing else.
        """
        return cls.of(given_options(options, PREFIX))

    @classmethod
    def of(cls, given: GivenOptions) -> SinkConfig:
        """Read options whose names were looked at, with the prefix ``kafka.``."""
        reader = OptionReader(given)
        own = {
            name: SINK_OPTIONS[name].read(one.value, one.spelled) for name, one in given.own.items()
        }
        requested = _text(own.get("deliveryGuarantee"))
        if "bootstrap.servers" not in reader.given:
            raise ConfigError(
                MISSING_BOOTSTRAP,
                hint="set option kafka.bootstrap.servers",
                kind=Kind.MISSING_BOOTSTRAP,
            )
        guarantee = _guarantee(reader, None if requested is None else DeliveryGuarantee(requested))
        _check_exactly_once(own, guarantee)
        _check_report_topic(own)
        preflight = _text(own.get("preflight"))
        producer = ProducerConfig.of(reader)
        named = NamedColumns.of(own)
        return cls(
            producer=producer,
            topic=_text(own.get("topic")),
            delivery_guarantee=guarantee,
            preflight=None if preflight is None else Preflight(preflight),
            report_path=_text(own.get("reportPath")),
            report_retention_bytes=_count(own.get("reportPathRetentionBytes")),
            report_retention_ms=_count(own.get("reportPathRetentionMs")),
            named_columns=named,
            schemas=schema_options(own, named),
            rate_limits=RateLimits.of(own),
            dead_letters=DeadLetterOptions.of(own, _commit_log(own)),
            report_topic=_text(own.get("reportTopic")),
            report_listeners=_texts(own.get("reportListeners")),
            progress_listeners=_texts(own.get("progressListeners")),
            transactional_id_prefix=_text(own.get("transactionalIdPrefix")),
            txn_app_id=_text(own.get("txnAppId")),
            txn_version=_count(own.get("txnVersion")),
            txn_context=_text(own.get(TXN_CONTEXT)),
            verify_replays=own.get("verifyReplays") is not False,
            offsets_group=_text(own.get("offsetsGroup")),
            offsets_group_may_be_used=own.get("offsetsGroupInUse") == "allow",
            checkpoint_location=_text(own.get("checkpointLocation")),
            two_phase_commit=own.get("twoPhaseCommit") == "auto",
            commit_log_topic=_commit_log(own),
            warnings=producer.warnings,
            fingerprint=_fingerprint(given),
        )

    @property
    def is_exactly_once(self) -> bool:
        return self.delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def preflight_for(self, *, streaming: bool) -> Preflight:
        """The ``preflight`` option, or the mode's default: warn for streaming without
        exactly-once, else required.
        """
        if self.preflight is not None:
            return self.preflight
        return Preflight.WARN if streaming and not self.is_exactly_once else Preflight.REQUIRED


def _fingerprint(given: GivenOptions) -> str:
    """Of names and values as they were given. Nothing of TLS, SASL and a registry's client is in
    it, and so no secret, nor what differs from one write of a query to the next.
    """
    options = sorted(
        (name, value)
        for name, value in given.as_options().items()
        if not name.removeprefix(given.prefix).startswith(REFERABLE) and name not in _OF_ONE_WRITE
    )
    return hashlib.sha256(repr(options).encode()).hexdigest()[:_FINGERPRINT_LENGTH]


def _guarantee(reader: OptionReader, requested: DeliveryGuarantee | None) -> DeliveryGuarantee:
    """Read the producer's options under the requested guarantee, and return the effective one."""
    idempotence = "enable.idempotence"
    if requested is DeliveryGuarantee.NONE and idempotence not in reader.given:
        # Said before the cross-checks, so that none allows what only idempotence forbids, such as
        # six requests in flight.
        reader.given[idempotence] = Given("false", reader.prefix + idempotence)
    reader.exactly_once = requested is DeliveryGuarantee.EXACTLY_ONCE
    reader.read()
    if requested is DeliveryGuarantee.NONE:
        if reader.values[idempotence]:
            raise ConfigError(
                "deliveryGuarantee=none and kafka.enable.idempotence=true contradict each other",
                hint="deliveryGuarantee=at-least-once is the one with idempotence",
            )
        return requested
    if reader.values[idempotence] and reader.idempotence_off is None:
        return requested or DeliveryGuarantee.AT_LEAST_ONCE
    reason = reader.idempotence_off or "kafka.enable.idempotence is set to false"
    if requested is not None:
        raise ConfigError(
            f"deliveryGuarantee={requested} needs an idempotent producer, but {reason}",
            hint="remove that option, or set deliveryGuarantee=none",
        )
    reader.warn(
        Kind.WEAKER_GUARANTEE,
        f"deliveryGuarantee is none because {reason}: rows can be lost or written twice. Set"
        " deliveryGuarantee=none if that is meant, else remove the option.",
    )
    return DeliveryGuarantee.NONE


def _check_exactly_once(own: Mapping[str, OptionValue], guarantee: DeliveryGuarantee) -> None:
    """Checks the sink's options for transactions together."""
    given = [name for name in _OF_EXACTLY_ONCE if name in own]
    if guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
        if given:
            raise ConfigError(
                f"{given[0]} needs deliveryGuarantee=exactly-once, and deliveryGuarantee is"
                f" {guarantee}",
                hint="set deliveryGuarantee=exactly-once, or remove that option",
            )
        return
    for one, other in (("txnAppId", "txnVersion"), ("txnVersion", "txnAppId")):
        if one in own and other not in own:
            raise ConfigError(
                f"{one} is set and {other} is not: a write is known by both",
                hint="txnAppId identifies the writer, txnVersion counts its writes",
            )
    log = own.get("commitLogTopic", COMMIT_LOG_TOPIC)
    if own.get("topic") == log:
        raise ConfigError(
            f"topic and commitLogTopic are the same topic, '{log}'",
            hint="the commit log holds the driver's decisions, and no other client may write to it",
        )


def _check_report_topic(own: Mapping[str, OptionValue]) -> None:
    reports = own.get("reportTopic")
    others = {"topic": own.get("topic"), "commitLogTopic": _commit_log(own)}
    for name, other in others.items():
        if reports is not None and reports == other:
            raise ConfigError(
                f"reportTopic and {name} are the same topic, '{reports}'",
                hint="reports are records of JSON: use a separate topic for them",
            )


def _commit_log(own: Mapping[str, OptionValue]) -> str:
    return _text(own.get("commitLogTopic")) or COMMIT_LOG_TOPIC


def _texts(value: OptionValue) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _text(value: OptionValue) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: OptionValue) -> int | None:
    return value if isinstance(value, int) else None
