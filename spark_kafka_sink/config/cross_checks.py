"""Checks that producer options fit together, with the same checks and messages as Java's producer.

Owns: reading the value of each option, and the checks of combinations. Never: the checks of names
(``given_options``), the resulting configuration (``parsing``), a log line, a clock, an environment
variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded, safe_text
from spark_kafka_sink.base.security.addresses import parse_bootstrap_servers
from spark_kafka_sink.base.security.jaas_config import parse_jaas_config
from spark_kafka_sink.base.security.password import REPLACE_IT, text_of
from spark_kafka_sink.config.logins.oauth_settings import names_own_class
from spark_kafka_sink.config.logins.sasl_settings import (
    can_not_be_read_yet,
    names_a_known_module,
    sasl_settings,
)
from spark_kafka_sink.config.logins.security_rules import (
    COUNTING,
    IN_THE_CLEAR,
    NOT_HIDDEN_BY_SPARK,
    STORE_RULES,
    TLS_1_3_SUITES,
    check_rules,
    is_security_option,
    mechanisms_of,
    refuse_inline,
    shown_by_spark,
    without_effect,
)
from spark_kafka_sink.config.names.given import Given
from spark_kafka_sink.config.option import (
    INT_MAX,
    Check,
    OptionValue,
    Status,
    Values,
    check_references,
    refuse,
)
from spark_kafka_sink.config.option_table import IGNORES_KEYS, JAVA_PARTITIONERS, PRODUCER_OPTIONS

#: The most requests in flight for which a broker can tell a repeated batch from a new one: it keeps
#: the last five batches of each producer.
_MAX_IN_FLIGHT_FOR_IDEMPOTENCE = 5

#: A smaller transaction.timeout.ms is a warning: few stages are always shorter.
SHORT_TIMEOUT_MS = 60_000

_JAAS = "sasl.jaas.config"
#: A name in a message, except a name within a login module, such as oauth.sasl.extension.
_NAME = re.compile(r"(?<![\w.])sasl(?:\.[a-z]+)+")

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


def _some_suites_of_tls_1_3(values: Values) -> bool:
    """Whether ``ssl.cipher.suites`` has some cipher suites of TLS 1.3, but not all. Python's ssl
    can only enable all of them or none.
    """
    named = {one.upper() for one in values["ssl.cipher.suites"] or ()}
    return bool(TLS_1_3_SUITES & named) and not named >= TLS_1_3_SUITES


#: Checked if security.protocol contains TLS.
_WEAK_TLS = (
    Check("", "<ssl.cipher.suites> names some suites of TLS 1.3 only: Python can't choose among"
          " them, so all of OpenSSL's are offered",
          broken=_some_suites_of_tls_1_3, kind=Kind.WEAK_SECURITY, warns=True),
    Check("client.dns.lookup=resolve_canonical_bootstrap_servers_only",
          "<client.dns.lookup> is resolve_canonical_bootstrap_servers_only: the name that a "
          "bootstrap server's certificate must carry comes from DNS",
          kind=Kind.WEAK_SECURITY, warns=True),
    Check("ssl.endpoint.identification.algorithm=",
          "<ssl.endpoint.identification.algorithm> is empty: brokers' names are not compared"
          " with their certificates", kind=Kind.WEAK_SECURITY, warns=True),
)  # fmt: skip

_NO_MECHANISM = (
    Check("sasl.mechanism sasl.mechanism=",
          "Invalid value null for configuration sasl.mechanism: When the security.protocol"
          " configuration enables SASL, mechanism must be non-null and non-empty string."),
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

    ``given`` has the options that the user has set, and ``values`` the effective values of all
    options. ``servers`` are the bootstrap servers as pairs of host and port, such as ``("broker1",
    9092)``. If an option switches idempotence off, ``idempotence_off`` is a text with its name,
    such as "retries is set to 0". Otherwise it is None.
    """

    given: Mapping[str, Given]
    values: Mapping[str, Any]
    servers: tuple[tuple[str, int], ...]
    idempotence_off: str | None
    warnings: tuple[str, ...]


