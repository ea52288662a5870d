"""Producers with their real network thread, over a client that answers at once.

``producers(linger_ms=5)``, the fixture of conftest.py, gives a KafkaProducer and its
AnsweringClient; what a test leaves open is closed behind it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord, RecordMetadata
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition
from spark_kafka_sink.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    RecordError,
)
from spark_kafka_sink.records.record_columns import RecordColumns
from tests.fakes.accumulator_world import cluster_of
from tests.fakes.answering_client import HOLD, AnsweringClient
from tests.fakes.clock import FakeClock
from tests.fakes.no_thread import NoThread
from tests.waiting import wait_for

PARTITIONS = 4
CLUSTER = cluster_of([1, 2, 1, 2])
TP0 = TopicPartition("test", 0)


class Producers:
    """Makes them with Java's options, ``_`` for ``.``; ``defaults`` are a file's own."""

    def __init__(self) -> None:
        self.made: list[KafkaProducer] = []
        self.defaults: dict[str, object] = {"linger_ms": 0}

    def __call__(
        self,
        cluster: Cluster = CLUSTER,
        answer: Callable[[object], object] | None = None,
        **options: object,
    ) -> tuple[KafkaProducer, AnsweringClient]:
        given: dict[str, object] = {"bootstrap.servers": "127.0.0.1:9092"}
        for name, value in (self.defaults | options).items():
            given[name.replace("_", ".")] = value
        client = AnsweringClient(cluster)
        if answer is not None:
            client.answer = answer
        producer = KafkaProducer(given, cluster=cluster, client=client)
        self.made.append(producer)
        return producer, client


def without_thread(cluster: Cluster = CLUSTER, **options: object) -> KafkaProducer:
    """A producer whose network thread never runs, on a clock that jumps."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    return KafkaProducer(
        {"bootstrap.servers": "127.0.0.1:9092"} | given,
        cluster=cluster,
        client=AnsweringClient(cluster),
        clock=FakeClock(),
        start_thread=lambda run, name: NoThread(),
    )


def refuse(code: ErrorCode, *record_errors: RecordError) -> Callable[[object], object]:
    """Every Produce request is answered with ``code`` for each of its partitions."""

    def answer(request: object) -> object:
        if not isinstance(request, ProduceRequest):
            return None
        return ProduceResponse(
            tuple(
                PartitionProduceResponse(piece.tp, code, -1, record_errors=record_errors)
                for piece in request.data
            )
        )

    return answer


def hold(request: object) -> object:
    return HOLD if isinstance(request, ProduceRequest) else None


def await_memory(producer: KafkaProducer) -> None:
    """All of buffer.memory is free. The network thread frees a batch's memory after it has given
    the batch its outcome, so a caller that waits for the outcome may be earlier.
    """
    pool, total = producer._accumulator.pool, producer._config.buffer_memory
    wait_for(lambda: pool.available == total, what="the memory of all batches")


# ---- records -------------------------------------------------------------------------------------


def to0(value: object = b"v", **fields: object) -> ProducerRecord:
    return ProducerRecord("test", value, partition=0, **fields)  # type: ignore[arg-type]


class Heard:
    """A callback that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[RecordMetadata, KafkaError | None]] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        self.calls.append((metadata, error))
        self.threads.add(threading.current_thread())


# ---- columns -------------------------------------------------------------------------------------


def rows_of(
    values: list[bytes] | pa.Array,
    partition: int | list[int] | None = None,
    topic: str = "test",
    keys: list[bytes | None] | None = None,
) -> RecordColumns:
    count = len(values)
    partitions = None if partition is None else np.full(count, partition, np.int32)
    return RecordColumns(
        rows=count,
        topic=topic,
        partition=partitions,
        key=None if keys is None else pa.array(keys, pa.binary()),
        value=values if isinstance(values, pa.Array) else pa.array(values, pa.binary()),
    )


def numbered(first: int, count: int, size: int = 20) -> list[bytes]:
    return [b"%0*d" % (size, n) for n in range(first, first + count)]
