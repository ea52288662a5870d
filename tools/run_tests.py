"""``make test``: all tests, in two pytest processes at once.

One runs what needs Spark, which waits most of its time for a JVM to start or for a job to end; the
other everything else. The second one's output follows the first one's, and the last line adds up
both, as pytest itself would say it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter

SPARK = "spark"
#: pytest's words for outcomes, in the order of its own summary.
WORDS = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "errors")


def command(expression: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-m", expression, *sys.argv[1:]]


def outcomes(output: str) -> Counter[str]:
    """Of pytest's last summary line; empty when there is none."""
    for line in reversed(output.splitlines()):
        found = re.findall(r"(\d+) ([a-z]+)", line)
        if re.search(r"\bin \d", line) and found:
            named = {"error": "errors", "warning": "warnings"}
            return Counter({named.get(word, word): int(count) for count, word in found})
    return Counter()


def main() -> int:
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as written:
        others = subprocess.Popen(command(f"not {SPARK}"), stdout=written, stderr=subprocess.STDOUT)
        try:
            with_spark = subprocess.Popen(
                command(SPARK), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            assert with_spark.stdout is not None
            told = []
            for line in with_spark.stdout:
                told.append(line)
                print(line, end="", flush=True)
            codes = [with_spark.wait(), others.wait()]
        finally:
            for process in (others, with_spark):
                if process.poll() is None:
                    process.terminate()
        written.seek(0)
        other = written.read()
    print(other)
    total = outcomes("".join(told)) + outcomes(other)
    del total["deselected"]
    words = [f"{total[word]} {word}" for word in WORDS if total[word]]
    print(f"{', '.join(words) or 'no tests ran'} in {time.monotonic() - begun:.2f}s")
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
