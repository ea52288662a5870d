"""The configuration of a producer and of the sink: every option read, checked, made effective.

Owns: what several options mean together (Java's cross-checks with Java's sentences), and the two
values that come out: :class:`ProducerConfig` and :class:`SinkConfig`. Never: whose a name is
(``given_options``), a log line, a clock, an environment variable. What is worth a warning stands in
``warnings``, and whoever parses says it once (``log_warnings``).

It stands before the way of a record: the driver parses once, the tasks get the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from spark_kafka_sink.bootstrap_servers import parse_bootstrap_servers
from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import ConfigError, safe_text
from spark_kafka_sink.foreign_options import (
    JAVA_PARTITIONERS,
    KEY_PARTITIONERS,
    PREFIX,
    java_partitioner,
)
from spark_kafka_sink.given_options import Given, GivenOptions, given_options
from spark_kafka_sink.import_paths import is_import_path
from spark_kafka_sink.jaas_config import shown_by_spark
from spark_kafka_sink.log_warnings import coded
from spark_kafka_sink.option_table import COMMIT_LOG_TOPIC, PRODUCER_OPTIONS, SINK_OPTIONS
from spark_kafka_sink.options import INT_MAX, LONG_MAX, Option, OptionValue, Status
from spark_kafka_sink.sasl_settings import (
    can_not_be_read_yet,
    names_a_known_module,
    sasl_settings,
)
from spark_kafka_sink.secret_references import check_references, is_one_reference
from spark_kafka_sink.secrets import Password, text_of
from spark_kafka_sink.security_options import (
    COUNTING,
    IN_THE_CLEAR,
    NOT_HIDDEN_BY_SPARK,
    STORE_RULES,
    is_security_option,
    mechanisms_of,
)
from spark_kafka_sink.suggestions import nearest_value

MISSING_BOOTSTRAP = (
    "Kafka option bootstrap.servers is not set. Please make sure it is set and retry."
)

#: The most requests in flight for which a broker can tell a repeated batch from a new one: it keeps
#: the last five batches of each producer.
_MAX_IN_FLIGHT_FOR_IDEMPOTENCE = 5

#: transaction.timeout.ms of the sink: all tasks of a job, and a driver that restarts, must fit in.
EXACTLY_ONCE_TIMEOUT_MS = 900_000
#: Below that transaction.timeout.ms deserves a warning: few stages are always shorter.
SHORT_TIMEOUT_MS = 60_000

#: An option that the package sets itself (``datasource/write_context.py``).
TXN_CONTEXT = "txnContext"
_JAAS = "sasl.jaas.config"

#: Options that mean nothing without exactly-once.
_OF_EXACTLY_ONCE = (
    "transactionalIdPrefix",
    "txnAppId",
    "txnVersion",
    "verifyReplays",
    "offsetsGroup",
    "twoPhaseCommit",
    "commitLogTopic",
)


class DeliveryGuarantee(StrEnum):
    """What is promised of each row (option ``deliveryGuarantee``)."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


