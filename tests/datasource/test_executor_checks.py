"""The checks of a cluster from the executors: what they alone miss is found, and said by host."""

from __future__ import annotations

import json
import os
import platform
import socket
import sys

import pytest

import spark_kafka_sink
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.checks.check_steps import StepState
from spark_kafka_sink.datasource.checks.cluster_checks import HOST_STEPS, STEPS
from spark_kafka_sink.datasource.checks.executor_checks import check_from
from tests.programs import ROOT, run_python


def test_driver_and_executors_are_green(spark, kafka):
    topic = kafka.unique_topic("check")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
    driver, executor = spark_kafka_sink.check(spark, options)
    assert (driver.host, driver.driver, driver.failed) == (platform.node(), True, None)
    assert tuple(step.name for step in driver.steps) == STEPS
    assert (executor.host, executor.driver, executor.failed) == (platform.node(), False, None)
    assert tuple(step.name for step in executor.steps) == HOST_STEPS
    found = {step.name: step.state for step in executor.steps}
    assert found["brokers"] is found["clock"] is StepState.OK


@pytest.mark.long
def test_what_only_executors_miss_is_found(spark, secure_kafka, monkeypatch):
    """The JVM, and so its Python workers, started before the driver had this variable."""
    monkeypatch.setenv("KPROD_CHECK_CA", str(secure_kafka.ca))
    options = {
        "kafka.bootstrap.servers": secure_kafka.bootstrap("GOOD"),
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "${env:KPROD_CHECK_CA}",
    }
    driver, executor = spark_kafka_sink.check(spark, options)
    assert driver.failed is None
    assert executor.failed is not None
    assert executor.failed.name == "options"
    assert "KPROD_CHECK_CA" in executor.failed.said
    assert "executor" in f"{executor.failed.said} {executor.failed.change}"


def test_brokers_out_of_reach_are_named_by_each_host(spark):
    options = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    for host in spark_kafka_sink.check(spark, options, timeout_s=2):
        assert host.failed is not None
        assert host.failed.name == "TCP"


@pytest.mark.long  # a Spark of its own
@pytest.mark.spark
def test_executors_need_no_pandas(kafka, tmp_path):
    """No extra brings it, and Spark's functions of Arrow batches need it, here and in workers."""
    (tmp_path / "pandas.py").write_text("raise ModuleNotFoundError('pandas', name='pandas')\n")
    environment = {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    found = run_python("-c", WITHOUT_PANDAS, kafka.bootstrap, environment=environment)
    driver, executor = json.loads(found.stdout.splitlines()[-1])
    assert (driver["driver"], executor["driver"]) == (True, False)
    assert {s["state"] for s in driver["steps"] + executor["steps"]} == {"ok", "skipped"}


WITHOUT_PANDAS = """
import json, sys
from dataclasses import asdict
from pyspark.sql import SparkSession
import spark_kafka_sink

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
hosts = spark_kafka_sink.check(spark, {"kafka.bootstrap.servers": sys.argv[1]})
print(json.dumps([asdict(host) for host in hosts]))
"""


@pytest.mark.long  # a Spark of its own, each
@pytest.mark.spark
@pytest.mark.parametrize(
    ("address", "python", "said"),
    [
        ("nonsense", None, "Java gateway"),
        ("local[1]", "/nowhere/python3", "/nowhere/python3"),
        ("local[1]", "without-packages", "No module named 'spark_kafka_sink'"),
    ],
    ids=["no session", "no worker", "no package"],
)
def test_a_job_that_does_not_run_is_a_row(kafka, tmp_path, address, python, said):
    """No traceback on standard output: the row has what Spark said, in a line."""
    if python == "without-packages":
        wrapper = tmp_path / python
        wrapper.write_text(f'#!/bin/sh\ncd /\nexec {sys.executable} -S "$@"\n')
        wrapper.chmod(0o755)
        python = str(wrapper)
    command = ["-m", "spark_kafka_sink.cli", "check", "-b", kafka.bootstrap, "--json"]
    run = run_python(
        *command, "--from-executors", address, environment={"PYSPARK_PYTHON": python}, fails=True
    )
    assert run.returncode == 1
    (host,) = json.loads(run.stdout)["hosts"]
    (step,) = host["steps"]
    assert (host["host"], step["state"], step["code"]) == ("executors", "failed", "KP0604")
    assert said in step["said"]
    assert "Traceback (most recent call last)" not in run.stdout
    assert "spark_kafka_sink/cli" not in run.stderr, "no traceback of ours"


@pytest.mark.parametrize("port", [1, "silent"])
def test_a_connect_server_that_is_away_is_a_row_in_time(port):
    """pyspark would try again for ten minutes. An address may hold a token."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1] if port == "silent" else port
        config = parse_sink_config({"kafka.bootstrap.servers": "127.0.0.1:1"})
        address = f"sc://127.0.0.1:{port}/;token=canary"
        (host,) = check_from(address, config, timeout_ms=1_000)
    assert host.failed is not None
    assert host.failed.code == "KP0604"
    assert "no Spark Connect server was reached within 1000 ms" in host.failed.said
    assert "canary" not in str(host)


def test_wrong_options_are_an_error_before_any_job(spark):
    with pytest.raises(ConfigError, match=r"topik"):
        spark_kafka_sink.check(spark, {"kafka.bootstrap.servers": "a:1", "topik": "t"})
