"""The table is the only place of a default: another one there is what counts."""

from __future__ import annotations

import ssl
from dataclasses import replace

import pytest

from spark_kafka_sink.config.logins.sasl_settings import sasl_settings
from spark_kafka_sink.config.option import Option, OptionType, Status
from spark_kafka_sink.config.option_table import (
    DEAD_LETTER_OPTIONS,
    PRODUCER_OPTIONS,
    SCHEMA_OPTIONS,
    SINK_OPTIONS,
)
from spark_kafka_sink.config.parsing import parse_producer_config, parse_sink_config
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.network.schema_registry import ConfluentRegistry
from spark_kafka_sink.network.tls.ssl_context import ssl_context

BROKER = {"bootstrap.servers": "b:9092"}
AVRO = {"valueColumns": "a", "valueFormat": "avro", "keyColumns": "b", "keyFormat": "avro"}
REGISTRY = {"schema.registry.url": "https://r"}
TOKEN = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": "it",
}

#: Defaults whose change needs a value of its own, by option.
OTHERS = {
    "schema.registry.url": "https://other",
    "interceptor.classes": ("a:B",),
    "partitioner.class": "murmur2",
    "security.protocol": "SSL",
    "max.in.flight.requests.per.connection": 4,
    "acks": "1",
    "retries": 9,
    "sessionIgnoreNullFields": False,
    "sasl.login.refresh.window.factor": 0.7,
    "sasl.login.refresh.window.jitter": 0.1,
}
LETTERS = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dlq"}
#: What else must be given for a default to count.
BESIDE = {
    "valueFormat": {"valueColumns": "a"},
    "keyFormat": {"keyColumns": "a"},
    **{option.name: AVRO | REGISTRY for option in SCHEMA_OPTIONS},
    "txnAppId": {"deliveryGuarantee": "exactly-once"},
    **{option.name: LETTERS for option in DEAD_LETTER_OPTIONS},
    "changelog.mode": {"changelog": "delta-cdf", "keyColumns": "a", "valueColumns": "b"},
    "errors.tolerance": {"errors.deadletterqueue.topic.name": "dlq"},
}
#: Without an effect of their default: there is only one value, or what is given is passed on.
OF_THE_REGISTRY = ("basic.", "bearer.", "schema.registry.")
#: Required, or the name of another option.
WITHOUT_DEFAULT = (
    "configFile", "errors.deadletterqueue.topic.name", "errors.dead.letter.queue.topic.name",
)  # fmt: skip


def other_default(option: Option):
    """A legal value that is not the default."""
    if option.name in OTHERS:
        return OTHERS[option.name]
    if option.rule is not None and option.rule.choices:
        default = str(option.default).lower()
        return next(c for c in option.rule.choices if c.lower() != default)
    match option.type:
        case OptionType.BOOLEAN:
            return not option.default
        case OptionType.STRING | OptionType.CLASS:
            return "other"
        case OptionType.LIST:
            return ("other",)
        case _:
            return (option.default or 0) + 1


def counts(option: Option) -> bool:
    return option.status is Status.HONOURED and option.type is not OptionType.PASSWORD


OF_THE_SINK = [
    name
    for name, option in SINK_OPTIONS.items()
    if counts(option) and not name.startswith((*OF_THE_REGISTRY, *WITHOUT_DEFAULT))
]
OF_A_LOGIN = [
    name
    for name, option in PRODUCER_OPTIONS.items()
    if name.startswith(("sasl.login.", "sasl.oauthbearer.header")) and option.default is not None
]
OF_A_PRODUCER = [
    name
    for name, option in PRODUCER_OPTIONS.items()
    if counts(option)
    and not name.startswith(("sasl.", "ssl."))
    and name != "bootstrap.servers"  # required
]


def sink_of(name: str) -> SinkConfig:
    """Without the producer, whose defaults are its own."""
    given = {f"kafka.{n}": value for n, value in BROKER.items()} | BESIDE.get(name, {})
    return replace(parse_sink_config(given), producer=parse_producer_config(BROKER))


@pytest.mark.parametrize(
    ("table", "name", "parse"),
    [
        *((SINK_OPTIONS, name, sink_of) for name in OF_THE_SINK),
        *(
            (PRODUCER_OPTIONS, name, lambda _: parse_producer_config(BROKER))
            for name in OF_A_PRODUCER
        ),
        *((PRODUCER_OPTIONS, name, lambda _: sasl_settings(TOKEN)) for name in OF_A_LOGIN),
    ],
    ids=[*OF_THE_SINK, *OF_A_PRODUCER, *OF_A_LOGIN],
)
def test_a_default_is_the_tables(monkeypatch, table, name, parse):
    before = parse(name)
    other = replace(table[name], default=other_default(table[name]))
    monkeypatch.setitem(table, name, other)
    assert parse(name) != before


def test_the_default_check_of_brokers_names_is_the_tables(monkeypatch):
    name = "ssl.endpoint.identification.algorithm"
    assert ssl_context({}).check_hostname
    option = replace(PRODUCER_OPTIONS[name], default="")
    monkeypatch.setitem(PRODUCER_OPTIONS, name, option)
    context = ssl_context({})
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)


def test_a_registrys_default_timeout_is_the_tables(monkeypatch):
    name = "schema.registry.request.timeout.ms"
    monkeypatch.setitem(SINK_OPTIONS, name, replace(SINK_OPTIONS[name], default=7))
    options = {"kafka.bootstrap.servers": "b:9092", "valueColumns": "*", "valueFormat": "avro"}
    schemas = parse_sink_config(options | REGISTRY).schemas
    assert ConfluentRegistry(dict(schemas.registry), limit_ms=100)._timeout_ms == 7


def test_the_default_timeout_of_exactly_once_is_the_tables(monkeypatch):
    name = "transaction.timeout.ms"
    option = replace(PRODUCER_OPTIONS[name], exactly_once_default=77_000)
    monkeypatch.setitem(PRODUCER_OPTIONS, name, option)
    given = {"kafka.bootstrap.servers": "b:9092", "deliveryGuarantee": "exactly-once"}
    assert parse_sink_config(given).producer.transaction_timeout_ms == 77_000
