"""Passes data of failed task attempts to the report of their batch, in files.

Spark passes nothing of a failed task to ``abort``. So a failed attempt writes its own report
(``report_of_batch.py``) as a file, before it raises the error. The later abort or commit of the
batch reads and removes the file (:class:`FailedAttempts`). docs/design/spark.md has the
alternatives.

The file is in the directory of ``reportPath``. If ``reportPath`` is not set, or if that directory
can't be written, the file is in the application's local directory. An executor on another machine
that shares neither directory writes no file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, astuple, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security import allow_lists
from spark_kafka_sink.base.security.local_files import (
    UnusableFileError,
    read_file,
    write_new_file,
)
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity

if TYPE_CHECKING:
    from spark_kafka_sink.datasource.report.write_report import WriteReport

#: The prefix of the directories' names. The dot hides them from readers of a directory of reports.
_NAME: Final = ".kprod-failed-"
#: File names of finished and of interrupted attempts.
_FILE: Final = re.compile(r"\.?(\d+-\d+|begun)?\.json(\.[0-9a-f]{8}\.tmp)?")
#: The name of the file with the identity of the batch, which the first task writes.
_BEGUN: Final = "begun.json"
#: The largest number of reports that are read. A job fails after a few failed attempts.
_MOST: Final = 100
#: The age in ms at which directories of a killed driver are removed. No batch takes that long.
_FORGOTTEN_MS: Final = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """The directories for the reports of a batch's failed attempts. Picklable, so that tasks use
    the same directories as the driver.

    - ``named`` is a directory in or next to reportPath.
    - ``local`` is a directory in the application's local directory (SPARK_LOCAL_DIRS).

    Each path is empty if it is not available.
    """

    named: str = ""
    local: str = ""

    @classmethod
    def of(cls, report_path: str | None, token: str, query_name: str = "") -> FailedAttempts:
        """Chooses the directories of a write.

        ``token`` identifies the write, and must be the same at planning, in the tasks, and at
        commit or abort. For a stream, it is the token of ``driver_identity``. For a batch job, it
        is random. If the token is empty, there are no directories.
        """
        if not token:
            return cls()
        from spark_kafka_sink.datasource.report.kept_reports import local_folder

        # Two queries with the same options have the same token, if their checkpoint is set in
        # Spark's configuration. So the name of the query distinguishes them.
        if query_name:
            token += f"-{hashlib.sha256(query_name.encode(errors='replace')).hexdigest()[:8]}"
        local = local_folder()
        found = cls(local="" if local is None else str(local / f"{_NAME}{token}"))
        with contextlib.suppress(ConfigError):
            if report_path is not None:
                directory = Path(report_path)
                if not (report_path.endswith("/") or directory.is_dir()):
                    directory = directory.parent
                named = str(directory.absolute() / f"{_NAME}{token}")
                allow_lists.check_report_path(named)
                return replace(found, named=named)
        return found

    def begin(self) -> None:
        """Creates the directories. Call this method on the driver before any task. It first removes
        directories of an earlier run, which exist if Spark did not abort that run.
        """
        if self.named:
            _remove_forgotten(str(Path(self.named).parent))
        self.end()
        for folder in filter(None, (self.named, self.local)):
            with contextlib.suppress(OSError):
                Path(folder).mkdir(mode=0o700)

    def tell(self, identity: TaskIdentity) -> None:
        """Stores the identity of the write in a file. The first attempt of the first task calls
        this method at its start. Never raises.

        If a user stops a write, Spark kills the attempts, and they store no report. The batch's
        report then gets the identity of the write from this file.
        """
        # (The application's local directory is the cheapest one to write to.)
        if self._sees_local():
            with contextlib.suppress(UnusableFileError):
                _add(self.local, _BEGUN, json.dumps(asdict(identity)))

    @property
    def told(self) -> TaskIdentity | None:
        """The identity that the first task has stored by :meth:`tell`. None if there is none. Read
        this property before you call :meth:`take`, which removes the directories.
        """
        with contextlib.suppress(UnusableFileError, TypeError, ValueError, RecursionError):
            if self._sees_local():
                text = read_file(f"{self.local}/{_BEGUN}", "a task")
                told = TaskIdentity(**json.loads(text))
                if _types(told) == _types(TaskIdentity()):
                    return told
        return None

    def leave(self, attempt: WriteReport) -> None:
        """Stores the report of a failed attempt. Called in the task. Never raises. Stores nothing
        in two cases:

        - This machine has no access to the driver's directories.
        - The directories no longer exist. Then the driver has already created the batch's report,
          because another task has ended the batch.
        """
        task = attempt.slowest_task
        number = "" if task is None else f"{task.partition}-{task.attempt}"
        small = replace(attempt, partitions=(), partitions_left_out=0)
        for folder, _ in self._ours():
            check = allow_lists.check_report_path if folder == self.named else None
            with contextlib.suppress(UnusableFileError, ConfigError):
                _add(folder, f"{number}.json", small.json(), check)
                return  # if it can't be written, the next directory is tried

    @property
    def begun_ms(self) -> int | None:
        """The time when the batch was planned, in milliseconds since the epoch. None if this time
        is unknown.
        """
        # begin() creates the directories at planning, and _add keeps their modification time.
        return min((begun_ms for _, begun_ms in self._ours()), default=None)

    def left(self, batch_id: int | None) -> list[WriteReport]:
        """The stored reports of failed attempts, at most 100. Never raises.

        If ``batch_id`` is the id of a micro-batch, the result has only reports of this micro-batch.
        For a batch job, ``batch_id`` is None, and the result has all reports in the directories.
        """
        from spark_kafka_sink.base.described_fields import from_json
        from spark_kafka_sink.datasource.report.write_report import WriteReport

        found: list[WriteReport] = []
        for folder, _ in self._ours():
            for file in Path(folder).glob("*.json"):
                with contextlib.suppress(
                    UnusableFileError, KeyError, TypeError, ValueError, RecursionError
                ):
                    if len(found) < _MOST:
                        text = read_file(str(file), "a failed attempt")
                        found.append(from_json(WriteReport, json.loads(text)))
        # (The tasks of a batch job in a foreachBatch function have the id of the micro-batch.)
        return [one for one in found if batch_id in (None, one.batch_id)]

    def take(self, batch_id: int | None) -> list[WriteReport]:
        """Returns the stored reports as :meth:`left` does, and then removes the directories. Never
        raises.
        """
        found = self.left(batch_id)
        self.end()
        return found

    def end(self) -> None:
        """Removes the directories. Never raises."""
        for folder, _ in self._ours():
            with contextlib.suppress(OSError):
                for file in Path(folder).iterdir():
                    if _FILE.fullmatch(file.name):
                        file.unlink()
                Path(folder).rmdir()

    def _sees_local(self) -> bool:
        return any(folder == self.local for folder, _ in self._ours())

    def _ours(self) -> Iterator[tuple[str, int]]:
        """Yields the directories that exist and belong to this user, with their modification times
        in milliseconds. Links, and directories of other users, are skipped. In a directory like
        /tmp, any user can create a directory with the expected name.
        """
        for folder in filter(None, (self.named, self.local)):
            with contextlib.suppress(OSError):
                seen = os.lstat(folder)
                if stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid():
                    yield folder, seen.st_mtime_ns // 1_000_000


def _add(folder: str, name: str, text: str, check: Callable[[str], None] | None = None) -> None:
    """Adds the file ``name`` to the directory ``folder``. The directory keeps its modification
    time, because ``begun_ms`` reads the time of planning from it. Raises UnusableFileError.
    """
    with contextlib.suppress(OSError):
        made = Path(folder).stat()
        write_new_file(folder, name, text.encode(), check)
        os.utime(folder, ns=(made.st_atime_ns, made.st_mtime_ns))


def _types(identity: TaskIdentity) -> list[type]:
    return [type(value) for value in astuple(identity)]


@cache
def _remove_forgotten(directory: str) -> None:
    """Removes the directories of killed drivers from ``directory`` when they are a week old. Never
    raises.

    Runs once per process, because listing ``directory`` is expensive: it may have 100 000 reports.
    """
    now_ms = time.time_ns() // 1_000_000
    with contextlib.suppress(OSError):
        for folder in Path(directory).glob(f"{_NAME}*"):
            left = FailedAttempts(str(folder))
            begun_ms = left.begun_ms
            if begun_ms is not None and now_ms - begun_ms > _FORGOTTEN_MS:
                left.end()
