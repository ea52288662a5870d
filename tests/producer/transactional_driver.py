"""A transactional producer without its facade: sender, accumulator and manager on real sockets.

Rows are values without keys; every call blocks, as KafkaProducer's do.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from spark_kafka_sink.base.clock import NEVER, SystemClock
from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from spark_kafka_sink.producer.lifecycle import start_thread
from spark_kafka_sink.producer.transaction.txn_requests import TransactionalResult
from spark_kafka_sink.producer.wiring import ProducerOptions, ProducerParts
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.records.encoded_slice import EncodedSlice, EncodedSlices
from spark_kafka_sink.records.varint import varint

TIMEOUT_MS = 60_000


def record(delta: int, value: bytes) -> bytes:
    """One v2 record without key and headers, at the batch's base timestamp."""
    body = b"\0\0" + varint(delta) + b"\x01" + varint(len(value)) + value + b"\0"
    return varint(len(body)) + body


class TransactionalDriver:
    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = 60_000,
        **options: object,
    ) -> None:
        given = {
            "bootstrap.servers": bootstrap,
            "client.id": transactional_id,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": str(transaction_timeout_ms),
        }
        given |= {name.replace("_", "."): str(value) for name, value in options.items()}
        parts = ProducerParts(
            ProducerOptions.of(given), None, SystemClock(), None, None, start_thread
        )
        self.parts = parts
        self.clock, self.metadata = parts.clock, parts.metadata
        self.accumulator, self.sender = parts.accumulator, parts.sender
        assert parts.transactional is not None
        self.manager = parts.transactional

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(forced=error_type is not None)

    def _await(self, result: TransactionalResult, timeout_ms: int = TIMEOUT_MS) -> None:
        result.await_(self.clock, self.clock.now_ms() + timeout_ms)

    def init(self) -> Self:
        self._await(self.manager.initialize_transactions())
        return self

    def begin(self) -> None:
        self.manager.begin_transaction()

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """One batch."""
        self.manager.ensure_in_transaction()
        self.metadata.await_topics([topic], self.clock.now_ms() + TIMEOUT_MS)
        data = b"".join(record(delta, value) for delta, value in enumerate(values))
        tp, now = TopicPartition(topic, partition), self.clock.wall_ms()
        piece = EncodedSlice(tp, memoryview(data), len(values), 0, 0, now, now, last=True)
        self.parts.pool.allocate(len(data) + 61, NEVER)
        assert (
            self.parts.filler.append(EncodedSlices.of([piece]), self.clock.now_ms()).refused == ()
        )
        self.manager.maybe_add_partition(tp)

    def flush(self) -> None:
        flush = self.accumulator.begin_flush()
        self.parts.wakeup()
        done = self.accumulator.await_flush_completion(flush, self.clock.now_ms() + TIMEOUT_MS)
        self.accumulator.end_flush(flush)
        assert done
        self.manager.maybe_fail_with_error()

    def commit(self) -> None:
        self._await(self.manager.begin_commit())

    def abort(self) -> None:
        self._await(self.manager.begin_abort())

    def prepare(self) -> PreparedTransaction:
        self.flush()
        return self.manager.prepare()

    def close(self, *, forced: bool = False) -> None:
        if forced:
            self.sender.force_close()
        else:
            self.sender.initiate_close()
        self.parts.thread.join(TIMEOUT_MS / 1000)
        assert not self.parts.thread.is_alive(), "the sender never ends"


def code_of(error: BaseException | None) -> ErrorCode | None:
    """The broker's code behind an error of a call."""
    while error is not None:
        code = getattr(error, "code", None)
        if isinstance(error, KafkaError) and isinstance(code, ErrorCode):
            return code
        error = error.__cause__
    return None
