"""Answers of the control plane as kio writes them, with all that a version can say."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

from kio.schema.errors import ErrorCode as KioErrorCode
from kio_oracle import Module, in_every_version, write

from spark_kafka_sink.admin.admin_client import TOPIC_NAMES
from spark_kafka_sink.protocol.messages.api_versions import ApiVersionsRequest
from spark_kafka_sink.protocol.messages.delete_topics import DeleteTopicsRequest
from spark_kafka_sink.protocol.metadata import MetadataRequest
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.protocol.topic_requests import NewTopic, create_topics
from spark_kafka_sink.protocol.transaction_requests import init_producer_id
from tests.fakes.kafka_messages import init_request

API_VERSIONS = ApiVersionsRequest(
    client_software_name="spark-kafka-sink", client_software_version="0.1.0"
)
METADATA = MetadataRequest(("orders", "nope", "t"))
INIT_PRODUCER_ID = init_request(None, 60_000)
INIT_2PC = init_producer_id("job-7", 60_000, enable_2pc=True)
CREATE_TOPICS = create_topics(
    [NewTopic("orders", 3, 1, {"retention.ms": "1000"}), NewTopic("clicks", 1, 1)], 5_000
)
DELETE_TOPICS = DeleteTopicsRequest(topic_names=("orders", "clicks"), timeout_ms=5_000)

ALL = in_every_version(
    API_VERSIONS,
    METADATA,
    TOPIC_NAMES,
    INIT_PRODUCER_ID,
    INIT_2PC,
    CREATE_TOPICS,
    DELETE_TOPICS,
)
TOPIC_ID = uuid.UUID(int=0x0123456789ABCDEF)


def milliseconds(count: int) -> dt.timedelta:
    return dt.timedelta(milliseconds=count)


# --- answers as kio writes them, with all that a version can say


def api_versions(version: int, **fields: Any) -> bytes:
    kio = Module("api_versions", version, "response")
    keys = fields.pop("keys", [(0, 0, 12), (3, 0, 13), (18, 0, 4), (71, 0, 0), (9999, 2, 1)])
    features = fields.pop("features", [("transaction.version", 2), ("metadata.version", 29)])
    finalized = tuple(
        kio.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=0)
        for name, level in features
        if kio.has("FinalizedFeatureKey")
    )
    supported = tuple(
        kio.SupportedFeatureKey(name="transaction.version", min_version=0, max_version=2)
        for _ in range(kio.has("SupportedFeatureKey"))
    )
    plain = {
        "error_code": KioErrorCode.none,
        "api_keys": tuple(
            kio.ApiVersion(api_key=k, min_version=low, max_version=high) for k, low, high in keys
        ),
        "throttle_time": milliseconds(7),
        "supported_features": supported,
        "finalized_features_epoch": 41,
        "finalized_features": finalized,
        "zk_migration_ready": True,
    }
    return write(kio.ApiVersionsResponse(**(plain | fields)))


def metadata(version: int, **fields: Any) -> bytes:
    kio = Module("metadata", version, "response")

    def partition(index: int, **more: Any) -> Any:
        plain: dict[str, Any] = {
            "error_code": KioErrorCode.none,
            "partition_index": index,
            "leader_id": 1,
            "leader_epoch": 5 + index,
            "replica_nodes": (1, 2, 3),
            "isr_nodes": (1, 2),
            "offline_replicas": (3,),
        }
        return kio.MetadataResponsePartition(**(plain | more))

    def topic(name: str, partitions: tuple[Any, ...], **more: Any) -> Any:
        plain: dict[str, Any] = {
            "error_code": KioErrorCode.none,
            "name": name,
            "topic_id": TOPIC_ID,
            "partitions": partitions,
        }
        return kio.MetadataResponseTopic(**(plain | more))

    brokers = fields.pop("brokers", [(1, "b1.example", 9092, "r1"), (2, "::1", 65535, None)])
    topics = fields.pop(
        "topics",
        lambda topic, partition: (
            topic(
                "orders",
                (
                    partition(0),
                    partition(1, leader_id=-1, error_code=KioErrorCode.leader_not_available),
                ),
            ),
            topic(
                "nope",
                (),
                topic_id=None,
                error_code=KioErrorCode.unknown_topic_or_partition,
                is_internal=True,
            ),
        ),
    )
    plain: dict[str, Any] = {
        "throttle_time": milliseconds(11),
        "brokers": tuple(
            kio.MetadataResponseBroker(node_id=i, host=host, port=port, rack=rack)
            for i, host, port, rack in brokers
        ),
        "cluster_id": "cluster",
        "controller_id": 2,
        "topics": topics(topic, partition),
        "cluster_authorized_operations": 0,
        "error_code": KioErrorCode.none,
    }
    return write(kio.MetadataResponse(**(plain | fields)))


def init_answer(version: int, **fields: Any) -> bytes:
    kio = Module("init_producer_id", version, "response")
    plain: dict[str, Any] = {
        "throttle_time": milliseconds(3),
        "error_code": KioErrorCode.none,
        "producer_id": 4711,
        "producer_epoch": 2,
    }
    return write(kio.InitProducerIdResponse(**(plain | fields)))


def created_topics(version: int, names: tuple[str, ...] = ("orders", "clicks")) -> bytes:
    kio = Module("create_topics", version, "response")
    results = []
    for name in names:
        configs = tuple(
            kio.CreatableTopicConfigs(
                name=key, value=value, read_only=False, config_source=5, is_sensitive=False
            )
            for key, value in (("a", "b"), ("c", None))
            if kio.has("CreatableTopicConfigs")
        )
        failed = name == "clicks"
        results.append(
            kio.CreatableTopicResult(
                name=name,
                topic_id=TOPIC_ID,
                error_code=KioErrorCode.topic_already_exists if failed else KioErrorCode.none,
                error_message="it is there" if failed else None,
                topic_config_error_code=29,
                num_partitions=3,
                replication_factor=1,
                configs=configs,
            )
        )
    return write(kio.CreateTopicsResponse(throttle_time=milliseconds(2), topics=tuple(results)))


def deleted_topics(version: int, names: tuple[str, ...] = ("orders", "clicks")) -> bytes:
    kio = Module("delete_topics", version, "response")
    text = {"error_message": "the broker's words"} if version == 5 else {}
    results = tuple(
        kio.DeletableTopicResult(name=name, error_code=KioErrorCode.topic_deletion_disabled, **text)
        for name in names
    )
    return write(kio.DeleteTopicsResponse(throttle_time=milliseconds(2), responses=results))


ANSWERS = {
    ApiKey.API_VERSIONS: api_versions,
    ApiKey.METADATA: metadata,
    ApiKey.INIT_PRODUCER_ID: init_answer,
    ApiKey.CREATE_TOPICS: created_topics,
    ApiKey.DELETE_TOPICS: deleted_topics,
}


def answer(request: Any, version: int) -> bytes:
    data: bytes = ANSWERS[request.api_key](version)
    return data
