"""Runs the broker processes as one process group. The group ends when this Python process ends.

:class:`BrokerProcessGroup` creates a temporary directory, and starts the watchdog process
(``parent_watchdog.py``) and the brokers. The directory is removed when the group ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from spark_kafka_sink.local_kafka.errors import LocalKafkaError

_WATCHER = Path(__file__).with_name("parent_watchdog.py")


class BrokerProcessGroup:
    """A process group and a temporary directory. When this Python process ends, in any way, the
    processes are killed and the directory is removed.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="local_kafka-"))
        self._started: list[subprocess.Popen[bytes]] = []
        try:
            # Isolated and without site: a watcher takes 10 ms to start and reads no user's files.
            self._watcher = subprocess.Popen(
                [sys.executable, "-I", "-S", _WATCHER, self.directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                process_group=0,
            )
            self._await_watcher()
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def _await_watcher(self) -> None:
        """Waits until the watchdog process has printed a line. The line shows that the watchdog
        process is running.
        """
        ready = self._watcher.stdout
        assert ready is not None
        if not ready.readline():
            self._watcher.kill()
            self._watcher.communicate()
            raise LocalKafkaError(
                f"The watcher of local brokers did not start ({sys.executable}).",
                hint=f"`{sys.executable} -I -S {_WATCHER} /tmp/nothing` should wait for input",
            )
        ready.close()

    def start(
        self, command: list[str], output: IO[bytes], directory: Path
    ) -> subprocess.Popen[bytes]:
        """Starts the process ``command`` in the working directory ``directory``. Its standard
        output and standard error are written to ``output``.
        """
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            # In a group of their own, brokers also don't see a terminal's Ctrl-C: when they end is
            # for their parent to say.
            process_group=self._watcher.pid,
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        """Kills all processes of the group, and removes the temporary directory. A second call does
        nothing.
        """
        if self._watcher.returncode is None:
            # The group's number can't have been reused: the watcher is not yet waited for.
            os.killpg(self._watcher.pid, signal.SIGKILL)
            for process in (self._watcher, *self._started):
                process.wait()
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()
        shutil.rmtree(self.directory, ignore_errors=True)
