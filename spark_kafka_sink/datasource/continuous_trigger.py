"""``trigger(continuous=...)`` is refused at ``start()`` for this format.

Owns: that refusal, in the user's process. Never: any other trigger or format.

Why here: with the continuous trigger Spark never calls a Python sink's ``write``. It builds an
error for every row and does not throw it, so the rows are lost while the query seems healthy. All
that reaches Python is ``commit`` with None for every task; commit raises, but Spark's epoch
coordinator logs that and continues ("Inbox: Ignoring error": the query stays active and its
``exception()`` stays None; seen on 4.2). So the only place that protects the user's rows is
``DataStreamWriter.start`` before it starts, in classic Spark and in Spark Connect.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.datasource.spark_patches import Patches, writes_kprod

_CONTINUOUS_SEEN = "_kprod_continuous"


def _trigger(method: Callable[..., object], writer: object, **kwargs: object) -> object:
    setattr(writer, _CONTINUOUS_SEEN, kwargs.get("continuous") is not None)
    return method(writer, **kwargs)


def _start(
    method: Callable[..., object],
    writer: object,
    path: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's name
    *args: object,
    **kwargs: object,
) -> object:
    _check(writer, format)
    return method(writer, path, format, *args, **kwargs)


def _to_table(
    method: Callable[..., object],
    writer: object,
    tableName: str,  # noqa: N803 - Spark's name
    format: str | None = None,  # noqa: A002 - Spark's name
    *args: object,
    **kwargs: object,
) -> object:
    if getattr(writer, _CONTINUOUS_SEEN, False):
        # If the table exists already, its provider is used.
        _check(writer, format if format is not None else _provider(writer, tableName))
    return method(writer, tableName, format, *args, **kwargs)


def _check(writer: object, source: object) -> None:
    if getattr(writer, _CONTINUOUS_SEEN, False) and writes_kprod(writer, source):
        raise ConfigError(
            "kprod does not support the continuous trigger: Spark never calls a Python sink with "
            "it and drops every row",
            hint="use trigger(processingTime='1 second'), or another short time",
            kind=Kind.UNSUPPORTED_WRITE,
        )


def _provider(writer: object, table: str) -> str | None:
    """The provider of an existing table, else None. Two catalog requests, only for continuous.

    DESCRIBE EXTENDED and SHOW CREATE TABLE leave the provider of a Python source out (seen on 4.2).
    """
    spark = getattr(writer, "_spark", None) or getattr(writer, "_session", None)
    if spark is None:
        return None
    try:
        found = spark.catalog.getTable(table)
        within = ".".join(f"`{part}`" for part in (found.catalog, *(found.namespace or ())) if part)
        name = found.name.replace("'", "")
        rows = spark.sql(f"SHOW TABLE EXTENDED IN {within} LIKE '{name}'").collect()
    except Exception:  # noqa: BLE001 - no such table: toTable creates it, or raises
        return None
    lines = (line for row in rows for line in str(row["information"]).splitlines())
    return next((x.removeprefix("Provider: ") for x in lines if x.startswith("Provider: ")), None)


PATCHES = Patches(
    "DataStreamWriter",
    ("pyspark.sql.streaming.readwriter", "pyspark.sql.connect.streaming.readwriter"),
    {"trigger": _trigger, "start": _start, "toTable": _to_table},
)
