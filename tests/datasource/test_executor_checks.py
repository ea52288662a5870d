"""The checks of a cluster from the executors: what they alone miss is found, and said by host."""

from __future__ import annotations

import platform

import pytest

import spark_kafka_sink
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.datasource.checks.check_steps import State
from spark_kafka_sink.datasource.checks.cluster_checks import HOST_STEPS, STEPS


def test_driver_and_executors_are_green(spark, kafka):
    topic = kafka.unique_topic("check")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
    driver, executor = spark_kafka_sink.check(spark, options)
    assert (driver.host, driver.driver, driver.failed) == (platform.node(), True, None)
    assert tuple(step.name for step in driver.steps) == STEPS
    assert (executor.host, executor.driver, executor.failed) == (platform.node(), False, None)
    assert tuple(step.name for step in executor.steps) == HOST_STEPS
    found = {step.name: step.state for step in executor.steps}
    assert found["brokers"] is found["clock"] is State.OK


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


def test_wrong_options_are_an_error_before_any_job(spark):
    with pytest.raises(ConfigError, match=r"topik"):
        spark_kafka_sink.check(spark, {"kafka.bootstrap.servers": "a:1", "topik": "t"})
