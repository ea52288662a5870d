"""docs/options-by-task.md: each option that does something is there once; examples are taken."""

import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest

from spark_kafka_sink.config.parsing import parse_sink_config

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))  # its own imports
TOOL = runpy.run_path(str(TOOLS / "task_options.py"))
TASKS = TOOL["TASKS"]


def test_each_option_that_does_something_has_one_task():
    found = Counter(name for task in TASKS for name in TOOL["options_of"](task))
    assert set(found) == set(TOOL["obeyed"]())
    assert [name for name, times in found.items() if times > 1] == []


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.title)
def test_an_example_is_taken_and_shows_an_option_of_its_task(task):
    assert parse_sink_config(task.example).warnings == ()
    assert set(task.example) & set(TOOL["options_of"](task))


def test_a_default_is_the_one_that_counts_in_the_task():
    """With exactly-once a transaction has 15 minutes, and the page said one."""
    (task,) = (task for task in TASKS if task.example.get("deliveryGuarantee") == "exactly-once")
    name = "kafka.transaction.timeout.ms"
    counts = parse_sink_config(task.example).producer.transaction_timeout_ms
    assert TOOL["default_of"](task, TOOL["obeyed"]()[name]) == counts == 900_000
