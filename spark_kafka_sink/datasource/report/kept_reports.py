"""Stores the last report of each query on the driver, for ``last_report``. ``last_report.py``
carries a stored report to the user's process.

The reports are files in the application's directory in ``SPARK_LOCAL_DIRS``, because Spark runs
``commit`` and ``abort`` in separate Python processes. All Python processes of a driver share this
directory, and Spark deletes it with the application.

A later report of the same query or the same options replaces a report. But the abort that follows a
failed commit must still find that the commit has published a report (:func:`is_kept`). So the ids
of failed batches' reports stay, as the names of empty files in a directory of their own.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from spark_kafka_sink.base.json_object import json_object
from spark_kafka_sink.base.security.local_files import UnusableFileError, read_file, write_new_file
from spark_kafka_sink.datasource.report.write_report import WriteReport, certainty_of

_VARIABLE: Final = "SPARK_LOCAL_DIRS"
_FOLDER: Final = "kprod-reports"
#: The directory with an empty file for each report of a failed batch.
_FAILED: Final = "kprod-failed-reports"
#: The largest number of files in each of the two directories. Each query has one stored report, and
#: each set of options of writes without a query.
MOST_KEPT: Final = 100
_QUERY_ID: Final = re.compile(r"[0-9a-f-]{1,64}")
_YARN_ID: Final = re.compile(r"(?<=/appcache/)application_\d+_\d+(?=/)")
#: In place of the query of a report without one.
_NO_QUERY: Final = "none"
#: Separates query, options and time.
_BETWEEN: Final = "~"


def local_folder() -> Path | None:
    """The application's local directory. None if Spark has not set a local directory."""
    first = os.environ.get(_VARIABLE, "").partition(",")[0]
    return Path(first) if first else None


def folder() -> Path | None:
    """The directory of stored reports. None if Spark has not set a local directory."""
    local = local_folder()
    return None if local is None else local / _FOLDER


def keep(report: WriteReport) -> None:
    """Stores a report in a file, in place of the previous report with the same query and the same
    options. Does nothing if Spark has not set a local directory. Raises UnusableFileError if the
    file can't be written.

    If another report has the same id, only the report whose outcome is more certain stays. These
    are the reports of a commit and of the abort beside it.
    """
    there = folder()
    if there is None:
        return
    whose = f"{_query_of(report, there)}{_BETWEEN}{report.options_fingerprint}{_BETWEEN}"
    write_new_file(str(there), whose + _name_of(report), report.json().encode())
    # (Listed after the write: of two processes that store reports of one run at the same time, at
    # least one process finds both reports.)
    every = _in_order_of_time(there)
    less_certain = _less_certain([one for one in every if one.name.endswith(_end_of(report))])
    every = [one for one in every if one not in less_certain]
    older = [one for one in every if one.name.startswith(whose)][:-1]
    for file in {*less_certain, *older, *every[:-MOST_KEPT]}:
        with contextlib.suppress(FileNotFoundError):  # another commit did it
            file.unlink()
    if not report.outcome.is_success:
        _note(report, there.parent / _FAILED)


def _less_certain(of_one_run: Sequence[Path]) -> Sequence[Path]:
    """All stored reports of ``of_one_run``, which is in the order of time, except the report that
    counts (:attr:`WriteOutcome.certainty`). Of equal ones, the last report counts.
    """
    if len(of_one_run) < 2:
        return ()
    return sorted(of_one_run, key=_certainty)[:-1]


def _certainty(file: Path) -> int:
    """The certainty of the outcome of a stored report (:attr:`WriteOutcome.certainty`). -1 if the
    report can't be read, or was removed meanwhile.
    """
    with contextlib.suppress(UnusableFileError):
        text = read_file(str(file), "a report").decode(errors="replace")
        return certainty_of(json_object(text) or {})
    return -1


def _note(failed: WriteReport, names: Path) -> None:
    """Stores the id of a failed batch's report as the name of an empty file in the directory
    ``names``, which keeps the newest 100 files. Raises UnusableFileError.
    """
    write_new_file(str(names), _name_of(failed), b"")
    for file in sorted(names.glob("*.json"))[:-MOST_KEPT]:
        with contextlib.suppress(FileNotFoundError):
            file.unlink()


