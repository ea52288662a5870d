"""Configs of a Spark session that make writes cheaper and change no result.

A config that the user has set is not changed. Spark reads some configs only when it starts, so a
running session can't set them. docs/tuning.md describes each config.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

#: 4 MiB is also the size at which this package cuts an Arrow batch for encoding. Spark's default
#: since 4.1 is 64 MiB. Then Arrow batches of 1 KB rows have 10 MB, which costs up to a quarter of
#: the job's CPU in the JVM and the worker. A task holds two Arrow batches at a time.
_SAFE = {"spark.sql.execution.arrow.maxBytesPerBatch": "4m"}
_UNIX_SOCKET = "spark.python.unix.domain.socket.enabled"


def tune(spark: SparkSession) -> dict[str, str]:
    """Sets the configs that make writes cheaper. A config that the user has set is not changed.
    Skips a config that this version of Spark does not have. Returns the configs that were set, by
    name.
    """
    conf = spark.conf
    given = conf.getAll
    changed = {
        name: value
        for name, value in _SAFE.items()
        if name not in given and conf.isModifiable(name)
    }
    for name, value in changed.items():
        conf.set(name, value)
        _log.info("register(tune=True) set %s=%s for this session", name, value)
    if given.get(_UNIX_SOCKET) != "true":
        _log.info(
            "set %s=true before the session starts, which a running session can't do: on Spark 4.1"
            " and later it saves the most time",
            _UNIX_SOCKET,
        )
    return changed
