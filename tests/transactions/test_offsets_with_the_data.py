"""A group's offsets are committed with the rows of a batch, or not at all: on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as TheirPartition

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import ApiError, CommitError
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import OffsetAndMetadata
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_state import Payload
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.offset_commits import GroupOffsets
from spark_kafka_sink.transactions.ownership import Owner
from spark_kafka_sink.transactions.results import Commit
from tests.real_kafka import RealKafka
from tests.transactions.open_transactions import open_transactions

pytestmark = pytest.mark.broker


class Sink:
    """One key of the log, and what is open under it."""

    def __init__(self, kafka: RealKafka) -> None:
        self.kafka = kafka
        self.topic = kafka.unique_topic("rows", 2)
        config = parse_producer_config({"bootstrap.servers": kafka.bootstrap})
        self.client = TransactionClient(config)
        self.driver = ExactlyOnceDriver(config, "__kprod_commits")
        self.key = f"o{uuid.uuid4().hex[:8]}"
        self.group = f"g-{self.key}"

    def owner(self) -> Owner:
        state = self.driver.plan(self.key)
        return Owner(self.key, "run", "query", state.generation)

    def batch(self, number: int, offset: int, *, rows: int = 1, topic: str = "") -> Batch:
        ids = [f"{self.key}~run~g2.w{number}~{k}" for k in range(rows)]
        prepared = open_transactions(self.client, ids, TopicPartition(self.topic, 0))
        given = {TopicPartition(topic or self.topic, 1): OffsetAndMetadata(offset)}
        offsets = GroupOffsets(self.group, given)
        return Batch(number, tuple(prepared), Payload(rows, rows), offsets=offsets)

    def committed(self) -> int:
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": self.group})
        (found,) = consumer.committed([TheirPartition(self.topic, 1)], 20)
        consumer.close()
        return int(found.offset)

    def open_ids(self) -> int:
        deadline = self.client.clock.now_ms() + 20_000
        return len(self.client.open_transactions(self.key, deadline).transactions)


@pytest.fixture
def sink(kafka: RealKafka) -> Iterator[Sink]:
    found = Sink(kafka)
    yield found
    found.client.close()
    found.driver.close()


def test_offsets_are_committed_with_each_batch_even_an_empty_one(sink: Sink) -> None:
    owner = sink.owner()
    assert sink.driver.commit(owner, sink.batch(0, 7)) is Commit.COMMITTED
    assert sink.committed() == 7
    owner = sink.owner()
    assert sink.driver.commit(owner, sink.batch(1, 9, rows=0)) is Commit.COMMITTED
    assert sink.committed() == 9
    assert sink.driver.commit(owner, sink.batch(1, 9, rows=0)) is Commit.ALREADY_DONE
    assert sink.open_ids() == 0


def test_offsets_of_an_undecided_batch_are_not_committed(sink: Sink) -> None:
    owner = sink.owner()
    assert sink.driver.commit(owner, sink.batch(0, 7)) is Commit.COMMITTED
    gone = sink.batch(1, 8)
    deadline = sink.client.clock.now_ms() + 20_000
    sink.client.end(gone.transactions, committed=False, deadline_ms=deadline)
    owner = sink.owner()
    with pytest.raises(CommitError, match="can't be committed"):
        sink.driver.commit(owner, gone)
    sink.driver.abort(owner, 1, gone.transactions, tasks_may_run=False)
    assert sink.committed() == 7
    assert sink.open_ids() == 0


def test_offsets_of_a_missing_topic_fail_the_batch(sink: Sink) -> None:
    owner = sink.owner()
    batch = sink.batch(0, 7, topic=f"missing-{uuid.uuid4().hex}")
    with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        sink.driver.commit(owner, batch)
    sink.driver.abort(owner, 0, batch.transactions, tasks_may_run=False)
    assert sink.open_ids() == 0
