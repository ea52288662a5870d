"""The bundle template of templates/databricks: its job is what Databricks' classes take, and runs.

No workspace has seen it. The classes are databricks-sdk's: they leave out fields that they don't
know, so a job that they give back whole has none.
"""

from __future__ import annotations

import re

import jsonschema
import pytest

from tests.docs.databricks_template import DEFAULTS, SCHEMA, TEMPLATE, bundle, job, written
from tests.programs import run_python

PROGRAM = """
import runpy, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
rows = "select date'2026-11-22' day, 'a' key, '1' value union all select date'2026-11-21', 'b', '2'"
spark.sql(rows).createOrReplaceTempView("orders")
sys.argv[0] = sys.argv.pop(1)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def project(tmp_path):
    return written(tmp_path)


def test_each_property_is_asked_for_and_used():
    used = set()
    for path in (TEMPLATE / "template").rglob("*"):
        text = path.read_text("utf-8") if path.suffix == ".tmpl" else ""
        used |= set(re.findall(r"\{\{\.([a-z_]+)}}", f"{path.name} {text}"))
    assert used == set(DEFAULTS)
    orders = [one["order"] for one in SCHEMA["properties"].values()]
    assert orders == list(range(1, len(orders) + 1))
    for one in SCHEMA["properties"].values():
        assert one.keys() <= {
            "type", "default", "pattern", "pattern_match_failure_message", "description", "order"
        }  # fmt: skip
        jsonschema.validate(one["default"], one)


def test_answers_are_in_the_project_and_no_template_is_left(tmp_path):
    project = written(tmp_path, {"project_name": "nightly", "topic": "t1"})
    assert project.name == bundle(project)["bundle"]["name"] == "nightly"
    assert "--topic=t1" in job(project)["tasks"][0]["spark_python_task"]["parameters"]
    for path in project.rglob("*"):
        assert path.suffix != ".tmpl"
        assert path.is_dir() or "{{." not in path.read_text("utf-8")


def test_the_job_is_what_databricks_classes_take(project):
    from databricks.sdk.service.jobs import JobSettings

    settings = job(project)
    assert JobSettings.from_dict(settings).as_dict() == settings
    # What they don't know, they leave out: that is what finds a misspelt field.
    wrong = settings | {"max_concurrent_run": 1}
    assert JobSettings.from_dict(wrong).as_dict() != wrong


def test_the_password_is_always_a_reference_to_the_scope(project):
    (cluster,) = job(project)["job_clusters"]
    assert cluster["new_cluster"]["spark_env_vars"] == {
        "KAFKA_PASSWORD": "{{secrets/kafka/password}}"
    }
    source = (project / "src" / "write.py").read_text("utf-8")
    assert '"kafka.sasl.password": "${env:KAFKA_PASSWORD}"' in source


@pytest.mark.long  # applications of Spark of its own
def test_the_job_writes_a_day_once_and_a_repeat_writes_nothing(
    project, secure_kafka, consume, tmp_path
):
    topic = secure_kafka.kafka.unique_topic("databricks")
    options = secure_kafka.cluster.client_options("SASL_SSL")
    settings = job(
        written(
            tmp_path / "own",
            {
                "source_table": "orders",
                "topic": topic,
                "bootstrap_servers": options["bootstrap.servers"],
                "username": "alice",
            },
        )
    )
    (task,) = settings["tasks"]
    parameters = [
        one.replace("{{job.parameters.day}}", "2026-11-22")
        for one in task["spark_python_task"]["parameters"]
    ]
    assert settings["parameters"] == [{"name": "day", "default": "{{job.start_time.iso_date}}"}]
    script = project / "resources" / task["spark_python_task"]["python_file"]
    parameters += ["--ca", options["ssl.truststore.location"]]
    environment = {"KAFKA_PASSWORD": secure_kafka.cluster.security.passwords["alice"]}
    for _ in range(2):
        arguments = ("-c", PROGRAM, script.resolve(), *parameters)
        run_python(*arguments, cwd=tmp_path, environment=environment, timeout=250)
    bootstrap = secure_kafka.kafka.bootstrap
    found = consume(topic, bootstrap=bootstrap, isolation="read_committed")
    assert (found.keys, found.values) == ([b"a"], [b"1"])
