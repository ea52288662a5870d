"""The fixtures for tests of a user's own, used as the page says, in a pytest of its own."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import psutil
import pytest

from spark_kafka_sink.local_kafka import ports
from tests.programs import run_python

pytest_plugins = "pytester"

PAGE = Path(__file__).resolve().parents[2] / "docs/api/local-kafka.md"
ASKED = """
import os
from pathlib import Path

def test_what_is_left_to_look_for(kafka_cluster, kafka_bootstrap):
    (node,) = kafka_cluster.nodes
    assert kafka_bootstrap == node.address("PLAINTEXT")
    Path("left").write_text(f"{node.port()} {node.pid}")
    assert OUTCOME
"""


def blocks() -> list[str]:
    """The Python of the page: conftest.py, and a test."""
    parts = PAGE.read_text("utf-8").split("```python\n")[1:]
    return [part.partition("```")[0] for part in parts]


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.parametrize("outcome", [True, False], ids=["passes", "fails"])
def test_a_run_has_a_kafka_and_leaves_nothing(pytester, outcome):
    conftest, test = blocks()
    pytester.makeconftest(conftest)
    pytester.makepyfile(test_page=test, test_left=ASKED.replace("OUTCOME", str(outcome)))
    run = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider")
    run.assert_outcomes(passed=2 if outcome else 1, failed=0 if outcome else 1)
    port, pid = map(int, (pytester.path / "left").read_text().split())
    assert not psutil.pid_exists(pid)
    ports.reserve(port).release()  # nobody listens there any more


def test_nothing_loads_the_fixtures_but_who_asks_for_them():
    mine = importlib.metadata.distribution("spark-kafka-sink").entry_points
    assert [one for one in mine if one.group == "pytest11"] == []
    script = "import sys, spark_kafka_sink.local_kafka; sys.exit('pytest' in sys.modules)"
    run_python("-c", script)
