"""A standalone Spark cluster on this machine: a master and workers of Spark's own classes.

This module starts the processes on free ports of the loopback interface, submits jobs with
``spark-submit``, and ends each process by its id. ``start-master.sh`` and ``start-worker.sh`` would
run the same classes, but PySpark's pip package does not have these scripts.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from tests.programs import is_python
from tests.waiting import LONG_S, PATIENCE

SUBMIT_S = 300.0 * PATIENCE
BIN = Path(pyspark.__file__).parent / "bin"
#: The program of all jobs here.
JOB = Path(__file__).with_name("standalone_jobs.py")


def environment() -> dict[str, str]:
    """Of all processes: the interpreter that ours was made of, with our dependencies on its path.

    No ``.pth`` file is read there, so an editable install of the package is not found: what
    a job imports has come by ``--py-files``.
    """
    python = str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("SPARK", "PYTHON"))}
    return kept | {
        "PYTHONPATH": os.pathsep.join(sorted(paths)),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Four JVMs that live for seconds: half the time of their start.
        "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }


@dataclass(frozen=True, slots=True)
class StandaloneCluster:
    """A running one. ``master`` is its address, ``home`` a folder for jobs. ``start_worker(host)``
    starts another worker, and returns when the master knows it.
    """

    master: str
    home: Path
    worker: psutil.Process
    start_worker: Callable[[str], None]

    def python_processes(self) -> list[psutil.Process]:
        """The executors' Python workers and the daemons that fork them."""
        return [one for one in self.worker.children(recursive=True) if is_python(one)]

    def submit(
        self,
        job: Path,
        *arguments: str,
        py_files: Path | None = None,
        confs: Mapping[str, str] | None = None,
        python: str | None = None,
        cwd: Path | None = None,
        fails: bool = False,
    ) -> str:
        """Standard output of a job that ran on an executor with both cores, and its log when it
        ``fails``. ``python`` is PYSPARK_PYTHON, ``cwd`` the folder where the driver starts.
        """
        given = {
            "spark.executor.memory": "512m",
            "spark.driver.memory": "700m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self.home / "warehouse"),
            **(confs or {}),
        }
        command = [str(BIN / "spark-submit"), "--master", self.master]
        command += ["--py-files", str(py_files)] if py_files else []
        command += [f"--conf={name}={value}" for name, value in given.items()]
        pythons = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
        log = self.home / f"{job.stem}.log"
        with log.open("wb") as errors:
            run = subprocess.run(
                [*command, str(job), *arguments],
                env=environment() | (dict.fromkeys(pythons, python) if python else {}),
                cwd=cwd or self.home,
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=SUBMIT_S,
                check=False,
            )
        text = log.read_text(errors="replace")
        told = "\n".join([line for line in text.splitlines() if " INFO " not in line][-60:])
        assert (run.returncode != 0) == fails, run.stdout.decode()[-3000:] + told
        # Spark passes what the driver's Python writes to its own standard output.
        return run.stdout.decode() + text if fails else run.stdout.decode()


@contextmanager
def standalone_cluster(
    home: Path, hosts: tuple[str, ...] = ("127.0.0.1",), cores: int = 2, **given: str
) -> Iterator[StandaloneCluster]:
    """A master, and a worker with ``cores`` on each host; ``given`` is their environment.

    ``local-cluster[2,1,1024]`` works with the pip package, too, but all of its executors are on one
    host, and Spark starts no speculative attempt on a host that runs one already.
    """
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:

        def started(name: str, main: str, host: str, *more: str) -> tuple[psutil.Process, Path]:
            place = ("--host", host, "--port", "0", "--webui-port", "0")
            process = _process(home / name, given or environment(), main, *place, *more)
            return stack.enter_context(process)

        _, log = started("master", f"{deploy}.master.Master", "127.0.0.1")
        master = _awaited(log, r"Starting Spark master at (spark://\S+)")
        count = itertools.count()

        def begun(host: str) -> tuple[psutil.Process, Path]:
            name = f"{host}-{next(count)}"
            work = ("--work-dir", str(home / name / "work"))
            more = ("--cores", str(cores), "--memory", "1200m", *work)
            return started(name, f"{deploy}.worker.Worker", host, *more, master)

        def registered(log: Path) -> None:
            _awaited(log, r"Successfully registered with master (\S+)")

        workers = [begun(host) for host in hosts]
        for _, log in workers:
            registered(log)
        yield StandaloneCluster(
            master, home, workers[0][0], lambda host: registered(begun(host)[1])
        )


@contextmanager
def _process(
    home: Path, given: dict[str, str], main: str, *arguments: str
) -> Iterator[tuple[psutil.Process, Path]]:
    """It and its log. ``spark-class`` becomes Java by ``exec``, so the process is Java's."""
    home.mkdir(parents=True)
    log = home / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(BIN / "spark-class"), main, *arguments],
            env=given | {"SPARK_DAEMON_MEMORY": "256m"},
            cwd=home,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield psutil.Process(process.pid), log
    finally:
        # Executors of a job that failed are the worker's children. A test may have killed it.
        found: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(process.pid)
            found = [own, *own.children(recursive=True)]
        process.terminate()
        _, left = psutil.wait_procs(found, timeout=10)
        for one in left:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()


def _awaited(log: Path, pattern: str) -> str:
    """What a line of the log says, once it is there."""
    deadline = time.monotonic() + LONG_S
    while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
        assert time.monotonic() < deadline, f"{pattern}: {log.read_text(errors='replace')[-3000:]}"
        time.sleep(0.05)
    return found[1]
