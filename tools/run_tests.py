"""``make test``: all tests, in three pytest processes at once.

Spark's tests wait most of their time for a JVM to start or for a job to end, and those of
tests/exactly_once for drivers of their own that are killed and started again: one after the other
they would take twice as long. The first process is shown as it goes, the others' output follows,
and the last line adds up all, as pytest itself would say it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack

FAULTS = "tests/exactly_once"
PARTS = (
    ["-m", "spark", f"--ignore={FAULTS}"],
    ["-m", "not spark", f"--ignore={FAULTS}"],
    [FAULTS],
)
#: pytest's words for outcomes, in the order of its own summary.
WORDS = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "errors")


def outcomes(output: str) -> Counter[str]:
    """Of pytest's last summary line; empty when there is none."""
    for line in reversed(output.splitlines()):
        found = re.findall(r"(\d+) ([a-z]+)", line)
        if re.search(r"\bin \d", line) and found:
            named = {"error": "errors", "warning": "warnings"}
            return Counter({named.get(word, word): int(count) for count, word in found})
    return Counter()


def start(part: list[str], output: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", *part, *sys.argv[1:]]
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True)


def main() -> int:
    begun = time.monotonic()
    total: Counter[str] = Counter()
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in PARTS[1:]]
        processes: list[subprocess.Popen[str]] = []
        try:
            for part, file in zip(PARTS[1:], files, strict=True):
                processes.append(start(part, file.fileno()))
            processes.insert(0, start(PARTS[0], subprocess.PIPE))
            told = []
            assert processes[0].stdout is not None
            for line in processes[0].stdout:
                told.append(line)
                print(line, end="", flush=True)
            codes = [process.wait() for process in processes]
        finally:
            for process in processes:
                if process.poll() is None:
                    process.terminate()
        total += outcomes("".join(told))
        for file in files:
            file.seek(0)
            output = file.read()
            print(output)
            total += outcomes(output)
    del total["deselected"]
    words = [f"{total[word]} {word}" for word in WORDS if total[word]]
    print(f"{', '.join(words) or 'no tests ran'} in {time.monotonic() - begun:.2f}s")
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
