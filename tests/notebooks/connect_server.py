"""A Spark Connect server of its own, in a process group that ends with the tests that use it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from tests.programs import run_python, without_spark

ROOT = Path(__file__).resolve().parents[2]
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_CONFS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
_STARTED = re.compile(r"Spark Connect server started at: .*:(\d+)")
_START_S = 120


@contextmanager
def connect_server(home: Path, jars: str) -> Iterator[str]:
    """Its address, for SPARK_REMOTE. ``jars``: between commas."""
    confs = [word for name, value in _CONFS.items() for word in ("--conf", f"{name}={value}")]
    spark = Path(pyspark.__file__).parent
    command = [str(spark / "bin" / "spark-submit"), "--master", "local[2]", "--class", _SERVER]
    environment = without_spark() | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(spark),
    }
    log = home / "connect-server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, *confs, *(["--jars", jars] if jars else []), "spark-internal"],
            env=environment,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield f"sc://127.0.0.1:{_port(server, log)}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(30)


def told_by(program: Path, home: Path, *arguments: object) -> Any:
    """The line of JSON that ``program``, a client of a server of its own, prints last."""
    with connect_server(home, "") as address:
        environment = {"SPARK_REMOTE": address, "PYTHONPATH": str(ROOT)}
        done = run_python(program, *arguments, environment=environment, timeout=500)
    return json.loads(done.stdout.strip().split("\n")[-1])


def _port(server: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + _START_S
    while True:
        text = log.read_text("utf-8", errors="replace")
        found = _STARTED.search(text)
        if found is not None:
            return int(found[1])
        assert server.poll() is None, text[-3000:]
        assert time.monotonic() < deadline, text[-3000:]
        time.sleep(0.1)
