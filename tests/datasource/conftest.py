"""For several modules: topics, writes and streams into the session's Kafka; a standalone cluster of
Spark's, and our wheel for its jobs.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.datasource.standalone_cluster import standalone_cluster

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def topic(kafka):
    return kafka.unique_topic("datasource", partitions=2)


@pytest.fixture
def write(kafka):
    """Writes a batch frame; names with dots are options as they are."""

    def save(df, topic=None, **options):
        writer = df.write.format("kprod").option("kafka.bootstrap.servers", kafka.bootstrap)
        if topic is not None:
            writer = writer.option("topic", topic)
        writer.options(**options).save()

    return save


@pytest.fixture
def stream(kafka, tmp_path):
    """Starts a stream; the caller's trigger decides how long it lives."""

    def start(df, topic=None, *, trigger=None, mode="append", fmt="kprod", **options):
        writer = (
            df.writeStream.format(fmt)
            .outputMode(mode)
            .option("kafka.bootstrap.servers", kafka.bootstrap)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(**(trigger or {"availableNow": True}))
        )
        if topic is not None:
            writer = writer.option("topic", topic)
        return writer.options(**options).start()

    return start


@pytest.fixture
def source(spark, tmp_path):
    """A file stream of one micro-batch a file, and a function that adds a file. Spark takes the
    oldest first: they are a second apart.
    """
    directory = tmp_path / "source"
    directory.mkdir()
    times = itertools.count(int(time.time()) - 1_000)

    def add(values):
        part = tmp_path / f"part-{uuid.uuid4().hex}"
        part.write_text("".join(json.dumps({"value": value}) + "\n" for value in values))
        os.utime(part, (now := next(times), now))
        part.rename(directory / f"{part.name}.json")

    frame = (
        spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).json(str(directory))
    )
    return frame, add


@pytest.fixture
def reports(tmp_path):
    """Those that writes with ``reportPath`` left in ``report.jsonl``."""

    def read():
        path = tmp_path / "report.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return read


@pytest.fixture
def table(spark):
    name = f"t_{uuid.uuid4().hex}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture(scope="package")
def cluster(tmp_path_factory):
    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture(scope="package")
def wheel(tmp_path_factory):
    """The wheel, under a name that Spark puts on the path of Python: it passes a .whl over."""
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (built,) = folder.glob("*.whl")
    return built.rename(folder / "spark_kafka_sink.zip")
