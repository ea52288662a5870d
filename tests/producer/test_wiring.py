"""What KafkaProducer takes as options, and which calls they allow."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ConfigError, IllegalStateError
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import Headers
from tests.producer.answered_producers import TP0, Producers, to0


class Shout:
    """A serializer of one's own, which adds a header."""

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:
        headers.add("by", topic.encode())
        return str(data).upper().encode()


@pytest.mark.parametrize(
    "given", [Shout(), Shout, f"{__name__}:Shout", f"{__name__}.Shout"], ids=str
)
def test_a_serializer_may_be_an_object_a_class_or_an_import_path(
    producers: Producers, given: object
):
    producer, client = producers(value_serializer=given)
    producer.send(to0("hello")).result(60)
    (record,) = client.logs[TP0][0].records
    assert (record.value, record.headers) == (b"HELLO", (("by", b"test"),))


def test_wrong_options_are_said_at_once():
    with pytest.raises(ConfigError, match=r"key\.serializer: nonsense is not known"):
        KafkaProducer({"bootstrap.servers": "127.0.0.1:9092", "key.serializer": "nonsense"})
    with pytest.raises(ConfigError, match=r"interceptor\.classes: no\.such:Thing can't be"):
        KafkaProducer(
            {"bootstrap.servers": "127.0.0.1:9092", "interceptor.classes": "no.such:Thing"}
        )
    with pytest.raises(ConfigError, match="Unknown option 'lingerms'"):
        KafkaProducer({"bootstrap.servers": "127.0.0.1:9092", "lingerms": "1"})


def test_transactional_calls_need_a_transactional_id(producers: Producers):
    """TransactionManagerTest#testFailIfNotReadyForSendNoOngoingTransaction."""
    producer, _ = producers()
    for call in (
        producer.init_transactions,
        producer.begin_transaction,
        producer.commit_transaction,
        producer.abort_transaction,
    ):
        with pytest.raises(IllegalStateError, match=r"transactional\.id"):
            call()
