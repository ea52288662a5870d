"""Excludes the imported modules of a Python worker from the worker's garbage collections.

Spark's daemon runs a full garbage collection in a worker after each task, plan and commit. The
collection visits every object of every module. With pyspark, Arrow and this package, a collection
takes 16 ms of CPU, which is longer than a small task. So this module calls ``gc.freeze`` at the end
of the first two tasks, plans or commits of a worker process. In any other process, such as the
user's own, the module does nothing.
"""

from __future__ import annotations

import gc
import sys

from spark_kafka_sink.base.process_local import ProcessLocal

_DAEMON = "pyspark.daemon"
#: After a worker's first task, Spark sends the commit message as an Arrow array. ``pyarrow.array``
#: then imports pandas where it is installed: 29,000 objects, which the second call freezes.
_CALLS_THAT_FREEZE = 2


def _is_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == _DAEMON


class _Heap:
    """The heap of this process."""

    __slots__ = ("_calls", "is_workers")

    def __init__(self) -> None:
        self.is_workers = _is_worker()
        self._calls = 0

    def freeze(self) -> None:
        if self.is_workers and self._calls < _CALLS_THAT_FREEZE:
            self._calls += 1
            gc.freeze()


_heap = ProcessLocal(_Heap)


def freeze_modules() -> bool:
    """Excludes all current objects from later garbage collections, and returns True, if this
    process is a worker of Spark's daemon. In any other process, only returns False.

    Called at the end of each task, plan and commit. Only the first two calls in a worker have an
    effect (``_CALLS_THAT_FREEZE`` has the reason).
    """
    heap = _heap()
    heap.freeze()
    return heap.is_workers
