"""Reports that were written since the last read.

Owns: :class:`NewReports`, the reading side of the option ``reportPath``. Never: the writing
(``datasource/report/report_file.py``).
"""

from __future__ import annotations

import json
from pathlib import Path

from spark_kafka_sink.datasource.monitoring.measurements import Document


class NewReports:
    """The reports that are added to ``path``, a file or a directory, from now on; existing ones
    are skipped. A path that does not exist yet has no reports.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._read_to = self._path.stat().st_size if self._path.is_file() else 0
        self._known = self._names()

    def __call__(self) -> list[Document]:
        """The reports since the last call. OSError for a path that can't be read, ValueError for
        other content.
        """
        lines = self._new_files() if self._path.is_dir() else self._new_lines()
        return [json.loads(line) for line in lines]

    def _new_lines(self) -> list[bytes]:
        if not self._path.exists() or self._path.stat().st_size <= self._read_to:
            return []
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            # A line without its end is still being written.
            lines, _, _ = file.read().rpartition(b"\n")
        self._read_to += len(lines) + 1 if lines else 0
        return lines.splitlines()

    def _new_files(self) -> list[bytes]:
        """One file per report; its name begins with the time."""
        names = self._names()
        new = {name: (self._path / name).read_bytes() for name in sorted(names - self._known)}
        whole = {name: content for name, content in new.items() if content.endswith(b"\n")}
        # Forgets deleted files, and reads incomplete ones again.
        self._known = (names & self._known) | whole.keys()
        return list(whole.values())

    def _names(self) -> set[str]:
        if not self._path.is_dir():
            return set()
        return {one.name for one in self._path.glob("[!.]*.json")}
