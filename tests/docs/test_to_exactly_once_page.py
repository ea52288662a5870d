"""docs/to-exactly-once.md: its diff changes a stream, whose checkpoint stays, and the way back."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from spark_kafka_sink.cli.app import app
from tests.real_kafka import RealKafka

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "to-exactly-once.md").read_text("utf-8")
#: The options that the page adds to a stream.
ADDED = dict(re.findall(r'^    \+ +\.option\("(\w+)", "([^"]+)"\)$', PAGE, re.MULTILINE))

Run = Callable[..., None]


@pytest.fixture
def topic(kafka: RealKafka) -> str:
    return kafka.unique_topic("change")


@pytest.fixture
def run(spark: SparkSession, kafka: RealKafka, topic: str, tmp_path: Path) -> Run:
    """A start of the query, which writes a value that has arrived meanwhile."""
    source = tmp_path / "source"
    source.mkdir()

    def start(value: str, **options: str) -> None:
        part = tmp_path / uuid.uuid4().hex
        part.write_text(value)
        part.rename(source / part.name)
        write = spark.readStream.text(str(source)).writeStream.format("kprod").options(**options)
        write = write.option("kafka.bootstrap.servers", kafka.bootstrap).option("topic", topic)
        write = write.option("checkpointLocation", str(tmp_path / "checkpoint"))
        write.trigger(availableNow=True).start().awaitTermination()

    return start


def test_the_diff_adds_the_two_options():
    assert ADDED.keys() == {"deliveryGuarantee", "transactionalIdPrefix"}


@pytest.mark.broker
@pytest.mark.spark
def test_a_stream_changes_with_its_checkpoint_and_back(run, kafka, topic, consume):
    """To exactly-once, back, and once more after the reset that the page names."""
    prefix = f"change{uuid.uuid4().hex}"
    once = ADDED | {"transactionalIdPrefix": prefix}
    run("a")
    run("b", **once)
    run("c", **once)
    run("d")
    with pytest.raises(StreamingQueryException, match="KP0600"):
        run("e", **once)
    reset = CliRunner().invoke(app, ["txn", "reset", prefix, "--yes", "-b", kafka.bootstrap])
    assert reset.exit_code == 0, reset.output
    run("f", **once)
    found = consume(topic, bootstrap=kafka.bootstrap, isolation="read_committed")
    assert sorted(found.values) == [b"a", b"b", b"c", b"d", b"e", b"f"]
