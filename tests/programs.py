"""Python programs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[1]


def run_python(
    *arguments: str | Path,
    cwd: Path = ROOT,
    environment: Mapping[str, str | None] | None = None,
    stdin: str = "",
    timeout: float = 150,
    fails: bool = False,
) -> subprocess.CompletedProcess[str]:
    """This Python with ``arguments``, to its end, and what it printed. ``environment`` is beside
    this process's own, from which a None takes one away. AssertionError with the output when its
    exit is not 0; or is, and it ``fails``. The limit is ``timeout`` seconds times
    :data:`~tests.waiting.PATIENCE`.
    """
    given = {**os.environ, **(environment or {})}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={name: value for name, value in given.items() if value is not None},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout * PATIENCE,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def without_spark() -> dict[str, str]:
    """This process's variables but those that a Spark has set here for itself."""
    kept = {"SPARK_CONF_DIR"}  # conftest.py's
    return {n: v for n, v in os.environ.items() if n in kept or not n.startswith("SPARK")}


def is_python(process: psutil.Process) -> bool:
    """False as well when it ends meanwhile: Spark ends workers whenever it likes."""
    with suppress(psutil.NoSuchProcess):
        return process.name().startswith("python")
    return False


def is_running(pid: int) -> bool:
    """A process that has ended, and whose parent has not looked, is not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
