"""A KafkaProducer from one task attempt to the next."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import DeliveryError, ErrorCode, IllegalStateError, KafkaError
from tests.producer.answered_producers import (
    TP0,
    Producers,
    await_memory,
    hold,
    numbered,
    refuse,
    rows_of,
    to0,
)

pytestmark = pytest.mark.usefixtures("small_batches")


def test_a_warm_producer_keeps_its_id_and_its_sequences(producers: Producers):
    """Rule R4."""
    producer, client = producers()
    for attempt in range(3):
        producer.start_attempt()
        producer.send_columns(rows_of(numbered(0, 10), 0))
        report = producer.finish_attempt()
        assert (report.rows, report.offsets) == (10, {TP0: (attempt * 10, attempt * 10 + 9)})
        assert producer.reusable
        producer.park()
    headers = [batch.header for batch in client.logs[TP0]]
    assert [h.base_sequence for h in headers] == [0, 10, 20]
    assert {(h.producer_id, h.producer_epoch) for h in headers} == {(4711, 0)}
    assert producer.producer_id_and_epoch == (4711, 0)
    await_memory(producer)


def test_an_attempt_can_not_begin_or_park_with_unacked_rows(producers: Producers):
    producer, client = producers(answer=hold)
    producer.send_columns(rows_of(numbered(0, 10), 0))
    assert not producer.reusable
    with pytest.raises(IllegalStateError):
        producer.start_attempt()
    with pytest.raises(IllegalStateError):
        producer.park()
    client.release()
    assert producer.finish_attempt().rows == 10


def test_without_idempotence_an_attempt_reports_failed_records(producers: Producers):
    """It is no bug: each future has said so. The producer goes on, with the next attempt."""
    producer, client = producers(enable_idempotence="false")
    client.answer = refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    failed = producer.send(to0())
    assert isinstance(failed.exception(10), KafkaError)
    client.release()
    producer.send(to0()).result(60)
    with pytest.raises(DeliveryError, match=r"1 of 2 rows .*TOPIC_AUTHORIZATION_FAILED") as caught:
        producer.finish_attempt()
    assert caught.value.hint is not None
    assert "future" in caught.value.hint
    assert "bug" not in caught.value.hint
    assert caught.value.__cause__ is failed.exception(0)
    producer.start_attempt()
    producer.send(to0()).result(60)
    assert producer.finish_attempt().rows == 1
