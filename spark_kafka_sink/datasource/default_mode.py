"""``df.write.format("kprod").save()`` without a mode means append.

Owns: that default, for this format, in this process. Never: any other format, or a mode that the
user gave, ``errorifexists`` among them.

Spark's default mode is ErrorIfExists, and Spark refuses that for every Python data source before
any Python code of the source runs (UNSUPPORTED_DATA_SOURCE_SAVE_MODE). Spark's Kafka sink
accepts it, so code that moves from ``kafka`` to ``kprod`` would fail on ``.save()``. The default
can only be set in the DataFrameWriter of the user's Python process, of which classic Spark and
Spark Connect have one each. Code that runs elsewhere (a foreachBatch function on a Connect server,
other languages, SQL) needs ``mode("append")``.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.datasource.spark_patches import Patches, writes_kprod

_MODE_SEEN = "_kprod_mode"


# Spark's save() calls mode(None) and format(...) itself; both notes are right then too.
def _mode(method: Callable[..., object], writer: object, saveMode: str | None) -> object:  # noqa: N803
    if saveMode is not None:
        setattr(writer, _MODE_SEEN, saveMode)
    return method(writer, saveMode)


def _save(
    method: Callable[..., object],
    writer: object,
    path: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's name
    mode: str | None = None,
    *args: object,
    **kwargs: object,
) -> object:
    no_mode = mode is None and getattr(writer, _MODE_SEEN, None) is None
    if no_mode and writes_kprod(writer, format):
        mode = "append"
    return method(writer, path, format, mode, *args, **kwargs)


PATCHES = Patches(
    "DataFrameWriter",
    ("pyspark.sql.readwriter", "pyspark.sql.connect.readwriter"),
    {"mode": _mode, "save": _save},
)
