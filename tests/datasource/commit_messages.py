"""The message of a task that wrote three rows to one partition, and what tests change in it."""

from __future__ import annotations

from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage


def message(**changes):
    values = {
        "rows": 3,
        "acknowledged": 3,
        "bytes": 120,
        "batches": 2,
        "batch_bytes": 240,
        "requests": 2,
        "retries": 0,
        "splits": 0,
        "duplicates": 0,
        "throttle_ms": 0,
        "retried_rows": 0,
        "queue_ms": 8,
        "max_queue_ms": 5,
        "buffer_wait_ms": 0,
        "metadata_wait_ms": 0,
        "connections": 1,
        "elapsed_ms": 12,
        "nodes": ((1, 2, 9, 6, ""),),
        "offsets": (("t", 0, 5, 7),),
        "partition_id": 0,
        "attempt": 0,
        "task_attempt_id": 17,
        "host": "executor-1",
        "query_id": "",
        "run_id": "",
        "batch_id": -1,
        "producer_id": 4711,
        "producer_epoch": 0,
        "cluster_id": "c",
    }
    return TaskCommitMessage(**(values | changes))
