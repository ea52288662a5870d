"""The table of metrics: name, kind, unit, labels, and the field of the value.

``measurements.py`` reads the values by the table :data:`INSTRUMENTS`. The page docs/metrics.md is
generated from the table, and the dashboard and the alert rules are tested against it.

- Names and units follow OpenTelemetry: names with dots, UCUM units, and no unit in the name. The
  exporters to Prometheus append the unit. But not all of them append ``ratio`` for the unit 1, so a
  metric with this unit has ``ratio`` in its name.
- Prometheus gets the same names from its own client library and from OpenTelemetry
  (:attr:`Instrument.prometheus_name`). So one dashboard and one set of alert rules are enough.
- Each label has few values: a query, a broker, a topic, an outcome, an error's code, a phase of a
  micro-batch, or a kind of wait. No label is a partition, a task, a batch or a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.datasource.report.write_report import WriteOutcome
from spark_kafka_sink.producer.metrics.produce_report import LATENCY_BOUNDS_MS


class InstrumentKind(Enum):
    """The kind of a metric. A value is added to a counter, replaces the value of a gauge, or is
    counted in a bucket of a histogram.
    """

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Origin(Enum):
    """The source of a metric's value: a write's report, Spark's progress, the listener, or the
    figures of running tasks (``running_writes.RunningWrite``).
    """

    REPORT = "report"
    PROGRESS = "progress"
    LISTENER = "listener"
    RUNNING = "running"


class Label(Enum):
    """The second label of a metric, such as a topic or a broker. The first label of every metric is
    the query.
    """

    BROKER = "broker"
    CODE = "code"
    OUTCOME = "outcome"
    PHASE = "phase"
    TOPIC = "topic"
    WAIT = "wait"


#: The label that every metric has. Its value is the query's name. A query without a name has its id
#: as the value, and a batch job has ``batch``.
QUERY: Final = "query"

_SUFFIXES: Final = {
    "s": "seconds", "By": "bytes", "{row}/s": "per_second", "By/s": "bytes_per_second",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Instrument:
    """The definition of one metric: its name, kind, unit and labels, and the field of its value.

    - ``origin`` is the kind of document that has the value, such as a report or Spark's progress.
    - ``field`` is the field with the value in this document:

        ``a.b``     the field ``b`` of the object ``a``
        ``a[].b``   the field ``b`` of each object in the list ``a``; each gives a value
        empty       the value of each document is 1

    - ``label_field`` is the field with the value of ``label``. If ``field`` is ``a[].b``,
      ``label_field`` is another field of the objects in ``a``.
    - If ``field`` has an object of numbers, such as ``{"input": 3, "memory": 5}``, each number
      gives a value. The value of ``label`` is the key of the number: ``input`` or ``memory``. In
      this case, ``label_field`` is empty.
    - ``scale`` is a factor that converts a value to ``unit``.
    - ``bounds`` are the upper bounds of a histogram's buckets, before the conversion by ``scale``.
      If ``field`` has a list of numbers, the numbers are the counts of these buckets. The last
      number is the count of the values above the last bound.
    """

    name: str
    kind: InstrumentKind
    unit: str
    origin: Origin
    field: str
    description: str
    scale: float = 1
    label: Label | None = None
    label_field: str = ""
    bounds: tuple[float, ...] = ()

    @property
    def buckets(self) -> tuple[float, ...]:
        """The upper bounds of the histogram's buckets, in the metric's unit. Empty for a counter
        and a gauge.
        """
        return tuple(bound * self.scale for bound in self.bounds)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the metric's labels, the query first."""
        return (QUERY,) if self.label is None else (QUERY, self.label.value)

    @property
    def prometheus_name(self) -> str:
        """The metric's name in Prometheus: the name with underscores, the unit, and ``_total`` for
        a counter. An example is ``kprod_input_wait_time_seconds_total``. The exporters of
        OpenTelemetry follow the same rule.
        """
        suffix = _SUFFIXES.get(self.unit, "")
        total = "total" if self.kind is InstrumentKind.COUNTER else ""
        return "_".join(part for part in (self.name.replace(".", "_"), suffix, total) if part)


_C, _G, _H = InstrumentKind.COUNTER, InstrumentKind.GAUGE, InstrumentKind.HISTOGRAM
_REPORT, _PROGRESS, _LISTENER = Origin.REPORT, Origin.PROGRESS, Origin.LISTENER
_RUNNING: Final = Origin.RUNNING
_MS: Final = 0.001
#: Bounds for the duration of a commit, in ms. Most commits take some tens of milliseconds, and
#: kafka.transaction.timeout.ms limits the others.
_COMMIT_BOUNDS: Final = (
    10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 900_000,
)  # fmt: skip

