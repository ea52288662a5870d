"""Creates the configuration of a write, or of a producer without Spark, from the options that a
user has set.

These are the steps for a write:

1. Read the values, and apply defaults that depend on other options.
2. Check the producer options, and determine the effective delivery guarantee.
3. Check the combinations of sink options, and build the configuration.

Only the driver and a user's ``KafkaProducer`` import this module. Tasks unpickle its results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded
from spark_kafka_sink.base.security.secret_references import REFERABLE
from spark_kafka_sink.config.changelog import ChangelogMode, ChangeOptions
from spark_kafka_sink.config.cross_checks import CheckedOptions, check_producer_options
from spark_kafka_sink.config.given_option import Given
from spark_kafka_sink.config.logins.security_rules import is_security_option
from spark_kafka_sink.config.named_columns import NamedColumns
from spark_kafka_sink.config.names.given import GivenOptions
from spark_kafka_sink.config.names.given_options import given_options
from spark_kafka_sink.config.names.unknown_options import PREFIX
from spark_kafka_sink.config.option import LONG_MAX, Status, refuse
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, SINK_OPTIONS
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.schema_options import schema_options
from spark_kafka_sink.config.sink_checks import CHECKS, GUARANTEES, KEYLESS
from spark_kafka_sink.config.sink_config import (
    TXN_CONTEXT,
    TXN_GENERATION,
    DeadLetterOptions,
    DeliveryGuarantee,
    Preflight,
    SinkConfig,
)

MISSING_BOOTSTRAP: Final = (
    "Kafka option bootstrap.servers is not set. Please make sure it is set and retry."
)

_BOOTSTRAP: Final = "bootstrap.servers"
_GUARANTEE: Final = "deliveryGuarantee"
_IDEMPOTENCE: Final = "enable.idempotence"
_TOLERANCE: Final = "errors.tolerance"
_LETTERS: Final = "errors.deadletterqueue.topic.name"
_LETTERS_IN_STREAMS: Final = "errors.dead.letter.queue.topic.name"
_NULLS: Final = "jsonIgnoreNullFields"
#: Set by the package itself (``datasource/session/session_settings.py``).
_NULLS_OF_SESSION: Final = "sessionIgnoreNullFields"
_PARTITIONER: Final = "partitioner.class"
_OF_ONE_WRITE: Final = ("txnVersion", TXN_CONTEXT, TXN_GENERATION)
_FINGERPRINT_LENGTH: Final = 16


def parse_sink_config(options: Mapping[str, object]) -> SinkConfig:
    """Parses the options of a write. If ``configFile`` is one of them, also parses the lines of
    this file. ``options`` are the options as Spark passes them to a data source.

    Raises only ConfigError.
    """
    return sink_config_of(given_options(options, PREFIX))


def sink_config_of(given: GivenOptions) -> SinkConfig:
    """Creates the configuration of a write. The names of the options in ``given`` are already
    checked.

    Raises ConfigError for the first wrong value or wrong combination.
    """
    own = _own_values(given)
    if _BOOTSTRAP not in given.producer:
        raise ConfigError(
            MISSING_BOOTSTRAP,
            hint="set option kafka.bootstrap.servers",
            kind=Kind.MISSING_BOOTSTRAP,
        )
    options = _with_defaults(own)
    if options[_TOLERANCE] == "none":
        own = {name: value for name, value in own.items() if not name.startswith("errors.")}
    warnings = [*given.warnings, *_without_effect(given, options)]

    requested = DeliveryGuarantee(str(options[_GUARANTEE]))
    producer = _check_producer(given, requested)
    warnings += producer.warnings
    guarantee, of_guarantee = _effective_guarantee(requested, producer, is_given=_GUARANTEE in own)
    warnings += of_guarantee

    partitioner = {_PARTITIONER: producer.values[_PARTITIONER]}
    refuse(CHECKS, own, options | partitioner | {_GUARANTEE: guarantee})
    refuse(KEYLESS, {*own, *producer.given}, options | dict(producer.values))

    by_field: dict[str, Any] = {
        SINK_OPTIONS[name].attribute: value for name, value in options.items()
    }
    named, preflight = NamedColumns.of(by_field), by_field["preflight"]
    by_field |= {
        "producer": _producer_config(producer, tuple(warnings)),
        "delivery_guarantee": guarantee,
        "preflight": None if preflight is None else Preflight(preflight),
        "named_columns": named,
        "changes": ChangeOptions.of(by_field),
        "schemas": schema_options(own, options, named),
        "dead_letters": _dead_letters(options),
        "warnings": tuple(warnings),
        "fingerprint": _fingerprint(given),
    }
    return SinkConfig(**{field.name: by_field[field.name] for field in fields(SinkConfig)})


def sink_values_of(given: GivenOptions) -> Mapping[str, Any]:
    """The effective value of every sink option by name: the user's value, or the default, which may
    depend on other options. The combinations of options are not checked.
    """
    return _with_defaults(_own_values(given))


def parse_producer_config(options: Mapping[str, object]) -> ProducerConfig:
    """Parses the options of a producer without Spark. If ``configFile`` is one of them, also parses
    the lines of this file. Raises only ConfigError.

    The names of the options are Java's, in upper or lower case, without the prefix ``kafka.``. A
    value is text, or already has the option's type.
    """
    given = given_options(options, "")
    if _BOOTSTRAP not in given.producer:
        raise ConfigError(
            'Missing required configuration "bootstrap.servers" which has no default value.',
            hint="give it as host:port,host:port",
        )
    checked = check_producer_options(given.producer, given.prefix)
    warnings = [*given.warnings, *checked.warnings]
    if checked.idempotence_off is not None:
        text = f"Idempotence will be disabled because {checked.idempotence_off}: a retry can"
        warnings.append(coded(Kind.WEAKER_GUARANTEE, f"{text} write rows twice."))
    return _producer_config(checked, tuple(warnings))


def _own_values(given: GivenOptions) -> dict[str, Any]:
    """The values of the sink options that the user has set and that have an effect.

    Raises ConfigError for a wrong value, even if its option has no effect. The dead-letter topic
    has two option names: one of Kafka Connect, and one of Kafka Streams. If the user has set only
    the name of Kafka Streams, the result has the value under both names.
    """
    values = {
        name: SINK_OPTIONS[name].read(option.value, option.spelled)
        for name, option in given.own.items()
    }
    own = {n: v for n, v in values.items() if SINK_OPTIONS[n].status is not Status.NO_MEANING}
    if _LETTERS_IN_STREAMS in own:
        own.setdefault(_LETTERS, own[_LETTERS_IN_STREAMS])
    return own


def _with_defaults(own: Mapping[str, Any]) -> dict[str, Any]:
    """The effective value of every sink option: the user's value (``own``) or the default. The
    default of jsonIgnoreNullFields depends on other options.
    """
    options: dict[str, Any] = {n: own.get(n, option.default) for n, option in SINK_OPTIONS.items()}
    if _NULLS not in own:
        if options[_NULLS_OF_SESSION] is not None:
            options[_NULLS] = options[_NULLS_OF_SESSION]
        if options["changelog"] and options["changelog.mode"] is ChangelogMode.DEBEZIUM:
            # As Debezium's own JSON: readers look for before and after.
            options[_NULLS] = False
    return options


def _without_effect(given: GivenOptions, options: Mapping[str, Any]) -> Iterator[str]:
    """Yields a warning for each option that the user has set and that has no effect."""
    for name, option in given.own.items():
        if SINK_OPTIONS[name].status is Status.NO_MEANING:
            yield option.no_effect(SINK_OPTIONS[name].note)
    if options[_TOLERANCE] != "none":
        return
    idle = [o.spelled for n, o in given.own.items() if n.startswith("errors.") and n != _TOLERANCE]
    if idle:
        text = f"{', '.join(idle)}: without effect, because {_TOLERANCE} is none"
        yield coded(Kind.WITHOUT_EFFECT, text, f"set {_TOLERANCE}=all, or remove them")


def _check_producer(given: GivenOptions, requested: DeliveryGuarantee) -> CheckedOptions:
    """Checks the producer options of a write. ``requested`` is the value of the option
    deliveryGuarantee.

    If ``requested`` is NONE and the user has not set enable.idempotence, idempotence is off.
    """
    options = given.producer
    if requested is DeliveryGuarantee.NONE and _IDEMPOTENCE not in options:
        # Set before the checks: they allow more without idempotence, such as six requests in
        # flight.
        options = {**options, _IDEMPOTENCE: Given("false", given.prefix + _IDEMPOTENCE)}
    return check_producer_options(
        options, given.prefix, exactly_once=requested is DeliveryGuarantee.EXACTLY_ONCE
    )


def _effective_guarantee(
    requested: DeliveryGuarantee, producer: CheckedOptions, *, is_given: bool
) -> tuple[DeliveryGuarantee, list[str]]:
    """The delivery guarantee that results from the producer options, and warnings about it. If the
    options switch idempotence off, the guarantee is NONE.

    ``is_given`` is true if the user has set deliveryGuarantee. Raises ConfigError if the user has
    set a guarantee that the options make impossible.
    """
    idempotent = producer.values[_IDEMPOTENCE] and producer.idempotence_off is None
    reason = producer.idempotence_off or "kafka.enable.idempotence is set to false"
    given = {_GUARANTEE} if is_given else set()
    values = {_GUARANTEE: requested, _IDEMPOTENCE: idempotent, "reason": reason}
    warnings = refuse(GUARANTEES, given, values)
    return requested if idempotent else DeliveryGuarantee.NONE, warnings


def _dead_letters(options: Mapping[str, Any]) -> DeadLetterOptions | None:
    """Reads the options of dead letters. Returns None if errors.tolerance is none."""
    if options[_TOLERANCE] == "none":
        return None
    return DeadLetterOptions(
        topic=options[_LETTERS],
        replicas=options["errors.deadletterqueue.topic.replication.factor"],
        context_headers=options["errors.deadletterqueue.context.headers.enable"],
        log=options["errors.log.enable"],
        log_messages=options["errors.log.include.messages"],
        max_records=options["errors.max.records"],
        max_fraction=options["errors.max.fraction"],
        max_value_bytes=options["errors.deadletterqueue.max.value.bytes"],
    )


def _fingerprint(given: GivenOptions) -> str:
    """A hash of the names and values of all options, as the user has set them.

    The options of TLS, SASL and the schema registry are left out, so that no secret is hashed.
    Options that differ in each write of a query, such as txnVersion, are left out too.
    """
    options = sorted(
        (name, value)
        for name, value in given.as_options().items()
        if not name.removeprefix(given.prefix).startswith(REFERABLE) and name not in _OF_ONE_WRITE
    )
    return hashlib.sha256(repr(options).encode()).hexdigest()[:_FINGERPRINT_LENGTH]


def _producer_config(checked: CheckedOptions, warnings: tuple[str, ...]) -> ProducerConfig:
    """Creates the configuration of a producer from options that have passed all checks."""
    values = checked.values
    by_field: dict[str, Any] = {
        option.attribute: values.get(name) for name, option in PRODUCER_OPTIONS.items()
    }
    idle_ms = values["connections.max.idle.ms"]
    by_field |= {
        "bootstrap_servers": checked.servers,
        "acks": -1 if values["acks"] == "all" else int(values["acks"]),
        "metadata_recovery_strategy": values["metadata.recovery.strategy"].lower(),
        "connections_max_idle_ms": LONG_MAX if idle_ms < 0 else idle_ms,
        "buffer_wait_ms": values[
            "max.block.ms" if "max.block.ms" in checked.given else "delivery.timeout.ms"
        ],
        "security": tuple(
            (name, values[name]) for name in sorted(checked.given) if is_security_option(name)
        ),
        "warnings": warnings,
    }
    if checked.idempotence_off is not None:
        by_field["enable_idempotence"] = False
    names = [field.name for field in fields(ProducerConfig) if field.name in by_field]
    return ProducerConfig(**{name: by_field[name] for name in names})
