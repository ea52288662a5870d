"""A batch that failed says why, who and which broker: on a real Kafka."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.functions import raise_error

from spark_kafka_sink import last_report
from tests.datasource.rows import frame

LARGE = {"kafka.max.request.size": "1000"}


def reports(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def names_in(folder):
    return [one.name for one in folder.iterdir()]


def rows_with_a_large_one(spark):
    return frame(spark, [("v",), ("x" * 2000,)], "value string").coalesce(1)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_failed_job_names_error_attempt_and_application(spark, write, topic, tmp_path, guarantee):
    path = tmp_path / "reports" / "report.jsonl"
    path.parent.mkdir()
    of_job = {"reportPath": str(path), "deliveryGuarantee": guarantee, **LARGE}
    with pytest.raises(Exception, match="KP0213"):
        write(rows_with_a_large_one(spark), topic, **of_job)
    (told,) = reports(path)
    assert (told["outcome"], told["error"]["code"], told["unfinished"]) == (
        "aborted",
        "KP0213",
        [0],
    )
    assert "max.request.size" in told["error"]["message"]
    assert "rows 0 to 1 of partition 0" in told["error"]["message"]
    assert told["error"]["hint"]
    (attempt,) = told["failedAttempts"]
    assert (attempt["partition"], attempt["attempt"], attempt["code"]) == (0, 0, "KP0213")
    context = spark.sparkContext
    assert told["applicationId"] == context.applicationId
    assert told["applicationName"] == context.appName
    assert told["elapsedMs"] > 0
    assert names_in(path.parent) == ["report.jsonl"]
    assert json.loads(last_report(spark).json()) == told


def test_a_failure_of_sparks_input_has_a_code_of_its_own(spark, write, topic, tmp_path):
    """Spark may abort before the task sees that its rows have ended. The application is that of an
    earlier report.
    """
    path = tmp_path / "report.jsonl"
    write(frame(spark, [("v",)], "value string"), topic)
    rows = spark.range(1).select(raise_error("planned").cast("string").alias("value"))
    with pytest.raises(Exception, match="planned"):
        write(rows, topic, reportPath=str(path))
    (told,) = reports(path)
    assert (told["error"]["code"], told["applicationId"]) == (
        "KP0505", spark.sparkContext.applicationId,
    )  # fmt: skip
    assert told["elapsedMs"] > 0
    assert "Spark's own exception" in told["error"]["hint"]