_RESULTS = (
    Instrument("kprod.writes", _C, "{write}", _REPORT, "",
               "Batch jobs and micro-batches that ended, by outcome, such as committed or failed.",
               label=Label.OUTCOME, label_field="outcome"),
    Instrument("kprod.failures", _C, "{write}", _REPORT, "",
               "Batch jobs and micro-batches that failed, by the code of the error (`kprod explain`"
               " shows the meaning of a code).",
               label=Label.CODE, label_field="error.code"),
    Instrument("kprod.last.report.timestamp", _G, "s", _REPORT, "writtenAtMs",
               "Time when the last report of a write was made, in seconds since 1970.", _MS),
)  # fmt: skip

_VOLUME = (
    Instrument("kprod.rows", _C, "{row}", _REPORT, "rows",
               "Rows that brokers acknowledged, without dead letters."),
    Instrument("kprod.skipped.rows", _C, "{row}", _REPORT, "skippedRows",
               "Rows that are not sent. With onNullValue=skip, these are the rows with a null"
               " value. With the option changelog, these are the rows with the old values of an"
               " update, unless the update changes the key."),
    Instrument("kprod.dead.letters", _C, "{row}", _REPORT, "deadLetters.byReason[].rows",
               "Rows that became dead letters, by the error code of the problem, such as KP0213.",
               label=Label.CODE, label_field="code"),
    Instrument("kprod.sent", _C, "By", _REPORT, "bytes",
               "Bytes of the record batches that brokers acknowledged, after compression. A record"
               " batch that was sent again counts once."),
    Instrument("kprod.sent.uncompressed", _C, "By", _REPORT, "bytesBeforeCompression",
               "Bytes of the record batches that brokers acknowledged, before compression. A record"
               " batch that was sent again counts once."),
    Instrument("kprod.batches", _C, "{batch}", _REPORT, "batches",
               "Record batches that brokers acknowledged. A record batch that was sent again counts"
               " once."),
    Instrument("kprod.requests", _C, "{request}", _REPORT, "requests",
               "Produce requests that were sent to brokers."),
    Instrument("kprod.retries", _C, "{batch}", _REPORT, "retries",
               "Record batches that were sent again, after an error or without a response."),
    Instrument("kprod.retried.rows", _C, "{row}", _REPORT, "retriedRows",
               "Rows in the record batches that were sent again."),
    Instrument("kprod.splits", _C, "{batch}", _REPORT, "splits",
               "Record batches that were split, because a broker found them too large."),
    Instrument("kprod.duplicates", _C, "{batch}", _REPORT, "duplicates",
               "Record batches that a broker already had when they were sent again. The broker"
               " keeps one copy."),
    Instrument("kprod.connections", _C, "{connection}", _REPORT, "connections",
               "Connections to brokers that tasks opened."),
)  # fmt: skip

_TIME = (
    Instrument("kprod.throttle.time", _C, "s", _REPORT, "throttleMs",
               "Time that brokers' quotas delayed Produce requests, summed over the responses.",
               _MS),
    Instrument("kprod.input.wait.time", _C, "s", _REPORT, "inputWaitMs",
               "Time that tasks waited for Spark's next rows, summed over tasks.", _MS),
    Instrument("kprod.buffer.wait.time", _C, "s", _REPORT, "bufferWaitMs",
               "Time that tasks waited for memory, because kafka.buffer.memory was used up, summed"
               " over tasks.", _MS),
    Instrument("kprod.rate.wait.time", _C, "s", _REPORT, "rateWaitMs",
               "Time that tasks waited because of maxRecordsPerSecond or maxBytesPerSecond, summed"
               " over tasks.", _MS),
    Instrument("kprod.metadata.wait.time", _C, "s", _REPORT, "metadataWaitMs",
               "Time that tasks waited for a topic's metadata, summed over tasks.", _MS),
    Instrument("kprod.broker.wait.time", _C, "s", _REPORT, "brokerWaitMs",
               "Time that tasks waited for acknowledgements after their last row, summed over"
               " tasks.", _MS),
    Instrument("kprod.write.time", _C, "s", _REPORT, "elapsedMs",
               "Time from the start of a write's first task to the write's report, summed over"
               " writes.", _MS),
    Instrument("kprod.commit.time", _H, "s", _REPORT, "commitMs",
               "Duration of commits. With exactly-once, a commit ends the transactions of the"
               " write. Otherwise the duration is almost 0.", _MS,
               bounds=_COMMIT_BOUNDS),
    Instrument("kprod.queue.time.max", _G, "s", _REPORT, "maxQueueMs",
               "Longest time that a record batch of the last write waited in the producer until it"
               " was sent. After kafka.delivery.timeout.ms, a record batch expires.", _MS),
)  # fmt: skip

