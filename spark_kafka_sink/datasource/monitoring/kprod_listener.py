"""A Spark listener that joins a streaming query's events with the reports of its batches.

For a Python sink, Spark's progress has only the number of rows. The other figures are in the report
of a batch, which another process creates (``report/``). A :class:`KprodListener` passes the values
of both to metrics libraries (``measurements.py``). The listener runs in the user's process: on a
classic session's driver, or in the client of a Connect session.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from spark_kafka_sink.base.described_fields import as_json
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import KafkaError, coded, safe_text, warn, warn_once
from spark_kafka_sink.base.security.local_files import UnusableFileError
from spark_kafka_sink.datasource.monitoring.instruments import OTHER
from spark_kafka_sink.datasource.monitoring.measurements import (
    Document,
    Metrics,
    MetricsLibrary,
    query_of,
    source_lag,
)
from spark_kafka_sink.datasource.monitoring.new_reports import NewReports

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from spark_kafka_sink.datasource.monitoring.running_writes import RunningWrites

_log = logging.getLogger(__name__)

#: The largest number of reports of a query that wait for Spark's progress of their batch.
MAX_WAITING: Final = 100

#: The interval in seconds in which the figures of running tasks are read.
_LOOK_S: Final = 5.0

_CODE = re.compile(r"\[(KP\d{4})\]")


class KprodListener(StreamingQueryListener):
    """A listener that makes metrics from the streaming queries of a session:
    ``spark.streams.addListener(KprodListener(PrometheusMetrics(), reports="/path"))``.

    - ``libraries`` receive every value. Each is a ``PrometheusMetrics``, an
      ``OpenTelemetryMetrics``, or another object with a method ``record`` like theirs.
    - ``reports`` is the ``reportPath`` of the session's writes, as a path of this process. It can
      also be a function that returns the reports since its last call, each as a dictionary.
    - ``on_batch`` is called for each micro-batch with its progress (a dictionary) and its reports
      (a list of dictionaries). The list has several reports if foreachBatch writes several times.
      It is empty if no report of the micro-batch has arrived.
    - ``running`` is a :class:`RunningWrites`, for metrics of running tasks (option progressTopic).
      A separate thread reads it every five seconds until :meth:`close`.

    The metrics cover every query of the session. A query that does not write with ``kprod`` has
    only Spark's metrics.
    """

    def __init__(
        self,
        *libraries: MetricsLibrary,
        reports: str | Path | Callable[[], Iterable[Document]],
        on_batch: Callable[[Document, Sequence[Document]], None] | None = None,
        running: RunningWrites | None = None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._metrics = Metrics(libraries)
        self._new_reports = reports if callable(reports) else NewReports(reports)
        self._on_batch = on_batch
        self._wall_s = wall_s
        #: The label of a query, by the run id. Not every event of Spark has the query's name.
        self._names: dict[str, str] = {}
        #: The label of a query, by the query id. A report may not have the query's name.
        self._queries: dict[str, str] = {}
        #: Reports that arrived before the progress of their batch, by query id.
        self._waiting: dict[str, deque[Document]] = {}
        #: The labels of queries that have a report, by the fingerprint of their options.
        self._ours: dict[str, str] = {}
        self._closed = threading.Event()
        if running is not None:
            threading.Thread(
                target=self._watch, args=(running,), name="kprod-running-tasks", daemon=True
            ).start()

    def close(self) -> None:
        """Stops the thread that reads the figures of running tasks, and does not wait for its end.
        The thread closes ``running`` before it ends.
        """
        self._closed.set()

    def _watch(self, running: RunningWrites) -> None:
        from spark_kafka_sink.datasource.monitoring.running_writes import RunningWrite

        seen: set[str] = set()
        while not self._closed.wait(_LOOK_S):
            found: dict[str, RunningWrite] = {}
            try:
                found = {one.query: one for one in running.read()}
            except KafkaError as error:
                text = f"the progress of tasks can't be read: {error.message}"
                warn_once(_log, [coded(Kind.REPORT_NOT_WRITTEN, text, error.hint)])
            # A finished write is 0, and not its last value. The same holds for a write without
            # news: if brokers are down, its tasks stop, and KprodNoProgress must see that.
            for query in seen | set(found):
                document = as_json(found.get(query, RunningWrite(query)))
                assert isinstance(document, dict)
                self._metrics.running(document, query)
            seen = set(found)
        running.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        name = event.name or str(event.id)
        self._names[str(event.runId)] = self._queries[str(event.id)] = name
        self._metrics.begin(name)
        self._metrics.event("kprod.query.active", 1, name)
        self._metrics.event("kprod.query.start.timestamp", self._wall_s(), name)
        self._metrics.event("kprod.query.end.timestamp", 0, name)
        self._alive(name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress: Document = json.loads(event.progress.json)
        query_id = str(progress["id"])
        name = self._queries[query_id] = str(progress.get("name") or query_id)
        self._read_what_can_be_read()
        reports = self._of_batch(query_id, progress["batchId"])
        self._metrics.progress(progress, name)
        if (lag := source_lag(progress)) is not None:
            self._metrics.event("kprod.query.source.lag", lag, name)
        if not reports and progress.get("numInputRows") and query_id in self._waiting:
            self._metrics.event("kprod.query.batches.without.report", 1, name)
        self._alive(name)
        if self._on_batch is not None:
            self._on_batch(progress, reports)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        name = self._names.get(str(event.runId))
        if name is not None:
            self._alive(name)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self._read_what_can_be_read()  # the report of a batch that failed has no progress
        name = self._names.pop(str(event.runId), str(event.id))
        self._waiting.pop(str(event.id), None)
        now = self._wall_s()
        self._metrics.event("kprod.query.active", 0, name)
        self._metrics.event("kprod.query.end.timestamp", now, name)
        if event.exception:
            self._metrics.event("kprod.query.failure.timestamp", now, name)
            code = _CODE.search(event.exception)
            self._metrics.event("kprod.query.failures", 1, name, code[1] if code else OTHER)

    def _read_what_can_be_read(self) -> None:
        """Makes metrics from the new reports. If the reports can't be read, logs a warning and
        raises no error. So the listener still makes metrics from Spark's own figures.
        """
        try:
            self.read_reports()
        except (OSError, UnusableFileError, KafkaError) as error:
            why = error.message if isinstance(error, KafkaError) else str(error)
            warn(_log, Kind.REPORT_NOT_WRITTEN, "reports can't be read: %s", safe_text(why))

    def read_reports(self) -> None:
        """Makes metrics from the reports since the last call. For streams, the listener calls this
        method itself. After a batch job, call this method yourself. Raises OSError or
        UnusableFileError for a path that can't be read.
        """
        for report in self._new_reports():
            query_id, fingerprint = report.get("queryId"), str(report.get("optionsFingerprint"))
            query = self._queries.get(str(query_id), query_of(report))
            if query_id is not None:
                self._ours[fingerprint] = query
                waiting = self._waiting.setdefault(str(query_id), deque(maxlen=MAX_WAITING))
                waiting.append(report)
            elif report.get("batchId") is not None:
                # Only commit messages of tasks name the query, and no task of this micro-batch has
                # finished.
                query = self._ours.get(fingerprint, query)
            self._metrics.report(report, query)

    def _of_batch(self, query_id: str, batch_id: object) -> list[Document]:
        """Returns the reports of the micro-batch ``batch_id`` that the listener has read. If there
        are any, removes them from the listener, and also the reports of the query's older
        micro-batches.
        """
        waiting = self._waiting.get(query_id, deque())
        found = [one for one in waiting if one.get("batchId") == batch_id]
        while waiting and found:
            if waiting.popleft() is found[-1]:
                break
        return found

    def _alive(self, name: str) -> None:
        self._metrics.event("kprod.query.last.event.timestamp", self._wall_s(), name)
