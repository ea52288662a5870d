"""``--watch``: looks again until Ctrl-C, which is no failure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.transactions.operator_stage import Stage

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("command", ["list", "blockers"])
def test_a_watch_looks_again_and_ends_with_ctrl_c(stage: Stage, command: str) -> None:
    """Of the first look nothing is open; what is opened then is in a later one."""
    about = stage.prefix if command == "list" else stage.topic
    where = ["-b", stage.kafka.bootstrap, "--log-topic", stage.log_topic]
    watch = subprocess.Popen(
        [sys.executable, "-m", "spark_kafka_sink.cli", "txn", command, about, "--watch", *where],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert watch.stdout is not None
    looks = 0
    try:
        for line in watch.stdout:
            looks += "Ctrl-C ends it" in line
            if looks == 1 and "No transaction" in line and command == "list":
                (opened,) = stage.open(1)
            if looks >= 2 and (command == "blockers" or opened.transactional_id in line):
                break
    finally:
        watch.send_signal(signal.SIGINT)
        _, errors = watch.communicate(timeout=60)
    assert looks >= 2
    assert watch.returncode == 0, errors
    assert errors == ""


def test_a_watch_has_no_json(stage: Stage) -> None:
    result = stage.run("blockers", stage.topic, "--watch", "--json", code=2)
    assert "--json" in result.output
