"""Registers the format with a session, and installs the two guards that need the user's process.

Owns: :func:`register`. Never: the source itself. Without it, Spark finds the format through
``pyspark_kprod``, but without the default mode (``default_mode``) and the early refusal of the
continuous trigger (``continuous_trigger``), because none of our code runs in the user's process
before Spark decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_sink.datasource import continuous_trigger, session_tuning
from spark_kafka_sink.datasource import default_mode as append_by_default
from spark_kafka_sink.datasource.source import FORMAT, KprodDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The module of our source, by either of its names.
_MODULES = (b"pyspark_kprod", KprodDataSource.__module__.encode())


def register(
    spark: SparkSession, *, default_mode: bool = True, tune: bool = False
) -> dict[str, str]:
    """Registers the format ``kprod`` with ``spark``, a classic or a Connect session. Idempotent.

    ``default_mode=False`` leaves ``DataFrameWriter`` as Spark has it: ``.save()`` then needs
    ``.mode("append")``. The refusal of the continuous trigger is always installed: without it Spark
    drops rows silently. The package must be installed where Python workers run (and, with Connect,
    on the server).

    ``tune=True`` sets configs that make this session's writes cheaper without changing a result,
    unless they are set (docs/tuning.md). Returns the configs that were set, by name.

    A classic session's registration is seen by the threads in which that session is the active
    one; in a fresh Python thread Spark says DATA_SOURCE_NOT_FOUND until something sets it.
    """
    if not _has_ours(spark):
        try:
            spark.dataSource.register(KprodDataSource)
        except Exception as error:
            # pyspark 4.0 refuses a name that it has discovered (pyspark_kprod); 4.1 replaces it. It
            # is the same source.
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
                raise
    continuous_trigger.install()
    if default_mode:
        append_by_default.install()
    else:
        append_by_default.uninstall()
    return session_tuning.tune(spark) if tune else {}


def _has_ours(spark: SparkSession) -> bool:
    """Whether Spark has discovered our source (``pyspark_kprod``), or it was registered before.

    Registering it again is a warning in Spark's log, also at each start of a stream: "The data
    source kprod replaced a statically registered data source". Spark's registry is private
    (``DataSourceManager``; the same on 4.0 to 4.2), and not accessible in a Connect session: where
    it does not behave as expected, the source is registered, warning or not. It stores a class as
    its pickled name, so the module's name in there identifies ours.
    """
    try:
        manager = spark._jsparkSession.sessionState().dataSourceManager()  # noqa: SLF001 - see above
        if manager.dataSourceExists(FORMAT) is not True:
            return False
        numbers = manager.lookupDataSource(FORMAT).dataSourceCls().command().mkString(",")
        pickled = bytes(int(number) & 0xFF for number in numbers.split(","))
    except Exception:  # noqa: BLE001 - whatever a Spark that we don't know says; then it is registered
        return False
    return any(module in pickled for module in _MODULES)
