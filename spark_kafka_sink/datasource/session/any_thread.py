"""Makes writes with the format ``kprod`` work in every thread.

Spark finds a Python data source only in a thread with an active session
(``process/active_session.py``). So the functions of this module wrap the methods of Spark's writers
that begin a write, such as ``save`` and ``start`` (``spark_patches.py``). They make the DataFrame's
session active while the wrapped method runs. A ``save`` or ``start`` with another format is not
changed.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.datasource.process.active_session import active_session
from spark_kafka_sink.datasource.session.spark_patches import Patches, writes_kprod


def _to_format(
    method: Callable[..., object],
    writer: object,
    path: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's name
    *args: object,
    **kwargs: object,
) -> object:
    if not writes_kprod(writer, format):
        return method(writer, path, format, *args, **kwargs)
    return _to_table(method, writer, path, format, *args, **kwargs)


def _to_table(
    method: Callable[..., object], writer: object, *args: object, **kwargs: object
) -> object:
    """Calls ``method`` of a Spark writer while the DataFrame's session is active."""
    # (This is also done for a table of another format: the table's format is not known here.)
    with active_session(getattr(writer, "_spark", None)):
        return method(writer, *args, **kwargs)


#: Spark Connect has other writer classes, which need no patch: its server activates the session.
PATCHES = (
    Patches(
        "DataFrameWriter",
        ("pyspark.sql.readwriter",),
        {"save": _to_format, "saveAsTable": _to_table, "insertInto": _to_table},
    ),
    Patches(
        "DataFrameWriterV2",
        ("pyspark.sql.readwriter",),
        dict.fromkeys(
            ("create", "replace", "createOrReplace", "append", "overwrite", "overwritePartitions"),
            _to_table,
        ),
    ),
    Patches(
        "DataStreamWriter",
        ("pyspark.sql.streaming.readwriter",),
        {"start": _to_format, "toTable": _to_table},
    ),
)
