"""Makes our log lines visible in Spark's logs, where logging is not configured.

Owns: :func:`configure_logging`. Never: a line.
"""

from __future__ import annotations

import logging
import sys


def configure_logging() -> None:
    """``commit`` and tasks run in worker processes of Spark without a log handler, so INFO lines
    would be lost. Their stderr is the driver's, or the executor's. A process with configured
    logging is not changed, and with ``spark.sql.pyspark.worker.logging.enabled`` Spark adds a
    handler.
    """
    package = logging.getLogger("spark_kafka_sink")
    if package.level == logging.NOTSET:
        package.setLevel(logging.INFO)
    if not package.hasHandlers():
        handler = _Stderr()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        package.addHandler(handler)


class _Stderr(logging.Handler):
    """Writes to the current ``sys.stderr``: Spark replaces it during every commit."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            self.handleError(record)