def check_producer_options(
    given: Mapping[str, Given], prefix: str, *, exactly_once: bool = False
) -> CheckedOptions:
    """Reads the values of all producer options, and checks the options together.

    ``given`` are the options that the user has set, by Java's names. ``prefix`` is the prefix of
    these names in messages: ``kafka.`` for a write. ``exactly_once`` is true if the sink writes
    transactions. Raises ConfigError with Java's message for a wrong value or a wrong combination.
    """
    return _Checks(given, prefix, exactly_once=exactly_once).run()


class _Checks:
    """Performs the checks, one after another. Each check may change ``values`` and add to
    ``warnings``.
    """

    def __init__(self, given: Mapping[str, Given], prefix: str, *, exactly_once: bool) -> None:
        self.given = given
        self.prefix = prefix
        self.exactly_once = exactly_once
        self.values: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.idempotence_off: str | None = None

    def run(self) -> CheckedOptions:
        """Reads the value of each option, then checks the combinations in the same order as
        Java.
        """
        self._read_values()
        self._check_times()
        self._check_guarantee()
        # Otherwise the user would first set a protocol for it, and then meet the refusal.
        self._refuse_what_comes_later()
        self._check_security()
        name = self.values["partitioner.class"]
        self.values["partitioner.class"] = JAVA_PARTITIONERS.get(name, name)
        self.values["partitioner.ignore.keys"] |= name == IGNORES_KEYS
        self._check_sizes()
        servers = self._bootstrap_servers()
        return CheckedOptions(
            self.given, self.values, servers, self.idempotence_off, tuple(self.warnings)
        )

    def _read_values(self) -> None:
        """Sets the value of every option: the user's value, or the default."""
        for name, option in PRODUCER_OPTIONS.items():
            given = self.given.get(name)
            if given is None:
                self.values[name] = option.default
                continue
            if option.status is Status.REMOVED:
                self._no_effect(name, option.note)
                continue
            value = self.values[name] = option.read(given.value, self.spelled(name))
            for content in (value, given.content):
                check_references(option, content, self.spelled(name))
            if option.status is Status.NO_MEANING and value not in (False, (), ""):
                self._no_effect(name, option.note)
        # Not an option: a condition of _TRANSACTIONS.
        self.values["exactly.once"] = self.exactly_once

    def spelled(self, name: str) -> str:
        """The option's name for a message, with the prefix that users write. For an option from a
        file, it is the name in the file, followed by the file's name.
        """
        given = self.given.get(name)
        return given.spelled if given is not None and given.where else self.prefix + name

    def warn(self, kind: Kind, text: str) -> None:
        self.warnings.append(coded(kind, text))

    def _look_at(self, checks: Iterable[Check]) -> None:
        self.warnings += refuse(checks, self.given, self.values, self.spelled)

    def _no_effect(self, name: str, why: str) -> None:
        given = self.given[name]
        self.warnings.append(replace(given, name=self.prefix + name).no_effect(why))

    def _check_times(self) -> None:
        """Checks timeouts and backoffs against each other, and corrects them as Java does.

        The Java methods are KafkaProducer.configureDeliveryTimeout and, in CommonClientConfigs,
        warnDisablingExponentialBackoff and postProcessReconnectBackoff.
        """
        values = self.values
        values["linger.ms"] = min(values["linger.ms"], INT_MAX)
        least = min(values["linger.ms"] + values["request.timeout.ms"], INT_MAX)
        if values["delivery.timeout.ms"] < least:
            self._look_at(_TIMEOUTS)
            values["delivery.timeout.ms"] = least
            self.warn(Kind.OTHER_VALUE, f"{_TOO_SHORT}. Setting it to {least}.")
        self._look_at(_BACKOFFS)
        base, limit = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
        if base in self.given and limit not in self.given:
            values[limit] = values[base]

    def _check_guarantee(self) -> None:
        """Checks the options of idempotence and of transactions, as Java's
        ProducerConfig.postProcessAndValidateIdempotenceConfigs does.
        """
        idempotent, acks = self.values["enable.idempotence"], self.values["acks"]
        if idempotent:
            self._look_at(_IDEMPOTENCE)
            if self.values["retries"] == 0:
                self.idempotence_off = f"{self.spelled('retries')} is set to 0"
            if acks not in _ALL:
                self.idempotence_off = f"{self.spelled('acks')} is set to {acks}, not set to 'all'"
        if "transactional.id" in self.given and (not idempotent or self.idempotence_off):
            raise ConfigError(
                "Cannot set a transactional.id without also enabling idempotence.",
                hint=self.idempotence_off or f"{self.spelled('enable.idempotence')} is false",
            )
        timeout = "transaction.timeout.ms"
        if self.exactly_once:
            if timeout not in self.given:
                self.values[timeout] = PRODUCER_OPTIONS[timeout].exactly_once_default
            elif self.values[timeout] < 1:
                raise PRODUCER_OPTIONS[timeout].error(
                    self.values[timeout], "Value must be at least 1", self.spelled(timeout)
                )
        elif self.prefix and timeout in self.given:
            self._no_effect(timeout, "only deliveryGuarantee=exactly-once writes transactions")
        self._look_at(_TRANSACTIONS)

    def _check_security(self) -> None:
        self._refuse_what_spark_shows()
        protocol = self.values["security.protocol"]
        counting = COUNTING[protocol]
        idle = [n for n in self.given if is_security_option(n) and not n.startswith(counting)]
        if idle:
            self._refuse_what_is_of_another_protocol(sorted(idle), protocol)
        if "sasl." in counting:
            self._check_sasl(protocol)
        if "ssl." in counting:
            # Java's DefaultSslEngineFactory, with its messages.
            stores = {name: self._content(name) for name in self.given if name.startswith("ssl.")}
            check_rules(STORE_RULES, stores, self.spelled)
            self._look_at(_WEAK_TLS)

    def _refuse_what_is_of_another_protocol(self, idle: Sequence[str], protocol: str) -> None:
        option = self.spelled("security.protocol")
        default = "" if "security.protocol" in self.given else ", the default"
        sasl = protocol.startswith("SASL") or any(n.startswith("sasl.") for n in idle)
        tls = protocol == "SSL" or any(n.startswith("ssl.") for n in idle)
        wanted = "SASL_SSL" if sasl else "SSL"
        or_else = "" if tls else " (or SASL_PLAINTEXT, which sends everything in the clear)"
        raise ConfigError(
            f"{', '.join(self.spelled(name) for name in idle)} would have no effect, because"
            f" {option} is {protocol}{default}",
            hint=f"set {self.prefix}security.protocol={wanted}{or_else}, or remove"
            f" {'that option' if len(idle) == 1 else 'those options'}",
            kind=Kind.NO_EFFECT,
        )

    def _check_sasl(self, protocol: str) -> None:
        """Checks the ``sasl.`` options on the driver, so that mistakes are found before a task
        starts.

        References to secrets are not looked up here. Each producer reads these options again, with
        the secrets.
        """
        self._look_at(_NO_MECHANISM)
        mechanism: str | None = self.values["sasl.mechanism"]
        given = {n: self._content(n) for n in self.given if n.startswith("sasl.")}
        if _JAAS in given and not names_a_known_module(text_of(given[_JAAS])):
            given[_JAAS] = self.values[_JAAS]  # other text may be a secret of another kind
        if mechanism is not None:
            self._refuse_what_is_of_another_mechanism(mechanism)
        if not can_not_be_read_yet(given):
            try:
                mechanism = sasl_settings(given).mechanism
            except ConfigError as error:
                what, hint = (_NAME.sub(self._spell, t or "") for t in (error.message, error.hint))
                raise ConfigError(what, hint=hint or None, kind=error.kind) from None
            self._refuse_what_is_of_another_mechanism(mechanism)
            self._warn_of_idle_options(text_of(given.get(_JAAS)))
        if protocol == "SASL_PLAINTEXT" and mechanism in IN_THE_CLEAR:
            shown = mechanism or "left to sasl.jaas.config, which is looked up later"
            self.warn(
                Kind.WEAK_SECURITY,
                f"{self.spelled('security.protocol')} is SASL_PLAINTEXT and sasl.mechanism is"
                f" {shown}: {IN_THE_CLEAR[mechanism]}",
            )

    def _warn_of_idle_options(self, login_module: str) -> None:
        for name, why in without_effect(parse_jaas_config(login_module)) if login_module else ():
            one = replace(self.given[_JAAS], name=f"{name} of {self.prefix}{_JAAS}")
            self.warnings.append(one.no_effect(why))

    def _spell(self, found: re.Match[str]) -> str:
        """Replaces an option name in a message by the name that the user writes, with the prefix
        ``kafka.``. An option from a file keeps its name, because files have no prefix.
        """
        where = self.given.get(found[0]) or self.given.get("sasl.mechanism")
        is_ours = found[0] in PRODUCER_OPTIONS and not (where and where.where)
        return self.prefix + found[0] if is_ours else found[0]

    def _refuse_what_is_of_another_mechanism(self, mechanism: str) -> None:
        for name in self.given:
            mechanisms = mechanisms_of(name)
            meant = PRODUCER_OPTIONS[name].status is not Status.NO_MEANING
            if mechanism in mechanisms or not meant or not text_of(self._content(name)):
                continue
            raise ConfigError(
                f"{self.spelled(name)} would have no effect, because sasl.mechanism is {mechanism}",
                hint=f"the option is for {' and '.join(mechanisms)}; remove it, or set"
                f" {self.prefix}sasl.mechanism",
                kind=Kind.NO_EFFECT,
            )

    def _content(self, name: str) -> OptionValue:
        """The value of an option. For a secret in the ``configFile``, ``values`` has only a
        reference to its line. This function then returns the secret itself.
        """
        content = self.given[name].content
        return self.values[name] if content is None else content

    def _refuse_what_spark_shows(self) -> None:
        """Raises ConfigError if an option contains a secret as plain text that Spark would show in
        plans and event logs. Spark shows an option that does not match its redaction pattern.
        """
        if not self.prefix:
            return
        for name in NOT_HIDDEN_BY_SPARK:
            file = f"key and chain into a file for {self.spelled('ssl.keystore.location')}"
            refuse_inline(self.values[name], self.spelled(name), file)
        login_module = text_of(self.values[_JAAS])
        shown = shown_by_spark(login_module, own_options=names_own_class(self.values))
        if shown:
            raise ConfigError(
                f"{self.spelled(_JAAS)} holds {safe_text(', '.join(shown))} inline,"
                " and nothing in its text makes Spark hide it: plans, its UI and event logs would"
                " show it",
                hint=f'give a reference, {safe_text(shown[0])}="${{file:/path/to/it}}" or'
                f' "${{env:NAME}}"; {REPLACE_IT}',
                kind=Kind.INLINE_SECRET,
            )

    def _refuse_what_comes_later(self) -> None:
        for name in self.given:
            option = PRODUCER_OPTIONS[name]
            if option.status is Status.LATER_REFUSED and self.values[name] != option.default:
                raise ConfigError(
                    f"{safe_text(f'{self.spelled(name)}={self.values[name]}')} is not supported by"
                    " this version",
                    hint=option.note,
                    kind=Kind.UNSUPPORTED_OPTION,
                )

    def _check_sizes(self) -> None:
        # A batch must fit into the pool whole, or a small buffer.memory could never send one.
        self._look_at(_SIZES)
        room = min(self.values["batch.size"], self.values["buffer.memory"])
        self.values["batch.size"] = max(1, room)

    def _bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """The pairs of host and port in bootstrap.servers, without duplicates."""
        items = self.values["bootstrap.servers"]
        servers = parse_bootstrap_servers(items, self.values["security.protocol"], self.prefix)
        if len(servers) < len(items):
            text = "Configuration key 'bootstrap.servers' contains duplicate values."
            self.warn(Kind.OTHER_VALUE, f"{text} Duplicates will be removed.")
        return servers
