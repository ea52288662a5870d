"""What KafkaProducer takes as options, and which calls they allow."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import IllegalStateError
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
