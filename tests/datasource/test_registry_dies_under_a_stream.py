"""A stream goes on while its schema registry is away: a real Spark, and a registry that dies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_kafka_sink.datasource.schemas import schema_cache
from tests.programs import run_python
from tests.real_kafka import Consumed, RealKafka

# An application of its own, whose workers are not reused; and a registry that starts twice.
pytestmark = [
    pytest.mark.long, pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)
]  # fmt: skip


def test_a_stream_outlives_its_registry_and_a_new_schema_does_not(
    kafka: RealKafka, consume: Callable[..., Consumed], tmp_path: Path
) -> None:
    """With one warning; and when the registry is back, both go on."""
    topic, new_topic = (kafka.unique_topic("registry") for _ in range(2))
    done = run_python(
        *(
            "-m",
            "tests.datasource.registry_stream_job",
            kafka.bootstrap,
            topic,
            new_topic,
            tmp_path,
        ),
        environment={schema_cache.ENVIRONMENT: str(tmp_path / "schemas")},
        timeout=500,
    )
    told = json.loads(done.stdout.strip().split("\n")[-1])
    assert "the schema registry at " in told["without"], told["without"]
    assert " did not answer " in told["without"], told["without"]
    assert told["with"] == ""
    values = [value for value in consume(topic).values if value is not None]
    assert sorted(value.rpartition(b"row ")[2] for value in values) == [
        str(n).encode() for n in range(6)
    ]
    assert done.stderr.count("continuing with schema id") == 1, done.stderr[-4000:]