def kept(query_id: str | None) -> str | None:
    """The JSON of the last stored report of the query ``query_id``. If ``query_id`` is None, the
    last stored report of any write.

    Returns None if there is no report. Raises UnusableFileError if Spark has not set a local
    directory, or if the directory of the reports or the report can't be read. The JSON is not
    checked: another program may have damaged it.
    """
    there = folder()
    if there is None:
        message = f"{_VARIABLE} is not set on the driver"
        raise UnusableFileError(message)
    if query_id is not None and not _QUERY_ID.fullmatch(query_id):
        return None
    of = "" if query_id is None else f"{query_id}{_BETWEEN}"
    unreadable = None
    while (file := max(_files(there, of), key=_time, default=None)) is not None:
        try:
            return read_file(str(file), "the last report").decode(errors="replace")
        except UnusableFileError:
            # (Another commit may have replaced the file by a newer one. Then the next glob finds
            # the newer one. If it finds the same file again, this file can't be read.)
            if file == unreadable:
                raise
            unreadable = file
    return None


def _files(there: Path, of: str) -> list[Path]:
    """The stored reports whose names begin with ``of``. Raises UnusableFileError if the directory
    ``there`` exists and can't be listed. (``Path.glob`` would find nothing in it.)
    """
    try:
        found = list(there.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        problem = error.strerror
    else:
        return [one for one in found if one.name.startswith(of) and one.suffix == ".json"]
    raise UnusableFileError(problem)


def known_application() -> tuple[str | None, str | None]:
    """The id and the name of the application, from an earlier report. Each is None if it is
    unknown.

    If there is no report yet, the id comes from Spark's environment on Kubernetes, or from the path
    of the local directory on YARN.
    """
    known: dict[str, Any] = {}
    with contextlib.suppress(UnusableFileError):
        known = json_object(kept(None) or "") or {}
    app_id = known.get("applicationId") or os.environ.get("SPARK_APPLICATION_ID")
    if not app_id and (of_yarn := _YARN_ID.search(os.environ.get(_VARIABLE, ""))):
        app_id = of_yarn.group()
    return app_id or None, known.get("applicationName")


def is_kept(report: WriteReport) -> bool:
    """Whether a report with the id of ``report`` is stored, or was stored by a failed commit, until
    another report replaced it. Two reports have the same id if they are about the same task
    attempts, such as the reports of a failed commit and of the abort that follows.

    False if Spark has not set a local directory.
    """
    # (The memory of a Python process is not enough: Spark ends the process of a failed commit.)
    there = folder()
    if there is None:
        return False
    named = f"*{_end_of(report)}"
    return any(there.glob(named)) or any((there.parent / _FAILED).glob(named))


def _query_of(report: WriteReport, there: Path) -> str:
    """The query id of a report, as a part of a file name. ``there`` is the directory of the stored
    reports.

    If no task of a micro-batch has finished, its report has no query id. Then the result is the
    query id of the last stored report with the same options.
    """
    if report.query_id is not None:
        return _fit(report.query_id)
    if report.batch_id is not None:
        options = f"{_BETWEEN}{report.options_fingerprint}{_BETWEEN}"
        alike = [one.name for one in _in_order_of_time(there) if options in one.name]
        if alike:
            return alike[-1].partition(_BETWEEN)[0]
    return _NO_QUERY


def _fit(query_id: str) -> str:
    """Returns the query id if it can be a part of a file name. For any other query id, returns
    ``none``.
    """
    return query_id if _QUERY_ID.fullmatch(query_id) else _NO_QUERY


def _name_of(report: WriteReport) -> str:
    """The part of a report's file name that begins with its time."""
    return f"{report.written_at_ms:015}{_end_of(report)}"


def _end_of(report: WriteReport) -> str:
    """The end of a report's file name, which begins with its id."""
    return f"-{report.report_id[:12]}.json"


def _in_order_of_time(there: Path) -> list[Path]:
    """The stored reports of the directory ``there``, the oldest first."""
    return sorted(there.glob("*.json"), key=_time)


def _time(file: Path) -> str:
    return file.name.rpartition(_BETWEEN)[2]