class Preflight(StrEnum):
    """What the driver does when it can't find the topic before the tasks start."""

    REQUIRED = "required"
    WARN = "warn"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The whole effective configuration of one producer.

    An attribute is Java's name with ``_`` for ``.``; times are integer milliseconds, sizes bytes.
    What other options imply is already in: ``enable_idempotence`` is off when acks or retries say
    so, ``delivery_timeout_ms`` is at least linger and request timeout together, ``batch_size`` at
    least 1 and at most ``buffer_memory``, ``reconnect_backoff_max_ms`` the base when only the base
    was set, ``connections_max_idle_ms`` 2**63-1 when connections are never idle too long.

    Equal configurations are equal and hash alike (``warnings`` don't count), so that a warm
    producer can be found by the configuration that it was made with. ``security`` holds the
    ``sasl.`` and ``ssl.`` options that were set, secrets as Password, sorted by name.
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    acks: int
    enable_idempotence: bool
    retries: int
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    #: The wait for room in buffer.memory: max.block.ms if it was set, else delivery.timeout.ms.
    buffer_wait_ms: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    #: "rebootstrap" or "none".
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    connections_max_idle_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    client_dns_lookup: str
    #: Empty when none was given; the producer then makes one up, as Java's does.
    client_id: str
    client_rack: str
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    #: None: the built-in partitioner; else a name of ``records.partitioners``, or an import path.
    partitioner_class: str | None
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_rack_aware: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    #: No option of the producer's: set for each write by who asked brokers (KIP-939).
    two_phase_commit: bool = field(default=False, kw_only=True)
    metrics_sample_window_ms: int
    metrics_num_samples: int
    #: One of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, in upper case.
    security_protocol: str
    #: Names or import paths, for ``send`` only; None: bytes and text.
    key_serializer: str | None = None
    value_serializer: str | None = None
    #: Import paths.
    interceptor_classes: tuple[str, ...] = ()
    security: tuple[tuple[str, OptionValue], ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, object]) -> ProducerConfig:
        """Read Java's option names, without the prefix ``kafka.``, in any case, and the lines of
        ``configFile`` when that is among them.

        Values are text, or already of the option's type. Raises ConfigError; nothing else.
        """
        draft = _Draft(given_options(options, ""))
        if "bootstrap.servers" not in draft.given:
            raise ConfigError(
                'Missing required configuration "bootstrap.servers" which has no default value.',
                hint="give it as host:port,host:port",
            )
        draft.read()
        if draft.idempotence_off is not None:
            draft.warn(
                Kind.WEAKER_GUARANTEE,
                f"Idempotence will be disabled because {draft.idempotence_off}: a retry can write"
                " rows twice.",
            )
        return draft.config()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig:
    """What the options of one ``format("kprod")`` write say."""

    producer: ProducerConfig
    topic: str | None
    delivery_guarantee: DeliveryGuarantee
    #: None: by mode, see :meth:`preflight_for`.
    preflight: Preflight | None
    report_path: str | None
    #: None: none was given. The rest of these count with exactly-once only.
    transactional_id_prefix: str | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    #: See ``datasource/write_context.py``.
    txn_context: str | None = None
    verify_replays: bool = True
    offsets_group: str | None = None
    checkpoint_location: str | None = None
    two_phase_commit: bool = False
    commit_log_topic: str = COMMIT_LOG_TOPIC
    warnings: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, object]) -> SinkConfig:
        """Read the option map that Spark hands to a data source, and its ``configFile``.

        Raises ConfigError; nothing else.
        """
        return cls.of(given_options(options, PREFIX))

    @classmethod
    def of(cls, given: GivenOptions) -> SinkConfig:
        """Read options whose names were looked at, with the prefix ``kafka.``."""
        draft = _Draft(given)
        own = {
            name: SINK_OPTIONS[name].read(one.value, one.spelled) for name, one in given.own.items()
        }
        asked = _text(own.get("deliveryGuarantee"))
        if "bootstrap.servers" not in draft.given:
            raise ConfigError(
                MISSING_BOOTSTRAP,
                hint="set option kafka.bootstrap.servers",
                kind=Kind.MISSING_BOOTSTRAP,
            )
        guarantee = _guarantee(draft, None if asked is None else DeliveryGuarantee(asked))
        _check_exactly_once(own, guarantee)
        preflight = _text(own.get("preflight"))
        version = own.get("txnVersion")
        producer = draft.config()
        return cls(
            producer=producer,
            topic=_text(own.get("topic")),
            delivery_guarantee=guarantee,
            preflight=None if preflight is None else Preflight(preflight),
            report_path=_text(own.get("reportPath")),
            transactional_id_prefix=_text(own.get("transactionalIdPrefix")),
            txn_app_id=_text(own.get("txnAppId")),
            txn_version=version if isinstance(version, int) else None,
            txn_context=_text(own.get(TXN_CONTEXT)),
            verify_replays=own.get("verifyReplays") is not False,
            offsets_group=_text(own.get("offsetsGroup")),
            checkpoint_location=_text(own.get("checkpointLocation"))
            if "offsetsGroup" in own
            else None,
            two_phase_commit=own.get("twoPhaseCommit") == "auto",
            commit_log_topic=_text(own.get("commitLogTopic")) or COMMIT_LOG_TOPIC,
            warnings=producer.warnings,
        )

    @property
    def is_exactly_once(self) -> bool:
        return self.delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def preflight_for(self, *, streaming: bool) -> Preflight:
        """The preflight asked for, or the mode's own: warn for streaming that is not exactly-once,
        else required.
        """
        if self.preflight is not None:
            return self.preflight
        return Preflight.WARN if streaming and not self.is_exactly_once else Preflight.REQUIRED


