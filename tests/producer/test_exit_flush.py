"""The end of the interpreter, called as atexit calls it: what is sent, and what is told as lost.
engine/test_interpreter_exit.py has whole processes.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.producer.exit_flush import flush_at_exit
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from tests.producer.answered_producers import TP0, Producers, hold, refuse, to0

LOST = "records were not sent before the interpreter exited"


def fill(producer: KafkaProducer, count: int) -> None:
    for n in range(count):
        producer.send(to0(b"%d" % n))


def test_the_queues_of_all_producers_are_sent(
    producers: Producers, caplog: pytest.LogCaptureFixture
) -> None:
    made = [producers(linger_ms=60_000) for _ in range(2)]
    for producer, client in made:
        fill(producer, 3)
        assert not client.logs
    flush_at_exit()
    assert [client.values(TP0) for _, client in made] == [[b"0", b"1", b"2"]] * 2
    assert LOST not in caplog.text


def test_a_producer_without_records_stays_open(producers: Producers) -> None:
    """Another function of atexit may still use it."""
    idle, client = producers()
    busy, _ = producers(linger_ms=60_000)
    fill(busy, 1)
    flush_at_exit()
    idle.send(to0(b"later")).result(60)
    assert client.values(TP0) == [b"later"]


def test_only_records_that_the_exit_lost_are_counted(
    producers: Producers, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller knows of those that failed before, and of what a closed producer has lost."""
    producer, client = producers(linger_ms=60_000, enable_idempotence="false")
    client.answer = refuse(ErrorCode.INVALID_RECORD)
    fill(producer, 2)
    producer.flush()
    closed, unanswered = producers(linger_ms=60_000, answer=hold)
    fill(closed, 7)
    closed.close(0)
    assert not unanswered.logs
    fill(producer, 3)
    flush_at_exit()
    assert f"3 {LOST} (" in caplog.text
    assert "INVALID_RECORD" in caplog.text


def test_an_exit_without_an_answer_ends_after_the_delivery_timeout(
    producers: Producers, caplog: pytest.LogCaptureFixture
) -> None:
    times = {"request_timeout_ms": 1500, "delivery_timeout_ms": 2000, "retries": 0}
    producer, _ = producers(answer=hold, enable_idempotence="false", **times)
    fill(producer, 4)
    flush_at_exit()
    assert f"4 {LOST}" in caplog.text
    assert not producer._thread.is_alive()
