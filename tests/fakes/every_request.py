"""Kafka's requests as this client makes them, one of each kind.

Their bytes are recorded (``protocol/test_golden_requests.py``), their answers random (``fuzz/``).
"""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.admin.admin_client import NewTopic, create_topics
from spark_kafka_sink.protocol.admin_messages import (
    ConfigResource,
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeQuorumRequest,
    TopicNamesRequest,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.control_messages import MetadataRequest
from spark_kafka_sink.protocol.fetch_messages import (
    FetchPartition,
    FetchRequest,
    ListOffsetsRequest,
    OffsetSpec,
)
from spark_kafka_sink.protocol.group_messages import ListGroupsRequest, OffsetFetchRequest
from spark_kafka_sink.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from spark_kafka_sink.protocol.messages.api_versions import ApiVersionsRequest
from spark_kafka_sink.protocol.messages.delete_topics import DeleteTopicsRequest
from spark_kafka_sink.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from spark_kafka_sink.protocol.messages.sasl_handshake import SaslHandshakeRequest
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.protocol.transaction_admin_messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    TransactionState,
)
from spark_kafka_sink.protocol.transaction_requests import (
    CoordinatorType,
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
)
from spark_kafka_sink.transactions.offset_commits import OffsetAndMetadata, txn_offset_commit

TPS = (TopicPartition("a", 0), TopicPartition("b", 7), TopicPartition("a", 3))
OFFSETS = {TPS[0]: OffsetAndMetadata(2**62), TPS[1]: OffsetAndMetadata(7, 12, "batch 5")}
WHO = ProducerIdAndEpoch(4711, 3)

REQUESTS: dict[str, Any] = {
    "add offsets": AddOffsetsToTxnRequest(
        transactional_id="orders", producer_id=4711, producer_epoch=3, group_id="readers"
    ),
    "add partitions": add_partitions_to_txn("orders", WHO, TPS),
    "api versions": ApiVersionsRequest(
        client_software_name="spark-kafka-sink", client_software_version="1.0"
    ),
    "create topics": create_topics([NewTopic("a", 3, 2, {"x": "y"})], 1000),
    "validate topics": create_topics(
        [NewTopic("a", 3, 2), NewTopic("b", 1, 1)], 5, validate_only=True
    ),
    "delete topics": DeleteTopicsRequest(topic_names=("a", "b"), timeout_ms=1000),
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
    "end": end_txn(PreparedTransaction("orders", *WHO, 1), committed=True),
    "end of version 2": end_txn(PreparedTransaction("orders", *WHO, 2), committed=False),
    "fetch": FetchRequest(tuple(FetchPartition(tp, 5) for tp in TPS), 0),
    "fetch committed": FetchRequest((FetchPartition(TPS[0], 9, 70_000),), read_committed=True),
    "find": find_coordinator(["orders"]),
    "find group": find_coordinator(["readers"], CoordinatorType.GROUP),
    "find many": find_coordinator(["orders", "clicks"]),
    "init": init_producer_id("orders", 60_000),
    "init idempotent": init_producer_id(None, 60_000),
    "init with two phases": init_producer_id("orders", 60_000, WHO, enable_2pc=True),
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
    "txn offset commit": txn_offset_commit(
        PreparedTransaction("orders", *WHO, 1), "readers", OFFSETS
    ),
    "txn offset commit 2": txn_offset_commit(
        PreparedTransaction("orders", *WHO, 2), "readers", OFFSETS
    ),
}
