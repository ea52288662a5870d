"""Reads the values of producer options, and checks that they fit together. The checks and messages
are those of Java's producer.

``logins/security_checks`` checks the options of TLS and SASL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded, safe_text
from spark_kafka_sink.base.security.addresses import parse_bootstrap_servers
from spark_kafka_sink.config.given_option import Given, GivenProducerOptions
from spark_kafka_sink.config.logins.security_checks import check_security
from spark_kafka_sink.config.option import INT_MAX, Check, Status, check_references, refuse
from spark_kafka_sink.config.option_table import (
    IGNORES_KEYS,
    JAVA_PARTITIONERS,
    PRODUCER_OPTIONS,
    with_prefix,
)

#: The most requests in flight for which a broker can tell a repeated batch from a new one: it keeps
#: the last five batches of each producer.
_MAX_IN_FLIGHT_FOR_IDEMPOTENCE = 5

#: A smaller transaction.timeout.ms is a warning: few stages are always shorter.
SHORT_TIMEOUT_MS = 60_000

#: The values of acks that wait for all in-sync replicas.
_ALL = ("all", "-1")

_TOO_SHORT = "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms"
#: Checked if delivery.timeout.ms is shorter than that sum.
_TIMEOUTS = (
    Check("delivery.timeout.ms", _TOO_SHORT,
          "<delivery.timeout.ms> is {delivery.timeout.ms}, <linger.ms> is {linger.ms} and"
          " <request.timeout.ms> is {request.timeout.ms}"),
)  # fmt: skip


def _static(base: str, limit: str, what: str) -> Check:
    return Check(
        "",
        f"Configuration '{base}' with value '{{{base}}}' is greater than configuration '{limit}'"
        f" with value '{{{limit}}}'. A static {what} with value '{{{limit}}}' will be applied.",
        broken=lambda values: values[base] > values[limit],
        kind=Kind.OTHER_VALUE,
        warns=True,
    )


_BACKOFFS = (
    _static("retry.backoff.ms", "retry.backoff.max.ms", "backoff"),
    _static("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms",
            "connection setup timeout"),
    Check("reconnect.backoff.ms",
          "Disabling exponential reconnect backoff because reconnect.backoff.ms is set, but"
          " reconnect.backoff.max.ms is not.",
          unless="reconnect.backoff.max.ms", kind=Kind.OTHER_VALUE, warns=True),
)  # fmt: skip

#: Checked if idempotence is on. As in Java, more requests in flight never disable it
#: implicitly, whatever acks is.
_IDEMPOTENCE = (
    Check("enable.idempotence retries=0",
          "Must set retries to non-zero when using the idempotent producer.",
          "remove <retries>=0 or <enable.idempotence>=true"),
    Check("enable.idempotence",
          "Must set acks to all in order to use the idempotent producer. Otherwise we cannot"
          " guarantee idempotence.", "<acks> is {acks}", unless="acks=all acks=-1"),
    Check("", "To use the idempotent producer, max.in.flight.requests.per.connection must be set"
          " to at most 5. Current value is {max.in.flight.requests.per.connection}.",
          "set it to at most 5, or set deliveryGuarantee=none (a KafkaProducer:"
          " enable.idempotence=false)",
          lambda values: values["max.in.flight.requests.per.connection"]
          > _MAX_IN_FLIGHT_FOR_IDEMPOTENCE),
)  # fmt: skip

_TRANSACTIONS = (
    Check("exactly.once=true",
          "<transaction.timeout.ms> is {transaction.timeout.ms} ms: a stage that takes longer from"
          " its first row to its commit fails when all of it is written",
          broken=lambda values: values["transaction.timeout.ms"] < SHORT_TIMEOUT_MS,
          kind=Kind.SHORT_TRANSACTION, warns=True),
)  # fmt: skip


_SIZES = (
    Check("batch.size", "batch.size {batch.size} is larger than buffer.memory {buffer.memory}:"
          " batches will be at most as large as that.",
          broken=lambda values: values["buffer.memory"] < values["batch.size"],
          kind=Kind.OTHER_VALUE, warns=True),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CheckedOptions:
    """The producer options after all checks, by Java's names.

    * ``given``: the options that the user has set.
    * ``values``: the effective values of all options.
    * ``servers``: the bootstrap servers, such as ``("broker1", 9092)``.
    * ``idempotence_off``: the reason if an option switches idempotence off, such as "retries is set
      to 0". None if no option switches idempotence off.
    """

    given: Mapping[str, Given]
    values: Mapping[str, Any]
    servers: tuple[tuple[str, int], ...]
    idempotence_off: str | None
    warnings: tuple[str, ...]


def check_producer_options(
    given: Mapping[str, Given], prefix: str, *, exactly_once: bool = False
) -> CheckedOptions:
    """Reads the values of all producer options, and checks the options together. Raises ConfigError
    with Java's message for a wrong value or a wrong combination.

    ``given`` are the options that the user has set, by Java's names. In messages, ``prefix`` is put
    before these names: ``kafka.`` for a write. ``exactly_once`` is true if the sink writes
    transactions.
    """
    options = GivenProducerOptions(given, prefix)
    return _Checks(options, exactly_once=exactly_once).run()


class _Checks:
    """The checks of one set of producer options.

    :meth:`_read_values` runs first, and sets the effective value of every option. Each later check
    may correct only options that no other check reads. So the order of the later checks only
    decides which error comes first.
    """

    def __init__(self, options: GivenProducerOptions, *, exactly_once: bool) -> None:
        self._options = options
        self._given = options.given
        self._exactly_once = exactly_once
        self._values: dict[str, Any] = {}
        self._warnings: list[str] = []

    def run(self) -> CheckedOptions:
        """Reads the value of each option, then checks the combinations in the same order as
        Java.
        """
        self._read_values()
        self._check_times()
        idempotence_off = self._check_idempotence()
        self._check_transactions(idempotence_off)
        # Otherwise the user would first set a protocol for it, and then meet the refusal.
        self._refuse_unsupported_values()
        self._warnings += check_security(self._options, self._values)
        self._resolve_partitioner()
        self._check_sizes()
        servers = self._bootstrap_servers()
        return CheckedOptions(
            given=self._given,
            values=self._values,
            servers=servers,
            idempotence_off=idempotence_off,
            warnings=tuple(self._warnings),
        )

    def _read_values(self) -> None:
        """Sets the value of every option: the user's value, or the default."""
        for name, option in PRODUCER_OPTIONS.items():
            given = self._given.get(name)
            if given is None:
                self._values[name] = option.default
                continue
            if option.status is Status.REMOVED:
                self._warn_no_effect(name, option.note)
                continue
            spelled = self._options.spelled(name)
            value = self._values[name] = option.read(given.value, spelled)
            for content in (value, given.content):
                check_references(option, content, spelled)
            if option.status is Status.NO_MEANING and value not in (False, (), ""):
                self._warn_no_effect(name, option.note)
        # Not an option: a condition of _TRANSACTIONS.
        self._values["exactly.once"] = self._exactly_once

    def _check_times(self) -> None:
        """Checks timeouts and backoffs against each other, and corrects them as Java does.

        The Java methods are KafkaProducer.configureDeliveryTimeout and, in CommonClientConfigs,
        warnDisablingExponentialBackoff and postProcessReconnectBackoff.
        """
        values = self._values
        values["linger.ms"] = min(values["linger.ms"], INT_MAX)
        shortest = min(values["linger.ms"] + values["request.timeout.ms"], INT_MAX)
        if values["delivery.timeout.ms"] < shortest:
            self._refuse(_TIMEOUTS)
            values["delivery.timeout.ms"] = shortest
            self._warn(Kind.OTHER_VALUE, f"{_TOO_SHORT}. Setting it to {shortest}.")
        self._refuse(_BACKOFFS)
        base, limit = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
        if base in self._given and limit not in self._given:
            values[limit] = values[base]

    def _check_idempotence(self) -> str | None:
        """Checks the options of idempotence, as the first half of Java's
        ProducerConfig.postProcessAndValidateIdempotenceConfigs does.

        Returns None, or a text with the option that switches idempotence off (see
        :class:`CheckedOptions`).
        """
        if not self._values["enable.idempotence"]:
            return None
        self._refuse(_IDEMPOTENCE)
        acks = self._values["acks"]
        if acks not in _ALL:
            return f"{self._options.spelled('acks')} is set to {acks}, not set to 'all'"
        if self._values["retries"] == 0:
            return f"{self._options.spelled('retries')} is set to 0"
        return None

    def _check_transactions(self, idempotence_off: str | None) -> None:
        """Checks the options of transactions, as the second half of Java's
        ProducerConfig.postProcessAndValidateIdempotenceConfigs does. For exactly-once, also sets
        the default of transaction.timeout.ms.
        """
        idempotent = self._values["enable.idempotence"]
        if "transactional.id" in self._given and (not idempotent or idempotence_off):
            raise ConfigError(
                "Cannot set a transactional.id without also enabling idempotence.",
                hint=idempotence_off or f"{self._options.spelled('enable.idempotence')} is false",
            )
        timeout = "transaction.timeout.ms"
        if self._exactly_once:
            if timeout not in self._given:
                self._values[timeout] = PRODUCER_OPTIONS[timeout].exactly_once_default
            elif self._values[timeout] < 1:
                raise PRODUCER_OPTIONS[timeout].error(
                    self._values[timeout],
                    "Value must be at least 1",
                    self._options.spelled(timeout),
                )
        elif self._options.prefix and timeout in self._given:
            self._warn_no_effect(timeout, "only deliveryGuarantee=exactly-once writes transactions")
        self._refuse(_TRANSACTIONS)

    def _refuse_unsupported_values(self) -> None:
        for name in self._given:
            option = PRODUCER_OPTIONS[name]
            if option.status is Status.LATER_REFUSED and self._values[name] != option.default:
                raise ConfigError(
                    f"{safe_text(f'{self._options.spelled(name)}={self._values[name]}')} is not"
                    " supported by this version",
                    hint=self._advice(name, option.note),
                    kind=Kind.UNSUPPORTED_OPTION,
                )

    def _resolve_partitioner(self) -> None:
        """Replaces the class name of a Java partitioner by the name that this package uses. For
        Java's UniformStickyPartitioner, also sets partitioner.ignore.keys.
        """
        name = self._values["partitioner.class"]
        self._values["partitioner.class"] = JAVA_PARTITIONERS.get(name, name)
        self._values["partitioner.ignore.keys"] |= name == IGNORES_KEYS

    def _check_sizes(self) -> None:
        # A batch must fit into the pool whole, or a small buffer.memory could never send one.
        self._refuse(_SIZES)
        room = min(self._values["batch.size"], self._values["buffer.memory"])
        self._values["batch.size"] = max(1, room)

    def _bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """The pairs of host and port in bootstrap.servers, without duplicates."""
        items = self._values["bootstrap.servers"]
        protocol = self._values["security.protocol"]
        servers = parse_bootstrap_servers(items, protocol, self._options.prefix)
        if len(servers) < len(items):
            text = "Configuration key 'bootstrap.servers' contains duplicate values."
            self._warn(Kind.OTHER_VALUE, f"{text} Duplicates will be removed.")
        return servers

    def _refuse(self, checks: Iterable[Check]) -> None:
        """Raises ConfigError for the first of ``checks`` that finds an error. If there is none,
        adds the warnings of ``checks`` to the warnings of this object.
        """
        self._warnings += refuse(checks, self._given, self._values, self._options.spelled)

    def _warn(self, kind: Kind, text: str) -> None:
        self._warnings.append(coded(kind, text))

    def _warn_no_effect(self, name: str, why: str) -> None:
        named = replace(self._given[name], name=self._options.prefix_at(name) + name)
        self._warnings.append(named.no_effect(self._advice(name, why)))

    def _advice(self, name: str, text: str) -> str:
        """Adds the prefix to each option name in ``text``: ``retries`` becomes ``kafka.retries``.

        If the user has set the option ``name`` in a file, returns ``text`` unchanged: in a file,
        the names of options have no prefix.
        """
        return with_prefix(text, self._options.prefix_at(name))
