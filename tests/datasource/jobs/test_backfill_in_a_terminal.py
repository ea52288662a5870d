"""The lines of a backfill's steps, as a user sees them in a terminal and in a file."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import re
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest

from spark_kafka_sink import backfill
from spark_kafka_sink.datasource.jobs.backfill_result import StepLines

LINE = re.compile(
    r"\S+ +\d+%  \d+ steps?  [\d,]+ rows?  \d+\.\d MB  \d+\.\d MB/s  0:\d\d:\d\d left"
)


@contextmanager
def terminal() -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """A terminal for a program's output, and all bytes that came to it."""
    leader, follower = pty.openpty()
    came = bytearray()

    def read() -> None:
        while True:
            try:
                found = os.read(leader, 4096)
            except OSError:  # the last one who could write has gone
                return
            came.extend(found)

    reader = threading.Thread(target=read)
    reader.start()

    def text() -> str:
        stream.close()
        reader.join()
        return came.decode()

    with os.fdopen(follower, "w") as stream:
        yield stream, text
    reader.join()
    os.close(leader)


def screen(text: str) -> list[str]:
    """The lines that stand in a terminal at the end; a carriage return goes back to column 0."""
    lines = []
    for line in text.removesuffix("\r\n").split("\r\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part) :]
        lines.append(shown.rstrip())
    return lines


@pytest.fixture
def write(spark, kafka, topic):
    """A backfill in a few steps. Its table has 100 rows for each of 20 values."""

    def write_steps(**more):
        rows = spark.range(2000).selectExpr("CAST(id AS STRING) AS value", "id % 20 AS day")
        options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic,
                   "transactionalIdPrefix": topic}  # fmt: skip
        return backfill(rows, name="seen", by="day", **options, **more)

    return write_steps


def test_a_terminal_gets_one_line_that_each_step_rewrites(write, monkeypatch):
    with terminal() as (stream, text):
        monkeypatch.setattr(sys, "stderr", stream)
        result = write()
        monkeypatch.undo()
        came = text()
    assert result.steps > 1
    assert len(LINE.findall(came)) == result.steps
    (line,) = screen(came)
    assert LINE.fullmatch(line)
    assert line.startswith(f"seen  100%  {result.steps} steps  2,000 rows")


def test_a_terminal_keeps_the_lines_of_a_function_on_step(write, monkeypatch):
    with terminal() as (stream, text):
        monkeypatch.setattr(sys, "stderr", stream)
        result = write(on_step=lambda step: stream.write(f"step {step.version}\n"))
        monkeypatch.undo()
        lines = screen(text())
    assert [one for one in lines if one.startswith("step")] == [
        f"step {number}" for number in range(result.steps)
    ]
    assert sum(LINE.fullmatch(one) is not None for one in lines) == result.steps


@pytest.mark.parametrize("level", [logging.WARNING, logging.INFO])
def test_a_file_gets_one_line_a_step(write, monkeypatch, tmp_path, level):
    """By the log if its level is INFO, and by stderr otherwise."""
    log = logging.getLogger("spark_kafka_sink")
    with (tmp_path / "errors").open("w") as stream:
        handler = logging.StreamHandler(stream)
        log.addHandler(handler)
        monkeypatch.setattr(log, "level", level)
        log.manager._clear_cache()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.delitem(sys.modules, "IPython", raising=False)
        result = write()
        log.removeHandler(handler)
    lines = (tmp_path / "errors").read_text().splitlines()
    assert sum(LINE.fullmatch(one) is not None for one in lines) == result.steps > 1


def test_a_line_is_not_wider_than_the_terminal_and_leaves_no_rest():
    with terminal() as (stream, text):
        fcntl.ioctl(stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
        lines = StepLines(stream, rewrites=True)
        for line in ("x" * 100, "y" * 10, "z" * 5):
            lines.show(line)
        lines.end()
        came = text()
    assert screen(came) == ["z" * 5]
    assert max(map(len, re.split("[\r\n]", came))) == 19
