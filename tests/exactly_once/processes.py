"""Load drivers as processes: started, instructed, frozen and killed, alone or with all theirs.

A driver's processes: its own Python, Spark's JVM, and below that the daemons and workers of Python.
SIGKILL of the JVM alone leaves the Python worker alive that commits for it, for a while: it is the
nastier death, because two drivers may then act at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.faults.proxy import Fault, Hit
from tests.programs import without_spark
from tests.waiting import LONG_S

ROOT = Path(__file__).parents[2]


def of_the_checkout() -> dict[str, str]:
    """The environment of our processes."""
    return without_spark() | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }


class Driver:
    """One process. ``begin`` sends a command and returns; ``answer`` waits for its end.

    ``connect``: its session is one of Spark Connect; the server is in its own JVM.
    """

    def __init__(
        self,
        home: Path,
        *,
        master: str = "local[2,3]",
        confs: dict[str, str] | None = None,
        connect: bool = False,
    ) -> None:
        self.name = f"d{uuid.uuid4().hex[:6]}"
        self.home = home / self.name
        self.home.mkdir(parents=True)
        self.log = self.home / "driver.log"
        environment = of_the_checkout()
        command = [
            sys.executable,
            "-m",
            "tests.exactly_once.load_driver",
            f"--master={master}",
            f"--name={self.name}",
            f"--conf=spark.local.dir={self.home / 'local'}",
            f"--conf=spark.sql.warehouse.dir={self.home / 'warehouse'}",
        ]
        command += [f"--conf={name}={value}" for name, value in (confs or {}).items()]
        if connect:
            command.append("--connect")
            environment["SPARK_TESTING"] = "1"  # the server's port is any that is free
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env=environment,
                cwd=self.home,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._asked = 0
        self._frozen: list[psutil.Process] = []
        threading.Thread(target=self._listen, daemon=True).start()
        self.java = 0

    def wait_until_ready(self, timeout: float = LONG_S) -> Driver:
        if not self.java:
            self.java = int(self._next(timeout)["java"])
        return self

    def begin(self, do: str, **command: Any) -> None:
        self.wait_until_ready()
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **command}).encode() + b"\n")
        self.process.stdin.flush()
        self._asked += 1

    def answer(self, timeout: float = LONG_S) -> dict[str, Any]:
        found = self._next(timeout)
        self._asked -= 1
        return found

    @property
    def idle(self) -> bool:
        """Alive, and nothing is under way: a test that failed may have left it in the middle."""
        return self.alive and self._asked == 0

    @property
    def has_answered(self) -> bool:
        return not self._answers.empty()

    def wait_until(
        self, condition: Callable[[], bool], what: str, so_far: Callable[[], object]
    ) -> None:
        """Waits for ``condition()`` during the command under way. AssertionError with the driver's
        answer if the command ends before, or after :data:`LONG_S`, with ``so_far()`` and the end of
        the driver's log.
        """
        deadline = time.monotonic() + LONG_S
        while True:
            # Read before the condition, which a command's last step may make true.
            has_ended = self.has_answered or not self.alive
            is_late = time.monotonic() > deadline
            if condition():
                return
            assert not has_ended, f"{what} did not come: {self.answer()}"
            assert not is_late, (
                f"{what} did not come in {LONG_S:.0f} s, so far: {so_far()}\n{self.log_tail()}"
            )
            time.sleep(0.01)

    def wait_until_hit(self, fault: Fault, what: str = "the request") -> None:
        """Waits until ``fault`` has hit a request of the command under way."""
        self.wait_until(fault.hit.is_set, what, lambda: f"{fault.seen} seen")

    def run(self, do: str, **command: Any) -> dict[str, Any]:
        self.begin(do, **command)
        return self.answer()

    def succeed(self, do: str, **command: Any) -> dict[str, Any]:
        answer = self.run(do, **command)
        assert answer["result"] == "OK", answer
        return answer

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def tree(self) -> list[psutil.Process]:
        """Every process of the driver, executors and Python workers included, the JVM first."""
        try:
            found = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        found.sort(key=lambda process: process.pid != self.java)
        return [*found, psutil.Process(self.process.pid)]

    def kill(self) -> None:
        """SIGKILL to all of it, as when its container goes."""
        tree = self.tree()
        for process in tree:  # nobody may start another one meanwhile
            _send(process, signal.SIGSTOP)
        for process in [*tree, *self.tree()]:
            _send(process, signal.SIGKILL)
        self._reap()

    def kill_java(self) -> None:
        """SIGKILL to Spark's driver JVM only: its Python children notice closed sockets."""
        os.kill(self.java, signal.SIGKILL)

    def freeze(self) -> None:
        self._frozen = self.tree()
        for process in self._frozen:
            _send(process, signal.SIGSTOP)

    def thaw(self) -> None:
        for process in reversed(self._frozen):
            _send(process, signal.SIGCONT)
        self._frozen = []

    def close(self) -> None:
        if self.alive:
            self.kill()
        self._reap()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def log_tail(self, lines: int = 40) -> str:
        """What is no report of a batch, and no Java stack."""
        text = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        told = (line[:300] for line in text if " INFO " not in line and not line.startswith("\t"))
        return "\n".join([*told][-lines:])

    def _reap(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)

    def _next(self, timeout: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self._answers.get(timeout=0.2)
            except queue.Empty:
                gone = not self.alive and self._answers.empty()
                late = time.monotonic() > deadline
                assert not gone, f"the driver is gone:\n{self.log_tail()}"
                assert not late, f"no answer after {timeout} s:\n{self.log_tail()}"

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in self.process.stdout:
                self._answers.put(json.loads(line))


def _send(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        process.send_signal(number)


def sender_of(hit: Hit) -> psutil.Process:
    """The process whose connection with the proxy this is: who sent what the proxy sees.

    By both ports: another process may have the client's for a connection to somebody else.
    """
    for c in psutil.net_connections("tcp"):
        if c.raddr and (c.laddr.port, c.raddr.port) == (hit.client_port, hit.proxy_port) and c.pid:
            return psutil.Process(c.pid)
    raise AssertionError(f"nobody has a connection from port {hit.client_port}")


def executor_of(hit: Hit) -> psutil.Process:
    """The executor's JVM whose Python worker sent this."""
    daemon = sender_of(hit).parent()
    assert daemon is not None
    executor = daemon.parent()
    assert executor is not None
    assert "CoarseGrainedExecutorBackend" in " ".join(executor.cmdline())
    return executor


def kill_and_wait(process: psutil.Process) -> None:
    _send(process, signal.SIGKILL)
    with contextlib.suppress(psutil.NoSuchProcess):
        process.wait(20)
