"""Creates the error for a missing PySpark, or for a PySpark that is too old for this sink.

This module can be imported without pyspark.
"""

from __future__ import annotations

import sys
from importlib import metadata

from spark_kafka_sink.base.errors import safe_text


def spark_needed(error: ImportError) -> ImportError:
    """Converts ``error``, the error of ``import pyspark``, to an error that names the required
    version of PySpark. Returns ``error`` unchanged if PySpark is neither missing nor too old.
    """
    if error.name == "pyspark":
        return ImportError(
            "kprod needs PySpark 4.0 or newer, and there is no pyspark for"
            f" {safe_text(sys.executable)}: run in the Python of your cluster's PySpark, or pip"
            " install 'spark-kafka-sink[spark]'",
            name=error.name,
        )
    if error.name not in ("pyspark.sql.datasource", "pyspark.sql"):
        return error
    return ImportError(
        "kprod needs Python data sources with Arrow writers (DataSourceArrowWriter), which Apache"
        f" Spark has from 4.0 on; this is pyspark {_version()}",
        name=error.name,
    )


def _version() -> str:
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:  # a vendor's PySpark, without metadata
        import pyspark

        return str(getattr(pyspark, "__version__", "of an unknown version"))
