"""The warning of a version of a Delta table that two micro-batches have: its hint is followed."""

from __future__ import annotations

import json
import re

import pytest

from tests.changelogs.delta_table import by_key, jars_or_skip
from tests.changelogs.proof import difference, keyed_records
from tests.programs import run_python, without_spark

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def run(kafka, tmp_path):
    """A function that runs one step of the job: its warnings, and how the topic differs from the
    table.
    """
    topic = kafka.unique_topic("divided", 3, {"cleanup.policy": "compact"})
    given = {
        "folder": str(tmp_path), "jars": jars_or_skip(), "brokers": kafka.bootstrap, "topic": topic,
    }  # fmt: skip

    def step(*words):
        done = run_python(
            "-m", "tests.changelogs.divided_job", json.dumps(given), *words,
            environment=without_spark(), timeout=400,
        )  # fmt: skip
        said = json.loads(done.stdout.splitlines()[-1])
        wrong = difference(keyed_records(kafka.bootstrap, topic), by_key(said["rows"]))
        return said["warnings"], wrong

    return step


def test_the_hint_of_a_divided_version_writes_the_lost_rows_again(run):
    warnings, wrong = run("divided")
    divided = [line for line in warnings if "KP0237" in line]
    assert wrong["lost"], "the deletes came after the inserts of the same keys"
    (version,) = {found for line in divided for found in re.findall(r"startingVersion=(\d+)", line)}
    warnings, wrong = run("whole", version)
    assert [line for line in warnings if "KP0237" in line] == []
    assert wrong == {}
