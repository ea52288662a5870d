"""Checks the Python interpreter that Spark uses on the driver to plan and commit.

Spark runs a Python data source with ``PYSPARK_PYTHON`` (by default ``python3``), on the executors
and on the driver. ``PYSPARK_DRIVER_PYTHON`` is only the interpreter of the user's own process.

A frequent mistake is a ``PYSPARK_PYTHON`` in an archive, such as ``./env/bin/python``. An executor
unpacks the archive. A driver in client mode does not, so the path does not exist there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import safe_text
from spark_kafka_sink.datasource.checks.check_steps import Step, ok, red, skipped, yellow

NAME: Final = "Python"
_KIND: Final = Kind.NOT_INSTALLED_FOR_WORKERS
_VARIABLE: Final = "PYSPARK_PYTHON"
#: The first imports of a write on the driver; Spark itself brings pyspark.
_FIND: Final = (
    "import sys, importlib.util as u;"
    "print(*sys.version_info[:2]);"
    "print(*[n for n in ('spark_kafka_sink', 'numpy', 'pyarrow') if u.find_spec(n) is None])"
)
_LEAST: Final = (3, 11)
_TIMEOUT_S: Final = 30.0
#: The advice for a path that does not exist.
UNPACK: Final = (
    "unpack the archive in the folder where the driver starts (mkdir env && tar -xzf env.tar.gz -C"
    f" env), or set {_VARIABLE} to a path that driver and executors have"
)


def missing(executable: str) -> str:
    """The error message for a Python interpreter that does not exist on the driver. ``executable``
    is a path, or the name of a command in the PATH.
    """
    shown = safe_text(executable)
    where = "the PATH" if os.sep not in executable else safe_text(str(Path.cwd()))
    return (
        f"Spark plans and commits on the driver with {shown}, too, and no such program is in"
        f" {where} on this machine"
    )


class Found(NamedTuple):
    """The version of a Python interpreter, such as ``(3, 12)``. Also has the names of the missing
    packages: they are needed to plan a write, but this interpreter does not have them.
    """

    version: tuple[int, ...]
    lacks: list[str]


@cache
def look(executable: str) -> Found | None:
    """Runs an interpreter to find its version and packages. Returns None if the interpreter fails.
    Cached per process.
    """
    try:
        asked = subprocess.run(  # noqa: S603 - the one that Spark runs
            [executable, "-c", _FIND], capture_output=True, timeout=_TIMEOUT_S, check=True
        )
        version, lacks = (line.split() for line in asked.stdout.decode().split("\n")[:2])
        return Found(tuple(map(int, version)), lacks)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def driver_python_step() -> Step:
    """Checks that the program of PYSPARK_PYTHON exists on this machine, is Python 3.11 or newer,
    and has the packages that are needed to plan a write.
    """
    executable = os.environ.get(_VARIABLE)
    if not executable:
        return skipped(NAME, f"{_VARIABLE} is not set: Spark takes python3 of the PATH")
    path = shutil.which(executable)
    if path is None:
        return red(NAME, missing(executable), UNPACK, _KIND)
    shown = f"{_VARIABLE} is {safe_text(executable)}"
    found = look(str(Path(path).absolute()))
    if found is None:
        return red(NAME, f"{shown}, which does not run Python code", UNPACK, _KIND)
    version = ".".join(map(str, found.version))
    if found.version < _LEAST:
        why = f"{shown}, which is Python {version}: the package needs 3.11"
        return red(NAME, why, "make its environment with Python 3.11 or newer", _KIND)
    if found.lacks:
        why = f"{shown}, which has no {', '.join(found.lacks)}"
        change = "install them there; --py-files brings spark_kafka_sink, and no compiled package"
        return yellow(NAME, why, change, _KIND)
    return ok(NAME, f"{shown}, Python {version}")
