"""Keeps the imported modules of a Python worker out of the worker's garbage collections.

Owns: the call of ``gc.freeze``, once per worker process. Never: another process, such as the user's
own.

Spark's daemon runs a full garbage collection in a worker after each task, plan and commit. The
collection visits every object of every module. With pyspark, Arrow and this package, a collection
takes 16 ms of CPU, more than a small task.
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


#: Freeze what this worker holds now, at the end of its first work; True in a worker of Spark's.
freeze_modules = ProcessLocal(_freeze)
