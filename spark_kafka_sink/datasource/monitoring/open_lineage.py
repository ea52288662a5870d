"""OpenLineage events of writes (extra ``lineage``): the jobs, and their rows and bytes by topic.

The option reportListeners calls :func:`emit` with each report:

    .option("reportListeners", "spark_kafka_sink.datasource.monitoring.open_lineage:emit")

OpenLineage's library reads the destination of events from environment variables of the driver, such
as ``OPENLINEAGE_URL`` and ``OPENLINEAGE_CONFIG``.

Each batch and micro-batch is a run of a job. The job is named after the application and the query.
The run's id is the report's id. The run has a START event and an event with its outcome, and both
are created from the report.
"""

from __future__ import annotations

import logging
import math
import os
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.datasource.monitoring.library_needed import library_needed
from spark_kafka_sink.datasource.report.write_report import WriteOutcome, WriteReport

try:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import (
        JobFacet,
        RunFacet,
        error_message_run,
        job_type_job,
        output_statistics_output_dataset,
        parent_run,
        processing_engine_run,
    )
except ImportError as error:
    raise library_needed(error, "OpenLineage events", "lineage") from None

_log = logging.getLogger(__name__)

PRODUCER: Final = f"urn:spark-kafka-sink:{__version__}"
#: The environment variable in which dbt and other tools name the parent's run:
#: ``namespace/name/runId``.
_PARENT: Final = "OPENLINEAGE_PARENT_ID"
_NAMESPACE: Final = "OPENLINEAGE_NAMESPACE"

_STATES: Final = {
    WriteOutcome.PREPARED: RunState.RUNNING,
    WriteOutcome.UNKNOWN: RunState.OTHER,
    WriteOutcome.ABORTED: RunState.FAIL,
    WriteOutcome.FAILED: RunState.FAIL,
    WriteOutcome.PARTIAL: RunState.FAIL,
}

#: The time in seconds after a failure in which nothing is sent. OpenLineage's library retries a
#: request for 10 to 40 s, and each micro-batch would wait for these retries.
PAUSE_S: Final = 60.0


class Collector:
    """Sends the OpenLineage events of reports. All events are sent with one client of OpenLineage's
    library. The client is created at the first report.
    """

    def __init__(
        self,
        new_client: Callable[[], OpenLineageClient] = OpenLineageClient,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = cache(new_client)
        self._monotonic_s = monotonic_s
        self._quiet_until = -math.inf

    def emit(self, report: WriteReport) -> None:
        """Sends the events of ``report``. Raises an error if the events can't be sent. After an
        error, drops all events for a minute.
        """
        if self._monotonic_s() < self._quiet_until:
            _log.debug("the events of report %s are left out", report.report_id)
            return
        try:
            for event in events_of(report):
                self._client().emit(event)
        except Exception:
            self._quiet_until = self._monotonic_s() + PAUSE_S
            raise


_collector: ProcessLocal[Collector] = ProcessLocal(Collector)


def emit(report: WriteReport) -> None:
    """Sends the OpenLineage events of ``report``, with the client that this process keeps. Name
    this function in the option reportListeners. Raises an error if the events can't be sent.
    """
    _collector().emit(report)


def events_of(report: WriteReport) -> tuple[RunEvent, RunEvent]:
    """The two OpenLineage events of a report: a START event without outputs, and an event with the
    outcome and the outputs. The outcome of a write in a ``transaction`` block is RUNNING, because
    its rows are committed later.
    """
    begun_ms = report.written_at_ms - report.elapsed_ms
    ended_ms = report.written_at_ms + (report.commit_ms or 0)
    parent = _parent(report)
    run = Run(str(uuid.UUID(report.report_id)), _run_facets(report, parent))
    job = Job(_namespace(parent), _job_name(report), _job_facets(report))
    end = _STATES.get(report.outcome, RunState.COMPLETE)
    if report.error is not None and report.error.code == Kind.TASK_STOPPED.kp_code:
        end = RunState.ABORT  # stopped, as far as it is known
    return (
        _event(RunState.START, begun_ms, run, job, []),
        _event(end, ended_ms, run, job, list(_outputs(report))),
    )


def _event(
    state: RunState, at_ms: int, run: Run, job: Job, outputs: list[OutputDataset]
) -> RunEvent:
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return RunEvent(
        eventTime=at, eventType=state, run=run, job=job, outputs=outputs, producer=PRODUCER
    )


def _parent(report: WriteReport) -> parent_run.ParentRunFacet | None:
    """The parent run of the job, for example a task of Airflow. None if there is no valid parent
    run.

    The parent run is in Spark's properties or in the environment, as the text
    ``namespace/name/uuid``. The namespace has no slash, but the name may have slashes.
    """
    given = report.parent_run or os.environ.get(_PARENT, "")
    namespace, _, rest = given.partition("/")
    name, _, run_id = rest.rpartition("/")
    try:
        found = str(uuid.UUID(run_id))
    except ValueError:
        return None
    return parent_run.ParentRunFacet(
        parent_run.Run(found), parent_run.Job(namespace, name), producer=PRODUCER
    )


def _namespace(parent: parent_run.ParentRunFacet | None) -> str:
    return os.environ.get(_NAMESPACE) or (parent.job.namespace if parent else "default")


def _job_name(report: WriteReport) -> str:
    """The name of the job, the same for each run of a query or a batch job."""
    names = (report.query_name, report.query_id, report.txn_app_id, *report.topics[:1], "write")
    return f"{report.application_name or 'spark'}.{next(name for name in names if name)}"


def _run_facets(
    report: WriteReport, parent: parent_run.ParentRunFacet | None
) -> dict[str, RunFacet]:
    engine = processing_engine_run.ProcessingEngineRunFacet(
        report.spark_version, "spark", report.version, producer=PRODUCER
    )
    facets: dict[str, RunFacet] = {"processing_engine": engine}
    if parent is not None:
        facets["parent"] = parent
    if report.error is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            f"[{report.error.code}] {report.error.message}", "PYTHON", producer=PRODUCER
        )
    return facets


def _job_facets(report: WriteReport) -> dict[str, JobFacet]:
    processing = "BATCH" if report.batch_id is None else "STREAMING"
    return {"jobType": job_type_job.JobTypeJobFacet(processing, "SPARK", "JOB", producer=PRODUCER)}


def _outputs(report: WriteReport) -> Iterator[OutputDataset]:
    """Yields a dataset for each topic, with OpenLineage's names for Kafka. If the report has no
    counts by topic, the topic comes from the options.
    """
    servers = report.bootstrap_servers
    namespace = f"kafka://{servers[0]}" if servers else "kafka"
    counts = {one.topic: one for one in report.topic_counts}
    for topic in dict.fromkeys((*counts, *report.topics)):
        one = counts.get(topic)
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=one.rows if one else 0, size=one.bytes if one else 0, producer=PRODUCER
        )
        yield OutputDataset(namespace, topic, {"outputStatistics": statistics})
