"""What a real broker says of transactions, of a log with all kinds of them, and of settings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from blocking_connection import BlockingConnection

from spark_kafka_sink.admin.call import AnyBroker, Call
from spark_kafka_sink.admin.transaction_client import listed as transactions_listed
from spark_kafka_sink.admin.transaction_description import TransactionDescription, TransactionState
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import (
    FetchedPartition,
    OffsetSpec,
    describe_producers,
    described,
    fetch,
    list_offsets,
    listed_offset,
)
from spark_kafka_sink.protocol.messages.describe_transactions import DescribeTransactionsRequest
from spark_kafka_sink.protocol.topic_requests import ConfigResourceType, config_values
from spark_kafka_sink.protocol.transaction_requests import list_transactions
from tests.fakes.kafka_messages import configs_request
from tests.real_kafka import RealKafka

LATEST, EARLIEST = OffsetSpec.LATEST, OffsetSpec.EARLIEST
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def connection(kafka: RealKafka) -> Iterator[BlockingConnection]:
    with BlockingConnection(kafka.bootstrap) as opened:
        yield opened


@dataclass
class PreparedBroker:
    """Two partitions, and transactions by "{prefix}committed", "{prefix}aborted", "{prefix}open".

    Partition 0 of the topic has ended transactions only, partition 1 an open one and behind it a
    committed one of another client.
    """

    topic: str
    prefix: str
    open: KafkaProducer

    @property
    def partitions(self) -> tuple[TopicPartition, TopicPartition]:
        return TopicPartition(self.topic, 0), TopicPartition(self.topic, 1)


def producer(kafka: RealKafka, name: str, codec: str = "none") -> KafkaProducer:
    made = KafkaProducer(
        ProducerConfig.parse(
            {
                "bootstrap.servers": kafka.bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": "120000",
                "compression.type": codec,
            }
        )
    )
    made.init_transactions()
    return made


def send(to: KafkaProducer, topic: str, partition: int, *values: str) -> None:
    for value in values:
        to.send(ProducerRecord(topic, value.encode(), b"key", partition))
    to.flush()


@pytest.fixture(scope="module")
def world(kafka: RealKafka, connection: BlockingConnection) -> Iterator[PreparedBroker]:
    topic = kafka.unique_topic("transactions", 2)
    prefix = f"{topic}~x."
    with (
        producer(kafka, f"{prefix}open") as left_open,
        producer(kafka, f"{prefix}aborted") as aborted,
        # A name that the prefix would match if its dot were any character.
        producer(kafka, f"{topic}~xyz") as stranger,
    ):
        for codec in CODECS:
            with producer(kafka, f"{prefix}committed", codec) as committed:
                for turn in range(2):
                    committed.begin_transaction()
                    send(committed, topic, 0, *(f"yes {codec} {turn} {i}" * 9 for i in range(20)))
                    aborted.begin_transaction()
                    send(aborted, topic, 0, "no", "no")
                    send(committed, topic, 0, f"yes {codec} {turn} last")
                    aborted.abort_transaction()
                    committed.commit_transaction()
        left_open.begin_transaction()
        send(left_open, topic, 1, "maybe")
        stranger.begin_transaction()
        send(stranger, topic, 1, "behind")
        stranger.commit_transaction()
        wait_for_markers(connection, [f"{prefix}aborted", f"{prefix}committed", f"{topic}~xyz"])
        yield PreparedBroker(topic, prefix, left_open)
        left_open.abort_transaction()


def wait_for_markers(connection: BlockingConnection, ids: Sequence[str]) -> None:
    """EndTxn is answered when the end is decided; markers follow."""
    complete = {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
    deadline = time.monotonic() + 60
    while {t.state for t in describe(connection, ids)} - complete:
        assert time.monotonic() < deadline


def describe(connection: BlockingConnection, ids: Sequence[str]) -> list[TransactionDescription]:
    """In the order of ``ids``."""
    response = connection.call(DescribeTransactionsRequest(transactional_ids=ids), 0)
    found = {one.transactional_id: one for one in response.transaction_states}
    return [TransactionDescription.of(found[i]) for i in ids]


def fetched(
    connection: BlockingConnection, tp: TopicPartition, offset: int = 0, *, version: int = 12
) -> FetchedPartition:
    request = fetch(tp, offset)
    return FetchedPartition.of(request, connection.call(request, version))


def test_transactions_are_described_in_their_states(
    connection: BlockingConnection, world: PreparedBroker
) -> None:
    ids = tuple(f"{world.prefix}{name}" for name in ("committed", "aborted", "open", "never"))
    committed, aborted, open_, never = describe(connection, ids)
    assert committed.state is TransactionState.COMPLETE_COMMIT
    assert aborted.state is TransactionState.COMPLETE_ABORT
    assert never.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert open_.state is TransactionState.ONGOING
    assert (open_.producer_id, open_.producer_epoch) == world.open.producer_id_and_epoch
    assert [(topic, list(ps)) for topic, ps in open_.partitions] == [(world.topic, [1])]
    assert open_.timeout_ms == 120_000
    assert abs(open_.start_ms - time.time() * 1000) < 120_000


def test_a_transactional_id_that_never_wrote_has_no_start(
    connection: BlockingConnection, kafka: RealKafka, world: PreparedBroker
) -> None:
    name = f"{world.topic}~idle"
    with producer(kafka, name):
        (found,) = describe(connection, [name])
    assert (found.error, found.state) == (ErrorCode.NONE, TransactionState.EMPTY)
    assert (found.start_ms, len(found.partitions)) == (-1, 0)
    assert found.producer_id >= 0


@pytest.mark.parametrize("version", range(3))
def test_transactions_of_a_prefix_are_listed_in_every_version(
    connection: BlockingConnection, world: PreparedBroker, version: int
) -> None:
    def listed(*states: TransactionState) -> dict[str, TransactionState]:
        request = list_transactions([state.value for state in states], prefix=world.prefix)
        call = Call(request, AnyBroker())
        call.response = connection.call(request, version)
        assert call.response.error_code is ErrorCode.NONE
        found = transactions_listed([call], world.prefix)
        return {
            name.removeprefix(world.prefix): TransactionState.parse(one.transaction_state)
            for name, one in found.items()
        }

    everything = {
        "committed": TransactionState.COMPLETE_COMMIT,
        "aborted": TransactionState.COMPLETE_ABORT,
        "open": TransactionState.ONGOING,
    }
    assert listed() == everything
    assert listed(TransactionState.ONGOING) == {"open": TransactionState.ONGOING}
    assert listed(TransactionState.EMPTY, TransactionState.DEAD) == {}


def test_the_broker_itself_filters_by_the_quoted_prefix(
    connection: BlockingConnection, world: PreparedBroker
) -> None:
    found = connection.call(list_transactions(prefix=world.prefix), 2).transaction_states
    assert {t.transactional_id.removeprefix(world.prefix) for t in found} == {
        "committed",
        "aborted",
        "open",
    }


def test_only_transactions_open_for_longer_are_listed(
    connection: BlockingConnection, world: PreparedBroker
) -> None:
    states = (TransactionState.ONGOING.value,)
    for duration, expected in ((0, 1), (3_600_000, 0)):
        request = list_transactions(states, min_duration_ms=duration, prefix=world.prefix)
        assert len(connection.call(request, 2).transaction_states) == expected


def test_the_producer_that_holds_a_partition_back_is_described(
    connection: BlockingConnection, world: PreparedBroker
) -> None:
    _, held = world.partitions
    missing = TopicPartition(world.topic, 9)
    absent = described(connection.call(describe_producers(missing), 0))
    assert absent.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = described(connection.call(describe_producers(held), 0))
    open_ = [p for p in found.active_producers if p.current_txn_start_offset >= 0]
    assert [(p.producer_id, p.producer_epoch) for p in open_] == [world.open.producer_id_and_epoch]
    assert [p.current_txn_start_offset for p in open_] == [0]


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_end_behind_an_open_transaction(
    connection: BlockingConnection, world: PreparedBroker, version: int
) -> None:
    def offsets(spec: OffsetSpec) -> list[int]:
        calls = (connection.call(list_offsets(tp, spec), version) for tp in world.partitions)
        found = [listed_offset(response) for response in calls]
        assert {one.error_code for one in found} == {ErrorCode.NONE}
        return [one.offset for one in found]

    free, held = offsets(LATEST)
    assert free > 200
    assert held == 3  # maybe, behind, a marker
    assert offsets(EARLIEST) == [0, 0]


@pytest.mark.parametrize("version", range(4, 13))
def test_a_fetch_brings_what_is_not_committed_too(
    connection: BlockingConnection, world: PreparedBroker, version: int
) -> None:
    free, held = (fetched(connection, tp, version=version) for tp in world.partitions)
    assert free.error is held.error is ErrorCode.NONE
    assert len(free.records) > 0
    assert len(held.records) > 0


def test_a_fetch_beyond_the_end_says_so(
    connection: BlockingConnection, world: PreparedBroker
) -> None:
    found = fetched(connection, world.partitions[0], 10**6)
    assert found.error is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", range(1, 5))
def test_limits_and_settings_are_described(
    connection: BlockingConnection, world: PreparedBroker, version: int
) -> None:
    broker = (ConfigResourceType.BROKER, "1")  # as every first node is called here
    topic = (ConfigResourceType.TOPIC, world.topic)
    missing = (ConfigResourceType.TOPIC, "no-such-topic")
    asked = ("transaction.max.timeout.ms", "cleanup.policy", "segment.bytes", "no.such.setting")
    response = connection.call(configs_request((broker, topic, missing), asked), version)
    found = {(one.resource_type, one.resource_name): one for one in response.results}
    assert config_values(found[broker]) == {"transaction.max.timeout.ms": "900000"}
    assert config_values(found[topic]) == {
        "cleanup.policy": "delete",
        "segment.bytes": "268435456",
    }
    assert found[missing].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (one,) = connection.call(configs_request((broker,)), version).results
    whole = config_values(one)
    assert whole["transaction.max.timeout.ms"] == "900000"
    assert len(whole) > 100
