"""The callbacks of KafkaProducer.send: when, on which thread, and what they may do."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError

import pytest

from spark_kafka_sink.base.errors import (
    ErrorCode,
    IllegalStateError,
    InvalidRecordError,
    KafkaError,
)
from spark_kafka_sink.producer.producer_record import ProducerRecord, RecordMetadata
from spark_kafka_sink.producer.send.record_future import RecordFuture
from tests.producer.answered_producers import TP0, Heard, Producers, hold, refuse, to0
from tests.real_kafka import AT_ONCE_S


def test_callbacks_run_once_in_order_on_the_network_thread(producers: Producers):
    """ProducerBatchTest#testBatchCannotCompleteTwice."""
    producer, _ = producers(batch_size=1000)
    heard = Heard()
    for n in range(300):
        producer.send(to0(b"%d" % n), heard)
    producer.flush()
    assert [metadata.offset for metadata, _ in heard.calls] == list(range(300))
    assert {error for _, error in heard.calls} == {None}
    assert heard.threads == {producer._thread}


def test_a_callback_that_raises_is_logged_without_what_it_says(
    producers: Producers, caplog: pytest.LogCaptureFixture
):
    producer, _ = producers(linger_ms=60_000)
    heard = Heard()

    def broken(metadata: RecordMetadata, error: KafkaError | None) -> None:
        raise ValueError("a secret of the row")

    producer.send(to0(), broken)
    producer.send(to0(), heard)
    producer.flush()
    assert len(heard.calls) == 1
    assert "user-provided callback" in caplog.text
    assert "ValueError in broken (test_kafka_producer_callbacks.py:" in caplog.text
    assert "secret" not in caplog.text


def test_a_done_callback_gets_the_future_before_or_after_its_end(producers: Producers):
    producer, _ = producers(linger_ms=60_000)
    future = producer.send(to0())
    seen: list[RecordFuture] = []
    future.add_done_callback(seen.append)
    assert seen == []
    producer.flush()
    assert seen == [future]
    future.add_done_callback(seen.append)
    assert seen == [future, future]


def test_a_record_is_awaited_in_asyncio(producers: Producers):
    """``asyncio.wrap_future`` takes futures of ``concurrent.futures`` only."""
    producer, client = producers(linger_ms=60_000)

    async def several() -> list[object]:
        waiting = [asyncio.ensure_future(awaited(producer.send(to0()))) for _ in range(3)]
        given_up = asyncio.ensure_future(awaited(producer.send(to0())))
        await asyncio.sleep(0)  # all of them wait now
        given_up.cancel()
        await asyncio.to_thread(producer.flush)
        client.answer = refuse(ErrorCode.INVALID_RECORD)
        failing = producer.send(to0())
        await asyncio.to_thread(producer.flush)
        done = await asyncio.gather(*waiting, given_up, awaited(failing), return_exceptions=True)
        return [one.offset if isinstance(one, RecordMetadata) else type(one) for one in done]

    async def awaited(future: RecordFuture) -> RecordMetadata:
        return await future

    assert asyncio.run(several()) == [0, 1, 2, CancelledError, InvalidRecordError]


def test_a_record_outlives_the_loop_that_waits_for_it(
    producers: Producers, caplog: pytest.LogCaptureFixture
):
    producer, _ = producers(linger_ms=60_000)
    future = producer.send(to0())

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await future

    asyncio.run(give_up())
    producer.flush()
    assert future.result(0).offset == 0
    assert not caplog.text


def test_the_future_of_a_done_callback_is_done(producers: Producers):
    """As in ``concurrent.futures``: its result there must not wait for the callback itself."""
    producer, client = producers(linger_ms=60_000)
    seen: list[object] = []

    def ask(future: RecordFuture) -> None:
        seen.append((future.done(), future.exception(AT_ONCE_S)))

    producer.send(to0()).add_done_callback(ask)
    producer.flush()
    client.answer = refuse(ErrorCode.INVALID_RECORD)
    failing = producer.send(to0())
    failing.add_done_callback(ask)
    producer.flush()
    assert seen == [(True, None), (True, failing.exception(0))]


@pytest.mark.parametrize("stop", [SystemExit, KeyboardInterrupt, GeneratorExit, CancelledError])
@pytest.mark.parametrize("done", [False, True])
def test_a_callback_can_not_end_the_network_thread(
    producers: Producers,
    caplog: pytest.LogCaptureFixture,
    stop: type[BaseException],
    done: bool,
):
    """sys.exit() in one: no record loses its outcome."""
    producer, client = producers(linger_ms=60_000)

    def leave(*_: object) -> None:
        raise stop

    future = producer.send(to0(), None if done else leave)
    if done:
        future.add_done_callback(leave)
    other = producer.send(ProducerRecord("test", b"v", partition=1))
    producer.flush()
    assert (future.result(0).offset, other.result(0).offset) == (0, 0)
    assert f"{stop.__name__} in leave" in caplog.text
    assert client.values(TP0) == [b"v"]


def test_flush_in_a_callback_is_refused(producers: Producers):
    producer, _ = producers()
    caught: list[BaseException] = []

    def flush(metadata: RecordMetadata, error: KafkaError | None) -> None:
        try:
            producer.flush()
        except IllegalStateError as refused:
            caught.append(refused)

    producer.send(to0(), flush).result(60)
    assert "inside a callback is not permitted" in str(caught[0])
    producer.flush()


def test_close_in_a_callback_drops_everything_with_a_warning(
    producers: Producers, caplog: pytest.LogCaptureFixture
):
    producer, client = producers(batch_size=200, max_in_flight_requests_per_connection=1)
    client.answer = hold
    first = producer.send(to0(b"x" * 200), lambda metadata, error: producer.close(5000))
    last = producer.send(to0(b"x" * 200))
    client.await_produced(1)
    client.release()
    assert first.result(60).offset == 0
    error = last.exception(10)
    assert "closed before" in str(error)
    producer._thread.join(60)
    assert not producer._thread.is_alive()
    assert "Overriding close timeout 5000 ms to 0 ms" in caplog.text


def test_a_callback_may_send(producers: Producers):
    producer, client = producers()
    again: list[RecordFuture] = []
    producer.send(to0(b"1"), lambda metadata, error: again.append(producer.send(to0(b"2"))))
    producer.flush()
    again[0].result(60)
    assert client.values(TP0) == [b"1", b"2"]
