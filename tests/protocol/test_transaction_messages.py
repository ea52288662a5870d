"""FindCoordinator, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn: how requests are
filled in, by kio's reader, and which answers to them make no sense.
"""

from __future__ import annotations

from typing import Any

import pytest
from hostile import refused
from kio.schema.errors import ErrorCode as KioErrorCode
from kio_oracle import THROTTLE, Module, decode, in_every_version, read_request, write

from spark_kafka_sink.base.errors import ErrorCode, InvalidTopicError, UnsupportedVersionError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import OffsetAndMetadata, txn_offset_commit
from spark_kafka_sink.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from spark_kafka_sink.protocol.messages.find_coordinator import FindCoordinatorRequest
from spark_kafka_sink.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.protocol.request import VersionRange
from spark_kafka_sink.protocol.transaction_requests import (
    CoordinatorType,
    add_partitions_to_txn,
    find_coordinator,
)
from tests.fakes.kafka_messages import end_request

FIND = find_coordinator(["orders"])
FIND_TWO = find_coordinator(["orders", "clicks"])
PARTITIONS = (TopicPartition("a", 0), TopicPartition("b", 7), TopicPartition("a", 3))
ADD = add_partitions_to_txn("orders", ProducerIdAndEpoch(4711, 3), PARTITIONS)
END_1 = end_request("orders", 4711, 3, True, 1)
END_2 = end_request("orders", 4711, 3, False, 2)
FIND_GROUPS = find_coordinator(["readers", "lag"], CoordinatorType.GROUP)
ADD_OFFSETS = AddOffsetsToTxnRequest(
    transactional_id="orders", producer_id=4711, producer_epoch=3, group_id="readers"
)
OFFSETS = {
    PARTITIONS[0]: OffsetAndMetadata(2**62),
    PARTITIONS[1]: OffsetAndMetadata(0, 12),
    PARTITIONS[2]: OffsetAndMetadata(7, metadata="batch 5"),
}
OFFSETS_1 = txn_offset_commit(PreparedTransaction("orders", 4711, 3, 1), "readers", OFFSETS)
OFFSETS_2 = txn_offset_commit(PreparedTransaction("orders", 4711, 3, 2), "readers", OFFSETS)
REQUESTS = (FIND, FIND_TWO, FIND_GROUPS, ADD, ADD_OFFSETS, OFFSETS_1, OFFSETS_2, END_1, END_2)

ALL = in_every_version(*REQUESTS)


# --- answers as kio writes them


def found_coordinator(
    request: FindCoordinatorRequest,
    version: int,
    code: KioErrorCode = KioErrorCode.none,
    **fields: Any,
) -> bytes:
    kio = Module("find_coordinator", version, "response")
    plain: dict[str, Any] = {
        "error_code": code,
        "error_message": "the broker's words" if code else None,
        "node_id": 2,
        "host": "two.example",
        "port": 9092,
    }
    plain |= fields
    if version < 4:
        return write(kio.FindCoordinatorResponse(throttle_time=THROTTLE, **plain))
    keys = fields.pop("keys", request.coordinator_keys)
    coordinators = tuple(kio.Coordinator(key=key, **plain) for key in keys)
    return write(kio.FindCoordinatorResponse(throttle_time=THROTTLE, coordinators=coordinators))


def added_partitions(
    version: int, errors: list[tuple[str, list[tuple[int, KioErrorCode]]]]
) -> bytes:
    kio = Module("add_partitions_to_txn", version, "response")
    return write(
        kio.AddPartitionsToTxnResponse(
            throttle_time=THROTTLE,
            results_by_topic_v3_and_below=tuple(
                kio.AddPartitionsToTxnTopicResult(
                    name=topic,
                    results_by_partition=tuple(
                        kio.AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=code
                        )
                        for index, code in partitions
                    ),
                )
                for topic, partitions in errors
            ),
        )
    )


ADDED = [
    ("a", [(3, KioErrorCode.none), (0, KioErrorCode.operation_not_attempted)]),
    ("b", [(7, KioErrorCode.topic_authorization_failed)]),
]


