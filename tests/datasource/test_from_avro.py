"""Spark's own reader and writer of Avro beside ours, on a real Kafka and a real registry."""

from __future__ import annotations

import os

import pytest

from bench.peers import avro_jars, connector_jars
from spark_kafka_sink.local_kafka import LocalKafkaError
from tests.programs import run_python

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def jars():
    try:
        return f"{connector_jars()},{avro_jars()}"
    except LocalKafkaError:
        if os.environ.get("CI"):
            raise
        pytest.skip("the jars can't be fetched")


def test_from_avro_reads_and_to_avro_writes_what_we_write(kafka, registry, jars, topic):
    """In an application of its own: the session's Spark has no such jars."""
    job = ("-m", "tests.datasource.from_avro_job")
    ran = run_python(*job, kafka.bootstrap, registry, jars, topic, timeout=300)
    assert ran.stdout.splitlines() == ["read 100 differ 0", "bytes differ 0"]
