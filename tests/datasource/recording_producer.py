"""A producer that keeps what it is given: the KafkaProducer of the tests without a broker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from spark_kafka_sink.producer.metrics.produce_report import (
    NodeReport,
    ProduceReport,
    ProducerProgress,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.records.record_columns import ChunkSize, RecordColumns


class RecordingProducer:
    """Acknowledges every row, unless asked to fail at the nth send or to lose rows at the end."""

    def __init__(
        self,
        *,
        fail_at_send: int | None = None,
        lose_rows: int = 0,
        reusable: bool = True,
        error: BaseException | None = None,
        park_fails: bool = False,
        wanted_rows: int = 1,
    ) -> None:
        self.events: list[str] = []
        self.sent: list[RecordColumns] = []
        self.waiting = False
        self.waits_for_memory = False
        self.closed_with: int | None = None
        self._fail_at_send = fail_at_send
        self._lose_rows = lose_rows
        self._reusable = reusable
        self._error = error or RuntimeError("the stand-in was told to fail")
        self._park_fails = park_fails
        self._wanted_rows = wanted_rows

    @property
    def reusable(self) -> bool:
        return self._reusable and self.closed_with is None

    @reusable.setter
    def reusable(self, value: bool) -> None:
        self._reusable = value

    @property
    def chunk_size(self) -> ChunkSize:
        return ChunkSize(wanted_rows=self._wanted_rows)

    def start_attempt(self, task: int = 0) -> None:
        self.events.append("start")
        self.sent = []

    @contextlib.contextmanager
    def waiting_for_input(self, delay_ms: int = 0) -> Iterator[None]:
        self.waiting = True
        try:
            yield
        finally:
            self.waiting = False

    def send_columns(self, columns: RecordColumns) -> None:
        assert not self.waiting, "sent while the producer believes that its writer waits"
        if self._fail_at_send is not None and len(self.sent) + 1 >= self._fail_at_send:
            raise self._error
        self.sent.append(columns)
        self.events.append(f"send {columns.rows}")

    def finish_attempt(self) -> ProduceReport:
        self.events.append("finish")
        rows = sum(columns.rows for columns in self.sent) - self._lose_rows
        return ProduceReport(
            rows=rows,
            bytes=rows * 50,
            batches=2,
            batch_bytes=rows * 100,
            requests=2,
            nodes={1: NodeReport(2, 9, 6)},
            offsets={TopicPartition("t", 0): (10, 10 + rows - 1), TopicPartition("t", 1): (-1, -1)},
        )

    def progress(self) -> ProducerProgress:
        rows = sum(columns.rows for columns in self.sent)
        nodes = {1: NodeReport(2, 9, 6), 2: NodeReport(1, 50, 50, "t-0: no leader")}
        report = ProduceReport(rows=rows, bytes=rows * 500_000, retries=1, nodes=nodes)
        return ProducerProgress(report, {2: (3, 700)}, waits_for_memory=self.waits_for_memory)

    def park(self) -> None:
        self.events.append("park")
        if self._park_fails:
            raise RuntimeError("the stand-in was told to fail")

    def close(self, timeout_ms: int) -> None:
        self.events.append(f"close {timeout_ms}")
        self.closed_with = timeout_ms


class OneProducer:
    """The ProducerSource of a test: one producer, and what became of it."""

    def __init__(
        self, producer: RecordingProducer, prepared: PreparedTransaction | None = None
    ) -> None:
        self.producer = producer
        self.prepared = prepared
        self.acquired = 0
        self.released = 0
        self.discarded = 0

    def begin(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def acquire(self) -> RecordingProducer:
        self.acquired += 1
        return self.producer

    def prepare(self, producer: RecordingProducer) -> PreparedTransaction | None:
        assert producer is self.producer
        assert producer.events[-1] == "finish", "prepared before everything is acknowledged"
        return self.prepared

    def release(self, producer: RecordingProducer) -> None:
        assert producer is self.producer
        self.released += 1

    def discard(self, producer: RecordingProducer) -> None:
        assert producer is self.producer
        self.discarded += 1
