"""Reports that were written since somebody last looked.

Owns: :class:`NewReports`, the reading side of the option ``reportPath``. Never: the writing
(``datasource/report/``).
"""

from __future__ import annotations

import json
from pathlib import Path

from spark_kafka_sink.datasource.monitoring.measurements import Document


class NewReports:
    """The reports that are added to ``path`` from now on; what is there already is history. A file
    that does not exist yet is one without reports.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._read_to = self._size()

    def __call__(self) -> list[Document]:
        """Those since the last call. OSError for a path that can't be read, ValueError for one
        that holds something else.
        """
        if self._size() <= self._read_to:
            return []
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            # What has no end of line yet is being written.
            lines, _, _ = file.read().rpartition(b"\n")
        self._read_to += len(lines) + 1 if lines else 0
        return [json.loads(line) for line in lines.splitlines()]

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0
