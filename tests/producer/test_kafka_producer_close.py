"""The end of a KafkaProducer: closed, interrupted, forked, or without its network thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from spark_kafka_sink.base.errors import IllegalStateError, KafkaError
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.send.record_future import RecordFuture
from tests.fakes.answering_client import AnsweringClient
from tests.producer.answered_producers import (
    TP0,
    Heard,
    Producers,
    await_memory,
    hold,
    numbered,
    rows_of,
    to0,
)


def test_close_now_fails_what_has_no_outcome(producers: Producers):
    """RecordAccumulatorTest#testAbortIncompleteBatches."""
    producer, client = producers(linger_ms=60_000, batch_size=500, answer=hold)
    heard = Heard()
    futures = [producer.send(to0(b"x" * 50), heard) for _ in range(100)]
    client.await_produced(1)
    producer.close(0)
    assert all("closed before" in str(future.exception(0)) for future in futures)
    assert len(heard.calls) == 100
    await_memory(producer)


def test_sends_that_race_with_close_end_every_one(producers: Producers):
    """RecordAccumulatorTest#testAbortIncompleteBatches. Concurrent appends: refused, or failed, but
    never without an outcome.
    """
    for _ in range(20):
        producer, client = producers(batch_size=500, answer=hold)
        futures: list[RecordFuture] = []

        def send(producer: KafkaProducer = producer, into: list[RecordFuture] = futures) -> None:
            try:
                while True:
                    into.append(producer.send(to0(b"x" * 50)))
            except KafkaError:
                pass

        threads = [threading.Thread(target=send) for _ in range(2)]
        for thread in threads:
            thread.start()
        client.await_produced(1)
        producer.close(0)
        for thread in threads:
            thread.join(60)
        assert all(future.exception(5) is not None for future in futures)


def interrupt_the_writer(client: AnsweringClient, when: Callable[[], bool]) -> None:
    """Ctrl-C, once: where this thread wakes the sender, and ``when`` is so."""
    writer = threading.current_thread()

    def interrupt() -> None:
        if threading.current_thread() is writer and when():
            client.on_wakeup = lambda: None
            raise KeyboardInterrupt

    client.on_wakeup = interrupt


def test_an_interrupted_wait_for_memory_changes_nothing(producers: Producers):
    producer, client = producers(buffer_memory=2000, answer=hold)
    interrupt_the_writer(client, lambda: producer._accumulator.pool.waiters > 0)

    def send_without_end() -> None:
        for _ in range(100):
            producer.send(to0(b"x" * 300))

    with pytest.raises(KeyboardInterrupt):
        send_without_end()
    client.release()
    producer.flush()
    producer.send(to0(b"after")).result(60)
    assert client.values(TP0)[-1] == b"after"
    await_memory(producer)


def test_an_interrupted_send_of_columns_only_allows_close(producers: Producers):
    producer, client = producers(buffer_memory=10_000, batch_size=1000, answer=hold)
    interrupt_the_writer(client, lambda: producer._accumulator.pool.waiters > 0)

    def send_without_end() -> None:
        for first in range(0, 1_000_000, 100):
            producer.send_columns(rows_of(numbered(first, 100), 0))

    with pytest.raises(KeyboardInterrupt):
        send_without_end()
    assert producer._accumulator.pool.waiters == 0
    with pytest.raises(IllegalStateError, match="interrupted"):
        producer.flush()
    producer.close(0)
    await_memory(producer)


def test_an_interrupt_after_an_append_returns_no_memory(producers: Producers):
    """It lands where the sender is woken: the record is in its batch then, and is sent."""
    producer, client = producers(linger_ms=60_000)
    interrupt_the_writer(client, lambda: True)
    with pytest.raises(KeyboardInterrupt):
        producer.send(to0(b"v"))
    producer.flush()
    assert client.values(TP0) == [b"v"]
    await_memory(producer)


def test_an_interrupted_close_waits_no_longer(producers: Producers):
    producer, client = producers(answer=hold)
    future = producer.send(to0(b"v"))
    client.await_produced(1)
    interrupt_the_writer(client, lambda: True)
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    assert "closed before" in str(future.exception(60))


def test_close_sends_the_rest(producers: Producers):
    producer, client = producers()
    producer.send_columns(rows_of(numbered(0, 10), 0))
    producer.close(2**63 - 1)  # Java's close() without a time-out
    assert len(client.values(TP0)) == 10
    assert client.closed
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send_columns(rows_of([b"x"], 0))
