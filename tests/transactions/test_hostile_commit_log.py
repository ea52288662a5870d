"""A commit log in which others write, too: what that costs is bounded."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from spark_kafka_sink.admin.call import Call, Leader
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import KafkaTimeoutError
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.produce import PartitionProduceData, ProduceRequest
from spark_kafka_sink.records import log_records
from spark_kafka_sink.records.compression import Codec, CompressionType
from spark_kafka_sink.records.varint import varint
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_log.log_parts import PIECE_BYTES
from spark_kafka_sink.transactions.commit_log.log_reader import KeyFilter, LogReader, LogSnapshot
from spark_kafka_sink.transactions.commit_state import CommitState
from tests.real_kafka import RealKafka, consume_topic
from tests.records.log_bytes import raw_batch
from tests.simulation.scene import Scene
from tests.simulation.spark_world import LOG_TOPIC
from tests.waiting import PATIENCE

KEY = "orders"
TP = TopicPartition(LOG_TOPIC, 0)


def states(scene: Scene, count: int) -> None:
    """What another query writes, whose key contains ours."""
    session = CommitLog(scene.client(), LOG_TOPIC).open(f"{KEY}2", scene.soon())
    for number in range(count):
        session.write(CommitState(1, "run", "query", number), scene.soon())


@dataclass(frozen=True, slots=True)
class SlowFilter(KeyFilter):
    """Each comparison takes 700 ms of the simulated clock, as a batch of many records may."""

    work: Callable[[], None] = lambda: None

    def takes(self, record_key: bytes) -> bool:
        self.work()
        return super(SlowFilter, self).takes(record_key)


def test_a_log_is_read_until_the_deadline_however_long_it_is(scene: Scene) -> None:
    """One Fetch returns all of it, so the clock is looked at between its batches."""
    states(scene, 20)
    slow = SlowFilter(KEY.encode(), work=lambda: scene.scheduler.sleep(700))
    reader = LogReader(scene.client(), "READ")
    start = scene.scheduler.now
    with pytest.raises(KafkaTimeoutError, match=r"of its \d+ offsets, \d+ were read"):
        reader.read_keys(TP, slow, LogSnapshot(), scene.soon(5_000))
    assert 5_000 <= scene.scheduler.now - start < 6_000
    whole = reader.read_keys(TP, slow, LogSnapshot(), scene.soon(60_000))
    assert whole.records == {}


def test_what_we_write_is_far_below_what_is_read_of_a_batch(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state of seven parts, and the tombstones of six: also with an eighth of the limits."""
    monkeypatch.setattr(log_records, "MOST_WALKED", log_records.MOST_WALKED // 8)
    monkeypatch.setattr(log_records, "MOST_RECORDS", log_records.MOST_RECORDS // 8)
    long = CommitState(1, "run", "q", 0, superseded=tuple(f"{i:0200}" for i in range(18_000)))
    assert len(long.encode()) > 6 * PIECE_BYTES
    session = CommitLog(scene.client(), LOG_TOPIC).open(KEY, scene.soon())
    for state in (long, CommitState(1, "run", "query", 7), long):
        session.write(state, scene.soon())
        assert CommitLog(scene.client(), LOG_TOPIC).read(KEY, scene.soon()).state == state


def test_a_batch_of_the_shortest_tombstones_is_read() -> None:
    """The end of a block of very many writes: batches are cut by the bytes of their keys."""
    parts = itertools.count()
    size, count = 0, 0
    while size <= PIECE_BYTES:
        size, count = size + len(b"x#w%d" % next(parts)), count + 1
    assert count < log_records.MOST_RECORDS


# --- on a real broker -----------------------------------------------------------------------------


def hostile(key: bytes) -> bytes:
    """0.9 MB that hold a million records of another key, and mention ``key``; no transaction."""
    count, content = 1_000_000, bytearray()
    for i in range(count):
        value = b"" if i else key
        body = b"\0\0" + varint(i) + varint(1) + b"x" + varint(len(value)) + value + b"\0"
        content += varint(len(body)) + body
    packed = Codec(CompressionType.ZSTD, 9).compress([content])
    assert 800_000 < len(packed) < 1_000_000
    return raw_batch(CompressionType.ZSTD, packed, count, transactional=False)


def produce(kafka: RealKafka, tp: TopicPartition, data: bytes) -> None:
    config = parse_producer_config({"bootstrap.servers": kafka.bootstrap})
    request = ProduceRequest(-1, 30_000, (PartitionProduceData(tp, [data], len(data)),), None)
    with TransactionClient(config) as client:
        call = Call(request, Leader(tp), "it", lambda response: response.partitions[0].error)
        client.loop.send_and_receive(call, client.deadline())


@pytest.mark.long
def test_hostile_batches_cost_an_exactly_once_write_little(
    spark: SparkSession, kafka: RealKafka, record_property: Callable[[str, object], None]
) -> None:
    """Five of them cost 22 s and more at every start, with max.block.ms=10000."""
    log = kafka.unique_topic("commits", 1, {"cleanup.policy": "compact"})
    topic = kafka.unique_topic()
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
        "commitLogTopic": log,
        "transactionalIdPrefix": topic,
        "txnAppId": "app",
    }
    rows = spark.createDataFrame([("a",), ("b",)], "value string").coalesce(1)

    def write(version: int) -> float:
        start = time.monotonic()
        given = rows.write.format("kprod").options(**options, txnVersion=version)
        given.mode("append").save()
        return time.monotonic() - start

    before = [write(version) for version in range(1, 5)]
    (key,) = set(consume_topic(kafka.bootstrap, log, isolation="read_committed").keys)
    assert key is not None
    poison = hostile(key)
    for _ in range(5):
        produce(kafka, TopicPartition(log, 0), poison)
    after = [write(version) for version in range(5, 8)]
    record_property("s before", before)
    record_property("s after", after)
    assert min(after) - min(before) < 1.5 * PATIENCE
