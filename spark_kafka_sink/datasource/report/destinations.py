"""Delivers a report to its destinations: log, last report, file, topic, and the user's functions.

:func:`publish` passes a report to each destination in :data:`DESTINATIONS`. If a destination fails,
only a warning is logged, because the batch is not affected.

**To receive every report, add a function to** :data:`DESTINATIONS`. It gets the
:class:`WriteReport`, and the :class:`~spark_kafka_sink.config.sink_config.SinkConfig` of the write.
It is called for every outcome, on the driver, in the thread of Spark's ``commit`` or ``abort``. It
must return soon, because the next micro-batch waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import KafkaError, warn
from spark_kafka_sink.base.security.import_paths import find_function, place_of
from spark_kafka_sink.base.security.local_files import UnusableFileError
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.process.process_logging import configure_logging
from spark_kafka_sink.datasource.report.kept_reports import keep
from spark_kafka_sink.datasource.report.log_line import line_of, summary_of
from spark_kafka_sink.datasource.report.report_file import write_report_file
from spark_kafka_sink.datasource.report.write_report import WriteOutcome, WriteReport

if TYPE_CHECKING:
    from spark_kafka_sink.transactions.driver_transactions import TopicRecord

_log = logging.getLogger(__name__)

Destination = Callable[[WriteReport, SinkConfig], object]

#: The time limit in ms for the acknowledgement of a report that is not committed with the batch.
REPORT_TOPIC_MS = 10_000
_DECIDED = (WriteOutcome.COMMITTED, WriteOutcome.PREPARED, WriteOutcome.DONE_BEFORE)


def publish(report: WriteReport, config: SinkConfig) -> None:
    """Passes ``report`` to every destination that ``config`` enables. Never raises."""
    for destination in DESTINATIONS:
        _deliver(destination, report, config)


def _deliver(destination: Destination, report: WriteReport, config: SinkConfig) -> None:
    try:
        destination(report, config)
    except BaseException as error:  # noqa: BLE001 - a report must not fail the batch
        # A KeyboardInterrupt is caught, too. No Ctrl-C reaches this process, which is in the group
        # of Spark's daemon, so a listener has raised it. The rows are written, and a batch that
        # failed would write them again.
        # Only our errors are known to contain no secret.
        why = error.message if isinstance(error, KafkaError) else place_of(error)
        warn(_log, Kind.REPORT_NOT_WRITTEN, "a report can't be delivered: %s", why)


def _log_line(report: WriteReport, config: SinkConfig) -> None:  # noqa: ARG001 - in every write
    """Logs the report of a successful commit. Other outcomes need no line: a failed commit raises
    an error, and an abort logs a warning (``planned_batch``).
    """
    if report.outcome.is_success:
        configure_logging()
        # Spark's JSON log of Python workers shows the fields of "context" as columns.
        _log.info("%s", line_of(report), extra={"context": summary_of(report)})


def _last_report(report: WriteReport, config: SinkConfig) -> None:  # noqa: ARG001 - in every write
    try:
        keep(report)
    except UnusableFileError as error:
        problem = str(error)
    else:
        return
    raise KafkaError(f"it is not kept for last_report: {problem}", kind=Kind.REPORT_NOT_WRITTEN)


def _report_path(report: WriteReport, config: SinkConfig) -> None:
    if config.report_path is not None:
        write_report_file(config.report_path, report)


def topic_record(report: WriteReport, report_topic: str) -> TopicRecord:
    """The Kafka record of a report for ``reportTopic``. With exactly-once, this record is written
    in a transaction of the batch.
    """
    # Imported here, so that a commit without reportTopic does not load network or Arrow.
    from spark_kafka_sink.transactions.driver_transactions import TopicRecord

    return TopicRecord(report_topic, report.json().encode())


def _report_topic(report: WriteReport, config: SinkConfig) -> None:
    topic = config.report_topic
    if topic is None or report.outcome in _DECIDED:
        return  # the report was committed with the batch, maybe by another driver
    from spark_kafka_sink.transactions.driver_transactions import write_record
    from spark_kafka_sink.transactions.exactly_once import shared_driver

    with shared_driver(config.producer, config.commit_log_topic) as driver:
        client = driver.client
        write_record(client, topic_record(report, topic), client.deadline(REPORT_TOPIC_MS))


def _listeners(report: WriteReport, config: SinkConfig) -> None:
    for path in config.report_listeners:
        _deliver(partial(_listener, path), report, config)


def _listener(path: str, report: WriteReport, config: SinkConfig) -> None:  # noqa: ARG001 - as all
    listener(path)(report)


def listener(path: str) -> Callable[[WriteReport], object]:
    """Imports the user's function with the import path ``path``, which is an item of the option
    reportListeners. Raises ConfigError if there is no such function.
    """
    return find_function(path, "reportListeners", "report")


#: In calling order.
DESTINATIONS: tuple[Destination, ...] = (
    _log_line,
    _last_report,
    _report_path,
    _report_topic,
    _listeners,
)
