"""Transactions on real brokers, both versions, read back by an independent read_committed client.

Transactions of version 2 on the shared broker, of version 1 on a Kafka 3.9. The states behind them
are in test_transaction_manager_*.py.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.call import AnyBroker, Call
from spark_kafka_sink.base.errors import (
    DataError,
    ErrorCode,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
)
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager
from spark_kafka_sink.producer.transaction.transaction_states import State
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.messages.end_txn import EndTxnResponse
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.transaction_requests import end_txn, find_coordinator
from tests.real_kafka import Consumed, RealKafka, consume_topic
from tests.waiting import PATIENCE

pytestmark = pytest.mark.broker


@pytest.fixture(params=["kafka_3_9", "kafka"], ids=["3.9", "4.x"])
def broker(request: pytest.FixtureRequest) -> RealKafka:
    """One whose cluster writes transactions of version 1, and one of version 2."""
    found: RealKafka = request.getfixturevalue(request.param)
    assert found.transaction_version == (1 if request.param == "kafka_3_9" else 2)
    return found


def new_id() -> str:
    return f"txn-{uuid.uuid4().hex[:8]}"


def new_producer(kafka: RealKafka, name: str | None = None, **options: object) -> KafkaProducer:
    given = {"bootstrap.servers": kafka.bootstrap, "transactional.id": name or new_id()}
    return KafkaProducer(given | {key.replace("_", "."): v for key, v in options.items()})


def begun(producer: KafkaProducer) -> KafkaProducer:
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def write(producer: KafkaProducer, topic: str, partition: int, rows: list[bytes]) -> None:
    for row in rows:
        producer.send(ProducerRecord(topic, row, partition=partition))


def manager_of(producer: KafkaProducer) -> TransactionManager:
    assert producer._transaction_manager is not None
    return producer._transaction_manager


def code_of(error: BaseException | None) -> ErrorCode | None:
    """The broker's code behind an error of a call."""
    while error is not None:
        code = getattr(error, "code", None)
        if isinstance(error, KafkaError) and isinstance(code, ErrorCode):
            return code
        error = error.__cause__
    return None


def committed(kafka: RealKafka, topic: str) -> list[bytes | None]:
    """What a read_committed reader sees, up to the last stable offset."""
    return consume_topic(kafka.bootstrap, topic, isolation="read_committed").values


def await_committed(kafka: RealKafka, topic: str, expected: list[bytes]) -> None:
    """The markers are written after EndTxn is answered: within milliseconds."""
    deadline = time.monotonic() + 30 * PATIENCE
    while (found := committed(kafka, topic)) != expected:
        assert time.monotonic() < deadline, f"{found} in place of {expected}"


def await_no_open_transaction(kafka: RealKafka, topic: str) -> None:
    """The last stable offset reaches the end: no transaction is left open in the partition."""
    from confluent_kafka import Consumer, TopicPartition

    ends = {}
    deadline = time.monotonic() + 30 * PATIENCE
    while True:
        for isolation in ("read_committed", "read_uncommitted"):
            reader = Consumer(
                {
                    "bootstrap.servers": kafka.bootstrap,
                    "group.id": "none",
                    "isolation.level": isolation,
                }
            )
            ends[isolation] = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
            reader.close()
        if len(set(ends.values())) == 1:
            return
        assert time.monotonic() < deadline, f"a transaction is still open: {ends}"


def end(kafka: RealKafka, prepared: PreparedTransaction, *, commit: bool) -> EndTxnResponse:
    """End somebody's transaction, from an admin client of this process."""
    config = parse_producer_config({"bootstrap.servers": kafka.bootstrap})
    find = find_coordinator([prepared.transactional_id])
    with AdminClient(config) as admin:
        answer = admin.loop.send_and_receive(Call(find, AnyBroker(), "it"), admin.deadline())
        found = answer.coordinators[0]
        node = Node(found.node_id, found.host, found.port)
        request = end_txn(prepared, committed=commit)
        while True:
            answer = admin.loop.send_and_receive(Call(request, node, "it"), admin.deadline())
            if answer.error_code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return answer


def values(*names: str) -> list[bytes]:
    return [name.encode() for name in names]


