"""Spark applications in processes of their own: their lines, their CPU time, their deaths."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import psutil

from tests.programs import ROOT, is_running, without_spark
from tests.waiting import wait_for

#: Processes that lost their driver end within this time.
_END_S = 60.0


class Victim(Enum):
    """Who of a driver is killed; the others notice closed sockets."""

    ALL = "all processes"
    JAVA = "the JVM"
    PYTHON = "the Python program"


class Application:
    """``python -m module`` with the argument ``given``; its output is in ``folder``."""

    def __init__(self, module: str, given: dict[str, Any], folder: Path) -> None:
        folder.mkdir(parents=True)
        self._lines, self._log = folder / "lines.jsonl", folder / "log"
        with self._lines.open("wb") as out, self._log.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(given)],
                cwd=ROOT,
                env=without_spark() | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        self._tree: list[psutil.Process] = []
        self.is_struck = False
        #: CPU seconds before it was struck.
        self.cpu = 0.0

    def all(self, name: str) -> list[Any]:
        """The values of ``name`` in the lines that are printed."""
        lines = self._lines.read_text().splitlines()
        # A killed program may have printed half a line.
        said = [json.loads(line) for line in lines if line[:1] == "{" and line[-1:] == "}"]
        return [line[name] for line in said if name in line]

    def is_writing(self) -> bool:
        """Whether a micro-batch is under way."""
        return len(self.all("begun")) > len(self.all("written"))

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def ended_well(self) -> bool:
        """False while it runs. AssertionError with its log if it has failed."""
        code = self._process.poll()
        assert code in (None, 0), self.log()[-6000:]
        return code == 0

    def strike(self, victim: Victim) -> None:
        """SIGKILL."""
        self.is_struck = True
        tree = self._tree = _tree(self._process.pid)
        self.cpu = cpu_seconds(self._process.pid)
        for process in tree:
            is_java = _name(process) == "java"
            is_driver = process.pid == self._process.pid
            if victim is Victim.ALL or (is_java if victim is Victim.JAVA else is_driver):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)

    def wait_until_gone(self) -> None:
        """Until every process of the application that was struck has ended."""
        self._process.wait(_END_S)
        wait_for(
            lambda: not any(is_running(process.pid) for process in self._tree),
            _END_S,
            "the end of all processes of a driver",
        )

    def close(self) -> None:
        if self._process.poll() is None:
            self.strike(Victim.ALL)
            self.wait_until_gone()


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, its children, and theirs."""
    spent = 0.0
    for process in _tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent += times.user + times.system + times.children_user + times.children_system
    return spent


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name()
    return ""
