"""Keeps the imported modules of a Python worker out of the worker's garbage collections.

Spark's daemon runs a full garbage collection in a worker after each task, plan and commit. The
collection visits every object of every module, which takes 16 ms of CPU with pyspark, Arrow and
this package. A small task takes less. So this module calls ``gc.freeze`` once per worker process.
In another process, such as the user's own, it does nothing.
"""

from __future__ import annotations

import gc
import sys

from spark_kafka_sink.base.process_local import ProcessLocal

_DAEMON = "pyspark.daemon"


def _freeze() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or spec.name != _DAEMON:
        return False
    gc.freeze()
    return True


#: Keeps the objects that this worker has now out of later garbage collections. Called at the end of
#: the worker's first task, plan or commit. Returns whether this process is a worker of Spark.
freeze_modules = ProcessLocal(_freeze)
