"""What a load driver knows: which batches it began, and how each ended as far as Spark said.

The truth file is written by the driver's process and outlives its SIGKILL: every line is on disk
before the driver goes on. A batch that was begun and never ended is KILLED: its end is unknown, but
it must be there as a whole or not at all.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Result(Enum):
    OK = "Spark said that the batch is written"
    FAIL = "an error that says that nothing of it is visible"
    UNKNOWN = "an error that says that the outcome is not known, or known to be partial"
    KILLED = "begun, and then nobody said anything"


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows ``first .. first + rows`` (their sequence numbers) of one write."""

    number: int
    first: int
    rows: int
    result: Result = Result.KILLED
    ids: tuple[str, ...] = ()
    error: str = ""

    @property
    def seqs(self) -> range:
        return range(self.first, self.first + self.rows)


_UNCLEAR = ("CommitOutcomeUnknownError", "PartialCommitError")
_ID = re.compile(r"[A-Za-z0-9._-]+(?:~[A-Za-z0-9._-]+){1,3}~[0-9]+(?![A-Za-z0-9._~-])")


def classify(error: str) -> Result:
    """By the exception's class, which Spark shows in the text that it makes of a Python error."""
    return Result.UNKNOWN if any(name in error for name in _UNCLEAR) else Result.FAIL


class TruthWriter:
    """Appends to the truth file; each call returns when its line is on disk."""

    def __init__(self, path: Path | str) -> None:
        self._file = Path(path).open("ab", buffering=0)  # noqa: SIM115 - closed by close()

    def invoke(self, batch: int, first: int, rows: int) -> None:
        self._write(op="INVOKE", batch=batch, first=first, rows=rows)

    def ok(self, batch: int, at: float | None = None) -> None:
        """``at``: when it was (seconds since the epoch), if not now."""
        self._write(op="OK", batch=batch, **({} if at is None else {"at": at}))

    def failed(self, batch: int, error: str) -> None:
        """FAIL or UNKNOWN, as the error says; the ids that it names are kept."""
        ids = sorted(set(_ID.findall(error)))
        self._write(op=classify(error).name, batch=batch, ids=ids, error=error[:4000])

    def note(self, **fields: object) -> None:
        """Anything else that is worth knowing afterwards; the checker skips it."""
        self._write(op="NOTE", **fields)

    def close(self) -> None:
        self._file.close()

    def _write(self, **fields: object) -> None:
        line = {"at": time.time(), **fields}
        self._file.write(json.dumps(line).encode() + b"\n")
        os.fsync(self._file.fileno())


def read_lines(path: Path | str) -> list[dict[str, object]]:
    """Every whole line; the last one may be cut off by a SIGKILL."""
    lines = Path(path).read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[:-1]]


def clean_ends(path: Path | str) -> list[tuple[float, str]]:
    """When (seconds since the epoch) Spark said that a batch is written, or that nothing of it is
    visible, and which it was: from then on nothing of it is under way.
    """
    return [
        (float(str(line["at"])), f"batch {line['batch']}, {line['op']}")
        for line in read_lines(path)
        if line["op"] in (Result.OK.name, Result.FAIL.name)
    ]


def read_truth(path: Path | str) -> list[Batch]:
    """The batches by number. A micro-batch that runs again is invoked again: OK once is OK for
    ever, else the last word counts.
    """
    found: dict[int, Batch] = {}
    for line in read_lines(path):
        op = str(line["op"])
        if op == "NOTE":
            continue
        number = int(str(line["batch"]))
        before = found.get(number)
        if op == "INVOKE":
            begun = Batch(number, int(str(line["first"])), int(str(line["rows"])))
            if before is not None:
                assert begun.seqs == before.seqs, f"batch {number} has other rows now: {before}"
                if before.result is Result.OK:
                    continue
            found[number] = begun
            continue
        assert before is not None, f"batch {number} ended and never began"
        if before.result is not Result.OK:
            ids, error = line.get("ids", []), str(line.get("error", ""))
            assert isinstance(ids, list)
            found[number] = Batch(number, before.first, before.rows, Result[op], tuple(ids), error)
    return [found[number] for number in sorted(found)]
