"""What tools/environment.py shows while pip runs; a program is in pip's place."""

from __future__ import annotations

import io
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "environment.py"))

#: Ends when the tool has shown what it wrote.
PIP = """
import os, sys, time
from pathlib import Path
Path(os.environ["TMPDIR"], "unpacked").write_bytes(bytes(3_000_000))
print("Collecting pyspark==4.2.0")
print("  Downloading pyspark-4.2.0.tar.gz (456.0 MB)", flush=True)
until = time.monotonic() + 60
while not Path(sys.argv[1]).exists() and time.monotonic() < until:
    time.sleep(0.05)
print("no space left on device", flush=True)
sys.exit(int(sys.argv[2]))
"""


class Terminal(io.StringIO):
    """A terminal that makes ``seen`` once ``text`` was shown."""

    def __init__(self, text: str, seen: Path) -> None:
        super().__init__()
        self._text, self._seen = text, seen

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._text in text:
            self._seen.touch()
        return super().write(text)


def run_pip(tmp_path: Path, status: int) -> str:
    folder = tmp_path / "environment"
    folder.mkdir()
    terminal = Terminal("3 MB written: Downloading pyspark-4.2.0.tar.gz", tmp_path / "seen")
    waiting = TOOL["Waiting"](terminal)
    command = [sys.executable, "-c", PIP, str(tmp_path / "seen"), str(status)]
    try:
        TOOL["run"](command, folder, tmp_path / "pip.log", waiting)
    finally:
        assert list(folder.iterdir()) == [], "nothing temporary is left"
    waiting.end("ready.")
    return terminal.getvalue()


def test_a_wait_for_pip_shows_its_step_and_its_size(tmp_path):
    shown = run_pip(tmp_path, 0)
    assert "Downloading pyspark-4.2.0.tar.gz (456.0 MB)" in shown
    assert shown.splitlines()[-1].startswith("  ready. (")


def test_a_failed_pip_is_shown_with_its_last_lines(tmp_path):
    with pytest.raises(TOOL["FailedError"], match="no space left on device"):
        run_pip(tmp_path, 1)


def test_a_file_gets_a_line_every_ten_seconds(tmp_path):
    """A log of CI is read later, and needs no line for each look."""
    out, seconds = io.StringIO(), iter([0.0, 0.5, 9.5, 10.4, 11.0, 12.0])
    waiting = TOOL["Waiting"](out, lambda: next(seconds))
    for _ in range(4):
        waiting.show(tmp_path, "Downloading")
    waiting.end("ready.")
    assert out.getvalue() == "  10 s, 0 MB written: Downloading\n  ready. (12 s)\n"
