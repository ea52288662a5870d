"""Removes the traceback from the package's errors before Spark prints them.

Spark prints the traceback of a Python exception before the exception's message, in each task and
each log. The message of an error of this package already has the cause, the place and the remedy.
So these errors are raised without a traceback and without ``__cause__``. At DEBUG, the removed
traceback is logged.

The frames of Spark's worker are also hidden, as with Spark's setting
``spark.sql.execution.pyspark.udf.hideTraceback.enabled``. A bug keeps its traceback and its cause
(:func:`_is_bug`).

If a process has reached the memory limit that Spark sets, the error names the Spark setting with
this limit. The module ``worker_memory`` creates this error.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from spark_kafka_sink.base.errors import IllegalStateError, KafkaError
from spark_kafka_sink.base.security.local_files import UnusableFileError
from spark_kafka_sink.datasource.process.worker_memory import memory_error

P = ParamSpec("P")
R = TypeVar("R")

#: Spark's workers read it when they format an exception (``handle_worker_exception`` in
#: pyspark/util.py, 4.0 to 4.3).
_HIDES_FRAMES: Final = "SPARK_HIDE_TRACEBACK"

#: Foreign causes that are expected failures; our lines include their words.
_EXPECTED: Final = (OSError, UnusableFileError)

_log = logging.getLogger(__name__)


def without_traceback(method: Callable[P, R]) -> Callable[P, R]:
    """Decorator for a method that Spark calls.

    - An error of this package is raised without a traceback. A bug keeps its traceback
      (:func:`_is_bug`).
    - If the process has reached the memory limit that Spark sets, the raised error names the Spark
      setting with this limit.
    """

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            if (of_memory := memory_error(error)) is not None:
                _hide_frames_of_spark()
                raise of_memory from None
            if not isinstance(error, KafkaError) or _is_bug(error):
                raise
            _log.debug("the frames of an error that is raised without them", exc_info=True)
            _hide_frames_of_spark()
            raise error.with_traceback(None) from None

    return called


def _hide_frames_of_spark() -> None:
    """Makes Spark's worker print the next error of this process without the frames of Spark's own
    code. Does nothing if this process is not a worker of Spark.

    The function sets an environment variable for the whole process. The worker ends after the
    error, so the variable affects no later error.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = "" if spec is None else spec.name
    if name in ("pyspark.daemon", "pyspark.worker") or name.startswith("pyspark.sql.worker."):
        os.environ[_HIDES_FRAMES] = "1"


def _is_bug(error: BaseException) -> bool:
    """Whether the error is a bug: an IllegalStateError, an exception that is not of this package,
    or an error that was caused by one of these. An error of a file or of the network is no bug.
    """
    if isinstance(error, IllegalStateError) or not isinstance(error, KafkaError):
        return not isinstance(error, _EXPECTED)
    return error.__cause__ is not None and _is_bug(error.__cause__)
