"""What ``make faults`` found, one line for each scenario: how often it ran, and how it went."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

#: A test that takes one of these fixtures is a scenario.
WORLDS = frozenset({"world", "old_world", "ruled_world"})


class Results:
    """Gathers the reports of one pytest run, and adds them to the file that all runs share."""

    def __init__(self, path: Path, title: str) -> None:
        self._path = path
        self._title = title
        self._of: dict[str, dict[str, Any]] = {}

    @classmethod
    def from_environment(cls) -> Results | None:
        path = os.environ.get("KPROD_FAULT_RESULTS")
        return None if path is None else cls(Path(path), os.environ["KPROD_FAULT_TITLE"])

    def add(self, item: pytest.Item, report: pytest.TestReport) -> None:
        if not WORLDS & set(getattr(item, "fixturenames", ())):
            return
        name = item.nodeid.split("::", 1)[1]
        entry = self._of.setdefault(name, {"passed": True, "seconds": 0.0, "notes": []})
        entry["seconds"] += report.duration
        if report.failed:
            entry["passed"] = False
        if report.when == "call":
            entry["notes"] = [str(value) for key, value in item.user_properties if key == "found"]
        if report.when == "setup" and report.skipped:
            del self._of[name]

    def write(self) -> None:
        lines = [
            json.dumps({"run": self._title, "test": name, **entry})
            for name, entry in self._of.items()
        ]
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
