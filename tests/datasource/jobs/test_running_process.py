"""Which processes are known to have ended, so that another may take over their backfill."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from subprocess import PIPE, Popen

import pytest

from spark_kafka_sink.datasource.jobs.running_process import is_gone, this_process
from tests.programs import ROOT

PRINTS_ITSELF = (
    "from spark_kafka_sink.datasource.jobs.running_process import this_process;"
    "print(this_process(), flush=True)"
)


def test_a_process_is_gone_when_it_has_ended() -> None:
    program = [sys.executable, "-c", f"{PRINTS_ITSELF};input()"]
    with Popen(program, stdin=PIPE, stdout=PIPE, text=True, cwd=ROOT) as other:
        assert other.stdout is not None
        told = other.stdout.readline().strip()
        assert str(other.pid) in told.split()
        assert not is_gone(told)
        other.communicate("\n")
    assert is_gone(told)


def test_a_later_process_of_the_same_pid_does_not_count() -> None:
    """Pids are given again, the time of the start is not."""
    place, pid, ticks = this_process().rsplit(" ", 2)
    assert int(pid) == os.getpid()
    assert is_gone(f"{place} {pid} {int(ticks) - 1}")


@pytest.mark.parametrize(
    "change",
    [
        lambda boot, space, pid, ticks: f"another-boot {space} {pid} {int(ticks) - 1}",
        lambda boot, space, pid, ticks: f"{boot} pid:[1] {pid} {int(ticks) - 1}",
    ],
    ids=["machine", "container"],
)
def test_a_process_of_another_machine_may_run(change: Callable[..., str]) -> None:
    assert not is_gone(change(*this_process().split(" ")))


@pytest.mark.parametrize("text", ["", "x", "1 2", "boot pid:[1] word 3"])
def test_a_text_that_names_no_process_is_not_gone(text: str) -> None:
    assert not is_gone(text)


def test_a_pid_that_is_no_number_is_not_gone() -> None:
    place, _, ticks = this_process().rsplit(" ", 2)
    assert not is_gone(f"{place} word {ticks}")
