"""``trigger(continuous=...)`` is refused at ``start()`` for this format.

Owns: that refusal, in the user's own process. Never: any other trigger or format.

Why here: with the continuous trigger Spark never calls a Python sink's ``write``. It builds an
error for every row and does not throw it, so the rows vanish while the query looks healthy. All
that reaches Python is ``commit`` with None for every task; commit raises, but Spark's epoch
coordinator logs that and continues ("Inbox: Ignoring error": the query stays active and its
``exception()`` stays None; seen on 4.2). So the only place that protects the user's rows is
``DataStreamWriter.start`` before it starts, in classic Spark and in Spark Connect.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.datasource import spark_patches
from spark_kafka_sink.datasource.source import FORMAT
from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import ConfigError

_MODULES = ("pyspark.sql.streaming.readwriter", "pyspark.sql.connect.streaming.readwriter")
_FORMAT_SEEN = "_kprod_format"
_CONTINUOUS_SEEN = "_kprod_continuous"


def install() -> None:
    """Idempotent; covers classic sessions, and Connect when this process has such a session."""
    for cls in spark_patches.loaded_classes("DataStreamWriter", *_MODULES):
        spark_patches.wrap(cls, "format", _format)
        spark_patches.wrap(cls, "trigger", _trigger)
        spark_patches.wrap(cls, "start", _start)
        spark_patches.wrap(cls, "toTable", _to_table)


def uninstall() -> None:
    """Restores Spark's own methods."""
    for cls in spark_patches.loaded_classes("DataStreamWriter", *_MODULES):
        for name in ("format", "trigger", "start", "toTable"):
            spark_patches.unwrap(cls, name)


def _format(method: Callable[..., object], writer: object, source: str) -> object:
    setattr(writer, _FORMAT_SEEN, source)
    return method(writer, source)


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
        # The table may exist already, and then its own provider counts.
        _check(writer, format if format is not None else _provider(writer, tableName))
    return method(writer, tableName, format, *args, **kwargs)


def _check(writer: object, source: object) -> None:
    if source is None:
        source = getattr(writer, _FORMAT_SEEN, None)
    continuous = getattr(writer, _CONTINUOUS_SEEN, False)
    if continuous and isinstance(source, str) and source.lower() == FORMAT:
        raise ConfigError(
            "kprod does not support the continuous trigger: Spark never calls a Python sink with "
            "it and drops every row",
            hint="use trigger(processingTime='1 second'), or another short time",
            kind=Kind.UNSUPPORTED_WRITE,
        )


def _provider(writer: object, table: str) -> str | None:
    """The provider of a table that exists, else None. Two catalog look-ups, only for continuous.

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
    except Exception:  # noqa: BLE001 - no such table: toTable creates it, or says what is wrong
        return None
    lines = (line for row in rows for line in str(row["information"]).splitlines())
    return next((x.removeprefix("Provider: ") for x in lines if x.startswith("Provider: ")), None)
