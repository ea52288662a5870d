"""DescribeTransactions, ListTransactions, DescribeProducers: which answers to them make no sense.
(The bytes of their requests: ``test_golden_requests.py``.)
"""

from __future__ import annotations

import pickle
import re
from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from hostile import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from kio_oracle import THROTTLE_MS, by_topic, decode, in_every_version, response

from spark_kafka_sink.admin.call import AnyBroker, Call
from spark_kafka_sink.admin.transaction_client import listed
from spark_kafka_sink.admin.transaction_description import TransactionDescription, TransactionState
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import describe_producers, described
from spark_kafka_sink.protocol.messages.describe_transactions import DescribeTransactionsRequest
from spark_kafka_sink.protocol.messages.list_transactions import ListTransactionsRequest
from spark_kafka_sink.protocol.transaction_requests import list_transactions
from tests.fakes.kafka_messages import producers_request

DESCRIBE = DescribeTransactionsRequest(transactional_ids=("q~run~a", "q~run~b"))
LIST = list_transactions(prefix="q~")
PARTITIONS = (TopicPartition("a", 0), TopicPartition("b", 7), TopicPartition("a", 3))
PRODUCERS = producers_request(PARTITIONS)

ALL = in_every_version(DESCRIBE, LIST, PRODUCERS)
START_MS = 1_700_000_000_123


# --- answers as kio writes them


def describe_transactions(ids: Sequence[str] = DESCRIBE.transactional_ids, **fields: Any) -> bytes:
    topics = fields.pop("topics", (("a", (0, 3)), ("b", (7,))))
    plain: dict[str, Any] = {
        "error_code": 0,
        "transaction_state": "Ongoing",
        "transaction_timeout": 60_000,
        "transaction_start_time": START_MS,
        "producer_id": 4711,
        "producer_epoch": 3,
        "topics": [{"topic": topic, "partitions": partitions} for topic, partitions in topics],
    }
    plain |= fields
    states = [{"transactional_id": transactional_id, **plain} for transactional_id in ids]
    return response("describe_transactions", 0, transaction_states=states)


def listed_transactions(
    version: int,
    found: tuple[tuple[str, int, str], ...] = (("q~run~a", 7, "Ongoing"), ("q~b", 8, "Empty")),
    unknown: tuple[str, ...] = (),
) -> bytes:
    states = [
        {"transactional_id": transactional_id, "producer_id": pid, "transaction_state": state}
        for transactional_id, pid, state in found
    ]
    fields = {"unknown_state_filters": unknown, "transaction_states": states}
    return response("list_transactions", version, **fields)


DESCRIBED = [("a", [3, 0]), ("b", [7])]


def described_producers(
    topics: list[tuple[str, list[int]]] = DESCRIBED, code: ErrorCode = ErrorCode.NONE
) -> bytes:
    producer = {
        "producer_id": 4711,
        "producer_epoch": 3,
        "last_sequence": 41,
        "last_timestamp": START_MS,
        "coordinator_epoch": -1,
        "current_txn_start_offset": 1000,
    }
    plain = {
        "error_code": code,
        "error_message": "the broker's words" if code else None,
        "active_producers": [producer, producer],
    }
    return response("describe_producers", 0, topics=by_topic(topics, **plain))


def answer(request: Any, version: int) -> bytes:
    if isinstance(request, DescribeTransactionsRequest):
        return describe_transactions()
    if isinstance(request, ListTransactionsRequest):
        return listed_transactions(version, unknown=("Odd",))
    return described_producers()


def first(data: bytes) -> TransactionDescription:
    return TransactionDescription.of(decode(DESCRIBE, 0, data).transaction_states[0])


@given(st.text("aZ9._-~\\Q^$*+?()[]{}|é \n", min_size=1, max_size=12), st.text(max_size=8))
@settings(max_examples=200, deadline=None)
def test_the_pattern_of_a_prefix_matches_what_begins_with_it(prefix: str, rest: str) -> None:
    pattern = list_transactions(prefix=prefix).transactional_id_pattern
    assert pattern is not None
    assert re.fullmatch(pattern, prefix + rest)
    assert bool(re.fullmatch(pattern, rest)) is rest.startswith(prefix)


def test_a_transaction_is_described() -> None:
    answered = decode(DESCRIBE, 0, describe_transactions())
    assert answered.throttle_time_ms == THROTTLE_MS
    found = TransactionDescription.of(answered.transaction_states[1])
    assert found == TransactionDescription(
        ErrorCode.NONE,
        "q~run~b",
        TransactionState.ONGOING,
        60_000,
        START_MS,
        4711,
        3,
        [("a", array("i", [0, 3])), ("b", array("i", [7]))],
    )
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("state", TransactionState)
def test_every_state_is_known_by_its_name(state: TransactionState) -> None:
    assert first(describe_transactions(transaction_state=state.value)).state is state


def test_a_state_from_the_future_is_unknown() -> None:
    data = describe_transactions(transaction_state="Prepared")
    assert first(data).state is TransactionState.UNKNOWN


def test_a_transaction_that_was_never_opened_has_no_start() -> None:
    data = describe_transactions(transaction_state="Empty", topics=(), transaction_start_time=-1)
    found = first(data)
    assert (found.state, found.start_ms, len(found.partitions)) == (TransactionState.EMPTY, -1, 0)


def test_with_an_error_nothing_is_known_of_a_transaction() -> None:
    data = describe_transactions(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    unknown = TransactionDescription(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "q~run~a")
    assert first(data) == unknown


@pytest.mark.parametrize("ids", [(), ("q~run~a",), ("q~run~a", "q~run~a"), ("q~run~a", "x")])
def test_an_answer_about_other_ids_is_refused(ids: tuple[str, ...]) -> None:
    assert refused(lambda: decode(DESCRIBE, 0, describe_transactions(ids)))


@pytest.mark.parametrize(
    "fields",
    [
        {"producer_id": -2},
        {"producer_epoch": -2},
        {"topics": (("a", (-1,)),)},
    ],
)
def test_a_description_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    assert refused(lambda: decode(DESCRIBE, 0, describe_transactions(**fields)))


@pytest.mark.parametrize("version", range(3))
def test_only_the_prefix_is_listed_whatever_the_broker_filters(version: int) -> None:
    others = tuple((name, 7, "Ongoing") for name in ("a.b~1", "aXb~2", "a.b.c~3", "A.b~4", "a.b~"))
    request = list_transactions(prefix="a.b~")
    call = Call(request, AnyBroker(), "it")
    call.response = decode(request, version, listed_transactions(version, others))
    assert list(listed([call], "a.b~")) == ["a.b~1", "a.b~"]


def test_a_partition_has_its_error_and_the_brokers_words() -> None:
    data = described_producers([("b", [7])], ErrorCode.NOT_LEADER_OR_FOLLOWER)
    found = described(decode(describe_producers(TopicPartition("b", 7)), 0, data))
    assert found.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert found.error_message == "the broker's words"


@pytest.mark.parametrize(
    "topics", [[], DESCRIBED[:1], [*DESCRIBED[:1], ("c", [0])], [*DESCRIBED, ("a", [0])]]
)
def test_an_answer_about_other_partitions_is_refused(topics: list[tuple[str, list[int]]]) -> None:
    assert refused(lambda: decode(PRODUCERS, 0, described_producers(topics)))
