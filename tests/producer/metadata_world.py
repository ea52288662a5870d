"""A Metadata on a test's clock, asked and answered by the test."""

from __future__ import annotations

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.protocol.cluster import (
    Cluster,
    Node,
    Nodes,
    PartitionInfo,
    PartitionInfos,
    TopicPartition,
)
from spark_kafka_sink.protocol.metadata import MetadataResponse, TopicMetadata
from tests.fakes.clock import FakeClock

NODES = (Node(1, "one", 9092), Node(2, "two", 9092))
TP = TopicPartition("t", 0)
MAX_AGE, MAX_IDLE, MAX_BLOCK, BACKOFF = 300_000, 60_000, 5_000, 100
ID1, ID2 = bytes(15) + b"\1", bytes(15) + b"\2"


def topic(
    name: str,
    leaders: tuple[int, ...] = (1,),
    epoch: int = 1,
    error: ErrorCode = ErrorCode.NONE,
    topic_id: bytes | None = ID1,
) -> TopicMetadata:
    partitions = PartitionInfos.of(
        name,
        (
            PartitionInfo(TopicPartition(name, i), leader, epoch, (1, 2))
            for i, leader in enumerate(() if error else leaders)
        ),
    )
    return TopicMetadata(error, name, topic_id, False, partitions)


def answer(*topics: TopicMetadata, nodes: tuple[Node, ...] = NODES) -> MetadataResponse:
    return MetadataResponse(Nodes.of(nodes), "cluster", 1, topics)


CONFIG = parse_producer_config(
    {
        "bootstrap.servers": "boot:9092,boot2:9093",
        "metadata.max.age.ms": str(MAX_AGE),
        "metadata.max.idle.ms": str(MAX_IDLE),
        "max.block.ms": str(MAX_BLOCK),
        "retry.backoff.ms": str(BACKOFF),
        "retry.backoff.max.ms": "1000",
    }
)
SEED = Cluster(
    "cluster",
    {n.id: n for n in NODES},
    {"t": PartitionInfos.of("t", [PartitionInfo(TP, 1, 5)])},
    {"t": ID1},
    1,
)


class MetadataWorld:
    def __init__(self, seed: Cluster | None = None, clock: FakeClock | None = None) -> None:
        self.clock = FakeClock() if clock is None else clock
        # 0.5 is the middle of the spread: backoff is exactly 100, 200, 400, ...
        self.metadata = Metadata(CONFIG, self.clock, seed, random=lambda: 0.5)

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    @property
    def due(self) -> int:
        return self.metadata.time_to_next_update(self.now)

    def ask(self) -> tuple[tuple[str, ...] | None, int]:
        assert self.due == 0
        request, token = self.metadata.new_request(self.now)
        return request.topics, token

    def update(self, *topics: TopicMetadata, nodes: tuple[Node, ...] = NODES) -> None:
        _, token = self.ask()
        self.metadata.update(token, answer(*topics, nodes=nodes), self.now)

    def refresh(self, *topics: TopicMetadata, nodes: tuple[Node, ...] = NODES) -> None:
        """All topics are asked for again, and answered."""
        self.metadata.request_update()
        self.update(*topics, nodes=nodes)
