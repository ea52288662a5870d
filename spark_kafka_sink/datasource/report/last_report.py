"""``last_report``: the last report of a query or a session, in the user's process.

The driver stores the reports (``kept_reports.py``). The user's process requests a report from the
driver by reading a data source's schema (``process/asked_of_driver.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.described_fields import from_json
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.base.json_object import json_object
from spark_kafka_sink.base.security.local_files import UnusableFileError
from spark_kafka_sink.datasource.process.asked_of_driver import (
    answer_of_driver,
    schema_with_answer,
)
from spark_kafka_sink.datasource.report.kept_reports import kept
from spark_kafka_sink.datasource.report.write_report import REPORT_VERSION, WriteReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

#: The option of the data source that requests a report, and its value for the report of any write.
LAST_REPORT: Final = "lastReport"
_OF_ANY: Final = "any"
_TEXT, _PROBLEM = "report", "problem"
_HINT: Final = "give the writes the option reportPath (or reportTopic), and read the report there"


class NoReportsKeptError(KafkaError):
    """Reports can't be read: the driver keeps none, or keeps them in a format that this version
    doesn't support.
    """

    default_kind = Kind.NO_REPORTS_KEPT


def last_report(query_or_spark: StreamingQuery | SparkSession) -> WriteReport | None:
    """Returns the last report of a streaming query, or of a session's application.

    - For a streaming query, this is the report of its last batch.
    - For a session, this is the report of the application's last write. Over Spark Connect, the
      application is the server with all its sessions.

    If the commit and the abort of a write both have a report, this is the report with the more
    certain outcome.

    Returns None if there is no report yet: ``kprod`` wrote nothing, or the first write is still
    running. The function works with classic and Connect sessions. Its request to the driver takes
    some tens of milliseconds, and starts no job.

    If no task of a micro-batch finished, the report of the micro-batch does not name its query. The
    driver assigns this report to the query of the previous report with the same options.

    Raises NoReportsKeptError if the driver keeps no reports that this version can read.
    """
    from pyspark.sql import SparkSession

    # Both kinds of sessions have a version; only a query has a run.
    query_id = getattr(query_or_spark, "id", None) if hasattr(query_or_spark, "runId") else None
    spark = SparkSession.active() if query_id is not None else query_or_spark
    requested = _OF_ANY if query_id is None else str(query_id)
    found = answer_of_driver(spark, {LAST_REPORT: requested})  # type: ignore[arg-type] # a session, then
    if found is None:
        raise NoReportsKeptError(
            "the driver's spark-kafka-sink is older, and keeps no reports", hint=_HINT
        )
    if _PROBLEM in found:
        raise NoReportsKeptError(f"the driver keeps no reports: {found[_PROBLEM]}", hint=_HINT)
    return _report(found[_TEXT]) if _TEXT in found else None


def schema_with_report(requested: str) -> StructType:
    """Answers a request of ``last_report`` on the driver. The answer is in the metadata of the
    returned schema: the JSON of the report, or the reason why the driver keeps no reports. If there
    is no report yet, the answer is empty.
    """
    try:
        text = kept(None if requested == _OF_ANY else requested)
        metadata = {} if text is None else {_TEXT: text}
    except UnusableFileError as error:
        metadata = {_PROBLEM: str(error)}
    return schema_with_answer(metadata)


def _report(text: str) -> WriteReport:
    fields = json_object(text)
    if fields is None:
        raise NoReportsKeptError(
            "the driver's last report is damaged: it can't be read", hint=_HINT
        )
    try:
        if fields["reportVersion"] == REPORT_VERSION:
            return from_json(WriteReport, fields)
    except (KeyError, TypeError, ValueError):
        pass
    raise NoReportsKeptError(
        "the driver's spark-kafka-sink has another version, and its report can't be read",
        hint="install the same version here and on the driver",
    )
