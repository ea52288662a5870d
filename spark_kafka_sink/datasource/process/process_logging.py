"""Makes the package's log lines visible in Spark's logs, if a process has no configured logging."""

from __future__ import annotations

import logging
import sys


def configure_logging() -> None:
    """Adds a log handler for stderr, at the level INFO, in a worker process of Spark that has no
    log handler.

    ``commit`` and tasks run in these worker processes. A worker process has the stderr of the
    driver or of the executor. A process with configured logging is not changed. With
    ``spark.sql.pyspark.worker.logging.enabled`` Spark adds a handler itself.
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
