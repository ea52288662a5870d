"""Installs a lock file into a virtual environment, and shows what it waits for.

    python tools/environment.py .venv-demo --lock requirements/demo.lock --megabytes 750 --kafka

Kafka's jars come at the same time with ``--kafka``, if Maven is there; otherwise whoever starts a
Kafka fetches them through PySpark. A terminal has one line that changes; a file, a line every ten
seconds. It runs in the Python of the machine and imports nothing that has to be installed. pip's
output is shown when pip fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
_LAST_LINES = 20
#: Seconds between two looks, and between two lines of a file.
_LOOK_S = 0.5
_LINE_S = 10.0
#: The size of Kafka's jars, about.
_KAFKA_MB = 92


class FailedError(Exception):
    """A step failed; the text is the end of its output."""


class Waiting:
    """Shows one line for what is going on: how long, how much is written, the last step."""

    def __init__(self, out: IO[str], now: Callable[[], float] = time.monotonic) -> None:
        self._out, self._now = out, now
        self._in_place = out.isatty()
        self._begun = self._told = now()

    def show(self, folder: Path, step: str) -> None:
        now = self._now()
        if not self._in_place and now - self._told < _LINE_S:
            return
        self._told = now
        line = f"  {now - self._begun:.0f} s, {megabytes(folder)} MB written: {step}"
        if self._in_place:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{line[:width]:<{width}}", end="", file=self._out, flush=True)
        else:
            print(line, file=self._out, flush=True)

    def end(self, text: str) -> None:
        if self._in_place:
            print(f"\r{'':<{shutil.get_terminal_size().columns - 1}}\r", end="", file=self._out)
        print(f"  {text} ({self._now() - self._begun:.0f} s)", file=self._out, flush=True)


def megabytes(folder: Path) -> int:
    """The size of all files in ``folder``; some may go while they are counted."""
    size = 0
    for place, _, files in os.walk(folder):
        for file in files:
            try:
                size += Path(place, file).lstat().st_size
            except OSError:
                continue
    return size // 1_000_000


def step_of(output: str) -> str:
    """The last step that pip names: ``Downloading pyspark-4.2.0.tar.gz (450.1 MB)``."""
    lines = [line.strip() for line in output.splitlines()]
    steps = [line for line in lines if re.match(r"(Collecting|Downloading|Building|Install)", line)]
    step = steps[-1] if steps else "making the environment"
    return step if len(step) <= 70 else f"{step[:67]}..."


def run(command: list[str], folder: Path, log: Path, waiting: Waiting) -> None:
    """Runs ``command``, which writes into ``folder``, and shows its steps. Raises FailedError."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    # pip's downloads and builds are in the folder, too, so that its size shows that pip goes on.
    environment = os.environ | {"TMPDIR": str(temporary), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        with log.open("w") as file:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT
            )
            try:
                while process.poll() is None:
                    waiting.show(folder, step_of(log.read_text(errors="replace")))
                    try:
                        process.wait(_LOOK_S)
                    except subprocess.TimeoutExpired:
                        continue
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if process.returncode != 0:
        raise FailedError("\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:]))


def prepare(options: argparse.Namespace, out: IO[str]) -> None:
    """The environment of ``options``, and the jars that are fetched meanwhile."""
    folder: Path = options.folder
    count = len(re.findall(r"^[a-z0-9]", options.lock.read_text(), re.MULTILINE))
    print(
        f"Installing {count} packages into {folder}: {options.megabytes} MB on disk."
        f" PySpark is most of it: a download of 450 MB, unless pip has it in its cache.",
        file=out,
    )
    jars = None
    if options.kafka and shutil.which("mvn"):
        print(
            f"Kafka's jars ({_KAFKA_MB} MB) are downloaded meanwhile, unless this machine has"
            " them.",
            file=out,
        )
        jars = subprocess.Popen(
            [sys.executable, "-m", "spark_kafka_sink.local_kafka", "--prepare"],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # whoever needs them fetches them again, and shows errors
        )
    waiting = Waiting(out)
    python = folder / "bin" / "python"
    with tempfile.TemporaryDirectory() as logs:
        log = Path(logs) / "pip.log"
        if not python.exists():
            folder.mkdir(parents=True, exist_ok=True)
            run([sys.executable, "-m", "venv", str(folder)], folder, log, waiting)
        pip = [str(python), "-m", "pip", "install"]
        compiled = [] if options.editable else ["--no-compile"]
        lock = ["--require-hashes", "-r", str(options.lock)]
        run([*pip, *compiled, *lock], folder, log, waiting)
        if options.editable:
            own = ["--no-deps", "--no-build-isolation", "--editable", "."]
            run([*pip, *own], folder, log, waiting)
        waiting.end(f"{folder} is ready.")
        while jars is not None and jars.poll() is None:
            waiting.show(folder, "waiting for Kafka's jars")
            time.sleep(_LOOK_S)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Installs a lock file.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--megabytes", type=int, required=True, help="its size on disk, about")
    parser.add_argument("--editable", action="store_true", help="this package, too")
    parser.add_argument("--kafka", action="store_true", help="fetch Kafka's jars meanwhile")
    try:
        prepare(parser.parse_args(arguments), sys.stdout)
    except FailedError as failed:
        print(f"pip failed:\n{failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
