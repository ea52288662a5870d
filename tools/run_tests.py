"""The tests of a ring, in several pytest processes at once: ``make test``, ``test-long``.

    python tools/run_tests.py {default,long,timing} [PYTEST ARGUMENTS]

What needs Spark waits most of its time for a JVM to start or for a job to end, what needs a broker
for that; so each of the two has a process of its own, and the rest, which is mostly CPU, has two:
these take what the waiting ones leave (a lower priority), so that all end at about the same time.
Notebooks start Sparks of their own: they come after the scenarios of exactly_once/, the shortest
process of the long ring. What another program gives a time that no setting changes runs when these
have ended. The first one's output is shown as it comes, the others' follow it, then each failed
test once more (who reads a part of a long output reads its end), and the last line adds all up, as
pytest itself would say it.

What needs neither comes in a random order (pytest-randomly: modules, then the classes and tests of
each), which ``--randomly-seed`` repeats. The others keep the order of their files: they share
brokers and sessions, which they stop, freeze and kill.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack

_REST = "(long or faults or cluster)"
_QUIET = "(timing or alone)"
_PLAIN = f"not broker and not spark and not {_REST} and not {_QUIET}"
#: More than half of the CPU time of what needs neither Spark nor a broker.
_HALF = ("tests/simulation", "tests/protocol", "tests/records")
#: By ring: the marker expressions of its processes, and folders. tests/README.md says what belongs
#: where.
RINGS: dict[str, list[tuple[str, ...]]] = {
    "default": [
        (f"spark and not {_REST} and not {_QUIET}",),
        (f"broker and not spark and not {_REST} and not {_QUIET}",),
        (_PLAIN, *_HALF),
        (_PLAIN, *(f"--ignore={folder}" for folder in _HALF)),
    ],
    "long": [
        (f"(long or cluster) and spark and not faults and not notebook and not {_QUIET}",),
        (f"(faults and spark or notebook) and not {_QUIET}",),
        (f"{_REST} and not spark and not notebook and not {_QUIET}",),
    ],
    "timing": [("timing",)],
}
#: By ring: what runs when its processes have ended.
ALONE = {"long": "alone"}
#: How much nicer (``nice``) the processes of :data:`_PLAIN` are.
NICER = 5
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


def order(expression: str, arguments: list[str]) -> list[str]:
    """pytest's arguments for the order of a process."""
    if "not broker" not in expression:
        return []
    given = [one for one in arguments if one.startswith("--randomly-seed=")]
    return ["-p", "randomly", *(given or [f"--randomly-seed={random.getrandbits(32)}"])]


def main() -> int:
    ring, *given = sys.argv[1:]
    begun = time.monotonic()
    arguments = [one for one in given if not one.startswith("--randomly-seed=")]
    base = [sys.executable, "-m", "pytest", *arguments]
    # Tests start hundreds of Pythons, each of which would compile the package.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    commands = [[*base, *order(m, given), "-m", m, *where] for m, *where in RINGS[ring]]
    last = [[*base, "-m", ALONE[ring]]] if ring in ALONE else []
    with ExitStack() as stack:
        written, processes = [], []
        for command in commands[1:]:
            written.append(stack.enter_context(tempfile.TemporaryFile("w+")))
            processes.append(
                subprocess.Popen(command, stdout=written[-1], stderr=subprocess.STDOUT)
            )
            if _PLAIN in command:
                os.setpriority(os.PRIO_PROCESS, processes[-1].pid, NICER)
        try:
            shown = subprocess.Popen(
                commands[0],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            processes.insert(0, shown)
            assert shown.stdout is not None
            outputs = [""]
            for line in shown.stdout:
                outputs[0] += line
                print(line, end="", flush=True)
            codes = [process.wait() for process in processes]
        finally:
            for process in processes:
                if process.poll() is None:
                    process.terminate()
        for command in last:
            written.append(stack.enter_context(tempfile.TemporaryFile("w+")))
            alone = subprocess.run(
                command, stdout=written[-1], stderr=subprocess.STDOUT, check=False
            )
            codes.append(alone.returncode)
        for file in written:
            file.seek(0)
            outputs.append(file.read())
            print(outputs[-1])
    for line in "\n".join(outputs).splitlines():
        if line.startswith(("FAILED ", "ERROR ", "not begun in time: ", "this order again: ")):
            print(line)
    total: Counter[str] = sum(map(outcomes, outputs), Counter())
    del total["deselected"]
    words = [f"{total[word]} {word}" for word in WORDS if total[word]]
    print(f"{', '.join(words) or 'no tests ran'} in {time.monotonic() - begun:.2f}s")
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
