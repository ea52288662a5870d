"""Configs of a Spark session that make writes cheaper and change no result.

Owns: the configs, and the rule that a config is not changed if the user has set it. Never: configs
that Spark reads only when it starts, which are in docs/tuning.md.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

#: The size of a chunk here. With Spark's default since 4.1, 64 MiB, batches of 1 KB rows have 10
#: MB. That costs JVM and worker up to a quarter of the job's CPU, and a task holds two of them.
_SAFE = {"spark.sql.execution.arrow.maxBytesPerBatch": "4m"}
_UNIX_SOCKET = "spark.python.unix.domain.socket.enabled"


def tune(spark: SparkSession) -> dict[str, str]:
    """Sets the configs that the user has not set. Returns the configs that were set, by name. Skips
    a config that this version of Spark does not have.
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
