"""Makes the package's log lines visible in Spark's logs, if a process has no configured logging."""

from __future__ import annotations

import logging
import sys


def configure_logging() -> None:
    """Makes the lines of the package's logger visible on stderr. Call this function in Spark's
    worker processes, where tasks and commits run. Such a process has the stderr of the driver or of
    the executor.

    - If the logger has no level, its level becomes INFO.
    - If neither this logger nor the root logger has a handler, a handler for stderr is added. With
      ``spark.sql.pyspark.worker.logging.enabled`` Spark has already added a handler.
    """
    package = logging.getLogger("spark_kafka_sink")
    if package.level == logging.NOTSET:
        package.setLevel(logging.INFO)
    if not package.hasHandlers():
        handler = _Stderr()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        package.addHandler(handler)


class _Stderr(logging.Handler):
    """A log handler that writes to the current ``sys.stderr``, because Spark replaces it during
    every commit.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            self.handleError(record)
