"""Spark writes exactly once to a Kafka 3.9, whose clusters write transactions of version 1 only."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import spark_kafka_sink
from tests.real_kafka import RealKafka
from tests.transactions.open_transactions import visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The first run on a machine fetches the broker.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


@pytest.fixture
def options(kafka_3_9: RealKafka, tmp_path: Path) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka_3_9.bootstrap,
        "topic": kafka_3_9.unique_topic("spark", partitions=2),
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": f"test.{uuid.uuid4().hex[:12]}",
        "kafka.transaction.timeout.ms": "60000",
        "reportPath": str(tmp_path / "report.jsonl"),
    }


def test_a_stream_is_visible_once(
    spark: SparkSession, kafka_3_9: RealKafka, options: dict[str, str], tmp_path: Path
) -> None:
    spark_kafka_sink.register(spark)
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a", "b"):
        rows = "".join(json.dumps({"value": f"{name}{n}"}) + "\n" for n in range(50))
        (source / f"{name}.json").write_text(rows)
    reader = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1)
    writer = reader.json(str(source)).writeStream.format("kprod").options(**options)
    given = {"checkpointLocation": str(tmp_path / "checkpoint")}
    writer.options(**given).trigger(availableNow=True).start().awaitTermination()
    assert visible(kafka_3_9, options["topic"], [f"{name}{n}" for name in "ab" for n in range(50)])
    reports = map(json.loads, (tmp_path / "report.jsonl").read_text().splitlines())
    outcomes = [(report["batchId"], report["outcome"]) for report in reports]
    assert outcomes == [(0, "committed"), (1, "committed")]