def test_what_is_committed_is_seen_and_what_is_aborted_never_is(broker: RealKafka) -> None:
    topic = broker.unique_topic("txn")
    with new_producer(broker) as producer:
        begun(producer)
        assert manager_of(producer)._identity.transaction.version == broker.transaction_version
        write(producer, topic, 0, values("a", "b"))
        producer.flush()
        assert committed(broker, topic) == []
        producer.commit_transaction()
        producer.begin_transaction()
        write(producer, topic, 0, values("dropped"))
        producer.flush()
        producer.abort_transaction()
        producer.begin_transaction()
        write(producer, topic, 0, values("c"))
        write(producer, topic, 0, values("d"))
        producer.commit_transaction()
    await_committed(broker, topic, values("a", "b", "c", "d"))
    everything = consume_topic(broker.bootstrap, topic).values
    assert everything == values("a", "b", "dropped", "c", "d")


def test_many_transactions_follow_each_other_at_once(broker: RealKafka) -> None:
    """Each meets the end of the one before: CONCURRENT_TRANSACTIONS is waited out in ms."""
    topic = broker.unique_topic("txn", 3)
    identities = set()
    with new_producer(broker) as producer:
        producer.init_transactions()
        for i in range(30):
            producer.begin_transaction()
            for partition in range(3):
                write(producer, topic, partition, values(f"{i}"))
            producer.flush()
            identities.add(producer.producer_id_and_epoch)
            producer.commit_transaction() if i % 3 else producer.abort_transaction()
    assert len(identities) == 30, "two transactions under one epoch"
    expected = [f"{i}".encode() for i in range(30) if i % 3]
    deadline = time.monotonic() + 30 * PATIENCE
    while True:
        found = consume_topic(broker.bootstrap, topic, isolation="read_committed").by_partition()
        if found == dict.fromkeys(range(3), expected):
            break
        assert time.monotonic() < deadline, found


def test_a_fenced_producers_data_is_refused(broker: RealKafka) -> None:
    topic, name = broker.unique_topic("txn"), new_id()
    with (
        new_producer(broker, name) as older,
        new_producer(broker, name) as younger,
    ):
        begun(older)
        write(older, topic, 0, values("lost"))
        older.flush()
        begun(younger)
        write(younger, topic, 0, values("kept"))
        younger.flush()
        write(older, topic, 0, values("late"))
        older.flush()
        with pytest.raises(KafkaError):
            older.abort_transaction()
        assert manager_of(older).state is State.FATAL_ERROR
        with pytest.raises(KafkaError, match="took over") as raised:
            older.begin_transaction()
        assert code_of(raised.value) is ErrorCode.PRODUCER_FENCED
        younger.commit_transaction()
    await_committed(broker, topic, values("kept"))


def test_closing_aborts_an_open_transaction(broker: RealKafka) -> None:
    """SenderTest#testIncompleteTransactionAbortOnShutdown, on a broker."""
    topic = broker.unique_topic("txn")
    producer = begun(new_producer(broker))
    write(producer, topic, 0, values("dropped"))
    producer.flush()
    producer.close()
    await_no_open_transaction(broker, topic)
    assert committed(broker, topic) == []


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_prepared_transaction_outlives_its_producer(broker: RealKafka, commit: bool) -> None:
    topic = broker.unique_topic("txn")
    producer = begun(new_producer(broker))
    write(producer, topic, 0, values("a", "b"))
    prepared = producer.prepare()
    producer.close()
    assert committed(broker, topic) == []
    assert end(broker, prepared, commit=commit).error_code is ErrorCode.NONE
    await_no_open_transaction(broker, topic)
    assert committed(broker, topic) == (values("a", "b") if commit else [])
    # Asked once more, the same answer; the other way, a refusal.
    assert end(broker, prepared, commit=commit).error_code is ErrorCode.NONE
    assert end(broker, prepared, commit=not commit).error_code is ErrorCode.INVALID_TXN_STATE


def test_a_timed_out_transaction_is_an_error_at_its_commit(broker: RealKafka) -> None:
    topic = broker.unique_topic("txn")
    with new_producer(broker, transaction_timeout_ms=int(1_500 * PATIENCE)) as producer:
        begun(producer)
        write(producer, topic, 0, values("late"))
        producer.flush()
        await_no_open_transaction(broker, topic)
        with pytest.raises(KafkaError) as raised:
            producer.commit_transaction()
        assert code_of(raised.value) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
    assert committed(broker, topic) == []


def test_a_timeout_above_the_brokers_maximum_is_refused_by_name(broker: RealKafka) -> None:
    with (
        new_producer(broker, transaction_timeout_ms=900_001) as producer,
        pytest.raises(KafkaError, match=r"transaction\.max\.timeout\.ms"),
    ):
        producer.init_transactions()


