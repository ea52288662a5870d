"""Ctrl-C during ``df.write.format("kprod").save()``: the batch is aborted before the program ends.

Owns: that wait, in the user's process. Never: the abort itself (``write_plan.py``), another format.

Spark's handler of SIGINT cancels the jobs and raises KeyboardInterrupt at once. A script ends with
it, and its JVM with the script, before Spark has called ``abort``. Then there is no report, and
with exactly-once the transactions stay open::

    script: cancelAllJobs, KeyboardInterrupt, exit     JVM: the job fails, abort begins, killed

So the exception waits for that abort. A Spark Connect server lives on, and aborts by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from spark_kafka_sink.datasource.report.last_report import last_report

#: How long an abort may take, in seconds, when brokers don't answer.
_LONGEST_S: Final = 10.0
_LOOK_S: Final = 0.1
#: Of Spark's executions, those that are looked at.
_LAST: Final = 20


def awaiting_abort(save: Callable[[], object], writer: object) -> object:
    """``save()``; a KeyboardInterrupt of a classic session waits for the abort, until the next one
    at most.
    """
    try:
        return save()
    except KeyboardInterrupt:
        spark = getattr(writer, "_spark", None)
        if hasattr(spark, "_jsparkSession"):
            _await_abort(spark)
        raise


def _await_abort(spark: Any) -> None:  # noqa: ANN401 - with what only a classic session has
    """Looks on another thread: this one's connection to the JVM still waits for the write."""
    since_ms = time.time_ns() // 1_000_000
    over = threading.Event()

    def look() -> None:
        try:
            while _writes(spark) and not over.wait(_LOOK_S):
                report = last_report(spark)
                if report is not None and report.written_at_ms >= since_ms:
                    return
        except Exception:  # noqa: BLE001 - the session was stopped, or a later Spark has no such store
            return

    looking = threading.Thread(target=look, name="kprod-interrupted-write", daemon=True)
    looking.start()
    try:
        looking.join(_LONGEST_S)
    finally:
        over.set()


def _writes(spark: Any) -> bool:  # noqa: ANN401
    """Whether an action runs: an abort is a part of one, and no job of it."""
    every = spark._jsparkSession.sharedState().statusStore().executionsList()  # noqa: SLF001 - no other way
    numbers = range(max(0, every.size() - _LAST), every.size())
    return any(every.apply(number).completionTime().isEmpty() for number in numbers)
