"""``last_report``: the last report of a query or a session, in the user's process.

Owns: the request and its response. Never: where reports are kept (``kept_reports.py``).

A session's Python process, or a Connect client on another machine, shares neither memory nor files
with the process in which Spark commits. But it can request the schema of a data source, which runs
on the driver, concurrently with commits, and needs no task and so no free slot. So the report is
returned as the metadata of a column (:func:`schema_with_report`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.base.security.local_files import UnusableFileError
from spark_kafka_sink.datasource.described_fields import from_json
from spark_kafka_sink.datasource.report.kept_reports import kept
from spark_kafka_sink.datasource.report.write_report import REPORT_VERSION, WriteReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: The option of the data source that requests a report, and its value for that of any write.
LAST_REPORT: Final = "lastReport"
_OF_ANY: Final = "any"
_COLUMN: Final = "report"
_TEXT, _PROBLEM = "report", "problem"
_HINT: Final = "give the writes the option reportPath (or reportTopic), and read the report there"


class NoReportsKeptError(KafkaError):
    """Reports can't be read: the driver keeps none, or keeps them in a format that this version
    doesn't support.
    """

    default_kind = Kind.NO_REPORTS_KEPT


def last_report(query_or_spark: StreamingQuery | SparkSession) -> WriteReport | None:
    """The report of the last batch of a streaming query, or of the last write of the application
    that a session belongs to (over Spark Connect: of the server, all sessions of it). None when
    there is none yet: nothing was written by ``kprod``, or it is not committed.

    For classic and Connect sessions. It calls the driver, starts no job, and takes some tens of
    milliseconds. A report of a micro-batch without a finished task counts as its query's when it
    follows a batch with the same options. Raises NoReportsKeptError.
    """
    from pyspark.sql import SparkSession

    # Both kinds of sessions have a version; only a query has a run.
    query_id = getattr(query_or_spark, "id", None) if hasattr(query_or_spark, "runId") else None
    spark = SparkSession.active() if query_id is not None else query_or_spark
    requested = _OF_ANY if query_id is None else str(query_id)
    schema = spark.read.format("kprod").option(LAST_REPORT, requested).load().schema  # type: ignore[union-attr] # a session, then
    found = schema[_COLUMN].metadata if _COLUMN in schema.names else None
    if found is None:
        raise NoReportsKeptError(
            "the driver's spark-kafka-sink is older, and keeps no reports", hint=_HINT
        )
    if _PROBLEM in found:
        raise NoReportsKeptError(f"the driver keeps no reports: {found[_PROBLEM]}", hint=_HINT)
    return _report(found[_TEXT]) if _TEXT in found else None


def schema_with_report(requested: str) -> StructType:
    """The schema that the data source returns on the driver."""
    try:
        text = kept(None if requested == _OF_ANY else requested)
        metadata = {} if text is None else {_TEXT: text}
    except UnusableFileError as error:
        metadata = {_PROBLEM: str(error)}
    return StructType([StructField(_COLUMN, StringType(), metadata=metadata)])


def _report(text: str) -> WriteReport:
    fields = json.loads(text)
    try:
        if fields["reportVersion"] == REPORT_VERSION:
            return from_json(WriteReport, fields)
    except (KeyError, TypeError, ValueError):
        pass
    raise NoReportsKeptError(
        "the driver's spark-kafka-sink has another version, and its report can't be read",
        hint="install the same version here and on the driver",
    )
