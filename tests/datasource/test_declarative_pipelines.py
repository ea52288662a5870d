"""docs/pipelines.md: sinks of a declarative pipeline, run again, and refreshed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from spark_kafka_sink.demo.topic_reader import Contents, read
from tests.real_kafka import RealKafka

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark]

FLOWS = """
import os

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
kafka = {"kafka.bootstrap.servers": os.environ["SERVERS"]}
dp.create_sink("once", "kprod", {
    **kafka,
    "topic": os.environ["ONCE"],
    "deliveryGuarantee": "exactly-once",
    "transactionalIdPrefix": os.environ["ONCE"],
})
dp.create_sink("plain", "kprod", {**kafka, "topic": os.environ["PLAIN"]})


def rows():
    return spark.readStream.schema("key string, value string").parquet(os.environ["ROWS"])


@dp.append_flow(target="once", name="to_once")
def to_once():
    return rows()


@dp.append_flow(target="plain", name="to_plain")
def to_plain():
    return rows()
"""


class Pipeline:
    """One in ``folder``, with a sink for each guarantee."""

    def __init__(self, folder: Path, kafka: RealKafka) -> None:
        self.kafka, self.folder = kafka, folder
        self.once, self.plain = kafka.unique_topic("once", 2), kafka.unique_topic("plain", 2)
        (folder / "rows").mkdir()
        (folder / "flows").mkdir()
        (folder / "flows" / "flows.py").write_text(FLOWS)
        (folder / "spark-pipeline.yml").write_text(
            f"name: orders\nstorage: {(folder / 'storage').as_uri()}\n"
            "libraries:\n  - glob:\n      include: flows/**\n"
            "configuration:\n  spark.sql.pipelines.maxFlowRetryAttempts: '0'\n"
        )

    def add_rows(self, first: int, end: int) -> None:
        ids = [str(number) for number in range(first, end)]
        pq.write_table(
            pa.table({"key": ids, "value": ids}), self.folder / "rows" / f"{first}.parquet"
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(Path(sys.executable).parent / "spark-pipelines"), "run", *arguments],
            cwd=self.folder,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                "SPARK_HOME": str(Path(pyspark.__file__).parent),
                "SERVERS": self.kafka.bootstrap,
                "ONCE": self.once,
                "PLAIN": self.plain,
                "ROWS": str(self.folder / "rows"),
            },
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )


def test_a_pipeline_writes_what_is_new_and_is_refreshed(tmp_path: Path, kafka: RealKafka) -> None:
    pipeline = Pipeline(tmp_path, kafka)
    for rows in (300, 500):  # the second run adds to the first
        pipeline.add_rows(rows - 200 if rows == 500 else 0, rows)
        run = pipeline.run()
        assert run.returncode == 0, run.stdout + run.stderr
        assert read(kafka.bootstrap, pipeline.once, rows).is_exact
        assert read(kafka.bootstrap, pipeline.plain, rows).is_exact
    run = pipeline.run("--full-refresh-all")
    assert run.returncode != 0
    assert "KP0600" in run.stdout + run.stderr
    assert f"kprod txn reset {pipeline.once}" in run.stdout + run.stderr
    assert read(kafka.bootstrap, pipeline.once, 500).is_exact
    assert read(kafka.bootstrap, pipeline.plain, 500) == Contents(500, 1000, lost=0, doubled=500)
