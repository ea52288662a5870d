"""Reads the reports that were written since the last read.

:class:`NewReports` reads the files of the option ``reportPath``, even while they are renamed,
truncated or deleted. ``report/report_file.py`` writes the files. The operator's allow list
restricts the files that may be read (``base/security/allow_lists.py``).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import warn
from spark_kafka_sink.base.json_object import json_object
from spark_kafka_sink.base.security.allow_lists import check_report_path
from spark_kafka_sink.base.security.local_files import (
    MAX_REPORT,
    UnusableFileError,
    open_to_read,
    read_file,
    refuse_unusable,
)
from spark_kafka_sink.datasource.monitoring.measurements import Document

_log = logging.getLogger(__name__)

#: The time in seconds in which two changes of a directory may get the same modification time,
#: because the clock of the file system is coarse.
_SAME_TIME_S: Final = 2.0
#: The number of bytes at the start of a file that identify the file. They contain the ``reportId``
#: of the first report.
_HEAD_BYTES: Final = 128
#: The largest number of bytes that are read at once. A report is much smaller.
_CHUNK: Final = 64 << 20


class NewReports:
    """Reads the reports that are added to ``path`` from now on. Each call of the object returns the
    reports since the last call. ``path`` is a file or a directory. A path that does not exist yet
    has no reports.

    Raises UnusableFileError for a path that can't hold a report. Raises NotAllowedError for a path
    that the operator's allow list does not permit.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        check_report_path(self._path)
        refuse_unusable(self._path, directories=True)
        self._folder = _Folder(self._path)
        #: The current file and the rotated file, to which a writer may still append.
        self._files: list[_File] = []
        if not self._is_directory() and (file := self._opened()) is not None:
            file.skip()

    def __call__(self) -> list[Document]:
        """Returns the reports since the last call, each as a dictionary. Raises OSError or
        UnusableFileError for a path that can't be read. A line that is not JSON is skipped with a
        warning.
        """
        if self._is_directory():
            return _parsed(self._folder.new_files())
        self._opened()
        found = _parsed(line for file in self._files for line in file.new_lines())
        while len(self._files) > 2:
            self._files.pop(0).close()
        return found

    def _is_directory(self) -> bool:
        return Path(self._path).is_dir()

    def _opened(self) -> _File | None:
        """Opens the file that is at the path now. Returns None if there is no file."""
        try:
            there = os.stat(self._path)  # noqa: PTH116 - as fstat
        except FileNotFoundError:
            return None
        if self._files and self._files[-1].is_at(there):
            return self._files[-1]
        try:
            self._files.append(_File(open_to_read(self._path, check_report_path)))
        except UnusableFileError:
            if Path(self._path).exists():
                raise
            return None  # it was renamed between the two
        return self._files[-1]


class _File:
    """An open file with reports. The file is read to its end, even after it is renamed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._read_to = 0
        #: The first bytes of the file at the last read: a truncated file begins differently.
        self._head = b""

    def is_at(self, there: os.stat_result) -> bool:
        return os.path.samestat(os.fstat(self._fd), there)

    def skip(self) -> None:
        """Skips the current content of the file."""
        size = os.fstat(self._fd).st_size
        self._read_to = size
        self._head = os.pread(self._fd, min(size, _HEAD_BYTES), 0)

    def new_lines(self) -> list[bytes]:
        """Reads the complete lines that were added since the last call, at most one chunk of the
        file. The next call reads the rest.
        """
        size = os.fstat(self._fd).st_size
        begun_again = os.pread(self._fd, len(self._head), 0) != self._head
        if begun_again or size < self._read_to:
            self._read_to = 0
        content = os.pread(self._fd, min(size - self._read_to, _CHUNK), self._read_to)
        # A line without its end is still being written.
        lines, end, _ = content.rpartition(b"\n")
        self._read_to += len(lines) + len(end)
        self._head = os.pread(self._fd, min(self._read_to, _HEAD_BYTES), 0)
        return lines.splitlines()

    def close(self) -> None:
        os.close(self._fd)


class _Folder:
    """A directory with a file for each report. A file's name begins with the report's time, so that
    names sort by time.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: set[str] = set()
        self._changed_ns = 0
        self._known.update(self._names())

    def new_files(self) -> list[bytes]:
        """Returns the contents of the files that are new since the last call, in the order of their
        names. A file that is still being written is left for a later call. An unchanged directory
        is not listed, because it may have many files.
        """
        if self._unchanged():
            return []
        names = self._names()
        new = {name: self._content(name) for name in sorted(names - self._known)}
        whole = {name: content for name, content in new.items() if content.endswith(b"\n")}
        if len(whole) < len(new):
            self._changed_ns = (
                0  # what is not complete becomes so without a change of the directory
            )
        # Forgets deleted files, and reads incomplete ones again.
        self._known = (names & self._known) | whole.keys()
        return list(whole.values())

    def _unchanged(self) -> bool:
        return self._changed_ns != 0 and os.stat(self._path).st_mtime_ns == self._changed_ns  # noqa: PTH116

    def _names(self) -> set[str]:
        try:
            changed = os.stat(self._path)  # noqa: PTH116 - as fstat
            # Before the listing: what comes later changes it again, unless its clock is too coarse.
            settled = time.time() - changed.st_mtime > _SAME_TIME_S
            self._changed_ns = changed.st_mtime_ns if settled else 0
            names = os.listdir(self._path)  # noqa: PTH208 - names are enough
        except (FileNotFoundError, NotADirectoryError):
            return set()
        return {one for one in names if one.endswith(".json") and not one.startswith(".")}

    def _content(self, name: str) -> bytes:
        path = f"{self._path}/{name}"
        try:
            return read_file(path, "a report", MAX_REPORT, check_report_path)
        except UnusableFileError:
            if Path(path).exists():
                raise
            return b""  # it was deleted between the two


def _parsed(lines: Iterable[bytes]) -> list[Document]:
    return list(_documents(lines))


def _documents(lines: Iterable[bytes]) -> Iterator[Document]:
    for line in lines:
        if (found := json_object(line)) is not None:
            yield found
        else:
            warn(_log, Kind.REPORT_NOT_WRITTEN, "a line of reportPath is no report: it is skipped")
