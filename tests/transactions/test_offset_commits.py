"""A consumer group's offsets in a transaction: real brokers of both transaction versions, and one
with ACLs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest
from kafka import KafkaAdminClient

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.errors import AuthorizationError, ErrorCode
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import OffsetAndMetadata
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.driver_transactions import prepare
from spark_kafka_sink.transactions.offset_commits import GroupOffsets
from tests.real_kafka import RealKafka
from tests.secure_kafka import SecureKafka, acl
from tests.transactions.open_transactions import fence
from tests.waiting import PATIENCE

# The first run on a machine fetches Kafka 3.9.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

TIMEOUT_MS = int(30_000 * PATIENCE)
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True)
class Group:
    """A group of its own, a topic, and the driver's client."""

    kafka: RealKafka
    client: TransactionClient
    version: int
    topic: str
    name: str

    def id(self) -> str:
        return f"{self.name}~run~g2.offsets~0"

    def prepare(self, offsets: Offsets, transactional_id: str = "") -> PreparedTransaction:
        self.client._version = self.version  # as of a cluster of it
        return prepare(
            self.client,
            transactional_id or self.id(),
            GroupOffsets(self.name, offsets),
            self.client.clock.now_ms() + TIMEOUT_MS,
        )

    def end(self, *prepared: PreparedTransaction, committed: bool) -> list[ErrorCode | None]:
        """Until the markers are written, too: offsets count from then on."""
        deadline = self.client.clock.now_ms() + TIMEOUT_MS
        ids = [t.transactional_id for t in prepared]
        answers = list(
            self.client.end(prepared, committed=committed, deadline_ms=deadline).values()
        )
        while any(
            d.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
            for d in self.client.describe(ids, deadline).values()
        ):
            self.client.loop.pause(1, deadline)
        return answers

    def at(self, *offsets: int) -> Offsets:
        return {
            TopicPartition(self.topic, p): OffsetAndMetadata(offset)
            for p, offset in enumerate(offsets)
        }

    def stored(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a consumer of the group would begin with. (confluent-kafka reads beyond the end of
        long metadata.)
        """
        admin = KafkaAdminClient(bootstrap_servers=self.kafka.bootstrap)
        try:
            found = admin.list_group_offsets(self.name)[self.name]
        finally:
            admin.close()
        return {
            TopicPartition(tp.topic, tp.partition): OffsetAndMetadata(
                at.offset, -1 if at.leader_epoch is None else at.leader_epoch, at.metadata or ""
            )
            for tp, at in found.items()
        }


@pytest.fixture(params=["transactions of version 2", "Kafka 3.9"])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    newer = request.param != "Kafka 3.9"
    kafka: RealKafka = request.getfixturevalue("kafka" if newer else "kafka_3_9")
    config = parse_producer_config({"bootstrap.servers": kafka.bootstrap})
    with TransactionClient(config) as client:
        version = client.transaction_version(client.clock.now_ms() + TIMEOUT_MS)
        assert version == (2 if newer else 1)
        name = f"group-{uuid.uuid4().hex[:8]}"
        found = Group(kafka, client, version, kafka.unique_topic("source", 3), name)
        yield found
        fence(client, [found.id()])


def test_offsets_are_visible_only_when_their_transaction_commits(group: Group) -> None:
    first = group.at(7, 0, 2**62)
    prepared = group.prepare(first)
    assert group.stored() == {}, "it is open"
    assert group.end(prepared, committed=True) == [ErrorCode.NONE]
    assert group.stored() == first

    prepared = group.prepare(group.at(8, 1))
    assert group.stored() == first, "it is open"
    assert group.end(prepared, committed=False) == [ErrorCode.NONE]
    assert group.stored() == first, "it was aborted"

    prepared = group.prepare(group.at(9, 1))
    assert group.end(prepared, committed=True) == [ErrorCode.NONE]
    assert group.stored() == {**first, **group.at(9, 1)}, "what is not named stays"


def test_leader_epoch_and_metadata_are_kept(group: Group) -> None:
    tp = TopicPartition(group.topic, 1)
    offsets = {tp: OffsetAndMetadata(5, 3, "batch 17 of the query")}
    group.end(group.prepare(offsets), committed=True)
    assert group.stored() == offsets


def test_the_consumers_of_a_group_do_not_stop_its_offsets(group: Group) -> None:
    """A group that is read with, by consumers of each protocol, takes offsets without a member."""
    from confluent_kafka import Consumer

    protocols = ["classic", "consumer"] if group.version == 2 else ["classic"]
    for offset, protocol in enumerate(protocols, 1):
        consumer = Consumer(
            {
                "bootstrap.servers": group.kafka.bootstrap,
                "group.id": group.name,
                "group.protocol": protocol,
                "enable.auto.commit": False,
            }
        )
        try:
            consumer.subscribe([group.topic])
            for _ in range(300):
                consumer.poll(0.1)
                if consumer.assignment():
                    break
            assert consumer.assignment(), "the consumer is no member of the group"
            assert group.end(group.prepare(group.at(offset)), committed=True) == [ErrorCode.NONE]
            assert group.stored() == group.at(offset)
        finally:
            consumer.close()


def test_more_offsets_than_one_request_may_bring(group: Group) -> None:
    """1.2 MB, where __consumer_offsets takes 1 MiB at once: all of them or none."""
    topic = group.kafka.unique_topic("wide", 300)
    offsets = {
        TopicPartition(topic, p): OffsetAndMetadata(p, metadata="x" * 4096) for p in range(300)
    }
    prepared = group.prepare(offsets)
    assert group.stored() == {}
    group.end(prepared, committed=True)
    assert group.stored() == offsets


def test_each_missing_right_is_named(secure_kafka: SecureKafka) -> None:
    name = f"group-{uuid.uuid4().hex[:8]}"
    topic = secure_kafka.kafka.unique_topic("source", 1)
    bob = parse_producer_config(secure_kafka.cluster.client_options("SSL", user="bob"))
    transactional_id = f"{name}~run~g2.offsets~0"
    on_id = ("TRANSACTIONAL_ID", transactional_id, "WRITE")
    describe, read = ("GROUP", name, "DESCRIBE"), ("GROUP", name, "READ")
    on_topic = ("TOPIC", topic, "READ")

    def prepare_as_bob(version: int) -> PreparedTransaction:
        with TransactionClient(bob) as client:
            client._version = version
            return prepare(
                client,
                transactional_id,
                GroupOffsets(name, {TopicPartition(topic, 0): OffsetAndMetadata(1)}),
                client.clock.now_ms() + TIMEOUT_MS,
            )

    cases = (
        (2, (), "DESCRIBE on the transactional id"),
        (2, (on_id,), "DESCRIBE on the group"),
        (2, (on_id, describe, on_topic), "READ on the group"),
        (1, (on_id, describe, on_topic), "READ on the group"),
        (2, (on_id, read), "READ on the topic"),
    )
    for version, rights, needed in cases:
        with acl(secure_kafka, "bob", *rights), pytest.raises(AuthorizationError) as refused:
            prepare_as_bob(version)
        assert needed in str(refused.value), rights
        told = str(refused.value)
        assert name in told or transactional_id in told or topic in told
    with acl(secure_kafka, "bob", on_id, read, on_topic):
        prepared = prepare_as_bob(2)
        with TransactionClient(bob) as client:
            deadline = client.clock.now_ms() + TIMEOUT_MS
            described = client.describe([transactional_id], deadline)[transactional_id]
            # Who may not see the topic __consumer_offsets is not told that it is in there.
            assert described.state is TransactionState.ONGOING
            assert list(described.partitions) == []
            ended = client.end([prepared], committed=False, deadline_ms=deadline)
            assert ended == {transactional_id: ErrorCode.NONE}
