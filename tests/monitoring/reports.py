"""Reports and Spark's events as the listener gets them."""

import json
from types import SimpleNamespace

QUERY_ID = "3f0c9c3e-0000-4000-8000-000000000001"
RUN_ID = "3f0c9c3e-0000-4000-8000-000000000002"


def report(batch_id=0, **fields):
    """A report of version 1, as far as metrics look at it."""
    return {
        "reportVersion": 1,
        "writtenAtMs": 1_700_000_000_000,
        "outcome": "committed",
        "error": None,
        "queryId": QUERY_ID,
        "queryName": "orders",
        "runId": RUN_ID,
        "batchId": batch_id,
        "optionsFingerprint": "f1",
        "rows": 100,
        "bytes": 2_000,
        "bytesBeforeCompression": 4_000,
        "batches": 4,
        "requests": 3,
        "retries": 1,
        "throttleMs": 250,
        "maxQueueMs": 1_500,
        "taskSkew": 2.5,
        "transactions": 2,
        "oldestTransactionMs": 90_000,
        "transactionTimeoutMs": 900_000,
        "connections": 6,
        "commitMs": 40,
        "topicCounts": [
            {"topic": "orders", "rows": 70, "bytes": 1_500},
            {"topic": "refunds", "rows": 30, "bytes": 500},
        ],
        "brokers": [
            {"id": 1, "requests": 2, "meanLatencyMs": 4.0, "maxLatencyMs": 9}
            | {"latencies": [0, 0, 1, 1] + [0] * 11},
            {"id": 2, "requests": 1, "meanLatencyMs": 8.0, "maxLatencyMs": 8}
            | {"latencies": [0, 0, 0, 1] + [0] * 11},
        ],
    } | fields


def failed(code, **fields):
    error = {"code": code, "message": "m", "hint": "h"}
    return report(**({"outcome": "failed", "error": error} | fields))


def started(name="orders", query_id=QUERY_ID, run_id=RUN_ID):
    return SimpleNamespace(id=query_id, runId=run_id, name=name)


def progress(batch_id=0, rows=100, name="orders", query_id=QUERY_ID, *, seconds=1.5, lag=None):
    document = {
        "id": query_id,
        "runId": RUN_ID,
        "name": name,
        "batchId": batch_id,
        "numInputRows": rows,
        "durationMs": {"addBatch": 1_200, "triggerExecution": int(seconds * 1000)},
        # As Spark's: the metrics of a source are texts.
        "sources": []
        if lag is None
        else [{"description": "KafkaV2", "metrics": {"maxOffsetsBehindLatest": str(lag)}}],
        "sink": {"description": "PythonTable@1", "numOutputRows": rows},
    }
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(document)))


def idle(query_id=QUERY_ID, run_id=RUN_ID):
    return SimpleNamespace(id=query_id, runId=run_id)


def terminated(exception=None, query_id=QUERY_ID, run_id=RUN_ID):
    return SimpleNamespace(id=query_id, runId=run_id, exception=exception)