_TASKS = (
    Instrument("kprod.tasks", _C, "{task}", _REPORT, "tasks",
               "All tasks of the ended batch jobs and micro-batches, including unfinished tasks."),
    Instrument("kprod.unfinished.tasks", _C, "{task}", _REPORT, "unfinishedTasks",
               "Tasks that have not reported their end: they failed, were stopped, or never ran."),
    Instrument("kprod.task.time.max", _G, "s", _REPORT, "longestTaskMs",
               "Duration of the longest task of the last write.", _MS),
    Instrument("kprod.task.skew.ratio", _G, "1", _REPORT, "taskSkew",
               "Duration of the longest task of the last write, divided by the median duration of"
               " the tasks with rows."),
    Instrument("kprod.row.skew.ratio", _G, "1", _REPORT, "rowSkew",
               "Rows of the largest task of the last write, divided by the mean over the tasks"
               " with rows."),
)  # fmt: skip

_BROKERS = (
    Instrument("kprod.broker.requests", _C, "{request}", _REPORT, "brokers[].requests",
               "Produce requests to which a broker responded, by broker.",
               label=Label.BROKER, label_field="id"),
    Instrument("kprod.broker.latency.mean", _G, "s", _REPORT, "brokers[].meanLatencyMs",
               "Mean time from a Produce request to the broker's response in the last write, by"
               " broker.", _MS,
               label=Label.BROKER, label_field="id"),
    Instrument("kprod.broker.latency.max", _G, "s", _REPORT, "brokers[].maxLatencyMs",
               "Longest time from a Produce request to the broker's response in the last write, by"
               " broker.", _MS,
               label=Label.BROKER, label_field="id"),
    Instrument("kprod.broker.latency", _H, "s", _REPORT, "brokers[].latencies",
               "Time from each Produce request to the broker's response, by broker. The `_sum`"
               " of this histogram is an estimate, and usually too large: it counts each request"
               " with the upper bound of its bucket. For the mean of the last write, use"
               " kprod_broker_latency_mean_seconds.", _MS, label=Label.BROKER,
               label_field="id", bounds=LATENCY_BOUNDS_MS),
    Instrument("kprod.topic.rows", _C, "{row}", _REPORT, "topicCounts[].rows",
               "Rows that brokers acknowledged, by topic.", label=Label.TOPIC, label_field="topic"),
    Instrument("kprod.topic.sent", _C, "By", _REPORT, "topicCounts[].bytes",
               "Bytes of the record batches that brokers acknowledged, after compression, by"
               " topic.",
               label=Label.TOPIC, label_field="topic"),
)  # fmt: skip

_TRANSACTIONS = (
    Instrument("kprod.transactions", _C, "{transaction}", _REPORT, "transactions",
               "Transactions that tasks prepared for a commit."),
    Instrument("kprod.transaction.age", _G, "s", _REPORT, "oldestTransactionMs",
               "Age of the oldest transaction of the last write, from its first row to the write's"
               " report.", _MS),
    Instrument("kprod.transaction.timeout", _G, "s", _REPORT, "transactionTimeoutMs",
               "kafka.transaction.timeout.ms of the last write. After this time, brokers abort a"
               " transaction.", _MS),
)  # fmt: skip

