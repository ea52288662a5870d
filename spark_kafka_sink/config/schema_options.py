"""The options of the formats with a schema (Avro, Protobuf, JSON Schema), and of the schema
registry.

This module reads these options and checks their combinations. The names with a dot are Confluent's,
because users know these names and have them in their files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import Any, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.security.addresses import http_address
from spark_kafka_sink.base.security.password import Password, shown_text, text_of
from spark_kafka_sink.base.security.secret_references import has_references
from spark_kafka_sink.base.topic_name import VALID_NAME, checked_topic_name
from spark_kafka_sink.config.logins.security_rules import (
    NOT_HIDDEN_BY_SPARK,
    STORE_RULES,
    check_rules,
    refuse_inline,
)
from spark_kafka_sink.config.named_columns import (
    WITH_SCHEMA,
    ColumnFormat,
    NamedColumns,
    SubjectStrategy,
)
from spark_kafka_sink.config.option import Check, OptionValue, check_references, refuse
from spark_kafka_sink.config.option_table import (
    ENDPOINT,
    IN_HEADER,
    REGISTRY,
    REGISTRY_OPTIONS,
    SCHEMA_OPTIONS,
    SUBJECTS,
    TIMEOUT,
    TOKEN,
    URL,
    USER_INFO,
)


@dataclass(frozen=True, slots=True)
class PayloadOptions:
    """The schema options for the record's value or for its key. ``part`` is ``"value"`` or
    ``"key"``.

    * ``schema``: the text of a schema, or the path of a file. None if it is not set.
    * ``name``: the name of the record type, for a schema that the sink derives from the columns.
      None if it is not set.
    * ``use_id``: the id of a registered schema. None if it is not set.
    * ``in_header``: True if the schema's id is in a header of the record, and not in front of the
      key or value.
    """

    part: str
    format: ColumnFormat
    schema: str | None
    name: str | None
    strategy: SubjectStrategy
    use_id: int | None = None
    in_header: bool = False

    @property
    def is_of_topic(self) -> bool:
        """True if the name of the topic is a part of the schema's subject in the registry."""
        return self.use_id is None and self.strategy is not SubjectStrategy.RECORD


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """The schema options of one write. Only the driver uses them.

    ``registry`` are the options for the connection to the schema registry, as pairs of name and
    value. The values can contain references to secrets. The references are not replaced yet.
    """

    payloads: tuple[PayloadOptions, ...]
    #: The topics that a column ``topic`` may name, each with its own subject.
    topics: tuple[str, ...]
    auto_register: bool
    use_latest: bool
    registry: tuple[tuple[str, OptionValue], ...] = field(repr=False)


def schema_options(
    own: Mapping[str, OptionValue], options: Mapping[str, Any], named: NamedColumns
) -> SchemaOptions | None:
    """Reads and checks the schema options. Returns None if the formats of key and value need no
    schema.

    ``own`` are the options that the user has set. ``options`` are the effective values of all
    options. Raises ConfigError for a wrong value or a wrong combination.
    """
    formats = {"value": (named.value, named.value_format), "key": (named.key, named.key_format)}
    parts = [part for part, (names, format_) in formats.items() if names and format_ in WITH_SCHEMA]
    _refuse_without_effect(own, parts)
    if not parts:
        return None
    ways = ["use.schema.id", f"{parts[0]}Schema"]
    if options["use.latest.version"] and len(parts) == 1:
        ways.append("use.latest.version")
    refuse([*(_one_of(*two) for two in combinations(ways, 2)), *_CHECKS], own, own)
    payloads = tuple(
        PayloadOptions(
            part,
            formats[part][1],
            options[f"{part}Schema"],
            options[f"{part}SchemaName"],
            SubjectStrategy(options[f"{part}.subject.name.strategy"].removeprefix(SUBJECTS)),
            options["use.schema.id"] if part == parts[0] else None,
            in_header=options[f"{part}.schema.id.serializer"].endswith(IN_HEADER),
        )
        for part in parts
    )
    topics = tuple(options["schemaTopics"])
    _check_topics(topics, own, payloads)
    _check_registry(own)
    registry = {**{name: options[name] for name in (TIMEOUT, "normalize.schemas")}, **own}
    return SchemaOptions(
        payloads,
        topics,
        auto_register=options["auto.register.schemas"],
        use_latest=options["use.latest.version"],
        registry=tuple((o.name, registry[o.name]) for o in REGISTRY_OPTIONS if o.name in registry),
    )


def _check_topics(
    topics: tuple[str, ...], own: Mapping[str, OptionValue], payloads: tuple[PayloadOptions, ...]
) -> None:
    for name in topics:
        try:
            checked_topic_name(name)
        except ValueError as error:
            raise ConfigError(
                f"schemaTopics: {safe_text(str(error))}", hint=VALID_NAME, kind=Kind.INVALID_VALUE
            ) from None
    of_topics = any(payload.is_of_topic for payload in payloads)
    if topics and ("topic" in own or not of_topics):
        why = "the option topic is set" if "topic" in own else "no subject is named after a topic"
        raise ConfigError(
            f"schemaTopics would have no effect, because {why}",
            hint="remove it: it lists what a column topic may name",
            kind=Kind.NO_EFFECT,
        )


