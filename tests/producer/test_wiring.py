"""What KafkaProducer takes as options, and which calls they allow."""

from __future__ import annotations

import threading

import pytest

from spark_kafka_sink.base.errors import IllegalStateError
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


def client_id_of(producer: KafkaProducer) -> str:
    [client_id] = {dict(name.tags)["client-id"] for name in producer.metrics()}
    return client_id


def test_the_default_client_id_is_a_number_or_the_transactional_id(producers: Producers):
    """As Java's (``maybeOverrideClientId``). Requests, metrics and the thread's name have it."""
    first, second = (client_id_of(producers()[0]) for _ in range(2))
    assert first.removeprefix("producer-").isdigit()
    assert second == f"producer-{int(first.removeprefix('producer-')) + 1}"
    transactional, _ = producers(transactional_id="orders-7")
    assert client_id_of(transactional) == "producer-orders-7"
    given, _ = producers(client_id="mine")
    assert client_id_of(given) == "mine"
    threads = {thread.name for thread in threading.enumerate()}
    for client_id in (first, second, "producer-orders-7", "mine"):
        assert f"kafka-producer-network-thread | {client_id}" in threads
