"""Writes reports to files on the driver (option ``reportPath``).

The operator's allow list restricts the paths (``base/security/allow_lists.py``). This module
renames or deletes no file: the user does that with logrotate, or with a rule of the object store.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.security import allow_lists
from spark_kafka_sink.base.security.local_files import (
    UnusableFileError,
    append_line,
    refuse_unusable,
    write_new_file,
)
from spark_kafka_sink.datasource.report.write_report import WriteReport


def check_report_path(path: str) -> None:
    """Raises ConfigError in these cases:

    - The operator's allow list does not permit ``path``.
    - The path is a URI such as ``s3://bucket/x``.
    - The path exists, and is neither a regular file nor a directory.

    A path that does not exist is accepted here. :func:`lacks` checks whether its directory exists.
    Call this function before a row is written.
    """
    allow_lists.check_report_path(path)
    try:
        refuse_unusable(path, directories=True)
    except UnusableFileError as error:
        raise ConfigError(
            f"reportPath={safe_text(path)} can't be written: {error}",
            hint="it is a file or a directory of the driver: mount a store (/Volumes/..., /dbfs/"
            "...), or use reportTopic",
        ) from None


def lacks(path: str) -> str | None:
    """The reason why a report can't be written to ``path`` on this machine. None if no reason is
    found. This check writes nothing.

    - If ``path`` is a directory, it need not exist: it is created with the first report. The path
      of such a directory ends with ``/``.
    - If ``path`` is a file, its parent directory must exist.
    """
    wanted = Path(path)
    above = wanted.parents if path.endswith("/") else wanted.parents[:1]
    try:
        there = next((one for one in (wanted, *above) if one.exists()), None)
    except (OSError, ValueError):
        return "it is no name that a file can have"
    if there is None:
        return f"the directory {safe_text(str(wanted.parent))} does not exist"
    return None if os.access(there, os.W_OK) else "this user may not write it"


def write_report_file(path: str, report: WriteReport) -> None:
    """Writes a report to ``path``. Raises ConfigError if this fails.

    - If ``path`` is a directory, adds a file with the report to the directory.
    - If ``path`` is a file, appends the report to the file as a line of JSON. So a stream adds a
      line for every micro-batch, and an hourly job keeps its history in one file.
    """
    allow_lists.check_report_path(path)
    line = (report.json() + "\n").encode()
    try:
        if path.endswith("/") or Path(path).is_dir():
            write_new_file(path, file_name(report), line, allow_lists.check_report_path)
        else:
            append_line(path, line, allow_lists.check_report_path)
    except UnusableFileError as error:
        problem = str(error)
    else:
        return
    raise ConfigError(f"reportPath can't be written: {problem}", kind=Kind.REPORT_NOT_WRITTEN)


def file_name(report: WriteReport) -> str:
    """The unique file name of a report in a directory. Names sort by time."""
    batch = "job" if report.batch_id is None else f"batch-{report.batch_id}"
    seconds, ms = divmod(report.written_at_ms, 1000)
    written = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(seconds))}.{ms:03}Z"
    return f"{written}-{batch}-{report.report_id[:12]}.json"
