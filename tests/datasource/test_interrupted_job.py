"""Ctrl-C in a script: the terminal sends SIGINT to the script's process group."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.config.sink_config import SinkConfig
from tests.programs import ROOT
from tests.waiting import wait_for


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_an_interrupted_script_aborts_its_batch(kafka, topic, tmp_path):
    """The batch has its report, and no transaction blocks consumers."""
    path = tmp_path / "reports" / "report.jsonl"
    path.parent.mkdir()
    program = Path(__file__).with_name("interrupted_job.py")
    config = SinkConfig.parse({"kafka.bootstrap.servers": kafka.bootstrap})
    with TransactionClient(config.producer) as client:

        def opened():
            return client.open_transactions(topic, client.deadline(30_000))[0]

        job = subprocess.Popen(
            [sys.executable, str(program), kafka.bootstrap, topic, str(path)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            wait_for(lambda: len(opened()) == 2 or job.poll() is not None, 120, "transactions")
            os.killpg(job.pid, signal.SIGINT)
            _, said = job.communicate(timeout=60)
        finally:
            job.kill()
        assert "KeyboardInterrupt" in said
        assert not opened()
    (report,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert (report["outcome"], report["error"]["code"]) == ("aborted", "KP0505")
    assert report["unfinished"] == [0, 1]
    assert report["applicationId"]
    assert [one.name for one in path.parent.iterdir()] == ["report.jsonl"]