def test_a_dead_coordinator_is_replaced_within_a_transaction(kafka3: RealKafka) -> None:
    """TransactionManagerTest#testLookupCoordinatorOnDisconnectAfterSend, on brokers; the other two
    hold the transaction's state.
    """
    topic = kafka3.unique_topic("txn", 3)
    with new_producer(kafka3, request_timeout_ms=5_000) as producer:
        begun(producer)
        for partition in range(3):
            write(producer, topic, partition, values("a"))
        producer.flush()
        node = manager_of(producer).requests.coordinator
        assert node is not None
        kafka3.node(node.id).kill()
        for partition in range(3):
            write(producer, topic, partition, values("b"))
        producer.commit_transaction()
        moved = manager_of(producer).requests.coordinator
        assert moved is not None
        assert moved.id != node.id, "the coordinator never moved: nothing was tested"
        producer.begin_transaction()
        write(producer, topic, 0, values("dropped"))
        producer.abort_transaction()
    found = consume_topic(kafka3.bootstrap, topic, isolation="read_committed").by_partition()
    assert found == {p: values("a", "b") for p in range(3)}


# ---- what a caller sees --------------------------------------------------------------------------


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


def refused(producer: KafkaProducer, *record: object, **fields: object) -> BaseException | None:
    """What becomes of a record."""
    return producer.send(ProducerRecord(*record, **fields)).exception(60)  # type: ignore[arg-type]


def refused_row(producer: KafkaProducer, topic: str) -> BaseException:
    with pytest.raises(DataError, match="Partition 99") as caught:
        producer.send_batch(pa.record_batch({"value": ["v"], "partition": [99]}), topic)
    return caught.value


@pytest.mark.parametrize(
    ("send", "kind", "words"),
    [
        (lambda producer, topic: refused(producer, topic, b"x" * 20_000), RecordTooLargeError, ()),
        (
            lambda producer, topic: refused(producer, topic, b"v", partition=99),
            KafkaTimeoutError,
            (),
        ),
        (
            lambda producer, _: refused(producer, "topic abc", b"v"),
            InvalidTopicError,
            ("INVALID_TOPIC_EXCEPTION", "kprod explain KP1017"),
        ),
        (refused_row, DataError, ()),
    ],
    ids=["too large", "no partition", "invalid topic", "a row"],
)
def test_what_cannot_be_sent_forbids_the_commit(
    kafka: RealKafka,
    consume: Callable[..., Consumed],
    send: Callable[[KafkaProducer, str], BaseException | None],
    kind: type[KafkaError],
    words: Sequence[str],
):
    """KafkaProducerTest#testCommitTransactionWithRecordTooLargeException,
    KafkaProducerTest#testCommitTransactionWithSendToInvalidTopic. Abortable; then it goes on.
    """
    topic = kafka.unique_topic("txn-abortable")
    limits = {"max_request_size": 10_000, "max_block_ms": int(3_000 * PATIENCE)}
    with new_producer(kafka, topic, **limits) as producer:
        begun(producer)
        producer.send(ProducerRecord(topic, b"before"))
        assert isinstance(send(producer, topic), kind)
        with pytest.raises(KafkaError):
            producer.send(ProducerRecord(topic, b"after"))
        with pytest.raises(KafkaError) as caught:
            producer.commit_transaction()
        assert all(word in str(caught.value) for word in words)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_batch(pa.record_batch({"value": ["good"]}), topic)
        producer.commit_transaction()
    assert consume(topic, isolation="read_committed").values == [b"good"]


def test_a_partition_joins_the_transaction_at_its_first_append(kafka: RealKafka):
    """KafkaProducerTest#testPartitionAddedToTransaction."""
    topic = kafka.unique_topic("txn-partitions", partitions=3)
    with new_producer(kafka, topic, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        manager = manager_of(begun(producer))
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
        begun(producer)
        producer.send(ProducerRecord(topic, b"v"), end)
        producer.commit_transaction()
    assert "inside a callback is not permitted" in str(caught[0])


def test_many_threads_write_one_transaction(kafka: RealKafka, consume: Callable[..., Consumed]):
    topic = kafka.unique_topic("txn-threads", partitions=4)
    with new_producer(kafka, topic) as producer:
        begun(producer)

        def send(name: int) -> None:
            for n in range(500):
                producer.send(ProducerRecord(topic, b"%d-%d" % (name, n), b"%d" % n))

        threads = [threading.Thread(target=send, args=(name,)) for name in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.commit_transaction()
        # A commit is answered before all its markers are written; the next one waits for them.
        producer.begin_transaction()
        producer.send(ProducerRecord(topic, b"next"))
        producer.flush()
    assert len(set(consume(topic, isolation="read_committed").values)) == 1500