def _guarantee(draft: _Draft, asked: DeliveryGuarantee | None) -> DeliveryGuarantee:
    """Read the producer's options under the guarantee asked for, and say which one holds."""
    idempotence = "enable.idempotence"
    if asked is DeliveryGuarantee.NONE and idempotence not in draft.given:
        # Said before the cross-checks, so that none allows what only idempotence forbids, such as
        # six requests in flight.
        draft.given[idempotence] = Given("false", draft.prefix + idempotence)
    draft.exactly_once = asked is DeliveryGuarantee.EXACTLY_ONCE
    draft.read()
    if asked is DeliveryGuarantee.NONE:
        if draft.values[idempotence]:
            raise ConfigError(
                "deliveryGuarantee=none and kafka.enable.idempotence=true contradict each other",
                hint="deliveryGuarantee=at-least-once is the one with idempotence",
            )
        return asked
    if draft.values[idempotence] and draft.idempotence_off is None:
        return asked or DeliveryGuarantee.AT_LEAST_ONCE
    reason = draft.idempotence_off or "kafka.enable.idempotence is set to false"
    if asked is not None:
        raise ConfigError(
            f"deliveryGuarantee={asked} needs an idempotent producer, but {reason}",
            hint="remove that option, or set deliveryGuarantee=none",
        )
    draft.warn(
        Kind.WEAKER_GUARANTEE,
        f"deliveryGuarantee is none because {reason}: rows can be lost or written twice. Set"
        " deliveryGuarantee=none if that is meant, else remove the option.",
    )
    return DeliveryGuarantee.NONE


def _check_exactly_once(own: Mapping[str, OptionValue], guarantee: DeliveryGuarantee) -> None:
    """What the sink's own options say of transactions, together."""
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
                hint="txnAppId names who writes, txnVersion counts its writes",
            )
    log = own.get("commitLogTopic", COMMIT_LOG_TOPIC)
    if own.get("topic") == log:
        raise ConfigError(
            f"topic and commitLogTopic are the same topic, '{log}'",
            hint="the commit log holds the driver's decisions, and nobody else writes to it",
        )


