"""A batch that failed says why, who and which broker: on a real Kafka."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.functions import raise_error

from spark_kafka_sink import last_report
from tests.datasource.rows import frame

LARGE = {"kafka.max.request.size": "1000"}


def test_a_failed_job_names_error_attempt_and_application(spark, write, topic, tmp_path, reports):
    """With exactly-once, too: the foreach_batch of test_failures_as_metrics.py."""
    rows = frame(spark, [("v",), ("x" * 2000,)], "value string")
    with pytest.raises(Exception, match="KP0213"):
        write(rows, topic, reportPath=f"{tmp_path}/report.jsonl", **LARGE)
    (told,) = reports()
    assert (told["outcome"], told["unfinished"]) == ("aborted", [0])
    assert told["error"]["code"] == "KP0213"
    assert "max.request.size" in told["error"]["message"]
    assert "rows 0 to 1 of partition 0" in told["error"]["message"]
    assert told["error"]["hint"]
    (attempt,) = told["failedAttempts"]
    assert (attempt["partition"], attempt["attempt"], attempt["code"]) == (0, 0, "KP0213")
    context = spark.sparkContext
    assert told["applicationId"] == context.applicationId
    assert told["applicationName"] == context.appName
    assert told["elapsedMs"] > 0
    assert [one.name for one in tmp_path.iterdir()] == ["report.jsonl"], "nothing else is left"
    assert json.loads(last_report(spark).json()) == told


def test_a_failure_of_sparks_input_has_a_code_of_its_own(spark, write, topic, tmp_path, reports):
    """Spark may abort before the task sees that its rows have ended. The application is that of an
    earlier report.
    """
    write(frame(spark, [("v",)], "value string"), topic)
    rows = spark.range(1).select(raise_error("planned").cast("string").alias("value"))
    with pytest.raises(Exception, match="planned"):
        write(rows, topic, reportPath=f"{tmp_path}/report.jsonl")
    (told,) = reports()
    assert (told["error"]["code"], told["applicationId"]) == (
        "KP0505", spark.sparkContext.applicationId,
    )  # fmt: skip
    assert told["elapsedMs"] > 0
    assert "Spark's own exception" in told["error"]["hint"]
