"""Creates the error of a Python worker that has reached its limit of address space. The error names
Spark's setting. docs/tuning.md explains how much memory a task needs.

Two settings of Spark limit the *address space* of a process (RLIMIT_AS,
``pyspark/worker_util.py``):

- ``spark.executor.pyspark.memory``, divided by the number of the executor's cores, limits a worker.
- ``spark.sql.planner.pythonExecution.memory`` limits a process that plans or commits.

A process maps much more memory than it uses, for example for libraries, stacks of threads, and the
arenas of Arrow. So an import or a small array may fail while the machine has free memory. numpy,
Arrow, the loader of libraries and the start of a thread each raise a different error, and none of
these errors names a setting of Spark.

Import this module early, because an import may fail when memory is short.
"""

from __future__ import annotations

import errno
import os
import sys

from spark_kafka_sink.base.documentation import page_address
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import DeliveryError, KafkaError, safe_text

if sys.platform != "win32":  # which has no such limit
    import resource

_MIB = 1024 * 1024
_LONGEST = 200
#: Spark's variable of the processes that plan and commit.
_OF_PLANNER = "PYSPARK_PLANNER_MEMORY_MB"


def memory_error(error: BaseException) -> KafkaError | None:
    """Returns the error to raise in place of ``error``, if ``error`` shows that this process has
    reached the memory limit that Spark sets. Returns None if Spark sets no limit, or if ``error``
    has another cause.

    - In a task, the result is a DeliveryError, so that Spark may run the task again.
    - In a process that plans or commits, the result is a KafkaError. If ``error`` is already a
      KafkaError, the result is None.
    """
    plans = _OF_PLANNER in os.environ
    if sys.platform == "win32" or (plans and isinstance(error, KafkaError)):
        return None  # what a commit's error says of its transactions must not be lost
    first: BaseException | None = error
    while first is not None and not _is_of_memory(first):
        first = first.__cause__
    if first is None:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    setting = (
        "spark.sql.planner.pythonExecution.memory"
        if plans
        else "spark.executor.pyspark.memory (which Spark divides by spark.executor.cores)"
    )
    return (KafkaError if plans else DeliveryError)(
        f"this Python worker may map no more than {limit // _MIB} MiB of address space, which are"
        f" used up ({type(first).__name__}: {safe_text(str(first), _LONGEST)})",
        hint=f"raise {setting}, which limits address space, not resident memory;"
        f" {page_address('tuning', 'memory-of-a-task')} has figures that work; or remove it",
        kind=Kind.WORKER_MEMORY,
    )


def _is_of_memory(error: BaseException) -> bool:
    if isinstance(error, ImportError):
        return "failed to map segment" in str(error) or "allocate memory" in str(error)
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # (numpy's and Arrow's are kinds of MemoryError.)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    )
