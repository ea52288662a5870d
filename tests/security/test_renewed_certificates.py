"""Certificates that are renewed while a producer writes to a real broker."""

from __future__ import annotations

import shutil
import time

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.base.errors import AuthenticationError
from tests.real_kafka import AT_ONCE_S
from tests.secure_kafka import SecureKafka
from tests.waiting import wait_for

IDLE_S = 1.0
KEYS, TRUST = "ssl.keystore.location", "ssl.truststore.location"
#: The store that is renewed: with which file, what the broker then makes of us, or we of it.
RENEWED = {
    KEYS: ("client_key", "stranger_key", "does not accept our client certificate"),
    TRUST: ("ca", "other_ca", "a CA that is not trusted"),
}


@pytest.mark.parametrize("store", RENEWED)
def test_a_running_producer_uses_renewed_certificates(
    secure_kafka: SecureKafka, tmp_path, caplog, store
):
    """The renewed file is one that is refused, which proves that it was read."""
    good, refused, why = (getattr(secure_kafka, name, name) for name in RENEWED[store])
    renewed = tmp_path / "renewed.pem"
    shutil.copy(good, renewed)
    topic = secure_kafka.kafka.unique_topic()
    options = {
        "bootstrap.servers": secure_kafka.bootstrap("MUTUAL"),
        "security.protocol": "SSL",
        KEYS: str(secure_kafka.client_key),
        TRUST: str(secure_kafka.ca),
        "connections.max.idle.ms": str(int(IDLE_S * 1000)),
    }
    with KafkaProducer(options | {store: str(renewed)}) as producer:

        def send_one() -> None:
            """By a new connection: the others are closed for idleness before."""
            made = connections(producer)
            idle_since = time.monotonic()
            wait_for(lambda: time.monotonic() > idle_since + IDLE_S)
            producer.send(ProducerRecord(topic, b"v")).result(AT_ONCE_S)
            assert connections(producer) > made

        producer.send(ProducerRecord(topic, b"v")).result(AT_ONCE_S)
        renewed.write_bytes(good.read_bytes()[:-50])  # its writer has not come to the end yet
        send_one()
        assert sum("KP0121" in line.getMessage() for line in caplog.records) == 1
        shutil.copy(good, renewed)
        send_one()
        shutil.copy(refused, renewed)
        with pytest.raises(AuthenticationError, match=why):
            send_one()


def connections(producer: KafkaProducer) -> float:
    return sum(
        v for name, v in producer.metrics().items() if name.name == "connection-creation-total"
    )
