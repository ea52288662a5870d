"""Makes our log lines visible in Spark's logs, where nobody configured logging.

Owns: :func:`configure_logging`. Never: a line.
"""

from __future__ import annotations

import logging
import sys


def configure_logging() -> None:
    """``commit`` and tasks run in worker processes that Spark starts, in which no handler exists:
    INFO would vanish. Their stderr is the driver's, or the executor's. A process in which somebody
    configured logging is left alone, and with ``spark.sql.pyspark.worker.logging.enabled`` Spark's
    own handler is there too.
    """
    package = logging.getLogger("spark_kafka_sink")
    if package.level == logging.NOTSET:
        package.setLevel(logging.INFO)
    if not package.hasHandlers():
        handler = _Stderr()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        package.addHandler(handler)


class _Stderr(logging.Handler):
    """Writes to whatever ``sys.stderr`` is now: Spark swaps it around every commit."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            self.handleError(record)
