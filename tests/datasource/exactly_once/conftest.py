"""Options of an exactly-once write into the session's Kafka."""

from __future__ import annotations

import uuid

import pytest


@pytest.fixture
def prefix():
    return f"test.{uuid.uuid4().hex[:12]}"


@pytest.fixture
def options(kafka, topic, prefix, tmp_path):
    return {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": prefix,
        "kafka.transaction.timeout.ms": "60000",
        "reportPath": str(tmp_path / "report.jsonl"),
    }
