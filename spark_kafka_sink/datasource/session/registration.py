"""Registers the format with a session, and installs the patches in the user's process.

Without :func:`register`, Spark finds the format through ``pyspark_kprod``. But four patches are
missing, because Spark loads this package too late to install them:

* the default mode (``default_mode``)
* the early refusal of streams that can't be written (``refused_streams``)
* writes from any thread (``any_thread``)
* the session's settings for JSON (``session_settings``)
"""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import coded, warn_once
from spark_kafka_sink.base.format_name import FORMAT
from spark_kafka_sink.datasource.session import (
    any_thread,
    refused_streams,
    session_settings,
    session_tuning,
)
from spark_kafka_sink.datasource.session.default_mode import PATCHES as APPEND_BY_DEFAULT
from spark_kafka_sink.datasource.source import KprodDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

#: The module of our source, by either of its names.
_MODULES = (b"pyspark_kprod", KprodDataSource.__module__.encode())


def register(
    spark: SparkSession, *, default_mode: bool = True, tune: bool = False
) -> dict[str, str]:
    """Registers the format ``kprod`` with ``spark``, a classic or a Connect session. You may call
    ``register`` more than once. Returns the configs that ``tune=True`` has set, by name.

    The package must be installed where Python workers run. With Connect, it must also be installed
    on the server.

    * ``default_mode=True`` lets ``.save()`` append by default. With False, ``.save()`` needs
      ``.mode("append")``.
    * ``tune=True`` sets configs that make this session's writes cheaper, and never changes a
      result. Configs that you have set stay (docs/tuning.md).

    Effects of the call in this process:

    * Every thread can write, even a thread of a pool.
    * Streams to ``kprod`` with the continuous trigger, or with the output mode update or complete,
      are refused at ``start()``. With the continuous trigger, Spark would drop rows silently.
    * ``.save()`` and ``.start()`` use the session's time zone for timestamps in a VARIANT.
    * ``.save()`` and ``.start()`` use the session's setting for null fields in JSON. The option
      jsonIgnoreNullFields overrides this setting.
    """
    if not _has_ours(spark):
        try:
            spark.dataSource.register(KprodDataSource)
        except Exception as error:
            # pyspark 4.0 refuses a name that it has discovered (pyspark_kprod); 4.1 replaces it. It
            # is the same source.
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
                raise
    _check_workers_python(spark)
    for patches in APPEND_BY_DEFAULT:
        if default_mode:
            patches.install()
        else:
            patches.uninstall()
    for patches in (refused_streams.PATCHES, *any_thread.PATCHES, *session_settings.PATCHES):
        patches.install()
    return session_tuning.tune(spark) if tune else {}


def _has_ours(spark: SparkSession) -> bool:
    """Whether the session already has this data source: Spark has discovered it
    (``pyspark_kprod``), or an earlier call has registered it. False if this is unknown, as in a
    Connect session.

    A second registration does no harm, except for a warning in Spark's log at each start of a
    stream: "The data source kprod replaced a statically registered data source".
    """
    try:
        # Spark's registry is private (the same on 4.0 to 4.2). It stores the pickled class, which
        # contains the name of the class's module.
        manager = spark._jsparkSession.sessionState().dataSourceManager()  # noqa: SLF001 - see above
        if manager.dataSourceExists(FORMAT) is not True:
            return False
        numbers = manager.lookupDataSource(FORMAT).dataSourceCls().command().mkString(",")
        pickled = bytes(int(number) & 0xFF for number in numbers.split(","))
    except Exception:  # noqa: BLE001 - an unknown version of Spark; then it is registered
        return False
    return any(module in pickled for module in _MODULES)


def _check_workers_python(spark: SparkSession) -> None:
    """Warns if Python workers of the session will not be able to run this package. There are two
    cases:

    - The interpreter of the workers does not exist on the driver. Spark also uses this interpreter
      on the driver, to plan and commit.
    - In a local session, the interpreter of the workers does not have this package. If
      ``PYSPARK_PYTHON`` is not set, Spark runs the workers with the PATH's ``python3``, even if the
      job runs in a virtual environment.
    """
    try:
        context = spark.sparkContext
        executable, master = shutil.which(context.pythonExec), str(context.master)
    except Exception:  # noqa: BLE001 - Connect has none, a mock has anything: nothing to warn of
        return
    if executable is None:
        from spark_kafka_sink.datasource.checks.driver_python import UNPACK, missing

        # The path of an archive, which executors unpack and a driver does not: the first write
        # would fail.
        said = missing(str(context.pythonExec))
        warn_once(_log, [coded(Kind.NOT_INSTALLED_FOR_WORKERS, said, UNPACK)])
        return
    # The workers of a cluster run on other machines, which can't be checked here.
    if not master.startswith("local"):
        return
    if Path(executable).parent == Path(sys.executable).parent:
        return
    from spark_kafka_sink.datasource.checks.driver_python import look

    found = look(executable)
    if found is not None and "spark_kafka_sink" in found.lacks:
        text = (
            f"Spark runs its Python workers with {executable}, which can't import spark_kafka_sink"
        )
        hint = (
            f"set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to {sys.executable} before the session "
            "starts, or activate its environment"
        )
        warn_once(_log, [coded(Kind.NOT_INSTALLED_FOR_WORKERS, text, hint)])
