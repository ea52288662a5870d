"""A sender with all other parts of a real producer, and no network: ``ProducerParts`` builds them,
as for a ``KafkaProducer``.

Batches are made of real records (``v0``, ``v1``, ...), so that they can be split and read.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

from spark_kafka_sink.base.clock import NEVER, Clock
from spark_kafka_sink.base.errors import ApiError, ErrorCode
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.wiring import ProducerOptions, ProducerParts
from spark_kafka_sink.protocol.cluster import (
    Cluster,
    Node,
    Nodes,
    PartitionInfo,
    PartitionInfos,
    TopicPartition,
)
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
)
from spark_kafka_sink.protocol.metadata import MetadataResponse, TopicMetadata
from spark_kafka_sink.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from spark_kafka_sink.records.encoded_slice import EncodedSlice, EncodedSlices
from tests.fakes.clock import FakeClock
from tests.fakes.kafka_messages import init_response
from tests.fakes.mock_client import MockClient
from tests.fakes.no_thread import NoThread

NODE1, NODE2 = Node(1, "one", 9092), Node(2, "two", 9092)
TP0, TP1, TP2 = (TopicPartition("t", p) for p in range(3))
PRODUCER_ID = 4711
BACKOFF = 100  # retry.backoff.ms of a world, without growth
_HEADER = struct.Struct(">qhi")  # producer id, epoch, base sequence
_HEADER_AT = 43


def cluster_of(leaders: list[int], epoch: int = 1, topic: str = "t") -> Cluster:
    partitions = PartitionInfos.of(
        topic,
        [PartitionInfo(TopicPartition(topic, p), node, epoch) for p, node in enumerate(leaders)],
    )
    return Cluster(nodes={1: NODE1, 2: NODE2}, topics={topic: partitions})


def metadata_answer(
    leaders: list[int], epoch: int = 1, topic: str = "t", error: ErrorCode = ErrorCode.NONE
) -> MetadataResponse:
    """What a broker answers: the leader of each partition of one topic, or the topic's error."""
    partitions = PartitionInfos.of(
        topic,
        (
            PartitionInfo(TopicPartition(topic, p), leader, epoch, (1, 2))
            for p, leader in enumerate(leaders)
        ),
        {p: ErrorCode.LEADER_NOT_AVAILABLE for p, leader in enumerate(leaders) if leader < 0},
    )
    nodes = Nodes.of((NODE1, NODE2))
    return MetadataResponse(nodes, "c", 1, (TopicMetadata(error, topic, None, False, partitions),))


class Sent(NamedTuple):
    """One batch of a request: who sent it, and its bytes."""

    tp: TopicPartition
    producer_id: int
    epoch: int
    sequence: int
    data: bytes


def batches_of(request: ProduceRequest) -> list[Sent]:
    found = []
    for piece in request.data:
        data = b"".join(piece.buffers)
        producer_id, epoch, sequence = _HEADER.unpack_from(data, _HEADER_AT)
        found.append(Sent(piece.tp, producer_id, epoch, sequence, data))
    return found


def records_of(count: int, first_delta: int = 0) -> bytes:
    """Small records without keys: offset deltas from ``first_delta``, values ``v<delta>``."""
    out = bytearray()
    for delta in range(first_delta, first_delta + count):
        value = b"v%d" % delta
        body = bytes([0, 0, delta << 1, 1, len(value) << 1]) + value + b"\0"
        out += bytes([len(body) << 1]) + body
    return bytes(out)


def error_of(batch: ProducerBatch) -> ApiError:
    assert batch.is_done
    assert isinstance(batch.error, ApiError)
    return batch.error


def acknowledged(batch: ProducerBatch) -> bool:
    return batch.is_done and batch.error is None


