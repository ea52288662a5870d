"""The hint of a wrong listener or mechanism works when it is followed, on a real secure broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.record_columns import ColumnPlan
from tests.engine.rows import attempt, config, values_batch
from tests.real_kafka import Consumed
from tests.secure_kafka import SecureKafka

Options = Mapping[str, str]

PROTOCOL, MECHANISM = "security.protocol", "sasl.mechanism"
#: A listener; the options beside those that its user needs; words of the hint; and the options
#: after it is followed, for each way that the hint names.
ROWS: list[tuple[str, Options, str, list[Options]]] = [
    ("GOOD", {PROTOCOL: "PLAINTEXT"}, "set kafka.security.protocol to SSL or SASL_SSL",
     [{PROTOCOL: "SSL"}]),
    ("SASL_SSL", {PROTOCOL: "SASL_PLAINTEXT"}, "set kafka.security.protocol to SSL or SASL_SSL",
     [{PROTOCOL: "SASL_SSL"}]),
    ("PLAINTEXT", {PROTOCOL: "SASL_PLAINTEXT"},
     "is it a listener of type PLAINTEXT? Then set kafka.security.protocol to that",
     [{PROTOCOL: "PLAINTEXT"}]),
    ("GOOD", {PROTOCOL: "SASL_SSL"},
     "is it a listener of type SSL? Then set kafka.security.protocol to that", [{PROTOCOL: "SSL"}]),
    ("SASL_PLAINTEXT", {PROTOCOL: "SASL_PLAINTEXT", MECHANISM: "AWS_MSK_IAM"},
     "set kafka.sasl.mechanism to one of these",
     [{MECHANISM: "PLAIN"}, {MECHANISM: "SCRAM-SHA-512"}]),
]  # fmt: skip


def options_of(secure: SecureKafka, listener: str, options: Options) -> dict[str, str]:
    """``options`` with the truststore and the login of ``alice``, as far as they need these."""
    found = dict(options)
    protocol, mechanism = found[PROTOCOL], found.get(MECHANISM, "PLAIN")
    if protocol.endswith("SSL"):
        ours = listener == "SASL_SSL"
        found["ssl.truststore.location"] = str(secure.cluster.security.ca if ours else secure.ca)
    if protocol.startswith("SASL") and mechanism != "AWS_MSK_IAM":
        login = secure.cluster.client_options("SASL_PLAINTEXT", mechanism)
        found |= {name: login[name] for name in (MECHANISM, "sasl.jaas.config")}
    return found


def write(address: str, options: Options, topic: str) -> None:
    given: ProducerConfig = config(address, options)
    with KafkaProducer(given) as producer:
        attempt(producer, ColumnPlan(topic, value_column=0), [values_batch([b"row"])])


@pytest.mark.parametrize(
    ("listener", "options", "words", "ways"), ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS]
)
def test_the_hint_of_a_listener_leads_to_a_written_row(
    secure_kafka: SecureKafka,
    consume: Callable[..., Consumed],
    monkeypatch: pytest.MonkeyPatch,
    listener: str,
    options: Options,
    words: str,
    ways: list[Options],
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(variable, "eu-west-1")
    address, topic = secure_kafka.bootstrap(listener), secure_kafka.kafka.unique_topic("hint")
    with pytest.raises(AuthenticationError) as raised:
        write(address, options_of(secure_kafka, listener, options), topic)
    assert words in str(raised.value.hint)
    for changes in ways:
        write(address, options_of(secure_kafka, listener, {**options, **changes}), topic)
    written = consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values
    assert written == [b"row"] * len(ways)
