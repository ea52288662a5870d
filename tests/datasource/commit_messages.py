"""The message of a task that wrote three rows to one partition, and what tests change in it; the
configuration of its write.
"""

from __future__ import annotations

from dataclasses import fields

from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.write.commit_message import (
    TaskCommitMessage,
    TaskCounts,
    TaskTransaction,
)
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.producer.metrics.produce_report import NodeReport, ProduceReport
from spark_kafka_sink.protocol.cluster import TopicPartition

_MESSAGE = {
    TaskIdentity: {"task_attempt_id": 17, "host": "executor-1"},
    ProduceReport: {
        "rows": 3,
        "bytes": 120,
        "batches": 2,
        "batch_bytes": 240,
        "requests": 2,
        "queue_ms": 8,
        "max_queue_ms": 5,
        "connections": 1,
        "nodes": {1: NodeReport(2, 9, 6)},
        "offsets": {TopicPartition("t", 0): (5, 7)},
        "cluster_id": "c",
    },
    TaskCounts: {},
    TaskCommitMessage: {"begun_ms": 0, "elapsed_ms": 12},
    TaskTransaction: {"generation": -1},
}


def config(**options):
    return parse_sink_config({"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"} | options)


def message(**changes):
    """``changes`` are fields of the message or its parts; ``prepared`` and others of
    TaskTransaction are of exactly-once.
    """
    parts = {}
    for cls, values in _MESSAGE.items():
        own = {one.name for one in fields(cls)} & changes.keys()
        parts[cls] = values | {name: changes.pop(name) for name in own}
    assert not changes, changes
    transaction = parts.pop(TaskTransaction)
    transaction = TaskTransaction(**transaction) if len(transaction) > 1 else None
    more = parts.pop(TaskCommitMessage)
    return TaskCommitMessage(
        *(cls(**values) for cls, values in parts.items()), transaction=transaction, **more
    )
