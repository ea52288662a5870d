"""Passes two settings of the session to each write, as internal options: the time zone, and whether
``to_json`` omits nulls.

Spark plans a write in a Python process that has no session, and passes only options to it. So the
two options are added earlier, in the user's process: ``register(spark)`` wraps
``DataFrameWriter.save`` and ``DataStreamWriter.start``. The wrapper reads the settings from the
session, sets the options on the writer, and then calls Spark's method. ``config/named_columns.py``
uses the options.

Writes to tables (``writeTo``, ``insertInto``, SQL) do not get the options, because the format of a
table is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from spark_kafka_sink.datasource.session.spark_patches import Patches, writes_kprod

#: The internal option of this package for each of these settings of Spark.
_OPTIONS: Final = {
    "spark.sql.session.timeZone": "sessionTimeZone",
    "spark.sql.jsonGenerator.ignoreNullFields": "sessionIgnoreNullFields",
}


def _with_settings(
    method: Callable[..., object],
    writer: Any,  # noqa: ANN401 - a writer of classic Spark or of Connect, batch or stream
    path: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's name
    *args: object,
    **kwargs: object,
) -> object:
    if writes_kprod(writer, format):
        session = getattr(writer, "_spark", None) or getattr(writer, "_session", None)
        for setting, option in _OPTIONS.items():
            value = None if session is None else session.conf.get(setting, None)
            if value is not None:
                writer.option(option, value)
    return method(writer, path, format, *args, **kwargs)


PATCHES: Final = (
    Patches(
        "DataFrameWriter",
        ("pyspark.sql.readwriter", "pyspark.sql.connect.readwriter"),
        {"save": _with_settings},
    ),
    Patches(
        "DataStreamWriter",
        ("pyspark.sql.streaming.readwriter", "pyspark.sql.connect.streaming.readwriter"),
        {"start": _with_settings},
    ),
)
