"""Requests and responses of Kafka, in fewer words than their classes take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.log_requests import OffsetSpec
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from spark_kafka_sink.protocol.messages.api_versions import ApiVersionsRequest
from spark_kafka_sink.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from spark_kafka_sink.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from spark_kafka_sink.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from spark_kafka_sink.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from spark_kafka_sink.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorResponse,
)
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spark_kafka_sink.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.protocol.topic_requests import ConfigResourceType
from spark_kafka_sink.protocol.transaction_requests import by_topic, end_txn, init_producer_id

API_VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="0")


def init_request(
    transactional_id: str | None, timeout_ms: int, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdRequest:
    return init_producer_id(transactional_id, timeout_ms, ProducerIdAndEpoch(producer_id, epoch))


def init_response(
    code: ErrorCode, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdResponse:
    return InitProducerIdResponse(0, code, producer_id, epoch)


def end_request(
    transactional_id: str, producer_id: int, epoch: int, committed: bool, transaction_version: int
) -> EndTxnRequest:
    transaction = PreparedTransaction(transactional_id, producer_id, epoch, transaction_version)
    return end_txn(transaction, committed=committed)


def end_response(code: ErrorCode, producer_id: int = -1, epoch: int = -1) -> EndTxnResponse:
    return EndTxnResponse(0, code, producer_id, epoch)


def find_response(
    key: str, code: ErrorCode, node: Node, message: str | None = None
) -> FindCoordinatorResponse:
    """Of version 4 and later."""
    found = Coordinator(key, node.id, node.host, node.port, code, message)
    return FindCoordinatorResponse(0, ErrorCode.NONE, None, 0, "", 0, (found,))  # type: ignore[arg-type]


def add_response(errors: Mapping[TopicPartition, ErrorCode]) -> AddPartitionsToTxnResponse:
    topics = tuple(
        AddPartitionsToTxnTopicResult(
            tp.topic,
            (AddPartitionsToTxnPartitionResult(tp.partition, code),),  # type: ignore[arg-type]
        )
        for tp, code in errors.items()
    )
    return AddPartitionsToTxnResponse(0, topics)  # type: ignore[arg-type]


def offsets_request(
    partitions: Iterable[TopicPartition], spec: OffsetSpec = OffsetSpec.LATEST
) -> ListOffsetsRequest:
    """Of many partitions."""
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=number, timestamp=spec.value)
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ],
    )


def fetch_request(
    *pieces: tuple[TopicPartition, int],
    max_bytes: int = 4 * 1024 * 1024,
    max_wait_ms: int = 0,
    read_committed: bool = False,
) -> FetchRequest:
    """Of many partitions, each from an offset on."""
    topics: dict[str, list[FetchPartition]] = {}
    for tp, offset in pieces:
        topics.setdefault(tp.topic, []).append(
            FetchPartition(
                partition=tp.partition, fetch_offset=offset, partition_max_bytes=max_bytes
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=16 * 1024 * 1024,
        isolation_level=int(read_committed),
        topics=[
            FetchTopic(topic=name, partitions=partitions) for name, partitions in topics.items()
        ],
    )


def producers_request(partitions: Iterable[TopicPartition]) -> DescribeProducersRequest:
    """Of many partitions."""
    return DescribeProducersRequest(
        topics=[
            TopicRequest(name=name, partition_indexes=numbers)
            for name, numbers in by_topic(partitions).items()
        ]
    )


def configs_request(
    resources: Iterable[tuple[ConfigResourceType, str]], names: Sequence[str] | None = None
) -> DescribeConfigsRequest:
    """Of topics and brokers."""
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind.value, resource_name=name, configuration_keys=names
            )
            for kind, name in resources
        ]
    )
