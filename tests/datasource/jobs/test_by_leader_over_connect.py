"""by_leader in a session of Spark Connect, whose client asks the driver for leaders."""

from __future__ import annotations

import json

import pytest

from tests.programs import run_python, without_spark

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600)]


def test_by_leader_works_over_connect(kafka, consume):
    topic = kafka.unique_topic("leaders", partitions=6)
    done = run_python(
        "-m", "tests.datasource.jobs.connect_by_leader_job", kafka.bootstrap, topic,
        environment=without_spark(), timeout=500,
    )  # fmt: skip
    (line,) = [one for one in done.stdout.splitlines() if one.startswith("RESULT ")]
    assert set(json.loads(line[7:])) == {1}
    assert sorted(map(int, consume(topic).values)) == list(range(500))