class _Draft:
    """The producer's options on their way to a ProducerConfig.

    ``given`` holds what the user set, ``values`` what is effective; ``idempotence_off`` is why
    idempotence, on by default, can't be, or None. ``exactly_once`` is the sink's word.
    """

    def __init__(self, given: GivenOptions) -> None:
        self.prefix = given.prefix
        self.given = dict(given.producer)
        self.values: dict[str, OptionValue] = {}
        self.servers: tuple[tuple[str, int], ...] = ()
        self.warnings = list(given.warnings)
        self.idempotence_off: str | None = None
        self.exactly_once = False

    def spelled(self, name: str) -> str:
        """The option's name as the user has to write it, and where it stands."""
        given = self.given.get(name)
        return given.spelled if given is not None and given.where else self.prefix + name

    def read(self) -> None:
        """Give every option its value, then check what several mean together."""
        for name, option in PRODUCER_OPTIONS.items():
            if name not in self.given:
                self.values[name] = option.default
                continue
            if option.status is Status.REMOVED:
                self._no_effect(name, f"{option.doc[:-1]}; {option.note}")
                continue
            given = self.given[name]
            self.values[name] = option.read(given.value, self.spelled(name))
            check_references(option, self.values[name], self.spelled(name))
            if given.content is not None:
                check_references(option, given.content, self.spelled(name))
            if self._asks_in_vain(option):
                self._no_effect(name, option.note)
        self._check_timeouts()
        self._check_backoffs()
        self._check_idempotence()
        self._check_transactions()
        self._check_security()
        self._refuse_what_comes_later()
        self._check_partitioner()
        self._check_sizes()
        self._find_servers()

    def _asks_in_vain(self, option: Option) -> bool:
        """Whether it does nothing here, and asks for something."""
        value = self.values[option.name]
        if option.status is Status.NO_MEANING:
            return value not in (False, (), "")
        return option.status is Status.LATER_IGNORED and value != option.default

    def config(self) -> ProducerConfig:
        """The result; :meth:`read` has run."""
        arguments: dict[str, Any] = {
            option.attribute: self.values.get(name) for name, option in PRODUCER_OPTIONS.items()
        }
        arguments["bootstrap_servers"] = self.servers
        acks = self._str("acks")
        arguments["acks"] = -1 if acks == "all" else int(acks)
        arguments["metadata_recovery_strategy"] = self._str("metadata.recovery.strategy").lower()
        if self.idempotence_off is not None:
            arguments["enable_idempotence"] = False
        if self._int("connections.max.idle.ms") < 0:
            arguments["connections_max_idle_ms"] = LONG_MAX
        waits = "max.block.ms" if "max.block.ms" in self.given else "delivery.timeout.ms"
        arguments["buffer_wait_ms"] = self._int(waits)
        arguments["security"] = tuple(
            (name, self.values[name]) for name in sorted(self.given) if is_security_option(name)
        )
        arguments["warnings"] = tuple(self.warnings)
        names = {f.name for f in fields(ProducerConfig)}
        return ProducerConfig(**{k: v for k, v in arguments.items() if k in names})

    def _int(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def _str(self, name: str) -> str:
        value = self.values[name]
        assert isinstance(value, str)
        return value

    def warn(self, kind: Kind, text: str) -> None:
        self.warnings.append(coded(kind, text))

    def _no_effect(self, name: str, why: str) -> None:
        given = self.given[name]
        self.warnings.append(replace(given, name=self.prefix + name).no_effect(why))

    def _check_timeouts(self) -> None:
        """KafkaProducer.configureDeliveryTimeout."""
        linger = self.values["linger.ms"] = min(self._int("linger.ms"), INT_MAX)
        request = self._int("request.timeout.ms")
        delivery = self._int("delivery.timeout.ms")
        least = min(linger + request, INT_MAX)
        if delivery >= least:
            return
        rule = (
            "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms"
        )
        if "delivery.timeout.ms" in self.given:
            raise ConfigError(
                rule,
                hint=f"{self.spelled('delivery.timeout.ms')} is {delivery},"
                f" {self.spelled('linger.ms')} is {linger} and"
                f" {self.spelled('request.timeout.ms')} is {request}",
            )
        self.values["delivery.timeout.ms"] = least
        self.warn(Kind.OTHER_VALUE, f"{rule}. Setting it to {least}.")

    def _check_backoffs(self) -> None:
        """CommonClientConfigs: warnDisablingExponentialBackoff, postProcessReconnectBackoff."""
        for base, limit, what in (
            ("retry.backoff.ms", "retry.backoff.max.ms", "backoff"),
            (
                "socket.connection.setup.timeout.ms",
                "socket.connection.setup.timeout.max.ms",
                "connection setup timeout",
            ),
        ):
            if self._int(base) > self._int(limit):
                self.warn(
                    Kind.OTHER_VALUE,
                    f"Configuration '{base}' with value '{self._int(base)}' is greater than"
                    f" configuration '{limit}' with value '{self._int(limit)}'. A static {what}"
                    f" with value '{self._int(limit)}' will be applied.",
                )
        base, limit = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
        if base in self.given and limit not in self.given:
            self.warn(
                Kind.OTHER_VALUE,
                f"Disabling exponential reconnect backoff because {base} is set, but {limit} is"
                " not.",
            )
            self.values[limit] = self.values[base]

    def _check_idempotence(self) -> None:
        """ProducerConfig.postProcessAndValidateIdempotenceConfigs."""
        if not self.values["enable.idempotence"]:
            return
        asked = "enable.idempotence" in self.given
        acks = self._str("acks")
        if self._int("retries") == 0:
            if asked:
                raise ConfigError(
                    "Must set retries to non-zero when using the idempotent producer.",
                    hint=f"remove {self.spelled('retries')}=0 or"
                    f" {self.spelled('enable.idempotence')}=true",
                )
            self.idempotence_off = f"{self.spelled('retries')} is set to 0"
        if acks not in ("all", "-1"):
            if asked:
                raise ConfigError(
                    "Must set acks to all in order to use the idempotent producer. Otherwise we"
                    " cannot guarantee idempotence.",
                    hint=f"{self.spelled('acks')} is {acks}",
                )
            self.idempotence_off = f"{self.spelled('acks')} is set to {acks}, not set to 'all'"
        in_flight = self._int("max.in.flight.requests.per.connection")
        if in_flight > _MAX_IN_FLIGHT_FOR_IDEMPOTENCE:
            # As in Java, this one never switches idempotence off by itself, whatever acks says.
            raise ConfigError(
                "To use the idempotent producer, max.in.flight.requests.per.connection must be set"
                f" to at most 5. Current value is {in_flight}.",
                hint=f"or set {self.spelled('enable.idempotence')}=false",
            )

    def _check_transactions(self) -> None:
        idempotent = self.values["enable.idempotence"] and self.idempotence_off is None
        if "transactional.id" in self.given and not idempotent:
            raise ConfigError(
                "Cannot set a transactional.id without also enabling idempotence.",
                hint=self.idempotence_off or f"{self.spelled('enable.idempotence')} is false",
            )
        timeout = "transaction.timeout.ms"
        if self.exactly_once:
            if timeout not in self.given:
                self.values[timeout] = EXACTLY_ONCE_TIMEOUT_MS
            elif self._int(timeout) < 1:
                raise PRODUCER_OPTIONS[timeout].error(
                    self._int(timeout), "Value must be at least 1", self.spelled(timeout)
                )
            elif self._int(timeout) < SHORT_TIMEOUT_MS:
                self.warn(
                    Kind.SHORT_TRANSACTION,
                    f"{self.spelled(timeout)} is {self._int(timeout)} ms: a stage that takes longer"
                    " from its first row to its commit fails when all of it is written",
                )
        elif self.prefix and timeout in self.given:
            self._no_effect(timeout, "only deliveryGuarantee=exactly-once writes transactions")
        two_phase = self.values["transaction.two.phase.commit.enable"]
        if two_phase and "transaction.timeout.ms" in self.given:
            raise ConfigError(
                "Cannot set transaction.timeout.ms when transaction.two.phase.commit.enable is set"
                " to true. Transactions will not expire with two-phase commit enabled."
            )

    def _check_security(self) -> None:
        self._refuse_what_spark_shows()
        protocol = self._str("security.protocol")
        counting = COUNTING[protocol]
        idle = [n for n in self.given if is_security_option(n) and not n.startswith(counting)]
        if idle:
            raise self._would_have_no_effect(sorted(idle), protocol)
        if "sasl." in counting:
            self._check_sasl(protocol)
        if "ssl." in counting:
            self._check_stores()
            if self.values["ssl.endpoint.identification.algorithm"] == "":
                self.warn(
                    Kind.WEAK_SECURITY,
                    f"{self.spelled('ssl.endpoint.identification.algorithm')} is empty: brokers are"
                    " not asked whether their certificate is for their name",
                )

    def _would_have_no_effect(self, idle: Sequence[str], protocol: str) -> ConfigError:
        """The error for options of TLS or SASL that ``protocol`` doesn't use."""
        option = self.spelled("security.protocol")
        default = "" if "security.protocol" in self.given else ", the default"
        sasl = protocol.startswith("SASL") or any(n.startswith("sasl.") for n in idle)
        tls = protocol == "SSL" or any(n.startswith("ssl.") for n in idle)
        wanted = "SASL_SSL" if sasl else "SSL"
        or_else = "" if tls else " (or SASL_PLAINTEXT: then anybody on the way can read along)"
        return ConfigError(
            f"{', '.join(self.spelled(name) for name in idle)} would have no effect, because"
            f" {option} is {protocol}{default}",
            hint=f"set {self.prefix}security.protocol={wanted}{or_else}, or remove"
            f" {'that option' if len(idle) == 1 else 'those options'}",
            kind=Kind.NO_EFFECT,
        )

    def _check_sasl(self, protocol: str) -> None:
        """Find mistakes now; each producer reads the settings again, with its secrets' values."""
        if self.values["sasl.mechanism"] == "" and "sasl.mechanism" in self.given:
            raise ConfigError(
                "Invalid value null for configuration sasl.mechanism: When the security.protocol"
                " configuration enables SASL, mechanism must be non-null and non-empty string."
            )
        mechanism = _text(self.values["sasl.mechanism"])
        given = {n: self._content(n) for n in self.given if n.startswith("sasl.")}
        if _JAAS in given and not names_a_known_module(text_of(given[_JAAS])):
            given[_JAAS] = self.values[_JAAS]  # what is no login module may be anybody's secret
        if not can_not_be_read_yet(given):
            mechanism = sasl_settings(given).mechanism
        if mechanism is not None:
            self._refuse_what_is_of_another_mechanism(mechanism)
        if protocol == "SASL_PLAINTEXT":
            risk = IN_THE_CLEAR.get(mechanism or "", "")
            if mechanism is None:
                mechanism = "left to sasl.jaas.config, which is looked up later"
                risk = "with PLAIN or a token, the secret goes over the network as it is"
            if risk:
                self.warn(
                    Kind.WEAK_SECURITY,
                    f"{self.spelled('security.protocol')} is SASL_PLAINTEXT and sasl.mechanism is"
                    f" {mechanism}: {risk}",
                )

    def _refuse_what_is_of_another_mechanism(self, mechanism: str) -> None:
        for name in self.given:
            mechanisms = mechanisms_of(name)
            meant = PRODUCER_OPTIONS[name].status is not Status.NO_MEANING
            if mechanism in mechanisms or not meant or not text_of(self._content(name)):
                continue
            raise ConfigError(
                f"{self.spelled(name)} would have no effect, because sasl.mechanism is {mechanism}",
                hint=f"it is for {' and '.join(mechanisms)}; remove it, or set"
                f" {self.prefix}sasl.mechanism",
                kind=Kind.NO_EFFECT,
            )

    def _content(self, name: str) -> OptionValue:
        """The value, also of a secret whose reference to the configFile is what travels."""
        content = self.given[name].content
        return self.values[name] if content is None else content

    def _check_stores(self) -> None:
        """What of a store would not count (DefaultSslEngineFactory, with its sentences)."""
        given = {
            name.removeprefix("ssl.")
            for name in self.given
            if name.startswith("ssl.") and text_of(self._content(name))
        }
        given |= {f"{name}={self.values[f'ssl.{name}']}" for name in given if name.endswith("type")}
        for rule in STORE_RULES:
            if rule.given <= given and not rule.unless & given:
                names = [self.spelled(f"ssl.{name}") for name in sorted(rule.given)]
                needed = [f"{self.prefix}ssl.{name}" for name in sorted(rule.unless)]
                raise ConfigError(
                    rule.message,
                    hint=f"set {' or '.join(needed)}, or remove {names[0]}"
                    if needed
                    else f"keep one of {' and '.join(names)}",
                    kind=Kind.KEY_STORE if needed else Kind.NO_EFFECT,
                )

    def _refuse_what_spark_shows(self) -> None:
        """A secret of the sink's options that Spark's redaction does not know: never inline."""
        for name in NOT_HIDDEN_BY_SPARK if self.prefix else ():
            value = self.values.get(name)
            if isinstance(value, Password) and value.value and not is_one_reference(value.value):
                raise ConfigError(
                    f"{self.spelled(name)} is given inline, and Spark would show it: in plans, in"
                    " its UI and in event logs",
                    hint=f"give a reference, {self.spelled(name)}=${{file:/path/to/it}} or"
                    " ${env:NAME}, or put key and chain into a file for"
                    f" {self.spelled('ssl.keystore.location')}; and if this one was real, replace"
                    " it: Spark may have logged it",
                    kind=Kind.INLINE_SECRET,
                )

        login_module = self.values.get("sasl.jaas.config") if self.prefix else None
        shown = shown_by_spark(login_module.value) if isinstance(login_module, Password) else ()
        if shown:
            raise ConfigError(
                f"{self.spelled('sasl.jaas.config')} holds {safe_text(', '.join(shown))} inline,"
                " and nothing in its text makes Spark hide it: plans, its UI and event logs would"
                " show it",
                hint=f'give a reference, {safe_text(shown[0])}="${{file:/path/to/it}}" or'
                ' "${env:NAME}"; and if this one was a secret and real, replace it: Spark may have'
                " logged it",
                kind=Kind.INLINE_SECRET,
            )

    def _refuse_what_comes_later(self) -> None:
        for name in self.given:
            option = PRODUCER_OPTIONS[name]
            if option.status is Status.LATER_REFUSED and self.values[name] != option.default:
                raise _not_yet(option, f"{self.spelled(name)}={self.values[name]}")

    def _check_partitioner(self) -> None:
        name = self.values["partitioner.class"]
        if name is None:
            return
        known = java_partitioner(name) if isinstance(name, str) else None
        if known is None and isinstance(name, str) and is_import_path(name):
            return  # imported where it is used, and tried on the driver
        if known is None:
            choices = [*JAVA_PARTITIONERS, *KEY_PARTITIONERS]
            raise PRODUCER_OPTIONS["partitioner.class"].error(
                name,
                "This partitioner is not known, and another one would put rows elsewhere; known"
                f" are {', '.join(choices)}, and the import path of a class of your own",
                self.spelled("partitioner.class"),
                nearest_value(str(name).rpartition(".")[2], choices),
            )
        self.values["partitioner.class"] = known.name
        if known.ignores_keys:
            self.values["partitioner.ignore.keys"] = True

    def _check_sizes(self) -> None:
        # A batch must fit into the pool whole, or a small buffer.memory could never send one.
        room = min(self._int("batch.size"), self._int("buffer.memory"))
        if room < self._int("batch.size") and "batch.size" in self.given:
            self.warn(
                Kind.OTHER_VALUE,
                f"batch.size {self._int('batch.size')} is larger than buffer.memory"
                f" {self._int('buffer.memory')}: batches will be at most as large as that.",
            )
        self.values["batch.size"] = max(1, room)

    def _find_servers(self) -> None:
        items = self.values["bootstrap.servers"]
        assert isinstance(items, tuple)
        self.servers = parse_bootstrap_servers(items, self._str("security.protocol"), self.prefix)
        if len(self.servers) < len(items):
            self.warn(
                Kind.OTHER_VALUE,
                "Configuration key 'bootstrap.servers' contains duplicate values. Duplicates will"
                " be removed.",
            )


def _not_yet(option: Option, shown: str) -> ConfigError:
    return ConfigError(
        f"{safe_text(shown)} is not supported by this version",
        hint=option.note,
        kind=Kind.UNSUPPORTED_OPTION,
    )


def _text(value: OptionValue) -> str | None:
    return value if isinstance(value, str) else None
