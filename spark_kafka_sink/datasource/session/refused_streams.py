"""Raises an error in ``start()`` for a stream that this format can't write. Other streams are not
changed.

* The continuous trigger is refused. With this trigger, Spark never calls a Python sink's ``write``.
  The rows would be lost while the query seems healthy.
* The output mode update is refused. Spark itself refuses this mode for Python sinks, but only after
  the query has started, with a stack trace of the JVM.
* The output mode complete is refused. This mode reaches the sink as an overwrite, which
  ``source.py`` refuses at planning.

The functions of this module wrap methods of ``DataStreamWriter`` in the user's process, in classic
Spark and in Spark Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.datasource.process.connect_function import note_what_the_server_needs
from spark_kafka_sink.datasource.session.spark_patches import (
    Patches,
    note_other_format,
    writes_kprod,
)

_CONTINUOUS_SEEN = "_kprod_continuous"
_MODE_SEEN = "_kprod_output_mode"

_WAYS: Final = {
    "update": "write with foreach_batch, which allows the mode update: .outputMode('update')"
    ".foreachBatch(foreach_batch('name', **options)); without exactly-once, with your own function "
    "that calls batch.write.format('kprod').options(**options).save()",
    "complete": "outputMode('append') writes each row once; to append the whole result in every "
    "micro-batch, write with foreach_batch, which allows the mode complete: "
    ".outputMode('complete').foreachBatch(foreach_batch('name', **options))",
}


def _trigger(method: Callable[..., object], writer: object, **kwargs: object) -> object:
    setattr(writer, _CONTINUOUS_SEEN, kwargs.get("continuous") is not None)
    return method(writer, **kwargs)


def _output_mode(method: Callable[..., object], writer: object, outputMode: str) -> object:  # noqa: N803 - Spark's name
    setattr(writer, _MODE_SEEN, outputMode)
    return method(writer, outputMode)


def _function(
    method: Callable[..., object], writer: object, *args: object, **kwargs: object
) -> object:
    """Wraps the methods foreachBatch and foreach of a stream's writer. A stream with one of these
    methods does not use the format that was set on the writer. So the wrapper marks the writer, and
    ``start()`` does not refuse the stream.
    """
    made = method(writer, *args, **kwargs)
    note_other_format(writer)
    return made


def _start(
    method: Callable[..., object],
    writer: object,
    path: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's name
    *args: object,
    **kwargs: object,
) -> object:
    _check(writer, format, _mode(writer, args, kwargs))
    try:
        return method(writer, path, format, *args, **kwargs)
    except Exception as error:
        note_what_the_server_needs(error)
        raise


def _to_table(
    method: Callable[..., object],
    writer: object,
    tableName: str,  # noqa: N803 - Spark's name
    format: str | None = None,  # noqa: A002 - Spark's name
    *args: object,
    **kwargs: object,
) -> object:
    mode = _mode(writer, args, kwargs)
    if _is_continuous(writer) or mode in _WAYS:
        # If the table exists already, its provider is used.
        _check(writer, format if format is not None else _provider(writer, tableName), mode)
    return method(writer, tableName, format, *args, **kwargs)


def _check(writer: object, source: object, mode: str) -> None:
    if not writes_kprod(writer, source):
        return
    # Only start() can protect the rows. With this trigger, Spark builds an error for every row and
    # does not throw it. It calls the sink's commit with None for every task. The sink raises an
    # error, but Spark's epoch coordinator logs it and continues ("Inbox: Ignoring error"; seen on
    # 4.2).
    if _is_continuous(writer):
        raise ConfigError(
            "kprod does not support the continuous trigger: Spark never calls a Python sink with "
            "it and drops every row",
            hint="use trigger(processingTime='1 second'), or another short time",
            kind=Kind.UNSUPPORTED_WRITE,
        )
    if mode in _WAYS:
        raise ConfigError(
            f"kprod does not support {mode} output mode: "
            + (
                "Spark has it for no Python sink"
                if mode == "update"
                else "a topic can't be replaced"
            ),
            hint=_WAYS[mode],
            kind=Kind.UNSUPPORTED_WRITE,
        )


def _is_continuous(writer: object) -> bool:
    return bool(getattr(writer, _CONTINUOUS_SEEN, False))


def _mode(writer: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
    """The output mode of a stream that starts: the argument of the call, or the mode that was set
    on the writer.
    """
    given = args[0] if args else kwargs.get("outputMode")
    return str(given or getattr(writer, _MODE_SEEN, "append")).lower()


def _provider(writer: object, table: str) -> str | None:
    """The provider (format) of an existing table, from two catalog requests. None if there is no
    such table.

    DESCRIBE EXTENDED and SHOW CREATE TABLE omit the provider of a Python source (seen on 4.2).
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
    {
        "trigger": _trigger,
        "outputMode": _output_mode,
        "foreachBatch": _function,
        "foreach": _function,
        "start": _start,
        "toTable": _to_table,
    },
)
