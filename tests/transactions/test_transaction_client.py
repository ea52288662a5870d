"""The driver's questions to coordinators, on a real broker."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from dataclasses import replace

import pytest

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.errors import ConfigError, ErrorCode, KafkaTimeoutError
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.real_kafka import RealKafka
from tests.transactions.open_transactions import TIMEOUT_MS, fence, open_transactions


@pytest.fixture(scope="module")
def tp(kafka: RealKafka) -> TopicPartition:
    return TopicPartition(kafka.unique_topic("txn"), 0)


def soon(client: TransactionClient) -> int:
    return client.clock.now_ms() + TIMEOUT_MS


def data_ids(count: int, prefix: str | None = None) -> list[str]:
    stem = f"{prefix or 'p' + uuid.uuid4().hex[:8]}~{uuid.uuid4().hex[:8]}"
    return [f"{stem}~{i}" for i in range(count)]


def test_transactions_are_described_ended_and_ended_again(
    client: TransactionClient, tp: TopicPartition
) -> None:
    ids = data_ids(20)
    transactions = open_transactions(client, ids, tp)
    found = client.describe(ids, soon(client))
    assert {d.state for d in found.values()} == {TransactionState.ONGOING}
    assert {(d.producer_id, d.producer_epoch) for d in found.values()} == {
        (t.producer_id, t.producer_epoch) for t in transactions
    }
    for _ in range(2):  # a second commit is harmless
        answers = client.end(transactions, committed=True, deadline_ms=soon(client))
        assert answers == dict.fromkeys(ids, ErrorCode.NONE)
    answers = client.end(transactions, committed=False, deadline_ms=soon(client))
    assert answers == dict.fromkeys(ids, ErrorCode.INVALID_TXN_STATE)
    states = {d.state for d in client.describe(ids, soon(client)).values()}
    assert states <= {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}


def test_an_unknown_id_and_an_old_epoch_are_answers(
    client: TransactionClient, tp: TopicPartition
) -> None:
    (transaction,) = open_transactions(client, data_ids(1), tp)
    unknown = replace(transaction, transactional_id="nobody~knows~1")
    older = replace(transaction, producer_epoch=transaction.producer_epoch + 1)
    answers = client.end([unknown], committed=True, deadline_ms=soon(client))
    assert answers == {"nobody~knows~1": ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    answers = client.end([older], committed=True, deadline_ms=soon(client))
    assert answers == {transaction.transactional_id: ErrorCode.PRODUCER_FENCED}
    found = client.describe(["nobody~knows~1", transaction.transactional_id], soon(client))
    assert found["nobody~knows~1"].error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert found[transaction.transactional_id].state is TransactionState.ONGOING
    fence(client, [transaction.transactional_id])


def test_open_transactions_are_those_of_exactly_the_prefix(
    client: TransactionClient, tp: TopicPartition
) -> None:
    prefix = f"a{uuid.uuid4().hex[:8]}"
    ours = data_ids(3, prefix)
    others = [*data_ids(2, f"{prefix}.b"), f"{prefix}~~log", f"{prefix}x~r~1", f"{prefix}~no~id~x"]
    transactions = open_transactions(client, ours + others, tp)
    beginning = f"{prefix}~"
    listed, silent = client.open_transactions(beginning, soon(client))
    expected = [i for i in ours + others if i.startswith(beginning)]
    assert len(expected) == 5
    assert sorted(one.transactional_id for one in listed) == sorted(expected)
    assert silent == ()
    assert client.older_than(ours, 0, soon(client)) == frozenset(ours)
    assert client.older_than(ours, 3_600_000, soon(client)) == frozenset()
    client.end(transactions, committed=False, deadline_ms=soon(client))
    assert client.open_transactions(beginning, soon(client)).transactions == ()
    assert client.older_than(ours[:1], 3_600_000, soon(client)) == frozenset(ours[:1]), (
        "what no coordinator calls open is too old to be committed"
    )


def test_a_timeout_above_the_brokers_is_refused(client: TransactionClient) -> None:
    (name,) = data_ids(1)
    with pytest.raises(ConfigError, match=r"kafka\.transaction\.timeout\.ms is 900001"):
        client.init_producer_id(name, 900_001, soon(client))


def test_a_deadline_that_is_over_asks_nothing(client: TransactionClient) -> None:
    now = client.clock.now_ms()
    with pytest.raises(KafkaTimeoutError, match="FindCoordinator has no clear answer in time"):
        client.describe(["late~id~1"], now)
    with pytest.raises(KafkaTimeoutError, match="InitProducerId of transactional id 'late~id~1'"):
        client.init_producer_id("late~id~1", 60_000, now)


@pytest.mark.timing
def test_two_thousand_transactions_end_in_two_seconds(
    client: TransactionClient, tp: TopicPartition
) -> None:
    """200 in 0.3 s and 2000 in 2 s are asked for; seen: 0.07 s and 0.6 s."""
    for count, seconds in ((200, 0.3), (2000, 2.0)):
        ids = data_ids(count)
        transactions = open_transactions(client, ids, tp)
        with TransactionClient(client.config) as other:  # it knows no coordinator yet
            start = time.monotonic()
            answers = other.end(transactions, committed=True, deadline_ms=soon(client))
            taken = time.monotonic() - start
        assert Counter(answers.values()) == {ErrorCode.NONE: count}
        assert taken < seconds * 3, "three times: the machine does other things, too"
