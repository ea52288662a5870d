"""Checks a commit message: a short subject, and a body that explains the change.

    python tools/commit_message.py FILE

Run by pre-commit (``pre-commit install --hook-type commit-msg``). Lines that begin with ``#`` and
merges, reverts and fixups, which git writes, are passed over.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

MOST_CHARACTERS = 72
#: A body has at least a sentence.
LEAST_WORDS = 6
_OF_GIT = re.compile(r"(Merge |Revert \"|fixup! |squash! |amend! )")


def problems(message: str) -> Iterator[str]:
    """What is wrong with a commit message, a line for each problem."""
    lines = [line.rstrip() for line in message.splitlines() if not line.startswith("#")]
    while lines and not lines[0]:
        lines.pop(0)
    if not lines:
        yield "the message is empty"
        return
    subject, *rest = lines
    if _OF_GIT.match(subject):
        return
    if len(subject) > MOST_CHARACTERS:
        yield f"the subject has {len(subject)} characters, and at most {MOST_CHARACTERS} are read"
    if subject.endswith("."):
        yield "the subject ends with a full stop"
    if "; " in subject:
        yield "the subject names two changes: make two commits"
    if rest and rest[0]:
        yield "the second line is not empty"
    if len(" ".join(rest).split()) < LEAST_WORDS:
        yield "the body is missing: name the symptom, its cause, and what else was considered"


def main(arguments: list[str]) -> int:
    found = list(problems(Path(arguments[0]).read_text(encoding="utf-8")))
    for problem in found:
        print(f"commit message: {problem} (see .gitmessage)", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
