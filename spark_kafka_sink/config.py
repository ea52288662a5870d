"""The configuration of a producer and of the sink: every option read, checked, made effective.

Owns: what several options mean together (Java's cross-checks with Java's sentences), and the two
values that come out: :class:`ProducerConfig` and :class:`SinkConfig`. Never: a log line, a clock,
an environment variable. Parsing is pure; what is worth a warning stands in ``warnings``, and
whoever parses logs it once per process.

It stands before the way of a record: the driver parses once, the tasks get the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from spark_kafka_sink.bootstrap_servers import parse_bootstrap_servers
from spark_kafka_sink.errors import ConfigError, safe_text
from spark_kafka_sink.foreign_options import (
    JAVA_PARTITIONERS,
    KEY_PARTITIONERS,
    PREFIX,
    SPARK_KEYS,
    java_partitioner,
    unknown_producer_option,
    unknown_sink_option,
)
from spark_kafka_sink.import_paths import is_import_path
from spark_kafka_sink.option_table import (
    COMMIT_LOG_TOPIC,
    NO_MEANING_PREFIXES,
    PRODUCER_OPTIONS,
    SINK_OPTIONS,
)
from spark_kafka_sink.options import INT_MAX, LONG_MAX, Option, OptionValue, Status
from spark_kafka_sink.sasl_settings import can_not_be_read_yet, sasl_settings
from spark_kafka_sink.secret_references import check_references, is_one_reference
from spark_kafka_sink.secrets import Password
from spark_kafka_sink.security_options import COUNTING, NOT_HIDDEN_BY_SPARK, is_security_option

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

#: Options that mean nothing without exactly-once.
_OF_EXACTLY_ONCE = ("transactionalIdPrefix", "txnAppId", "txnVersion", "commitLogTopic")

_SINK_BY_KEY = {name.lower(): option for name, option in SINK_OPTIONS.items()}


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
        """Read Java's option names, without the prefix ``kafka.``, in any case.

        Values are text, or already of the option's type. Raises ConfigError; nothing else.
        """
        draft = _Draft("")
        for key, spelled, value in _folded(options):
            draft.take(key, spelled, value)
        if "bootstrap.servers" not in draft.given:
            raise ConfigError(
                'Missing required configuration "bootstrap.servers" which has no default value.',
                hint="give it as host:port,host:port",
            )
        draft.read()
        if draft.idempotence_off is not None:
            draft.warnings.append(
                f"Idempotence will be disabled because {draft.idempotence_off}: a retry can write"
                " rows twice."
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
    commit_log_topic: str = COMMIT_LOG_TOPIC
    warnings: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, object]) -> SinkConfig:
        """Read the option map that Spark hands to a data source.

        Names are folded (Spark lower-cases them). ``kafka.`` options go to the producer, ours are
        read, Spark's own are passed over, and every other name is an error. ``configFile`` was
        read before (``config_file.with_config_file``): parsing opens no file. Raises ConfigError;
        nothing else.
        """
        draft = _Draft(PREFIX)
        own: dict[str, OptionValue] = {}
        for key, spelled, value in _folded(options):
            if key.startswith(PREFIX):
                draft.take(key.removeprefix(PREFIX), spelled, value)
            elif key in _SINK_BY_KEY:
                option = _SINK_BY_KEY[key]
                if option.name == "configFile":
                    raise ConfigError("configFile was not read before the options were")
                own[option.name] = option.read(value, option.name)
            elif key not in SPARK_KEYS:
                raise unknown_sink_option(key, spelled)
        asked = _text(own.get("deliveryGuarantee"))
        if "bootstrap.servers" not in draft.given:
            raise ConfigError(MISSING_BOOTSTRAP, hint="set option kafka.bootstrap.servers")
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
        draft.given[idempotence] = "false"
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
    draft.warnings.append(
        f"deliveryGuarantee is none because {reason}: rows can be lost or written twice. Set"
        " deliveryGuarantee=none if that is meant, else remove the option."
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

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.given: dict[str, object] = {}
        self.values: dict[str, OptionValue] = {}
        self.servers: tuple[tuple[str, int], ...] = ()
        self.warnings: list[str] = []
        self.idempotence_off: str | None = None
        self.exactly_once = False

    def spelled(self, name: str) -> str:
        """The option's name as the user has to write it."""
        return self.prefix + name

    def take(self, key: str, spelled: str, value: object) -> None:
        """Accept one option by its folded name without prefix, or refuse the name."""
        option = PRODUCER_OPTIONS.get(key)
        if option is None:
            for beginning, note in NO_MEANING_PREFIXES.items():
                if key.startswith(beginning):
                    self._no_effect(key, note)
                    return
            raise unknown_producer_option(key, spelled, self.prefix)
        if key == "transactional.id" and self.prefix:
            raise ConfigError(
                "Option 'kafka.transactional.id' is not supported by the sink: all tasks would"
                " share one id and fence each other",
                hint="set deliveryGuarantee=exactly-once, which makes an id for every task;"
                " transactionalIdPrefix begins them",
            )
        if option.status is Status.REFUSED and self.prefix:
            raise ConfigError(option.note, hint=f"remove {self.spelled(key)}; cast the column")
        self.given[key] = value

    def read(self) -> None:
        """Give every option its value, then check what several mean together."""
        for name, option in PRODUCER_OPTIONS.items():
            if name not in self.given:
                self.values[name] = option.default
                continue
            if option.status is Status.REMOVED:
                self._no_effect(name, f"{option.doc[:-1]}; {option.note}")
                continue
            self.values[name] = option.read(self.given[name], self.spelled(name))
            check_references(option, self.values[name], self.spelled(name))
            if is_security_option(name) and option.status is not Status.NO_MEANING:
                continue
            if self._is_for_producer_only(option):
                continue
            if option.status is Status.NO_MEANING or (
                option.status is Status.LATER_IGNORED and self.values[name] != option.default
            ):
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

    def _is_for_producer_only(self, option: Option) -> bool:
        """Obeyed by a producer of its own, which has no prefix; its status is the sink's."""
        return option.for_producer and not self.prefix

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

    def _no_effect(self, name: str, why: str) -> None:
        self.warnings.append(f"Option '{self.spelled(name)}' has no effect: {why}.")

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
        self.warnings.append(f"{rule}. Setting it to {least}.")

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
                self.warnings.append(
                    f"Configuration '{base}' with value '{self._int(base)}' is greater than"
                    f" configuration '{limit}' with value '{self._int(limit)}'. A static {what}"
                    f" with value '{self._int(limit)}' will be applied."
                )
        base, limit = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
        if base in self.given and limit not in self.given:
            self.warnings.append(
                f"Disabling exponential reconnect backoff because {base} is set, but {limit} is"
                " not."
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
                self.warnings.append(
                    f"{self.spelled(timeout)} is {self._int(timeout)} ms: a stage that takes longer"
                    " from its first row to its commit fails when all of it is written"
                )
        elif self.prefix and timeout in self.given:
            self._no_effect(timeout, "only deliveryGuarantee=exactly-once writes transactions")
        two_phase = self.values["transaction.two.phase.commit.enable"]
        if two_phase and "transaction.timeout.ms" in self.given:
            raise ConfigError(
                "Cannot set transaction.timeout.ms when transaction.two.phase.commit.enable is set"
                " to true. Transactions will not expire with two-phase commit enabled."
            )
        protocol = self._str("security.protocol")
        if protocol.startswith("SASL") and self.values.get("sasl.mechanism") == "":
            raise ConfigError(
                "Invalid value null for configuration sasl.mechanism: When the security.protocol"
                " configuration enables SASL, mechanism must be non-null and non-empty string."
            )

    def _check_security(self) -> None:
        self._refuse_what_spark_shows()
        protocol = self._str("security.protocol")
        counting = COUNTING[protocol]
        idle = [
            self.spelled(name)
            for name in PRODUCER_OPTIONS
            if name in self.given and not self._counts(name)
        ]
        if idle:
            nothing = "; nothing is encrypted and nobody is authenticated" if not counting else ""
            self.warnings.append(
                f"{', '.join(idle)}: no effect, because {self.spelled('security.protocol')} is"
                f" {protocol}{nothing}"
            )
        if "sasl." in counting:
            self._check_sasl(protocol)
        if "ssl." in counting and self.values["ssl.endpoint.identification.algorithm"] == "":
            self.warnings.append(
                f"{self.spelled('ssl.endpoint.identification.algorithm')} is empty: brokers are"
                " not asked whether their certificate is for their name"
            )

    def _check_sasl(self, protocol: str) -> None:
        """Find mistakes now; each producer reads the settings again, with its secrets' values."""
        given = {name: self.values[name] for name in self.given if name.startswith("sasl.")}
        if can_not_be_read_yet(given):
            return
        settings = sasl_settings(given)
        if settings.mechanism == "PLAIN" and protocol == "SASL_PLAINTEXT":
            self.warnings.append(
                f"{self.spelled('security.protocol')} is SASL_PLAINTEXT and sasl.mechanism is"
                " PLAIN: the password goes over the network as it is"
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
                )

    def _counts(self, name: str) -> bool:
        """Not an option of TLS or SASL, or one that the protocol makes count."""
        return not is_security_option(name) or name.startswith(
            COUNTING[self._str("security.protocol")]
        )

    def _refuse_what_comes_later(self) -> None:
        for name in self.given:
            option = PRODUCER_OPTIONS[name]
            if self._is_for_producer_only(option) or not self._counts(name):
                continue
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
            raise PRODUCER_OPTIONS["partitioner.class"].error(
                name,
                "This partitioner is not known, and another one would put rows elsewhere; known"
                f" are {', '.join([*JAVA_PARTITIONERS, *KEY_PARTITIONERS])}, and the import path of"
                " a class of your own",
                self.spelled("partitioner.class"),
            )
        self.values["partitioner.class"] = known.name
        if known.ignores_keys:
            self.values["partitioner.ignore.keys"] = True

    def _check_sizes(self) -> None:
        # A batch must fit into the pool whole, or a small buffer.memory could never send one.
        room = min(self._int("batch.size"), self._int("buffer.memory"))
        if room < self._int("batch.size") and "batch.size" in self.given:
            self.warnings.append(
                f"batch.size {self._int('batch.size')} is larger than buffer.memory"
                f" {self._int('buffer.memory')}: batches will be at most as large as that."
            )
        self.values["batch.size"] = max(1, room)

    def _find_servers(self) -> None:
        items = self.values["bootstrap.servers"]
        assert isinstance(items, tuple)
        self.servers = parse_bootstrap_servers(items, self._str("security.protocol"), self.prefix)
        if len(self.servers) < len(items):
            self.warnings.append(
                "Configuration key 'bootstrap.servers' contains duplicate values. Duplicates will"
                " be removed."
            )


def _folded(options: Mapping[str, object]) -> Iterable[tuple[str, str, object]]:
    """(lower-cased name, name as written, value) of each option.

    Two spellings of one name are refused: which one counts would be an accident. (Spark folds them
    before we see them; the later one wins there.)
    """
    seen: dict[str, str] = {}
    for name, value in options.items():
        key = name.lower()
        if key in seen:
            raise ConfigError(
                f"Options '{safe_text(seen[key])}' and '{safe_text(name)}' are the same option:"
                " names don't depend on case",
                hint="remove one of them",
            )
        seen[key] = name
        yield key, name, value


def _not_yet(option: Option, shown: str) -> ConfigError:
    return ConfigError(f"{safe_text(shown)} is not supported by this version", hint=option.note)


def _text(value: OptionValue) -> str | None:
    return value if isinstance(value, str) else None
