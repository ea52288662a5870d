"""A Spark cluster of its own: a master and two workers, which are two hosts to Spark.

``local-cluster[2,1,1024]`` works with the pip package, too, but all of its executors are on one
host, and Spark never starts a speculative attempt on a host that runs one already. Here the workers
are 127.0.0.1 and 127.0.0.2.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import pyspark

from spark_kafka_sink.local_kafka.installation import QUICK_JVM
from tests.exactly_once.processes import ROOT
from tests.programs import without_spark

START_S = 240.0
_DEPLOY = "org.apache.spark.deploy"


class StandaloneSpark:
    """A context manager; ``url`` is a driver's master, once it is entered."""

    def __init__(self, home: Path, hosts: tuple[str, ...] = ("127.0.0.1", "127.0.0.2")) -> None:
        self._home = home
        self._hosts = hosts
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> StandaloneSpark:
        try:
            self._home.mkdir()
            place = ["--webui-port", "0", "--port", "0", "--host"]
            self._start("master", "Master", *place, "127.0.0.1")
            self.url = self._await("master", r"Starting Spark master at (spark://\S+)")
            self._await("master", "I have been elected leader")
            for host in self._hosts:
                resources = ["--cores", "1", "--memory", "1g"]
                work = ["--work-dir", str(self._home / f"work-{host}")]
                self._start(host, "Worker", *place, host, *resources, *work, self.url)
            for host in self._hosts:
                self._await(host, "Successfully registered with master")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()  # a worker ends its executors then
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()

    def _start(self, name: str, role: str, *arguments: str) -> None:
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        environment = without_spark()
        environment |= {
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(QUICK_JVM),
        }
        with self._log(name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(spark_class), f"{_DEPLOY}.{role.lower()}.{role}", *arguments],
                    env=environment,
                    cwd=self._home,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def _log(self, name: str) -> Path:
        return self._home / f"{name}.log"

    def _await(self, name: str, pattern: str) -> str:
        """What a line of the log says, once it is there: all of ``pattern``, or its last group."""
        deadline = time.monotonic() + START_S
        while True:
            log = self._log(name).read_text(errors="replace")
            if found := re.search(pattern, log):
                return found[found.lastindex or 0]
            assert time.monotonic() < deadline, f"{name} did not start:\n{log[-3000:]}"
            assert all(p.poll() is None for p in self._processes), f"it ended:\n{log[-3000:]}"
            time.sleep(0.05)
