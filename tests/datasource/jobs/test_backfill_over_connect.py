"""A backfill in a session of Spark Connect: stopped, continued, interrupted in a step."""

from __future__ import annotations

import json

import pytest

from tests.datasource.exactly_once.queries import shows
from tests.datasource.jobs.connect_backfill_job import ROWS
from tests.programs import run_python, without_spark

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]


def test_a_backfill_over_connect_is_stopped_cut_and_finished(kafka, topic, consume, tmp_path):
    done = run_python(
        "-m", "tests.datasource.jobs.connect_backfill_job", tmp_path, kafka.bootstrap, topic,
        environment=without_spark(), timeout=800,
    )  # fmt: skip
    lines = [one for one in done.stdout.splitlines() if one.startswith("RESULT ")]
    results = {one.pop("call"): one for line in lines for one in [json.loads(line[7:])]}
    assert results["stopped"]["finished"] is False
    assert 0 < results["stopped"]["rows"] < ROWS
    assert (results["continued"]["finished"], results["continued"]["rows"]) == (True, ROWS)
    assert (results["again"]["rows"], results["again"]["written"]) == (ROWS, 0)
    (failure,) = results["interrupted"]["failure"]
    assert "OPERATION_CANCELED" in failure
    assert (results["after it"]["finished"], results["after it"]["rows"]) == (True, ROWS)
    shows(consume, topic, range(2 * ROWS))
