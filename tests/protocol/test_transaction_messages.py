"""FindCoordinator, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn: in which versions
they are sent, and which answers to them make no sense. (Their bytes: ``test_golden_requests.py``.)
"""

from __future__ import annotations

from typing import Any

import pytest
from hostile import refused
from kio_oracle import decode, in_every_version, response

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import OffsetAndMetadata, txn_offset_commit
from spark_kafka_sink.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from spark_kafka_sink.protocol.messages.find_coordinator import FindCoordinatorRequest
from spark_kafka_sink.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction, ProducerIdAndEpoch
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

Topics = list[tuple[str, list[tuple[int, ErrorCode]]]]


def found_coordinator(
    request: FindCoordinatorRequest, version: int, code: ErrorCode = ErrorCode.NONE, **fields: Any
) -> bytes:
    plain: dict[str, Any] = {
        "error_code": code,
        "error_message": "the broker's words" if code else None,
        "node_id": 2,
        "host": "two.example",
        "port": 9092,
    }
    plain |= fields
    keys = fields.get("keys", request.coordinator_keys)
    coordinators = [{"key": key, **plain} for key in keys]
    return response("find_coordinator", version, coordinators=coordinators, **plain)


def added_partitions(version: int, errors: Topics) -> bytes:
    topics = [
        {
            "name": topic,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": code} for index, code in results
            ],
        }
        for topic, results in errors
    ]
    return response("add_partitions_to_txn", version, results_by_topic_v3_and_below=topics)


ADDED: Topics = [
    ("a", [(3, ErrorCode.NONE), (0, ErrorCode.OPERATION_NOT_ATTEMPTED)]),
    ("b", [(7, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]),
]


def end_txn(version: int, **fields: Any) -> bytes:
    return response("end_txn", version, **({"producer_id": 4711, "producer_epoch": 4} | fields))


def committed_offsets(version: int, errors: Topics) -> bytes:
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": index, "error_code": code} for index, code in results
            ],
        }
        for topic, results in errors
    ]
    return response("txn_offset_commit", version, topics=topics)


def answer(request: Any, version: int) -> bytes:
    if isinstance(request, AddOffsetsToTxnRequest):
        return response("add_offsets_to_txn", version)
    if isinstance(request, TxnOffsetCommitRequest):
        return committed_offsets(version, ADDED)
    if isinstance(request, FindCoordinatorRequest):
        return found_coordinator(request, version)
    if isinstance(request, AddPartitionsToTxnRequest):
        return added_partitions(version, ADDED)
    return end_txn(version)


def test_a_transaction_is_ended_in_its_own_version() -> None:
    """TransactionManagerTest#testTransactionManagerEnablesV2: version 2 never with EndTxn 4,
    version 1 never with 5. KIP-890: TxnOffsetCommit 5 adds the group to the transaction, the
    versions below must not.
    """
    assert END_1.versions == OFFSETS_1.versions == (0, 4)
    assert END_2.versions == OFFSETS_2.versions == (5, 5)


@pytest.mark.parametrize("version", range(1, 7))
def test_a_missing_coordinator_is_an_error_without_a_node(version: int) -> None:
    data = found_coordinator(
        FIND, version, ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1, host="", port=-1
    )
    found = decode(FIND, version, data)
    found = found if version < 4 else found.coordinators[0]
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
        [*ADDED[:1], ("c", [(0, ErrorCode.NONE)])],
        [*ADDED, ("a", [(0, ErrorCode.NONE)])],
    ],
)
@pytest.mark.parametrize("version", [0, 3])
def test_an_answer_about_other_partitions_is_refused(version: int, errors: Any) -> None:
    assert refused(lambda: decode(ADD, version, added_partitions(version, errors)))
    assert refused(lambda: decode(OFFSETS_1, version, committed_offsets(version, errors)))


def test_an_end_with_an_error_needs_no_identity() -> None:
    data = end_txn(5, error_code=ErrorCode.INVALID_TXN_STATE, producer_id=-1, producer_epoch=-1)
    assert decode(END_2, 5, data).error_code is ErrorCode.INVALID_TXN_STATE
