"""A standalone cluster of Spark's: processes of its own, spark-submit, the wheel by --py-files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.datasource.standalone_cluster import JOB

# A master, a worker, and a driver and an executor for each job: about a minute.
pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]


def came_with_the_job(output: str, wheel: Path) -> None:
    """Driver and tasks imported what --py-files brought, the tasks their executor's copy of it."""
    file = f"/{wheel.name}/spark_kafka_sink/__init__.py"
    told = json.loads(output.splitlines()[-1])
    assert told == {"driver": f"{wheel.parent}{file}", "tasks": [f".{file}"]}


def test_a_batch_of_a_standalone_cluster_is_written_once(cluster, wheel, kafka, consume):
    topic = kafka.unique_topic("standalone", partitions=3)
    came_with_the_job(cluster.submit(JOB, "batch", kafka.bootstrap, topic, py_files=wheel), wheel)
    found = consume(topic, isolation="read_committed")
    assert sorted(found.values) == sorted(f"row {i}".encode() for i in range(1000))
    assert all(b"row " + key == value for key, value in zip(found.keys, found.values, strict=True))


def test_a_stream_of_a_standalone_cluster_is_written_once(cluster, wheel, kafka, consume, tmp_path):
    topic = kafka.unique_topic("standalone", partitions=3)
    lines = [[f"file {file} line {line}" for line in range(50)] for file in range(3)]
    folder = tmp_path / "lines"
    folder.mkdir()
    for number, of_file in enumerate(lines):
        (folder / f"{number}.txt").write_text("\n".join(of_file) + "\n")
    arguments = ("stream", kafka.bootstrap, topic, str(folder), str(tmp_path / "checkpoint"))
    came_with_the_job(cluster.submit(JOB, *arguments, py_files=wheel), wheel)
    assert len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) == 3
    found = consume(topic, isolation="read_committed")
    assert sorted(found.values) == sorted(line.encode() for of_file in lines for line in of_file)
