"""Makes ``df.write.format("kprod").save()`` append in two cases: if the user has set no mode, and
if the user has set the mode errorifexists. Other formats and modes are not changed.

Spark's default mode is ErrorIfExists. Spark refuses this mode for every Python data source, before
any code of the source runs (UNSUPPORTED_DATA_SOURCE_SAVE_MODE). Spark's Kafka sink accepts the
mode, and appends. With this patch, a user can replace the format ``kafka`` by ``kprod``.

The patch is in the DataFrameWriter of the user's Python process, in classic Spark and in Spark
Connect. Code in other languages does not use this class, and needs ``mode("append")``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spark_kafka_sink.datasource.session.spark_patches import Patches, writes_kprod

_MODE_SEEN = "_kprod_mode"
#: Spark's names for its default mode.
_ERROR_IF_EXISTS: Final = ("error", "errorifexists", "default")


# Spark's save() itself calls mode(None) and format(...). That does not disturb what is recorded.
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
    given = getattr(writer, _MODE_SEEN, None) if mode is None else mode
    is_default = given is None or str(given).lower() in _ERROR_IF_EXISTS
    if is_default and writes_kprod(writer, format):
        mode = "append"
    return method(writer, path, format, mode, *args, **kwargs)


def _foreach_batch(
    method: Callable[..., object], writer: object, func: Callable[[object, int], None]
) -> object:
    # Over Connect, the user's function runs in a process of the server, where no code calls
    # register. So this wrapper installs the patches there.
    def with_default_mode(batch: object, batch_id: int) -> None:
        """Installs the patches in the process of the Connect server, and calls the user's
        foreachBatch function. If this package is not installed on the server, only calls the user's
        function.
        """
        # Spark pickles this function by value, because it is local.
        try:
            from spark_kafka_sink.datasource.session.default_mode import PATCHES
            from spark_kafka_sink.datasource.session.session_settings import PATCHES as SETTINGS
        except ImportError:
            pass
        else:
            PATCHES[0].install()
            SETTINGS[0].install()
        func(batch, batch_id)

    return method(writer, with_default_mode)


#: The patch of a batch writer, and the patch for foreachBatch functions that a Connect server runs.
PATCHES = (
    Patches(
        "DataFrameWriter",
        ("pyspark.sql.readwriter", "pyspark.sql.connect.readwriter"),
        {"mode": _mode, "save": _save},
    ),
    Patches(
        "DataStreamWriter",
        ("pyspark.sql.connect.streaming.readwriter",),
        {"foreachBatch": _foreach_batch},
    ),
)