def _refuse_without_effect(own: Mapping[str, OptionValue], parts: list[str]) -> None:
    for one in SCHEMA_OPTIONS:
        of = next((part for part in ("key", "value") if one.name.startswith(part)), None)
        if one.name in own and not (parts if of is None else of in parts):
            raise ConfigError(
                f"{one.name} would have no effect, because no {of or 'value or key'} is written"
                " with a schema",
                hint=f"set {of or 'value'}Format=avro (or protobuf, json-schema) and"
                f" {of or 'value'}Columns, or remove {one.name}",
                kind=Kind.NO_EFFECT,
            )


def _one_of(*ways: str) -> Check:
    said = f"{' and '.join(ways)} are set, and only one of them would count"
    return Check(" ".join(ways), said, "keep one of them", kind=Kind.NO_EFFECT)


#: Of authentication.
_WAYS: Final = (USER_INFO, TOKEN, ENDPOINT)
_SOURCE: Final = "bearer.auth.credentials.source"
_CLIENT: Final = (ENDPOINT, "bearer.auth.client.id", "bearer.auth.client.secret")
_TOGETHER: Final = "{} needs {} and {}, and they need it".format(*_CLIENT)
_CHECKS: Final = (
    Check("", f"{URL} is not set, and records of this format carry the id that a registry gives to"
          " their schema", f"set {URL}=https://host:8081; valueFormat=json needs none",
          lambda values: not values.get(URL)),
    _one_of(*_WAYS),
    *(_one_of(*two) for two in combinations(_WAYS, 2)),
    *(Check(f"{_SOURCE}={source}", f"{_SOURCE} is {source}, and {needs} is not set",
            f"set {needs}", unless=needs)
      for source, needs in (("STATIC_TOKEN", TOKEN), ("OAUTHBEARER", ENDPOINT))),
    *(Check(one, _TOGETHER, f"{other} is missing", unless=other)
      for one, other in permutations(_CLIENT, 2)),
)  # fmt: skip


def _check_registry(own: Mapping[str, OptionValue]) -> None:
    """Checks the options for the schema registry. Raises ConfigError for a wrong option. Examples
    are a secret that Spark would show, and a secret that would be sent without TLS.
    """
    for one in REGISTRY_OPTIONS:
        check_references(one, own.get(one.name), one.name)
    for name in (USER_INFO, *(REGISTRY + n for n in NOT_HIDDEN_BY_SPARK if n.startswith("ssl."))):
        refuse_inline(own.get(name), name, "it into a configFile")
    check_rules(STORE_RULES, registry_tls(own), lambda name: REGISTRY + name)
    registry_urls(own)


def registry_tls(values: Mapping[str, object]) -> dict[str, object]:
    """The TLS options for the schema registry. The prefix is removed from their names, so they have
    the names of the brokers' TLS options, such as ``ssl.truststore.location``.
    """
    of = f"{REGISTRY}ssl."
    return {n.removeprefix(REGISTRY): value for n, value in values.items() if n.startswith(of)}


def registry_urls(values: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the addresses of the schema registry, such as ``("https://host:8081",)``, without a
    slash at the end. If the option contains a reference to a secret, returns an empty tuple: the
    addresses are checked after the reference is replaced.

    Raises ConfigError in these cases:

    * An address is invalid.
    * A secret would be sent to an address without TLS.
    * TLS options have no effect.
    """
    endpoint = values.get(ENDPOINT)
    if endpoint is not None and not has_references(endpoint):
        credentials = "bearer.auth.client.id and bearer.auth.client.secret"
        http_address(ENDPOINT, shown_text(endpoint), "it looks like https://host/path", credentials)
    address = values.get(URL)
    if has_references(address):
        return ()
    given = shown_text(address)
    urls = tuple(one.strip().rstrip("/") for one in text_of(given).split(","))
    hint = (
        "it looks like https://host:8081, like each address of a list; local_kafka has a registry"
        " for tests"
    )
    gets = next((name for name in _WAYS if values.get(name)), "")
    for url in urls:
        shown = Password(url, f"{given}") if isinstance(given, Password) else url
        parts = http_address(URL, shown, hint, USER_INFO, gets=gets, kind=Kind.INVALID_VALUE)
        if parts.query or parts.fragment:
            raise ConfigError(f"{URL} is no registry's address", hint=hint, kind=Kind.INVALID_VALUE)
    tls = next(iter(registry_tls(values)), None)
    if tls and ENDPOINT not in values and all(one.lower().startswith("http:") for one in urls):
        what = f"{REGISTRY}{tls} would have no effect, because {URL} is http"
        raise ConfigError(what, hint="use https, or remove it", kind=Kind.NO_EFFECT)
    return urls
