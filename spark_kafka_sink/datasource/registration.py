"""Registers the format with a session, and installs the two guards that need the user's process.

Owns: :func:`register`. Never: the source itself. Without it, Spark finds the format through
``pyspark_kprod``, but without the default mode (``default_mode``) and the early refusal of the
continuous trigger (``continuous_trigger``), because none of our code runs in the user's process
before Spark decides.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import coded, warn_once
from spark_kafka_sink.datasource import continuous_trigger, session_tuning
from spark_kafka_sink.datasource.default_mode import PATCHES as APPEND_BY_DEFAULT
from spark_kafka_sink.datasource.source import FORMAT, KprodDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

#: Asks an interpreter whether it finds this package; its exit code if not.
_NOT_FOUND: Final = 3
_FIND: Final = (
    "import importlib.util, sys\n"
    f"if importlib.util.find_spec('spark_kafka_sink') is None: sys.exit({_NOT_FOUND})"
)
_ASK_TIMEOUT_S: Final = 10

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
    one; in a new Python thread Spark raises DATA_SOURCE_NOT_FOUND until it is set.
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
    continuous_trigger.PATCHES.install()
    if default_mode:
        APPEND_BY_DEFAULT.install()
    else:
        APPEND_BY_DEFAULT.uninstall()
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
    except Exception:  # noqa: BLE001 - an unknown version of Spark; then it is registered
        return False
    return any(module in pickled for module in _MODULES)


def _check_workers_python(spark: SparkSession) -> None:
    """Warn when a local session's Python workers run an interpreter that has no such package:
    ``.venv/bin/python job.py`` without ``PYSPARK_PYTHON`` runs them with the PATH's ``python3``,
    and Spark then shows a ModuleNotFoundError within a stack of the JVM. A cluster's workers
    run elsewhere.
    """
    try:
        context = spark.sparkContext
        executable, master = shutil.which(context.pythonExec), str(context.master)
    except Exception:  # noqa: BLE001 - Connect has none, a mock has anything: nothing to warn of
        return
    if not master.startswith("local") or executable is None:
        return
    if Path(executable).parent == Path(sys.executable).parent:
        return
    if _lacks_package(executable):
        text = (
            f"Spark runs its Python workers with {executable}, which can't import spark_kafka_sink"
        )
        hint = (
            f"set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to {sys.executable} before the session "
            "starts, or activate its environment"
        )
        warn_once(_log, [coded(Kind.NOT_INSTALLED_FOR_WORKERS, text, hint)])


@cache
def _lacks_package(executable: str) -> bool:
    """Whether the interpreter lacks the package; run once in a process."""
    try:
        done = subprocess.run(  # noqa: S603 - the one that Spark runs
            [executable, "-c", _FIND],
            stderr=subprocess.DEVNULL,
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == _NOT_FOUND
