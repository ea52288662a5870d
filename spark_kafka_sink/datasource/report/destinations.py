"""Where finished reports go.

Owns: :data:`DESTINATIONS`, the one registry, and :func:`publish`, which hands a report to each.
Never: what a report says; an error: a destination that fails is a warning, because the batch is
what it is.

**To receive every report, add a row to** :data:`DESTINATIONS`: a function that gets the
:class:`~spark_kafka_sink.config.sink_config.SinkConfig` of the write and gives a destination (any
callable that takes a :class:`WriteReport`), or None when the options don't ask for it. It is called
on the driver, in the process and on the thread of Spark's ``commit`` or ``abort``, for every
outcome; it must come back soon, because the next micro-batch waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.report.driver_logging import configure_driver_logging
from spark_kafka_sink.datasource.report.log_line import line_of, summary_of
from spark_kafka_sink.datasource.report.report_file import append_report
from spark_kafka_sink.datasource.report.write_report import WriteReport
from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import KafkaError, warn
from spark_kafka_sink.security.import_paths import place_of

_log = logging.getLogger(__name__)

Destination = Callable[[WriteReport], None]


def publish(report: WriteReport, config: SinkConfig) -> None:
    """Hands ``report`` to every destination that ``config`` asks for. Never raises."""
    for of_config in DESTINATIONS:
        try:
            destination = of_config(config)
            if destination is not None:
                destination(report)
        except Exception as error:  # noqa: BLE001 - a report must not fail the batch
            # Only our own errors are known to hold no secret.
            why = error.message if isinstance(error, KafkaError) else place_of(error)
            warn(
                _log,
                Kind.REPORT_NOT_WRITTEN,
                "a report can't be delivered: %s",
                why,
            )


def _log_line(config: SinkConfig) -> Destination:  # noqa: ARG001 - every write has its line
    return _log_success


def _log_success(report: WriteReport) -> None:
    """A commit that failed raises, and an abort has a warning of its own (``write_plan``)."""
    if report.outcome.is_success:
        configure_driver_logging()
        # Spark's JSON log of Python workers shows the fields of "context" as columns.
        _log.info("%s", line_of(report), extra={"context": summary_of(report)})


def _report_path(config: SinkConfig) -> Destination | None:
    path = config.report_path
    return None if path is None else lambda report: append_report(path, report)


#: In the order in which they are called.
DESTINATIONS: tuple[Callable[[SinkConfig], Destination | None], ...] = (_log_line, _report_path)
