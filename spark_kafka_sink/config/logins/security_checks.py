"""Checks that a user's ``ssl.`` and ``sasl.`` options fit together, and that each of them has an
effect. The entry point is :func:`check_security`.

The rules are in ``security_rules``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded, safe_text
from spark_kafka_sink.base.security.jaas_config import parse_jaas_config
from spark_kafka_sink.base.security.password import REPLACE_IT, text_of
from spark_kafka_sink.config.given_option import GivenProducerOptions
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
from spark_kafka_sink.config.option import Check, OptionValue, Status, Values, refuse
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, renamed_texts

_JAAS = "sasl.jaas.config"


def _some_suites_of_tls_1_3(values: Values) -> bool:
    """Returns True if ``ssl.cipher.suites`` has some cipher suites of TLS 1.3, but not all.
    Python's ssl can only enable all cipher suites of TLS 1.3 or none of them.
    """
    suites = {suite.upper() for suite in values["ssl.cipher.suites"] or ()}
    return bool(TLS_1_3_SUITES & suites) and not suites >= TLS_1_3_SUITES


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


def check_security(options: GivenProducerOptions, values: Values) -> list[str]:
    """Checks ``security.protocol`` and the options of TLS and SASL together. Returns warnings.
    ``values`` has the effective value of every producer option.

    Raises ConfigError for the first wrong option. An option is wrong if it has no effect, if it
    contradicts another option, or if Spark would show its secret.
    """
    return list(_SecurityChecks(options, values).warnings())


@dataclass(frozen=True, slots=True)
class _SecurityChecks:
    """The checks of one set of options. No check changes a value, so the order of the checks only
    decides which error comes first.
    """

    options: GivenProducerOptions
    values: Values

    def warnings(self) -> Iterator[str]:
        """Performs all checks, and yields their warnings."""
        self._refuse_inline_secrets()
        protocol = self.values["security.protocol"]
        families = COUNTING[protocol]
        idle = sorted(
            name
            for name in self.options.given
            if is_security_option(name) and not name.startswith(families)
        )
        if idle:
            raise self._error_of_another_protocol(idle, protocol)
        if "sasl." in families:
            yield from self._sasl_warnings(protocol)
        if "ssl." in families:
            # Java's DefaultSslEngineFactory, with its messages.
            stores = self._contents("ssl.")
            check_rules(STORE_RULES, stores, self.options.spelled)
            yield from self._refuse(_WEAK_TLS)

    def _refuse_inline_secrets(self) -> None:
        """Raises ConfigError for a secret as plain text in an option that Spark would show in plans
        and event logs. Spark shows each option that does not match Spark's redaction pattern.
        """
        if not self.options.prefix:
            return
        for name in NOT_HIDDEN_BY_SPARK:
            file = f"key and chain into a file for {self.options.spelled('ssl.keystore.location')}"
            refuse_inline(self.values[name], self.options.spelled(name), file)
        login_module = text_of(self.values[_JAAS])
        shown = shown_by_spark(login_module, own_options=names_own_class(self.values))
        if shown:
            raise ConfigError(
                f"{self.options.spelled(_JAAS)} holds {safe_text(', '.join(shown))} inline,"
                " and nothing in its text makes Spark hide it: plans, its UI and event logs would"
                " show it",
                hint=f'give a reference, {safe_text(shown[0])}="${{file:/path/to/it}}" or'
                f' "${{env:NAME}}"; {REPLACE_IT}',
                kind=Kind.INLINE_SECRET,
            )

    def _error_of_another_protocol(self, idle: Sequence[str], protocol: str) -> ConfigError:
        """Creates the error for options that have no effect with ``protocol``. ``idle`` has the
        names of these options.
        """
        default = "" if "security.protocol" in self.options.given else ", the default"
        has_sasl = protocol.startswith("SASL") or any(name.startswith("sasl.") for name in idle)
        has_tls = protocol == "SSL" or any(name.startswith("ssl.") for name in idle)
        needed = "SASL_SSL" if has_sasl else "SSL"
        or_else = "" if has_tls else " (or SASL_PLAINTEXT, which sends everything in the clear)"
        return ConfigError(
            f"{', '.join(map(self.options.spelled, idle))} would have no effect, because"
            f" {self.options.spelled('security.protocol')} is {protocol}{default}",
            hint=f"set {self.options.prefix}security.protocol={needed}{or_else}, or remove"
            f" {'that option' if len(idle) == 1 else 'those options'}",
            kind=Kind.NO_EFFECT,
        )

    def _sasl_warnings(self, protocol: str) -> Iterator[str]:
        """Checks the ``sasl.`` options on the driver, so that mistakes are found before a task
        starts. Yields the warnings.

        References to secrets are not looked up here. Each producer reads these options again, with
        the secrets.
        """
        yield from self._refuse(_NO_MECHANISM)
        mechanism: str | None = self.values["sasl.mechanism"]
        contents = self._contents("sasl.")
        if _JAAS in contents and not names_a_known_module(text_of(contents[_JAAS])):
            contents[_JAAS] = self.values[_JAAS]  # other text may be a secret of another kind
        if mechanism is not None:
            self._refuse_options_of_another_mechanism(mechanism)
        if not can_not_be_read_yet(contents):
            try:
                mechanism = sasl_settings(contents).mechanism
            except ConfigError as error:
                raise self._with_prefixed_names(error) from None
            self._refuse_options_of_another_mechanism(mechanism)
            yield from self._idle_options_of_module(text_of(contents.get(_JAAS)))
        if protocol == "SASL_PLAINTEXT" and mechanism in IN_THE_CLEAR:
            shown = mechanism or "left to sasl.jaas.config, which is looked up later"
            yield coded(
                Kind.WEAK_SECURITY,
                f"{self.options.spelled('security.protocol')} is SASL_PLAINTEXT and sasl.mechanism"
                f" is {shown}: {IN_THE_CLEAR[mechanism]}",
            )

    def _idle_options_of_module(self, login_module: str) -> Iterator[str]:
        """Yields a warning for each option in ``login_module`` that has no effect."""
        if not login_module:
            return
        for name, why in without_effect(parse_jaas_config(login_module)):
            full_name = f"{name} of {self.options.prefix}{_JAAS}"
            yield replace(self.options.given[_JAAS], name=full_name).no_effect(why)

    def _with_prefixed_names(self, error: ConfigError) -> ConfigError:
        """Copies an error about ``sasl.`` options. In the copy, the names of the options are as the
        user writes them.
        """
        message, hint = renamed_texts(error, self._as_written)
        return ConfigError(message, hint=hint, kind=error.kind)

    def _as_written(self, name: str) -> str:
        """The name of an option as the user writes it, for an error about SASL.

        A name that begins with ``sasl.`` gets the prefix ``kafka.`` in a Spark write, and no prefix
        in a file. Any other name is a setting inside the text of ``sasl.jaas.config``, such as
        ``ssl.truststore.location``, and gets no prefix.
        """
        given = self.options.given.get(name) or self.options.given.get("sasl.mechanism")
        is_from_file = bool(given and given.where)
        has_prefix = name.startswith("sasl.") and not is_from_file
        return self.options.prefix + name if has_prefix else name

    def _refuse_options_of_another_mechanism(self, mechanism: str) -> None:
        for name in self.options.given:
            mechanisms = mechanisms_of(name)
            has_meaning = PRODUCER_OPTIONS[name].status is not Status.NO_MEANING
            if mechanism in mechanisms or not has_meaning or not text_of(self._content(name)):
                continue
            raise ConfigError(
                f"{self.options.spelled(name)} would have no effect, because sasl.mechanism is"
                f" {mechanism}",
                hint=f"the option is for {' and '.join(mechanisms)}; remove it, or set"
                f" {self.options.prefix}sasl.mechanism",
                kind=Kind.NO_EFFECT,
            )

    def _contents(self, family: str) -> dict[str, OptionValue]:
        """The values of the user's options whose names begin with ``family``."""
        return {n: self._content(n) for n in self.options.given if n.startswith(family)}

    def _content(self, name: str) -> OptionValue:
        """The value of an option. If the option is a secret in the ``configFile``, returns the
        secret itself. (``values`` has only a reference to the line of the secret.)
        """
        content = self.options.given[name].content
        return self.values[name] if content is None else content

    def _refuse(self, checks: Sequence[Check]) -> list[str]:
        return refuse(checks, self.options.given, self.values, self.options.spelled)
