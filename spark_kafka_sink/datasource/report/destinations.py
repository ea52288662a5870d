"""The destinations of reports.

Owns: :data:`DESTINATIONS`, the registry, and :func:`publish`, which passes a report to each. Never:
the content of a report; an error: a failed destination is a warning, because it does not change the
batch.

**To receive every report, add a row to** :data:`DESTINATIONS`: a function that gets the
:class:`~spark_kafka_sink.config.sink_config.SinkConfig` of the write and returns a destination (any
callable that takes a :class:`WriteReport`), or None when the options don't set it. It is called on
the driver, in the process and on the thread of Spark's ``commit`` or ``abort``, for every outcome;
it must return soon, because the next micro-batch waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.process_logging import configure_logging
from spark_kafka_sink.datasource.report.kept_reports import keep
from spark_kafka_sink.datasource.report.log_line import line_of, summary_of
from spark_kafka_sink.datasource.report.report_file import write_report_file
from spark_kafka_sink.datasource.report.write_report import Outcome, WriteReport
from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import KafkaError, warn
from spark_kafka_sink.security.import_paths import find_function, place_of
from spark_kafka_sink.security.local_files import UnusableFileError

if TYPE_CHECKING:
    from spark_kafka_sink.transactions.topic_records import TopicRecord

_log = logging.getLogger(__name__)

Destination = Callable[[WriteReport], object]

#: How long brokers may take to acknowledge a report outside of a decision, in ms.
REPORT_TOPIC_MS = 10_000
_DECIDED = (Outcome.COMMITTED, Outcome.PREPARED, Outcome.DONE_BEFORE)


def publish(report: WriteReport, config: SinkConfig) -> None:
    """Passes ``report`` to every destination in ``config``. Never raises."""
    for of_config in DESTINATIONS:
        _deliver(of_config, config, report)


def _deliver(
    of_config: Callable[[SinkConfig], Destination | None], config: SinkConfig, report: WriteReport
) -> None:
    try:
        destination = of_config(config)
        if destination is not None:
            destination(report)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a report must not fail the batch
        # Only our own errors are known to hold no secret.
        why = error.message if isinstance(error, KafkaError) else place_of(error)
        warn(_log, Kind.REPORT_NOT_WRITTEN, "a report can't be delivered: %s", why)


def _log_line(config: SinkConfig) -> Destination:  # noqa: ARG001 - every write has its line
    return _log_success


def _log_success(report: WriteReport) -> None:
    """Successful commits only: failed ones raise, and aborts log a warning (``write_plan``)."""
    if report.outcome.is_success:
        configure_logging()
        # Spark's JSON log of Python workers shows the fields of "context" as columns.
        _log.info("%s", line_of(report), extra={"context": summary_of(report)})


def _last_report(config: SinkConfig) -> Destination | None:  # noqa: ARG001 - every write has one
    return _keep


def _keep(report: WriteReport) -> None:
    try:
        keep(report)
    except UnusableFileError as error:
        problem = str(error)
    else:
        return
    raise KafkaError(f"it is not kept for last_report: {problem}", kind=Kind.REPORT_NOT_WRITTEN)


def _report_path(config: SinkConfig) -> Destination | None:
    path = config.report_path
    return None if path is None else lambda report: write_report_file(path, report)


def topic_record(report: WriteReport, report_topic: str) -> TopicRecord:
    """The record for ``reportTopic``; that of an exactly-once batch is part of its decision."""
    # Imported here, so that a commit without it loads neither network nor Arrow.
    from spark_kafka_sink.transactions.topic_records import TopicRecord

    return TopicRecord(report_topic, report.json().encode())


def _report_topic(config: SinkConfig) -> Destination | None:
    topic = config.report_topic
    if topic is None:
        return None

    def write(report: WriteReport) -> None:
        if report.outcome in _DECIDED:
            return  # it was written with the decision (``topic_record``), maybe by another driver
        from spark_kafka_sink.transactions.exactly_once import shared_driver

        with shared_driver(config.producer, config.commit_log_topic) as driver:
            driver.write_record(topic_record(report, topic), REPORT_TOPIC_MS)

    return write


def _listeners(config: SinkConfig) -> Destination | None:
    def call_each(report: WriteReport) -> None:
        for path in config.report_listeners:
            _deliver(partial(_listener, path), config, report)

    return call_each if config.report_listeners else None


def _listener(path: str, config: SinkConfig) -> Destination:  # noqa: ARG001 - all name theirs
    return listener(path)


def listener(path: str) -> Destination:
    """The listener that ``path``, of the option reportListeners, names. ConfigError."""
    return find_function(path, "reportListeners", "report")


#: In calling order.
DESTINATIONS: tuple[Callable[[SinkConfig], Destination | None], ...] = (
    _log_line,
    _last_report,
    _report_path,
    _report_topic,
    _listeners,
)
