"""Transactions through KafkaProducer, on a real broker: what its caller sees and a reader gets.

The states behind them are in test_transaction_manager_*.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import (
    DataError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
)
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from tests.real_kafka import Consumed, RealKafka

COMMITTED = "read_committed"


def new_producer(kafka: RealKafka, name: str, **options: object) -> KafkaProducer:
    given: dict[str, object] = {"bootstrap.servers": kafka.bootstrap, "transactional.id": name}
    return KafkaProducer(given | {key.replace("_", "."): v for key, v in options.items()})


def test_nothing_is_sent_before_init_and_begin(kafka: RealKafka):
    """TransactionManagerTest#testFailIfNotReadyForSendNoOngoingTransaction."""
    topic = kafka.unique_topic("txn-order")
    record = ProducerRecord(topic, b"v")
    with new_producer(kafka, topic) as producer:
        for call in (
            producer.begin_transaction,
            producer.commit_transaction,
            lambda: producer.send(record),
            lambda: producer.send_batch(pa.record_batch({"value": ["v"]}), topic),
        ):
            with pytest.raises(IllegalStateError):
                call()
        producer.init_transactions()
        with pytest.raises(IllegalStateError):
            producer.send(record)
        with pytest.raises(IllegalStateError):
            producer.init_transactions()


def test_a_record_that_cannot_be_sent_forbids_the_commit(
    kafka: RealKafka, consume: Callable[..., Consumed]
):
    """KafkaProducerTest#testCommitTransactionWithRecordTooLargeException. Too large, or its topic
    does not come in time: abortable; then it goes on.
    """
    topic = kafka.unique_topic("txn-abortable")
    with new_producer(kafka, topic, max_request_size=10_000, max_block_ms=3000) as producer:
        producer.init_transactions()
        for wrong, error in (
            (ProducerRecord(topic, b"x" * 20_000), RecordTooLargeError),
            (ProducerRecord(topic, b"v", partition=99), KafkaTimeoutError),
        ):
            producer.begin_transaction()
            producer.send(ProducerRecord(topic, b"before"))
            assert isinstance(producer.send(wrong).exception(0), error)
            with pytest.raises(KafkaError):
                producer.send(ProducerRecord(topic, b"after"))
            with pytest.raises(KafkaError):
                producer.commit_transaction()
            producer.abort_transaction()
        producer.begin_transaction()
        producer.send(ProducerRecord(topic, b"good"))
        producer.commit_transaction()
    assert consume(topic, isolation=COMMITTED).values == [b"good"]


def test_a_row_that_cannot_be_sent_forbids_the_commit(
    kafka: RealKafka, consume: Callable[..., Consumed]
):
    """KafkaProducerTest#testCommitTransactionWithRecordTooLargeException, with columns."""
    topic = kafka.unique_topic("txn-columns")
    with new_producer(kafka, topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(DataError, match="Partition 99"):
            producer.send_batch(pa.record_batch({"value": ["v"], "partition": [99]}), topic)
        with pytest.raises(KafkaError):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_batch(pa.record_batch({"value": ["good"]}), topic)
        producer.commit_transaction()
    assert consume(topic, isolation=COMMITTED).values == [b"good"]


def test_a_partition_joins_the_transaction_at_its_first_append(kafka: RealKafka):
    """KafkaProducerTest#testPartitionAddedToTransaction."""
    topic = kafka.unique_topic("txn-partitions", partitions=3)
    with new_producer(kafka, topic, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        manager = producer._transaction_manager
        assert manager is not None
        producer.init_transactions()
        producer.begin_transaction()
        assert producer.send(ProducerRecord(topic, b"x" * 2_000_000, partition=0)).done()
        assert not manager._identity.transaction.partitions
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(ProducerRecord(topic, b"v", partition=1))
        producer.flush()
        assert {tp.partition for tp in manager._identity.transaction.partitions} == {1}
        producer.commit_transaction()


def test_transactional_calls_in_a_callback_are_refused(kafka: RealKafka):
    topic = kafka.unique_topic("txn-callback")
    caught: list[KafkaError] = []

    def end(metadata: object, error: object) -> None:
        try:
            producer.commit_transaction()
        except IllegalStateError as refused:
            caught.append(refused)

    with new_producer(kafka, topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord(topic, b"v"), end)
        producer.commit_transaction()
    assert "inside a callback is not permitted" in str(caught[0])


def test_many_threads_write_one_transaction(kafka: RealKafka, consume: Callable[..., Consumed]):
    topic = kafka.unique_topic("txn-threads", partitions=4)
    with new_producer(kafka, topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()

        def send(name: int) -> None:
            for n in range(500):
                producer.send(ProducerRecord(topic, b"%d-%d" % (name, n), b"%d" % n))

        threads = [threading.Thread(target=send, args=(name,)) for name in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        producer.commit_transaction()
        # A commit is answered before all its markers are written; the next one waits for them.
        producer.begin_transaction()
        producer.send(ProducerRecord(topic, b"next"))
        producer.flush()
    assert len(set(consume(topic, isolation=COMMITTED).values)) == 1500


def test_an_invalid_topic_forbids_the_commit(kafka: RealKafka, consume: Callable[..., Consumed]):
    """KafkaProducerTest#testCommitTransactionWithSendToInvalidTopic: with KP1017, and only of that
    transaction.
    """
    topic = kafka.unique_topic("txn-invalid")
    with new_producer(kafka, topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord(topic, b"dropped"))
        refused = producer.send(ProducerRecord("topic abc", b"v"))
        assert "INVALID_TOPIC_EXCEPTION" in str(refused.exception(60))
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION") as caught:
            producer.commit_transaction()
        assert "kprod explain KP1017" in str(caught.value)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(ProducerRecord(topic, b"kept"))
        producer.commit_transaction()
    assert consume(topic, isolation=COMMITTED).values == [b"kept"]
