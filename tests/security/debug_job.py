"""A Spark application of its own with everything at DEBUG: how it is run, and how it begins.

``spec`` is a JSON object: ``out``, where what it leaves behind goes; ``conf``, Spark's beside what
every one has; and what the application itself wants to know.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.programs import ROOT, run_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: So that DEBUG is on in the workers, too, which nobody else configures.
_SITECUSTOMIZE = """
import logging, os
logging.basicConfig(level=logging.DEBUG,
                    filename=os.path.join(os.environ["KPROD_TEST_LOGS"], f"py-{os.getpid()}.log"))
"""
_CONF = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def run_at_debug(
    module: str, spec: dict[str, Any], logs: Path, environment: Mapping[str, str] | None = None
) -> Any:
    """The outcomes that ``python -m module`` writes; logs and output of all its processes are in
    ``logs``.
    """
    home = Path(spec["out"]).parent
    (home / "site").mkdir(exist_ok=True)
    (home / "site" / "sitecustomize.py").write_text(_SITECUSTOMIZE)
    (home / "spec.json").write_text(json.dumps(spec))
    places = {
        "KPROD_TEST_LOGS": str(logs),
        "PYTHONPATH": os.pathsep.join([str(home / "site"), str(ROOT)]),
    }
    program = ("-m", module, home / "spec.json")
    given = {**(environment or {}), **places}
    done = run_python(*program, cwd=home, environment=given, timeout=500)
    (logs / "stderr").write_text(done.stdout + done.stderr)
    return json.loads((Path(spec["out"]) / "outcomes.json").read_text())


def session_at_debug(spec: dict[str, Any], logs: Path) -> SparkSession:
    """Within the application."""
    logging.basicConfig(
        level=logging.DEBUG, filename=logs / f"driver-{os.getpid()}.log", force=True
    )
    from pyspark.sql import SparkSession

    import spark_kafka_sink

    builder = SparkSession.builder.master("local[2]").appName(spec.get("app_name", "at debug"))
    for name, value in (_CONF | spec["conf"]).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    # From here on Py4J would log every call with its arguments, an inline password among them.
    logging.getLogger("py4j").setLevel(logging.INFO)
    spark_kafka_sink.register(session)
    return session