class SenderWorld:
    """As a context manager it checks at its end that the client's answers were all used."""

    def __init__(
        self,
        *,
        idempotent: bool = True,
        with_id: bool = True,
        cluster: Cluster | None = None,
        seeded: bool = True,
        established: bool = False,
        transactional_id: str | None = None,
        **options: object,
    ) -> None:
        given = {
            "bootstrap.servers": "one:9092,two:9092",
            "retry.backoff.ms": "100",
            "retry.backoff.max.ms": "100",
            "enable.idempotence": str(idempotent).lower(),
        }
        if transactional_id is not None:
            given["transactional.id"] = transactional_id
        given |= {name.replace("_", "."): str(value) for name, value in options.items()}
        self.config = parse_producer_config(given)
        self.clock = FakeClock()
        seed = (cluster or cluster_of([1, 1, 2])) if seeded else None
        parts = ProducerParts(
            ProducerOptions.of(self.config),
            seed,
            self.clock,
            client=None,
            new_client=self._new_client,
            start_thread=lambda run, name: NoThread(),  # the test calls the sender's rounds
            random=lambda: 0.5,  # the middle of the spread: the backoff is exactly 100 ms
        )
        self.lifecycle, self.link, self.pool = parts.lifecycle, parts.link, parts.pool
        self.metadata, self.manager = parts.metadata, parts.transaction_manager
        self.accumulator, self.filler = parts.accumulator, parts.filler
        self.recorder, self.returns, self.sender = parts.recorder, parts.returns, parts.sender
        if idempotent and with_id:
            self.prepare_id()
            self.round()
        if established:
            self.establish()

    def _new_client(self, config: ProducerConfig, metadata: Metadata, clock: Clock) -> MockClient:
        self.client = MockClient(
            self.clock, metadata, max_in_flight=config.max_in_flight_requests_per_connection
        )
        return self.client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        if error_type is None:
            self.client.check()

    # -- what the test does --

    def prepare_id(self, error: ErrorCode = ErrorCode.NONE) -> None:
        ok = error is ErrorCode.NONE
        body = init_response(error, PRODUCER_ID if ok else -1, 0 if ok else -1)
        self.client.prepare(InitProducerIdRequest, body)

    def append(
        self, tp: TopicPartition = TP0, records: int = 1, *, full: bool = True
    ) -> ProducerBatch:
        """One batch. A full one may go at once, an open one lingers."""
        data = records_of(records)
        piece = EncodedSlice(tp, memoryview(data), records, 0, 0, 1000, 1000, last=full)
        before = {batch.generation for batch in self.accumulator.incomplete.all()}
        self.pool.allocate(len(data) + 61, NEVER)
        result = self.filler.append(EncodedSlices.of([piece]), self.clock.now_ms())
        assert result.refused == ()
        after = self.accumulator.incomplete.all()
        (batch,) = [batch for batch in after if batch.generation not in before]
        return batch

    def prepare(self, *answers: PartitionProduceResponse, **more: object) -> None:
        """The answer to the next Produce request."""
        throttle = more.pop("throttle_time_ms", 0)
        nodes = more.pop("nodes", ())
        body = ProduceResponse(tuple(answers), throttle, nodes)  # type: ignore[arg-type]
        self.client.prepare(ProduceRequest, body, **more)  # type: ignore[arg-type]

    def acknowledge(self, tp: TopicPartition = TP0, offset: int = 0, **more: object) -> None:
        self.prepare(PartitionProduceResponse(tp, ErrorCode.NONE, offset), **more)

    def refuse(self, error: ErrorCode, tp: TopicPartition = TP0, **more: object) -> None:
        fields = {k: more.pop(k) for k in ("leader", "record_errors", "error_message") if k in more}
        answer = PartitionProduceResponse(tp, error, -1, **fields)  # type: ignore[arg-type]
        self.prepare(answer, **more)

    def lose(self, **more: object) -> None:
        """The next Produce request ends in a disconnect."""
        self.client.prepare(ProduceRequest, disconnected=True, **more)  # type: ignore[arg-type]

    def round(self, times: int = 1, ms: int = 0) -> None:
        for _ in range(times):
            self.clock.advance(ms)
            self.sender.run_once()

    def establish(self, tp: TopicPartition = TP0, offset: int = 0) -> None:
        """The producer's first batch on ``tp`` is acknowledged."""
        batch = self.append(tp)
        self.acknowledge(tp, offset)
        self.round(2)
        assert batch.is_done
        assert batch.error is None
        self.client.requests.clear()

    # -- what it looks at --

    @property
    def produced(self) -> list[Sent]:
        """Every batch that was sent, in order."""
        return [batch for request in self.client.produced for batch in batches_of(request)]

    @property
    def sequences(self) -> list[int]:
        return [batch.sequence for batch in self.produced]

    @property
    def memory_in_use(self) -> int:
        return self.config.buffer_memory - self.pool.available
