"""Items of an answer that were not requested are dropped: the rest is read as without them.

Some services answer for all topics, also where none was requested (Tansu, noida-db).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import metadata_bytes as m
import pytest
import test_control_messages as control
import test_fetch_messages as fetching
import test_produce_codec as producing
import test_transaction_admin_messages as admin
import test_transaction_messages as transactions

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.answers import decode
from spark_kafka_sink.protocol.metadata import MetadataRequest
from tests.protocol.control_answers import created_topics, deleted_topics

_MORE = ("surplus", [(0, ErrorCode.NONE), (1, ErrorCode.NONE)])


def plain(value: Any) -> Any:
    """A message as lists and tuples, which are equal when their items are."""
    if is_dataclass(value):
        return tuple(plain(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(one) for one in value]
    return bytes(value) if isinstance(value, memoryview) else value


def metadata(version: int, *topics: bytes) -> bytes:
    found = [m.topic(version, name, [m.partition(version, 0)]) for name in topics]
    return m.answer(version, [m.broker(version, 1)], found)


def produced(topics: dict[str, list[dict[str, Any]]]) -> bytes:
    return producing.kio_response(12, topics)


#: Request and version; an answer, and the same answer with surplus.
CASES: dict[str, tuple[Any, int, bytes, bytes]] = {
    "no topic of Metadata": (MetadataRequest(()), 12, metadata(12), metadata(12, b"a", b"b")),
    "a topic of Metadata": (
        MetadataRequest(("t",)), 12, metadata(12, b"t"), metadata(12, b"a", b"t", b"b"),
    ),
    "Produce": (
        producing.request(producing.batch("t", 0, b"a")), 12,
        produced({"t": [{"index": 0}]}),
        produced({"s": [{"index": 0}], "t": [{"index": 4}, {"index": 0}, {"index": 4}], "u": []}),
    ),
    "CreateTopics": (
        control.CREATE_TOPICS, 7,
        created_topics(7, ("orders", "clicks")), created_topics(7, ("surplus", "orders", "clicks")),
    ),
    "DeleteTopics": (
        control.DeleteTopicsRequest(topic_names=("a",), timeout_ms=1000), 5,
        deleted_topics(5, ("a",)), deleted_topics(5, ("b", "a")),
    ),
    "ListOffsets": (
        fetching.OFFSETS, 6,
        fetching.listed_offsets(6, fetching.ASKED),
        fetching.listed_offsets(6, [("surplus", [0]), ("a", []), *fetching.ASKED, ("a", [99])]),
    ),
    "Fetch": (
        fetching.FETCH, 12,
        fetching.fetched(12, fetching.ASKED),
        fetching.fetched(12, [("surplus", [0]), ("a", []), *fetching.ASKED, ("a", [99])]),
    ),
    "DescribeConfigs": (
        fetching.CONFIGS, 4,
        fetching.described(4, (fetching.TOPIC, fetching.BROKER)),
        fetching.described(4, ((4, "2"), fetching.TOPIC, fetching.BROKER)),
    ),
    "DescribeTransactions": (
        admin.DESCRIBE, 0,
        admin.describe_transactions(("q~run~a", "q~run~b")),
        admin.describe_transactions(("x", "q~run~a", "q~run~b")),
    ),
    "DescribeProducers": (
        admin.PRODUCERS, 0,
        admin.described_producers(admin.DESCRIBED),
        admin.described_producers([("surplus", [0]), *admin.DESCRIBED]),
    ),
    "FindCoordinator": (
        transactions.FIND_TWO, 6,
        transactions.found_coordinator(transactions.FIND_TWO, 6, keys=("orders", "clicks")),
        transactions.found_coordinator(transactions.FIND_TWO, 6, keys=("x", "orders", "clicks")),
    ),
    "AddPartitionsToTxn": (
        transactions.ADD, 3,
        transactions.added_partitions(3, transactions.ADDED),
        transactions.added_partitions(3, [_MORE, *transactions.ADDED]),
    ),
    "TxnOffsetCommit": (
        transactions.OFFSETS_1, 3,
        transactions.committed_offsets(3, transactions.ADDED),
        transactions.committed_offsets(3, [_MORE, *transactions.ADDED]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_was_not_requested_is_dropped(case: str) -> None:
    request, version, honest, surplus = CASES[case]
    assert len(surplus) > len(honest)
    found = plain(decode(request, version, memoryview(surplus)))
    assert found == plain(decode(request, version, memoryview(honest)))