#: Metrics of Spark's progress and of the listener, so that one place shows what Spark and the sink
#: did.
_QUERIES = (
    Instrument("kprod.query.input.rows", _C, "{row}", _PROGRESS, "numInputRows",
               "Rows that the query's micro-batches read, as Spark reports."),
    Instrument("kprod.query.batch.time", _C, "s", _PROGRESS, "durationMs",
               "Time of the query's micro-batches by phase, with Spark's names of the phases. The"
               " phase triggerExecution is the whole time, so do not sum over the phases.", _MS,
               label=Label.PHASE),
    Instrument("kprod.query.batches", _C, "{batch}", _PROGRESS, "",
               "Micro-batches of the query that Spark has reported as finished."),
    Instrument("kprod.query.batches.without.report", _C, "{batch}", _LISTENER, "",
               "Micro-batches that had rows, but whose report did not reach the listener. The count"
               " begins after the first report of a query."),
    Instrument("kprod.query.active", _G, "{query}", _LISTENER, "",
               "1 while the streaming query runs, 0 after its end."),
    Instrument("kprod.query.failures", _C, "{query}", _LISTENER, "",
               "Streaming queries that ended with an error, by the code of the error (`kprod"
               " explain` shows the meaning of a code).",
               label=Label.CODE),
    Instrument("kprod.query.start.timestamp", _G, "s", _LISTENER, "",
               "The time when the query started, in seconds since 1970."),
    Instrument("kprod.query.end.timestamp", _G, "s", _LISTENER, "",
               "The time when the query ended, with or without an error, in seconds since 1970. 0"
               " while the query runs."),
    Instrument("kprod.query.failure.timestamp", _G, "s", _LISTENER, "",
               "The time when the query last ended with an error, in seconds since 1970. The metric"
               " is absent until the query fails for the first time. A new start of the query does"
               " not change the metric."),
    Instrument("kprod.query.source.lag", _G, "{row}", _LISTENER, "",
               "Offsets between the position of the query and the end of its source, in the"
               " partition that is furthest behind. Only Kafka sources have this number."),
    Instrument("kprod.query.last.event.timestamp", _G, "s", _LISTENER, "",
               "The time when Spark last reported that the query made progress or was idle, in"
               " seconds since 1970."),
)  # fmt: skip

#: Figures of the running micro-batch so far (option progressTopic). They are 0 if no worker has
#: sent figures for a minute.
_RUNNING_TASKS = (
    Instrument("kprod.task.workers", _G, "{process}", _RUNNING, "workers",
               "Python workers of the running write. A worker that has sent no figures for 30 s is"
               " not counted."),
    Instrument("kprod.task.finished", _G, "{task}", _RUNNING, "finishedTasks",
               "Task attempts of the running write that have ended."),
    Instrument("kprod.task.rows", _G, "{row}", _RUNNING, "rows",
               "Rows of the running write that brokers have acknowledged so far, including rows of"
               " failed attempts."),
    Instrument("kprod.task.sent", _G, "By", _RUNNING, "megabytes",
               "Bytes of the running write's record batches that brokers have acknowledged so far,"
               " including those of failed attempts.", 1e6),
    Instrument("kprod.task.rate", _G, "{row}/s", _RUNNING, "rowsPerSecond",
               "Rows that brokers acknowledge per second, in about the last 10 s of the running"
               " write."),
    Instrument("kprod.task.throughput", _G, "By/s", _RUNNING, "megabytesPerSecond",
               "Bytes of record batches that brokers acknowledge per second, in about the last 10 s"
               " of the running write.", 1e6),
    Instrument("kprod.task.retries", _G, "{batch}", _RUNNING, "retries",
               "Record batches of the running write that were sent again so far."),
    Instrument("kprod.task.wait.time", _G, "s", _RUNNING, "waits",
               "Time that tasks of the running write have waited so far, summed over the tasks, by"
               " reason. `input`: for Spark's next rows. `memory`: for room in kafka.buffer.memory."
               " `quota`: because of the brokers' quotas. `rate`: because of maxRecordsPerSecond or"
               " maxBytesPerSecond.",
               _MS, label=Label.WAIT),
    Instrument("kprod.task.oldest.batch.age", _G, "s", _RUNNING, "oldestBatchMs",
               "Age of the running write's oldest record batch without a response from a broker."
               " After kafka.delivery.timeout.ms, a record batch expires, and its task"
               " fails.", _MS),
    Instrument("kprod.commit.running.time", _G, "s", _RUNNING, "commitMs",
               "Duration of the running commit so far, if this duration is at least 10 s. Otherwise"
               " 0.", _MS),
)  # fmt: skip

#: All metrics, in the order of the docs.
INSTRUMENTS: Final = (
    *_RESULTS, *_VOLUME, *_TIME, *_TASKS, *_BROKERS, *_TRANSACTIONS, *_QUERIES, *_RUNNING_TASKS,
)  # fmt: skip

#: The label value for an error without a code, and for values beyond a label's limit.
OTHER: Final = "other"

#: For some labels: the label values that are set to 0 at a query's start, because there are alerts
#: on them. Prometheus sees an increase only between two values.
FROM_THE_START: Final = {
    Label.OUTCOME: (
        WriteOutcome.ABORTED,
        WriteOutcome.FAILED,
        WriteOutcome.PARTIAL,
        WriteOutcome.UNKNOWN,
    ),
    Label.CODE: (Kind.EXPIRED.kp_code, OTHER),
}

#: All metrics by name.
BY_NAME: Final = {instrument.name: instrument for instrument in INSTRUMENTS}
