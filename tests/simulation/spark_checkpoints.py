"""Checkpoints as Spark keeps them, in real files: the sink reads them as it does in production."""

from __future__ import annotations

import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

#: The topic that all queries read.
SOURCE = "source"
#: Rows of the source in a micro-batch.
_STEP = 10


def end_offset(number: int, first: int = 0) -> int:
    """Where micro-batch ``number`` ends, of a query that began to read at ``first``."""
    return first + (number + 1) * _STEP


class Checkpoints:
    """Those of one world, by name; the files of the world before are gone."""

    def __init__(self) -> None:
        self._root = _root()
        shutil.rmtree(self._root, ignore_errors=True)

    def path(self, name: str) -> str:
        return str(self._root / name)

    def begin(self, name: str, query: str, number: int, first: int = 0) -> None:
        """Spark plans a micro-batch: its offsets are in the log before it runs, and stay."""
        offsets = self._root / name / "offsets"
        if not offsets.exists():
            offsets.mkdir(parents=True)
            (offsets.parent / "metadata").write_text(json.dumps({"id": query}))
        end = json.dumps({SOURCE: {"0": end_offset(number, first)}})
        if not (offsets / str(number)).exists():
            (offsets / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{end}')

    def end(self, name: str, number: int) -> None:
        """Spark notes that it is committed."""
        commits = self._root / name / "commits"
        commits.mkdir(exist_ok=True)
        (commits / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


@cache
def _root() -> Path:
    """One of this process, so that options are the same in each world."""
    return Path(_kept().name) / "checkpoints"


@cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="simulated-")


def read_by_spark() -> Any:
    """``SparkSession.read``, as far as the content of files goes."""

    def load(path: str) -> Any:
        files = SimpleNamespace(collect=lambda: [(Path(path).read_bytes(),)])
        files.where = files.select = lambda _: files
        return files

    def format_(name: str) -> Any:
        assert name == "binaryFile"
        return SimpleNamespace(load=load)

    return SimpleNamespace(format=format_)
