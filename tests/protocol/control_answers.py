"""Answers of the control plane as kio writes them, with all that a version can say."""

from __future__ import annotations

import uuid
from typing import Any

from kio_oracle import in_every_version, response

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.messages.api_versions import ApiVersionsRequest
from spark_kafka_sink.protocol.messages.delete_topics import DeleteTopicsRequest
from spark_kafka_sink.protocol.metadata import MetadataRequest
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.protocol.topic_requests import NewTopic, create_topics
from tests.fakes.every_request import TOPIC_NAMES
from tests.fakes.kafka_messages import init_request

API_VERSIONS = ApiVersionsRequest(
    client_software_name="spark-kafka-sink", client_software_version="0.1.0"
)
METADATA = MetadataRequest(("orders", "nope", "t"))
INIT_PRODUCER_ID = init_request(None, 60_000)
CREATE_TOPICS = create_topics(
    [NewTopic("orders", 3, 1, {"retention.ms": "1000"}), NewTopic("clicks", 1, 1)], 5_000
)
DELETE_TOPICS = DeleteTopicsRequest(topic_names=("orders", "clicks"), timeout_ms=5_000)

ALL = in_every_version(
    API_VERSIONS,
    METADATA,
    TOPIC_NAMES,
    INIT_PRODUCER_ID,
    CREATE_TOPICS,
    DELETE_TOPICS,
)
TOPIC_ID = uuid.UUID(int=0x0123456789ABCDEF)


# --- answers as kio writes them, with all that a version can say


def api_versions(version: int, **fields: Any) -> bytes:
    keys = fields.pop("keys", [(0, 0, 12), (3, 0, 13), (18, 0, 4), (71, 0, 0), (9999, 2, 1)])
    features = fields.pop("features", [("transaction.version", 2), ("metadata.version", 29)])
    plain = {
        "api_keys": [{"api_key": k, "min_version": a, "max_version": b} for k, a, b in keys],
        "supported_features": [{"name": "transaction.version", "min_version": 0, "max_version": 2}],
        "finalized_features_epoch": 41,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": 0}
            for name, level in features
        ],
        "zk_migration_ready": True,
    }
    return response("api_versions", version, **(plain | fields))


def partition(index: int, **more: Any) -> dict[str, Any]:
    plain = {
        "error_code": 0,
        "partition_index": index,
        "leader_id": 1,
        "leader_epoch": 5 + index,
        "replica_nodes": [1, 2, 3],
        "isr_nodes": [1, 2],
        "offline_replicas": [3],
    }
    return plain | more


def topic(name: str, *partitions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"error_code": 0, "name": name, "topic_id": TOPIC_ID, "partitions": [*partitions]} | more


def metadata(version: int, *topics: dict[str, Any], error: ErrorCode = ErrorCode.NONE) -> bytes:
    brokers = [(1, "b1.example", 9092, "r1"), (2, "::1", 65535, None)]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    without_leader = {"leader_id": -1, "error_code": ErrorCode.LEADER_NOT_AVAILABLE}
    plain: tuple[dict[str, Any], ...] = (
        topic("orders", partition(0), partition(1, **without_leader)),
        topic("nope", topic_id=None, error_code=unknown, is_internal=True),
    )
    return response(
        "metadata",
        version,
        brokers=[{"node_id": i, "host": h, "port": p, "rack": rack} for i, h, p, rack in brokers],
        cluster_id="cluster",
        controller_id=2,
        topics=[*(topics or plain)],
        cluster_authorized_operations=0,
        error_code=error,
    )


def init_answer(version: int, **fields: Any) -> bytes:
    plain = {"producer_id": 4711, "producer_epoch": 2}
    return response("init_producer_id", version, **(plain | fields))


def created_topics(version: int, names: tuple[str, ...] = ("orders", "clicks")) -> bytes:
    plain = {"read_only": False, "config_source": 5, "is_sensitive": False}
    topics = [
        {
            "name": name,
            "topic_id": TOPIC_ID,
            "error_code": ErrorCode.TOPIC_ALREADY_EXISTS if name == "clicks" else ErrorCode.NONE,
            "error_message": "it is there" if name == "clicks" else None,
            "topic_config_error_code": 29,
            "num_partitions": 3,
            "replication_factor": 1,
            "configs": [{"name": k, "value": v, **plain} for k, v in (("a", "b"), ("c", None))],
        }
        for name in names
    ]
    return response("create_topics", version, topics=topics)


def deleted_topics(version: int, names: tuple[str, ...] = ("orders", "clicks")) -> bytes:
    plain = {
        "error_code": ErrorCode.TOPIC_DELETION_DISABLED,
        "error_message": "the broker's words",
    }
    return response("delete_topics", version, responses=[{"name": name, **plain} for name in names])


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