def end_txn(version: int, code: KioErrorCode = KioErrorCode.none, **fields: Any) -> bytes:
    kio = Module("end_txn", version, "response")
    plain = {"producer_id": 4711, "producer_epoch": 4} | fields
    return write(kio.EndTxnResponse(throttle_time=THROTTLE, error_code=code, **plain))


def add_offsets_to_txn(version: int, code: KioErrorCode = KioErrorCode.none) -> bytes:
    kio = Module("add_offsets_to_txn", version, "response")
    return write(kio.AddOffsetsToTxnResponse(throttle_time=THROTTLE, error_code=code))


def committed_offsets(
    version: int, errors: list[tuple[str, list[tuple[int, KioErrorCode]]]]
) -> bytes:
    kio = Module("txn_offset_commit", version, "response")
    return write(
        kio.TxnOffsetCommitResponse(
            throttle_time=THROTTLE,
            topics=tuple(
                kio.TxnOffsetCommitResponseTopic(
                    name=topic,
                    partitions=tuple(
                        kio.TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)
                        for index, code in partitions
                    ),
                )
                for topic, partitions in errors
            ),
        )
    )


def answer(request: Any, version: int) -> bytes:
    if isinstance(request, AddOffsetsToTxnRequest):
        return add_offsets_to_txn(version)
    if isinstance(request, TxnOffsetCommitRequest):
        return committed_offsets(version, ADDED)
    if isinstance(request, FindCoordinatorRequest):
        return found_coordinator(request, version)
    if isinstance(request, AddPartitionsToTxnRequest):
        return added_partitions(version, ADDED)
    return end_txn(version)


# --- requests


@pytest.mark.parametrize("version", range(1, 7))
def test_find_coordinator_asks_for_a_transactional_id(version: int) -> None:
    read = read_request(FIND, version)
    assert read.key_type == 1
    assert (read.key if version < 4 else read.coordinator_keys) == (
        "orders" if version < 4 else ("orders",)
    )


@pytest.mark.parametrize("version", range(4, 7))
def test_find_coordinator_asks_for_groups(version: int) -> None:
    read = read_request(FIND_GROUPS, version)
    assert (read.key_type, read.coordinator_keys) == (0, ("readers", "lag"))
    one = find_coordinator(["readers"], CoordinatorType.GROUP)
    assert one.versions == VersionRange(1, 6)
    assert read_request(one, 1).key_type == 0


def test_several_ids_in_one_request_need_version_4() -> None:
    assert FIND_TWO.versions == VersionRange(4, 6)
    assert read_request(FIND_TWO, 4).coordinator_keys == ("orders", "clicks")
    with pytest.raises(UnsupportedVersionError):
        FIND_TWO.encode(3)


@pytest.mark.parametrize("version", range(4))
def test_add_partitions_groups_them_by_topic(version: int) -> None:
    read = read_request(ADD, version)
    assert read.v3_and_below_transactional_id == "orders"
    assert (read.v3_and_below_producer_id, read.v3_and_below_producer_epoch) == (4711, 3)
    found = {topic.name: topic.partitions for topic in read.v3_and_below_topics}
    assert found == {"a": (0, 3), "b": (7,)}


def test_a_topics_name_too_long_for_the_wire_is_an_invalid_topic() -> None:
    request = add_partitions_to_txn(
        "orders", ProducerIdAndEpoch(1, 0), [TopicPartition("x" * 40_000, 0)]
    )
    with pytest.raises(InvalidTopicError):
        request.encode(3)


def test_end_txn_is_sent_in_the_transactions_own_version() -> None:
    """TransactionManagerTest#testTransactionManagerEnablesV2: version 2 never with EndTxn 4,
    version 1 never with 5.
    """
    assert END_1.versions == (0, 4)
    assert END_2.versions == (5, 5)
    for request, version in ((END_1, 0), (END_1, 4), (END_2, 5)):
        read = read_request(request, version)
        assert (read.transactional_id, read.producer_id, read.producer_epoch) == ("orders", 4711, 3)
        assert read.committed is request.committed


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_added_to_a_transaction_of_version_1(version: int) -> None:
    read = read_request(ADD_OFFSETS, version)
    assert (read.transactional_id, read.group_id) == ("orders", "readers")
    assert (read.producer_id, read.producer_epoch) == (4711, 3)


