"""The row of ``kprod check`` for the Python with which Spark plans and commits."""

from __future__ import annotations

import sys

import pytest

from spark_kafka_sink.datasource.checks.check_steps import StepState
from spark_kafka_sink.datasource.checks.driver_python import driver_python_step


@pytest.fixture
def step(monkeypatch, tmp_path):
    """Of PYSPARK_PYTHON in an empty folder; a text is a program of that folder."""
    monkeypatch.chdir(tmp_path)

    def of(python, text=None):
        if text is not None:
            program = tmp_path / python
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f"#!/bin/sh\n{text}\n")
            program.chmod(0o755)
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        return driver_python_step()

    return of


def test_the_python_of_an_archive_that_is_not_here_is_red(step, tmp_path):
    found = step("./env/bin/python")
    assert (found.state, found.code) == (StepState.FAILED, "KP0603")
    assert f"no such program is in {tmp_path}" in found.said
    assert "tar -xzf env.tar.gz -C env" in found.change
    assert step("no-python-of-this-name").said.endswith("is in the PATH on this machine")


def test_the_archive_unpacked_beside_the_job_is_green(step):
    found = step("./env/bin/python", f'exec "{sys.executable}" "$@"')
    assert found.state is StepState.OK, found
    assert "./env/bin/python" in found.said


@pytest.mark.parametrize(
    ("text", "state", "said"),
    [
        (
            f'exec "{sys.executable}" -I -S "$@"',
            StepState.WARNING,
            "no spark_kafka_sink, numpy, pyarr",
        ),
        ("echo 3 10; echo", StepState.FAILED, "Python 3.10: the package needs 3.11"),
        ("exit 1", StepState.FAILED, "does not run Python code"),
        ("echo hello", StepState.FAILED, "does not run Python code"),
    ],
    ids=["no packages", "too old", "fails", "no python"],
)
def test_a_python_that_cant_plan_is_named(step, text, state, said):
    found = step("./python", text)
    assert (found.state, found.code) == (state, "KP0603")
    assert said in found.said
    assert found.change


def test_without_the_variable_the_row_is_skipped(monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert driver_python_step().state is StepState.SKIPPED
