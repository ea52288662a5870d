"""What a contributor runs before a commit: format, lint, types, layers, and the tests of a change.

    python tools/quick.py [--base REV]      base: main, or HEAD where main is the branch

The tests are the plain ones (no broker, no Spark, not long) of the rooms whose files differ from
the base, and the test files that differ themselves. `make check` and `make test` run all.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PLAIN = (
    "not broker and not spark and not long and not faults and not cluster and not timing "
    "and not alone and not notebook"
)
#: Rooms of the package whose tests have folders of other names.
FOLDERS = {
    "base": ("config", "security"),
    "cli": ("cli", "config"),
    "errors": ("config",),
    "network": ("network", "sasl"),
    "datasource": ("datasource", "monitoring", "formats"),
    "records": ("records", "formats"),
}
#: Folders whose tests take minutes: only their changed files run.
SLOW = {"simulation", "fuzz", "conformance"}


def changed(base: str) -> list[str]:
    """Paths that differ from `base`, also those that git does not track yet."""
    tracked = _git("diff", "--name-only", "--diff-filter=d", base)
    return sorted({*tracked, *_git("ls-files", "--others", "--exclude-standard")})


def tests_of(paths: Iterable[str]) -> list[str]:
    """The folders and files of tests that belong to changed paths."""
    found: set[str] = set()
    for path in paths:
        first, *rest = Path(path).parts
        if first == "tests" and path.endswith(".py") and Path(path).name.startswith("test_"):
            found.add(path)
        elif first == "spark_kafka_sink" and rest:
            found |= {f"tests/{folder}" for folder in FOLDERS.get(rest[0], (rest[0],))}
        elif first in ("docs", "tools", "README.md", "CONTRIBUTING.md", "DESIGN.md"):
            found |= {"tests/docs", "tests/test_design.py"}
    folders = {one for one in found if (ROOT / one).is_dir() and Path(one).name not in SLOW}
    files = {one for one in found if one.endswith(".py")}
    return sorted(folders | {file for file in files if str(Path(file).parent) not in folders})


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def _base() -> str:
    branch = _git("branch", "--show-current")
    return "HEAD" if branch == ["main"] or not _git("branch", "--list", "main") else "main"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", help="the commit to compare with")
    base = parser.parse_args().base or _base()
    merge_base = _git("merge-base", base, "HEAD")[0]
    tests = tests_of(changed(merge_base))
    commands = [
        [BIN / "ruff", "format", "--check", "."],
        [BIN / "ruff", "check", "."],
        [BIN / "mypy"],
        [BIN / "lint-imports"],
        [sys.executable, "tools/generate_docs.py", "--check"],
    ]
    if tests:
        commands.append([sys.executable, "-m", "pytest", "-q", "-x", "--ff", "-m", PLAIN, *tests])
    for command in commands:
        print("+", *command[1:], flush=True)
        done = subprocess.run(command, cwd=ROOT, check=False)
        if done.returncode != 0:
            return done.returncode
    print("quick: all passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