def test_offsets_are_committed_in_the_transactions_own_protocol() -> None:
    """KIP-890: version 5 adds the group to the transaction, the versions below must not."""
    assert OFFSETS_1.versions == (0, 4)
    assert OFFSETS_2.versions == (5, 5)


@pytest.mark.parametrize("version", range(6))
def test_offsets_are_committed_without_a_member(version: int) -> None:
    read = read_request(OFFSETS_2 if version == 5 else OFFSETS_1, version)
    assert (read.transactional_id, read.group_id) == ("orders", "readers")
    assert (read.producer_id, read.producer_epoch) == (4711, 3)
    if version >= 3:
        assert (read.generation_id, read.member_id, read.group_instance_id) == (-1, "", None)
    found = {
        TopicPartition(topic.name, p.partition_index): OffsetAndMetadata(
            p.committed_offset,
            p.committed_leader_epoch if version >= 2 else OFFSETS[PARTITIONS[1]].leader_epoch,
            p.committed_metadata,
        )
        for topic in read.topics
        for p in topic.partitions
    }
    assert [topic.name for topic in read.topics] == ["a", "b"]
    if version >= 2:
        assert found == OFFSETS
    else:
        assert {tp: one.offset for tp, one in found.items()} == {
            tp: one.offset for tp, one in OFFSETS.items()
        }


# --- answers


@pytest.mark.parametrize("version", range(1, 7))
def test_a_missing_coordinator_is_an_error_without_a_node(version: int) -> None:
    data = found_coordinator(
        FIND, version, KioErrorCode.coordinator_not_available, node_id=-1, host="", port=-1
    )
    response = decode(FIND, version, data)
    found = response if version < 4 else response.coordinators[0]
    assert found.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert found.error_message == "the broker's words"


@pytest.mark.parametrize("version", [3, 6])
@pytest.mark.parametrize("fields", [{"node_id": -1}, {"host": ""}, {"port": 0}])
def test_a_coordinator_that_can_be_none_is_refused(version: int, fields: dict[str, Any]) -> None:
    assert refused(lambda: decode(FIND, version, found_coordinator(FIND, version, **fields)))


@pytest.mark.parametrize("keys", [(), ("orders",), ("orders", "orders"), ("orders", "other")])
def test_an_answer_about_other_ids_is_refused(keys: tuple[str, ...]) -> None:
    data = found_coordinator(FIND_TWO, 6, keys=keys)
    assert refused(lambda: decode(FIND_TWO, 6, data))


@pytest.mark.parametrize(
    "errors",
    [
        [],
        ADDED[:1],
        [*ADDED, ("c", [(0, KioErrorCode.none)])],
        [*ADDED, ("a", [(0, KioErrorCode.none)])],
    ],
)
@pytest.mark.parametrize("version", [0, 3])
def test_an_answer_about_other_partitions_is_refused(version: int, errors: Any) -> None:
    assert refused(lambda: decode(ADD, version, added_partitions(version, errors)))
    assert refused(lambda: decode(OFFSETS_1, version, committed_offsets(version, errors)))


@pytest.mark.parametrize("version", range(6))
def test_the_end_brings_the_next_identity_from_version_5_on(version: int) -> None:
    request = END_2 if version == 5 else END_1
    response = decode(request, version, end_txn(version))
    assert response.error_code is ErrorCode.NONE
    assert response.throttle_time_ms == 9
    expected = (4711, 4) if version == 5 else (-1, -1)
    assert (response.producer_id, response.producer_epoch) == expected


def test_an_end_with_an_error_needs_no_identity() -> None:
    data = end_txn(5, KioErrorCode.invalid_txn_state, producer_id=-1, producer_epoch=-1)
    assert decode(END_2, 5, data).error_code is ErrorCode.INVALID_TXN_STATE
