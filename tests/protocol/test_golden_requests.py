"""The bytes of each control request in each version, as they were recorded.

kio reads them in the tests beside; this shows that a request is still filled in the same way.
``python tests/protocol/test_golden_requests.py`` records them again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.protocol.admin_messages import (
    ConfigResource,
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeQuorumRequest,
    TopicNamesRequest,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.control_messages import (
    AddPartitionsToTxnRequest,
    CoordinatorType,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    NewTopic,
)
from spark_kafka_sink.protocol.fetch_messages import (
    FetchPartition,
    FetchRequest,
    ListOffsetsRequest,
    OffsetSpec,
)
from spark_kafka_sink.protocol.group_messages import ListGroupsRequest, OffsetFetchRequest
from spark_kafka_sink.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from spark_kafka_sink.protocol.messages.api_versions import ApiVersionsRequest
from spark_kafka_sink.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from spark_kafka_sink.protocol.messages.sasl_handshake import SaslHandshakeRequest
from spark_kafka_sink.protocol.transaction_admin_messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    TransactionState,
)
from spark_kafka_sink.protocol.transaction_offset_messages import (
    OffsetAndMetadata,
    TxnOffsetCommitRequest,
)
from tests.fakes.kafka_messages import end_request, init_request

RECORDED = Path(__file__).with_name("golden_requests.json")
TPS = (TopicPartition("a", 0), TopicPartition("b", 7), TopicPartition("a", 3))
OFFSETS = {TPS[0]: OffsetAndMetadata(2**62), TPS[1]: OffsetAndMetadata(7, 12, "batch 5")}
#: Producer id and epoch.
WHO = (4711, 3)

REQUESTS: dict[str, Any] = {
    "add offsets": AddOffsetsToTxnRequest(
        transactional_id="orders", producer_id=WHO[0], producer_epoch=WHO[1], group_id="readers"
    ),
    "add partitions": AddPartitionsToTxnRequest("orders", *WHO, TPS),
    "api versions": ApiVersionsRequest(
        client_software_name="spark-kafka-sink", client_software_version="1.0"
    ),
    "create topics": CreateTopicsRequest((NewTopic("a", 3, 2, {"x": "y"}),), 1000),
    "validate topics": CreateTopicsRequest((NewTopic("a", 3, 2), NewTopic("b", 1, 1)), 5, True),
    "delete topics": DeleteTopicsRequest(("a", "b"), 1000),
    "describe configs": DescribeConfigsRequest(
        (
            ConfigResource(ConfigResourceType.TOPIC, "a"),
            ConfigResource(ConfigResourceType.BROKER, "1"),
        ),
        ("retention.ms",),
    ),
    "describe all configs": DescribeConfigsRequest(
        (ConfigResource(ConfigResourceType.TOPIC, "a"),)
    ),
    "describe producers": DescribeProducersRequest(TPS),
    "describe quorum": DescribeQuorumRequest(),
    "describe transactions": DescribeTransactionsRequest(("orders", "clicks")),
    "end": end_request("orders", *WHO, True, 1),
    "end of version 2": end_request("orders", *WHO, False, 2),
    "fetch": FetchRequest(tuple(FetchPartition(tp, 5) for tp in TPS), 0),
    "fetch committed": FetchRequest((FetchPartition(TPS[0], 9, 70_000),), read_committed=True),
    "find": FindCoordinatorRequest(("orders",)),
    "find group": FindCoordinatorRequest(("readers",), CoordinatorType.GROUP),
    "find many": FindCoordinatorRequest(("orders", "clicks")),
    "init": init_request("orders", 60_000),
    "init idempotent": init_request(None, 60_000),
    "init with two phases": init_request("orders", 60_000, *WHO, enable_2pc=True),
    "list groups": ListGroupsRequest(),
    "list offsets": ListOffsetsRequest(TPS, OffsetSpec.EARLIEST),
    "list transactions": ListTransactionsRequest((TransactionState.ONGOING,), prefix="a.b_"),
    "list transactions by age": ListTransactionsRequest((), (1, 2), min_duration_ms=1000),
    "metadata": MetadataRequest(("a", "b"), False, True),
    "metadata of brokers": MetadataRequest(()),
    "offset fetch": OffsetFetchRequest("readers", TPS),
    "sasl authenticate": SaslAuthenticateRequest(auth_bytes=b"token"),
    "sasl handshake": SaslHandshakeRequest(mechanism="PLAIN"),
    "topic names": TopicNamesRequest(),
    "txn offset commit": TxnOffsetCommitRequest("orders", "readers", *WHO, OFFSETS, 1),
    "txn offset commit 2": TxnOffsetCommitRequest("orders", "readers", *WHO, OFFSETS, 2),
}


def encoded(request: Any) -> dict[str, str]:
    low, high = request.versions
    return {str(v): b"".join(request.encode(v)).hex() for v in range(low, high + 1)}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_has_the_bytes_that_were_recorded(name: str) -> None:
    assert encoded(REQUESTS[name]) == json.loads(RECORDED.read_text())[name]


if __name__ == "__main__":
    found = {name: encoded(request) for name, request in REQUESTS.items()}
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")
