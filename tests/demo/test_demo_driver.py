"""The demo's Spark driver, in the session that all tests share: what it writes and says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_kafka_sink.demo import spark_driver
from spark_kafka_sink.demo.topic_reader import Contents, id_of_avro, read
from tests.real_kafka import RealKafka

ROWS = 40


@pytest.fixture
def topics(kafka: RealKafka, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Of the batch and of the stream."""
    batch, stream = kafka.unique_topic("demo-batch"), kafka.unique_topic("demo-stream")
    monkeypatch.setattr(spark_driver, "BATCH_TOPIC", batch)
    monkeypatch.setattr(spark_driver, "STREAM_TOPIC", stream)
    monkeypatch.setattr(spark_driver, "MICRO_BATCHES", 2)
    return batch, stream


def test_both_topics_are_written_once_and_each_part_is_said(
    spark: SparkSession,
    kafka: RealKafka,
    registry: str,
    topics: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And started again when its stream was all written, it ends, and writes nothing twice. Two
    lives of a stream, and a batch, are four CPU seconds.
    """

    def events(*more: str) -> list[dict[str, Any]]:
        given = ["--bootstrap", kafka.bootstrap, "--folder", str(tmp_path), "--rows", str(ROWS)]
        spark_driver.write(spark, spark_driver._parse([*given, *more]))
        lines = capsys.readouterr().out.splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    batch, *micro_batches, stream = events("--registry", registry)
    assert (batch["event"], stream["event"]) == ("batch", "stream")
    assert min(batch["seconds"], stream["seconds"]) > 0
    assert micro_batches == [{"event": "micro-batch", "number": number} for number in range(2)]
    (again,) = events("--stream-only")
    assert again["event"] == "stream"
    with id_of_avro(registry) as id_of:
        for topic in topics:
            found = read(kafka.bootstrap, topic, ROWS, id_of)
            assert found == Contents(expected=ROWS, records=ROWS, lost=0, doubled=0)
