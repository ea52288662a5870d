"""How long reports are kept: options ``reportPathRetentionBytes`` and ``reportPathRetentionMs``.

Owns: :class:`Retention`: which file is full, and which files are deleted. Never: a file that is no
report of ours; the renaming (``base/security/local_files.py``).

A file is renamed when it holds half of what may be kept, and the former one is replaced or deleted:
so there is at least half of it, and at most all, and no report is copied.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_kafka_sink.base.security.local_files import FORMER

#: Where a report says when it was written, near the beginning of its line.
_WRITTEN_AT: Final = re.compile(rb'"writtenAtMs":(\d+)')
_HEAD_BYTES: Final = 256
#: ``report_file.file_name``.
_NAME: Final = re.compile(r"\d{8}T\d{6}\.\d{3}Z-(?:job|batch-\d+)-[0-9a-f]{12}\.json")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def name_time(ms: int) -> str:
    """What the name of a report's file begins with: names sort by time."""
    seconds, rest = divmod(ms, 1000)
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(seconds))}.{rest:03}Z"


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept at most; None: no limit."""

    max_bytes: int | None = None
    max_ms: int | None = None
    now_ms: Callable[[], int] = _now_ms

    def is_full(self, fd: int) -> bool:
        """Whether the open file has half of what may be kept."""
        if self.max_bytes is not None and os.fstat(fd).st_size * 2 >= self.max_bytes:
            return True
        if self.max_ms is None:
            return False
        first = _WRITTEN_AT.search(_head(fd))
        return first is not None and (self.now_ms() - int(first[1])) * 2 >= self.max_ms

    def drop_former(self, path: str) -> None:
        """Deletes the file that was renamed, when its last report is half as old as may be: the
        first one is twice as old then.
        """
        if self.max_ms is None:
            return
        former = Path(path + FORMER)
        with contextlib.suppress(FileNotFoundError):
            if (self.now_ms() - former.stat().st_mtime * 1000) * 2 >= self.max_ms:
                former.unlink()

    def prune(self, directory: str) -> None:
        """Deletes the oldest reports of a directory, as many as are too old or too much."""
        if self.max_bytes is None and self.max_ms is None:
            return
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in self._too_many(fd):
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    os.unlink(name, dir_fd=fd)
        finally:
            os.close(fd)

    def _too_many(self, fd: int) -> Iterator[str]:
        """The newest report is kept, however large it is."""
        names = sorted(filter(_NAME.fullmatch, os.listdir(fd)), reverse=True)
        too_old = "" if self.max_ms is None else name_time(self.now_ms() - self.max_ms)
        size = 0
        for place, name in enumerate(names):
            if self.max_bytes is not None:
                with contextlib.suppress(FileNotFoundError):
                    size += os.stat(name, dir_fd=fd).st_size
            too_much = self.max_bytes is not None and size > self.max_bytes and place > 0
            if too_much or name < too_old:
                yield from names[place:]
                return


def _head(fd: int) -> bytes:
    """The descriptor may be open for appending only."""
    try:
        with Path(f"/proc/self/fd/{fd}").open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError:
        return b""
