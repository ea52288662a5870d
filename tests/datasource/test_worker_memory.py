"""Memory that fails in a worker whose address space Spark limits: the error names the setting."""

from __future__ import annotations

import errno
import os

import pytest

from spark_kafka_sink.base.errors import CommitOutcomeUnknownError, KafkaError
from spark_kafka_sink.datasource.process import worker_memory
from spark_kafka_sink.datasource.process.worker_memory import memory_error
from tests.programs import run_python

#: What Spark does in a worker (pyspark/worker_util.py), with a few MiB more than is mapped.
_PROGRAM = """
import resource, sys
from spark_kafka_sink.datasource.process.plain_errors import without_traceback

@without_traceback
def work():
    {work}

pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (4 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    work()
except Exception as error:
    print(type(error).__name__, error)
"""


def said_by(work, **environment):
    program = _PROGRAM.format(work=work)
    return run_python("-c", program, environment=environment).stdout


@pytest.mark.parametrize(
    "work",
    [
        "import spark_kafka_sink.records.gather",
        "bytearray(1 << 30)",
        "import threading; threading.stack_size(64 << 20); threading.Thread(target=work).start()",
    ],
    ids=["import", "buffer", "thread"],
)
def test_an_attempt_without_address_space_names_the_setting(work):
    said = said_by(work)
    assert said.startswith("DeliveryError [KP0507] this Python worker may map no more than")
    assert "spark.executor.pyspark.memory" in said
    assert "spark.executor.cores" in said


def test_the_setting_that_is_raised_or_removed_lets_the_attempt_go():
    """As its hint has it: address space and not resident memory."""
    work = "bytearray(64 << 20); print('done')"
    small = said_by(work)
    assert "hint: raise spark.executor.pyspark.memory" in small
    assert "which limits address space, not resident memory" in small
    assert "or remove it" in small
    raised = _PROGRAM.replace("(4 << 20)", "(512 << 20)").format(work=work)
    assert run_python("-c", raised).stdout.strip() == "done"
    removed = _PROGRAM.replace("(limit, limit)", "(resource.RLIM_INFINITY,) * 2").format(work=work)
    assert run_python("-c", removed).stdout.strip() == "done"


def test_planning_without_address_space_names_its_own_setting():
    said = said_by("bytearray(1 << 30)", PYSPARK_PLANNER_MEMORY_MB="100")
    assert said.startswith("KafkaError [KP0507]")
    assert "raise spark.sql.planner.pythonExecution.memory" in said


def test_an_error_of_memory_without_a_limit_stays_as_it_is():
    assert memory_error(MemoryError()) is None
    assert memory_error(OSError(errno.ENOMEM, "no memory")) is None


@pytest.fixture
def limited(monkeypatch):
    monkeypatch.setattr(worker_memory.resource, "getrlimit", lambda _: (1 << 30, 1 << 30))


def caused_by(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.usefixtures("limited")
def test_the_network_threads_lack_of_memory_is_seen_too():
    found = memory_error(caused_by(KafkaError("the network thread stopped"), MemoryError("8 MiB")))
    assert found is not None
    assert "1024 MiB" in found.message
    assert "MemoryError: 8 MiB" in found.message


@pytest.mark.usefixtures("limited")
def test_a_commits_unknown_outcome_is_not_replaced(monkeypatch):
    monkeypatch.setitem(os.environ, "PYSPARK_PLANNER_MEMORY_MB", "1024")
    assert memory_error(caused_by(CommitOutcomeUnknownError("unknown"), MemoryError())) is None
    assert memory_error(MemoryError()) is not None


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize(
    "error", [ValueError("x"), OSError(errno.EPIPE, "x"), ImportError("no module"), RuntimeError()]
)
def test_other_errors_are_none_of_memory(error):
    assert memory_error(error) is None
