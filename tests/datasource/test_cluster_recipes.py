"""The recipes of docs/clusters.md and docs/tuning.md, run on a standalone cluster."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from bench.peers import connector_jars
from spark_kafka_sink.local_kafka.errors import LocalKafkaError
from tests.datasource.standalone_cluster import JOB, environment

# A driver and an executor for each job: a minute and a half.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

MIB = 1024 * 1024
PYTHON = "./env/bin/python"


@pytest.fixture
def archive(wheel, tmp_path) -> Path:
    """What venv-pack makes, without the 90 MB: an interpreter that finds the package beside it."""
    env = tmp_path / "env"
    (env / "bin").mkdir(parents=True)
    with zipfile.ZipFile(wheel) as files:
        files.extractall(env / "site")
    program = env / "bin" / "python"
    program.write_text(
        "#!/bin/sh\n"
        'home=$(cd "$(dirname "$0")/.." && pwd)\n'
        f'PYTHONPATH="$home/site:$PYTHONPATH" exec "{environment()["PYSPARK_PYTHON"]}" "$@"\n'
    )
    program.chmod(0o755)
    packed = tmp_path / "elsewhere" / "env.tar.gz"
    packed.parent.mkdir()
    with tarfile.open(packed, "w:gz") as files:
        for part in env.iterdir():
            files.add(part, part.name)
    return packed


@pytest.fixture
def jars() -> str:
    """Spark's Kafka connector; a machine that can't fetch it skips, but not CI."""
    try:
        return connector_jars()
    except LocalKafkaError:
        if os.environ.get("CI"):
            raise
        pytest.skip("the connector's jars can't be fetched")


@pytest.fixture
def folder(tmp_path) -> Path:
    """Where the job starts; the archive is in another one."""
    made = tmp_path / "job"
    made.mkdir()
    return made


def test_an_archive_runs_when_it_is_unpacked_beside_the_driver(
    cluster, archive, folder, kafka, consume
):
    topic = kafka.unique_topic("archive", partitions=3)
    (folder / "env").mkdir()
    with tarfile.open(archive) as files:
        files.extractall(folder / "env", filter="tar")
    confs = {"spark.archives": f"{archive}#env"}
    said = cluster.submit(
        JOB, "batch", kafka.bootstrap, topic, confs=confs, python=PYTHON, cwd=folder
    )
    told = json.loads(said.splitlines()[-1])
    package = "env/site/spark_kafka_sink/__init__.py"
    assert told["driver"] == str(folder / package)
    (of_task,) = told["tasks"]
    assert of_task.endswith(package)
    assert of_task != told["driver"], "the executor has unpacked its own"
    assert len(consume(topic, isolation="read_committed").values) == 1000


def test_the_connectors_four_jars_read_a_topic_without_internet(
    cluster, wheel, jars, kafka, consume
):
    source, topic = kafka.unique_topic("source", partitions=3), kafka.unique_topic("copy")
    cluster.submit(JOB, "batch", kafka.bootstrap, source, py_files=wheel)
    confs = {"spark.jars": jars}
    cluster.submit(JOB, "copy", kafka.bootstrap, topic, source, py_files=wheel, confs=confs)
    assert len(jars.split(",")) == 4
    found = consume(topic, isolation="read_committed")
    assert sorted(found.values) == sorted(f"row {i}".encode() for i in range(1000))


def test_a_driver_without_the_archives_python_is_warned(cluster, archive, wheel, folder, kafka):
    """The driver's own process runs another interpreter, and Spark plans with this one."""
    topic = kafka.unique_topic("archive")
    confs = {"spark.archives": f"{archive}#env", "spark.pyspark.python": PYTHON}
    confs["spark.pyspark.driver.python"] = sys.executable
    log = cluster.submit(
        JOB, "batch", kafka.bootstrap, topic, py_files=wheel, confs=confs, cwd=folder, fails=True
    )
    assert "KP0603" in log
    assert f"with {PYTHON}, too, and no such program is in {folder}" in log


@pytest.mark.parametrize(("per_core", "works"), [(526, True), (300, False)])
def test_the_pages_address_space_is_enough_for_a_task(cluster, wheel, kafka, per_core, works):
    """350 MiB + 3 x kafka.buffer.memory + 8 x an Arrow batch, for 10 000 rows of 1 KB."""
    topic = kafka.unique_topic("memory", partitions=12)
    confs = {"spark.executor.cores": "2", "spark.executor.pyspark.memory": f"{2 * per_core}m"}
    job = ("memory", kafka.bootstrap, topic, str(32 * MIB), "200000")
    said = cluster.submit(JOB, *job, py_files=wheel, confs=confs, fails=not works)
    if not works:
        assert f"[KP0507] this Python worker may map no more than {per_core} MiB" in said
        assert "spark.executor.pyspark.memory" in said
