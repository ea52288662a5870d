"""Kafka's requests as this client makes them, one of each kind.

Their bytes are recorded (``protocol/test_golden_requests.py``), their answers random (``fuzz/``).
"""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.datasource.checks.clock_difference import QUORUM
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import (
    LIST_GROUPS,
    OffsetAndMetadata,
    txn_offset_commit,
)
from spark_kafka_sink.protocol.log_requests import OffsetSpec, fetch, list_offsets
from spark_kafka_sink.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from spark_kafka_sink.protocol.messages.api_versions import ApiVersionsRequest
from spark_kafka_sink.protocol.messages.delete_topics import DeleteTopicsRequest
from spark_kafka_sink.protocol.messages.describe_transactions import DescribeTransactionsRequest
from spark_kafka_sink.protocol.messages.metadata import MetadataRequest as MetadataMessage
from spark_kafka_sink.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from spark_kafka_sink.protocol.messages.sasl_handshake import SaslHandshakeRequest
from spark_kafka_sink.protocol.metadata import MetadataRequest
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.protocol.topic_requests import (
    ConfigResourceType,
    NewTopic,
    create_topics,
    describe_configs,
)
from spark_kafka_sink.protocol.transaction_requests import (
    CoordinatorType,
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_transactions,
)
from spark_kafka_sink.transactions.operations.held_partitions import offset_fetch
from tests.fakes.kafka_messages import (
    configs_request,
    fetch_request,
    offsets_request,
    producers_request,
)

TPS = (TopicPartition("a", 0), TopicPartition("b", 7), TopicPartition("a", 3))
OFFSETS = {TPS[0]: OffsetAndMetadata(2**62), TPS[1]: OffsetAndMetadata(7, 12, "batch 5")}
WHO = ProducerIdAndEpoch(4711, 3)
TOPIC_NAMES = MetadataMessage(topics=None, allow_auto_topic_creation=False)

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
    "describe configs": configs_request(
        ((ConfigResourceType.TOPIC, "a"), (ConfigResourceType.BROKER, "1")), ("retention.ms",)
    ),
    "describe configs of topics": describe_configs(
        ConfigResourceType.TOPIC, ("a", "b", "a"), ("retention.ms",)
    ),
    "describe all configs": describe_configs(ConfigResourceType.TOPIC, ["a"]),
    "describe producers": producers_request(TPS),
    "describe quorum": QUORUM,
    "describe transactions": DescribeTransactionsRequest(transactional_ids=("orders", "clicks")),
    "end": end_txn(PreparedTransaction("orders", *WHO, 1), committed=True),
    "end of version 2": end_txn(PreparedTransaction("orders", *WHO, 2), committed=False),
    "fetch": fetch_request(*((tp, 5) for tp in TPS)),
    "fetch committed": fetch_request(
        (TPS[0], 9), max_bytes=70_000, max_wait_ms=500, read_committed=True
    ),
    "fetch one": fetch(TPS[1], 7, max_bytes=1024),
    "fetch one committed": fetch(TPS[1], 7, read_committed=True),
    "find": find_coordinator(["orders"]),
    "find group": find_coordinator(["readers"], CoordinatorType.GROUP),
    "find many": find_coordinator(["orders", "clicks"]),
    "init": init_producer_id("orders", 60_000),
    "init idempotent": init_producer_id(None, 60_000),
    "list groups": LIST_GROUPS,
    "list offsets": offsets_request(TPS, OffsetSpec.EARLIEST),
    "list offsets of one": list_offsets(TPS[2], OffsetSpec.LATEST),
    "list first offsets of one": list_offsets(TPS[2], OffsetSpec.EARLIEST),
    "list transactions": list_transactions((TransactionState.ONGOING.value,), prefix="a.b_"),
    "list transactions by age": list_transactions((), (1, 2), min_duration_ms=1000),
    "metadata": MetadataRequest(("a", "b"), False, True),
    "metadata creating topics": MetadataRequest(("a",)),
    "metadata of brokers": MetadataRequest(()),
    "offset fetch": offset_fetch("readers", TPS),
    "sasl authenticate": SaslAuthenticateRequest(auth_bytes=b"token"),
    "sasl handshake": SaslHandshakeRequest(mechanism="PLAIN"),
    "topic names": TOPIC_NAMES,
    "txn offset commit": txn_offset_commit(
        PreparedTransaction("orders", *WHO, 1), "readers", OFFSETS
    ),
    "txn offset commit 2": txn_offset_commit(
        PreparedTransaction("orders", *WHO, 2), "readers", OFFSETS
    ),
}
