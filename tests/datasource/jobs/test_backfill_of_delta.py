"""A backfill of a Delta table writes the version that the table had at the first call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.changelogs.delta_table import jars_or_skip
from tests.datasource.exactly_once.queries import shows
from tests.datasource.jobs.delta_backfill_job import ROWS
from tests.programs import ROOT, run_python, without_spark

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def run(kafka, topic, tmp_path):
    """A function that runs one call of the job, and returns the result of its backfill."""
    jars_or_skip()

    def call(name):
        done = run_python(
            "-m", "tests.datasource.jobs.delta_backfill_job",
            tmp_path, kafka.bootstrap, topic, name,
            cwd=Path(ROOT), environment=without_spark(), timeout=800,
        )  # fmt: skip
        (line,) = [one for one in done.stdout.splitlines() if one.startswith("RESULT ")]
        return json.loads(line.removeprefix("RESULT "))

    return call


def test_a_table_that_changes_is_written_as_it_was(run, topic, consume):
    first = run("first")
    assert (first["finished"], first["steps"]) == (False, 1)
    assert 0 < first["rows"] < ROWS
    assert first["read"] == ROWS + first["rows"], "all rows for the plan, and those of the step"
    assert "table's id: " in run("recreated")["error"]
    shows(consume, topic, [n for n in range(ROWS) if n % 10 < first["rows"] // 100])
    rest = run("changed")
    assert (rest["finished"], rest["rows"]) == (True, ROWS)
    assert rest["read"] == ROWS - first["rows"]
    shows(consume, topic, range(ROWS))
    again = run("again")
    assert again == rest | {"written": [], "read": 0}
    shows(consume, topic, range(ROWS))
