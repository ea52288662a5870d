"""The last report of each query, kept on the driver for who asks.

Owns: where they are kept, which of them are, and which one is meant. Never: who asks
(``last_report.py``).

Spark runs ``commit`` and ``abort`` in Python processes of their own, in which no memory outlives
the call. All Python processes that Spark starts on a driver are told of one directory that is the
application's own, and that Spark deletes with it: ``SPARK_LOCAL_DIRS``.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spark_kafka_sink.datasource.report.write_report import WriteReport
from spark_kafka_sink.security.local_files import UnusableFileError, read_file, write_new_file

_VARIABLE: Final = "SPARK_LOCAL_DIRS"
_FOLDER: Final = "kprod-reports"
#: Queries, and sets of options of writes that belong to none, whose last report is kept.
MOST_KEPT: Final = 100
_QUERY_ID: Final = re.compile(r"[0-9a-f-]{1,64}")
#: Stands for the query of a report that has none.
_NO_QUERY: Final = "none"
#: Between query, options and what sorts by time.
_BETWEEN: Final = "~"


def folder() -> Path | None:
    """Where they are; None where Spark names no directory."""
    first = os.environ.get(_VARIABLE, "").partition(",")[0]
    return Path(first) / _FOLDER if first else None


def keep(report: WriteReport) -> None:
    """In the place of the one before of its query and options. UnusableFileError."""
    there = folder()
    if there is None:
        return
    before = sorted(there.glob("*.json"), key=_time)
    whose = f"{_query_of(report, before)}{_BETWEEN}{report.options_fingerprint}{_BETWEEN}"
    name = f"{whose}{report.written_at_ms:015}-{report.report_id[:12]}.json"
    write_new_file(str(there), name, report.json().encode())
    older = [one for one in before if one.name.startswith(whose) and one.name < name]
    every = sorted({*before, there / name}, key=_time)
    for file in {*older, *every[:-MOST_KEPT]}:
        with contextlib.suppress(FileNotFoundError):  # another commit did it
            file.unlink()


def kept(query_id: str | None) -> str | None:
    """The last report of a query, or of all writes; None when there is none. UnusableFileError."""
    there = folder()
    if there is None:
        message = f"{_VARIABLE} is not set on the driver"
        raise UnusableFileError(message)
    if query_id is not None and not _QUERY_ID.fullmatch(query_id):
        return None
    of = "*" if query_id is None else f"{query_id}{_BETWEEN}*"
    while (file := max(there.glob(f"{of}.json"), key=_time, default=None)) is not None:
        try:
            return read_file(str(file), "the last report").decode()
        except UnusableFileError:
            if file.exists():
                raise  # else a newer one is in its place
    return None


def is_kept(report: WriteReport) -> bool:
    """Whether this report, or another of the same tasks, is the last one of its query."""
    there = folder()
    return there is not None and any(there.glob(f"*-{report.report_id[:12]}.json"))


def _query_of(report: WriteReport, every: Sequence[Path]) -> str:
    """Only tasks know the query: of a micro-batch of which none was finished, the options tell.
    ``every`` report that is kept, the oldest first.
    """
    if report.query_id is not None:
        return _fit(report.query_id)
    if report.batch_id is not None:
        options = f"{_BETWEEN}{report.options_fingerprint}{_BETWEEN}"
        alike = [one.name for one in every if options in one.name]
        if alike:
            return alike[-1].partition(_BETWEEN)[0]
    return _NO_QUERY


def _fit(query_id: str) -> str:
    """A part of a file's name."""
    return query_id if _QUERY_ID.fullmatch(query_id) else _NO_QUERY


def _time(file: Path) -> str:
    return file.name.rpartition(_BETWEEN)[2]
