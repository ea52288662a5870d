"""docs/reports.md and the JSON Schema of a report, out of the fields that the code declares.

Owns: their text. Never: a field's meaning (``datasource/report/write_report.py``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from spark_kafka_sink.datasource import described_fields
from spark_kafka_sink.datasource.report import write_report
from spark_kafka_sink.datasource.report.write_report import Outcome, WriteReport
from spark_kafka_sink.datasource.write.task_progress import TaskProgress
from spark_kafka_sink.datasource.write.worker_progress import WorkerProgress

_MEANINGS = {
    Outcome.ACKNOWLEDGED: "At least once, or none: brokers have acknowledged every row.",
    Outcome.COMMITTED: "Exactly once: every transaction of the batch is committed.",
    Outcome.DONE_BEFORE: "Exactly once: the batch was committed before; nothing was written.",
    Outcome.NO_ROWS: "Exactly once: the batch had no row, so there was nothing to commit.",
    Outcome.PREPARED: "One write of a `transaction(...)`: it is decided with the others.",
    Outcome.FAILED: "The commit failed; `error` says why.",
    Outcome.UNKNOWN: "Exactly once: whether the batch is committed is not known. The next start"
    " finds out.",
    Outcome.PARTIAL: "Exactly once: brokers aborted a part of the batch after its decision."
    " [What to do](troubleshooting.md).",
    Outcome.ABORTED: "Spark gave the batch up before its commit: a task failed, or the query was"
    " stopped.",
}


def schema() -> str:
    """The JSON Schema, as a file."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:spark-kafka-sink:write-report:{write_report.REPORT_VERSION}",
        "title": f"Write report of spark-kafka-sink, version {write_report.REPORT_VERSION}",
    }
    return json.dumps(head | described_fields.json_schema(WriteReport), indent=1) + "\n"


def page_lines() -> Iterator[str]:
    yield from (*_INTRODUCTION, "")
    yield from ("## Outcomes", "", "| `outcome` | Meaning |", "|---|---|")
    for outcome in Outcome:
        yield f"| `{outcome}` | {_MEANINGS[outcome]} |"
    yield from (
        "",
        f"## Version {write_report.REPORT_VERSION}",
        "",
        "A JSON Schema of it is in the package: `write_report.schema.json` in",
        "`spark_kafka_sink/datasource/report`. Fields may be added to a version; one that goes, or",
        "means something else, makes the next version (`reportVersion`).",
        "",
    )
    yield from _table(WriteReport)
    for title, cls in (
        ("`error`", write_report.ErrorReport),
        ("`slowestTask`", write_report.TaskReport),
        ("Each of `topicCounts`", write_report.TopicReport),
        ("Each of `brokers`", write_report.BrokerReport),
        ("Each of `partitions`", write_report.PartitionReport),
    ):
        yield from (f"### {title}", "")
        yield from _table(cls)
    yield from (*_RUNNING_TASKS, "")
    yield from _table(TaskProgress)
    yield from (*_PROGRESS_TOPIC, "")
    yield from _table(WorkerProgress)


def _table(cls: type) -> Iterator[str]:
    yield from ("| Field | Unit | Meaning |", "|---|---|---|")
    for name, described, _ in described_fields.described_fields(cls):
        yield f"| `{name}` | {described.unit} | {described.meaning} |"
    yield ""


_INTRODUCTION = """\
Every batch and micro-batch leaves a report on the driver, whether it was written or not: whose it
was, what became of its rows, how fast it was and what it waited for. No report holds a row or a
secret.

## Where reports go

All of these at once, if asked for:

| Destination | Option | What it gets |
|---|---|---|
| the driver's log | - | one line at INFO for each batch that was written, with the offsets of at \
most twenty partitions; a warning for each that was not |
| a file of the driver | `reportPath` | a line of JSON for each report, appended |
| a directory of the driver | `reportPath` | a file of JSON for each report |
| a topic of the same cluster | `reportTopic` | a record of JSON for each report, in partition 0 |
| your functions on the driver | `reportListeners` | each report, as a `WriteReport` |

**A directory** is what exists as one, or a path that ends in `/`. Files appear as a whole, and
none is written twice, so that volumes and mounted object stores do, which can't append. Their names
sort by time.

**Files stay small** with `reportPathRetentionBytes` or `reportPathRetentionMs`: a file is
renamed to its name with `.1` when it has half of what may be kept, in place of the former one; of a
directory the oldest reports are deleted. Other programs may do it, too: logrotate with `create` or
`copytruncate` (which itself loses what is written between its copy and its cut), or `find -delete`
in a directory. `KprodListener` goes on reading in each case. A directory of 100 000 reports costs
it a tenth of a second for each new one, a file of as many nothing.

**A topic with exactly-once**: the report of a batch is one more transaction of the batch's own
decision. Consumers that read committed see it if and only if the batch is committed, also when the
driver dies in between; none comes twice. Its figures end where the decision begins. Reports of
batches that failed, that had no rows, or that were written without exactly-once are records by
themselves, at least once: `reportId` identifies those that came twice.

**Your functions** run in the process of Spark's commit, which is not your session's: they see no \
`spark`, and the next micro-batch waits for them.

```python
def to_pager(report):          # reportListeners=ops.reports:to_pager
    if not report.outcome.is_success:
        page(report.query_name, report.outcome, report.error and report.error.message)
```

**In a session**, classic or Spark Connect, with no option at all:

```python
from spark_kafka_sink import last_report

report = last_report(query)    # of the query's last batch; last_report(spark): of any write
if report is not None:         # nothing was written yet
    print(report.outcome, report.rows, report.brokers)
    print(report.explain())    # what the tasks waited for most, and where to look
```

It asks the driver, which keeps the last report of each query (of a hundred at most) in the local
directory of the Spark application, and needs no task. A batch that is refused before its first task
leaves no report. Over Connect `last_report(spark)` is the last one of the server, whichever session
wrote it. Run on a classic session and on a Connect server on the same machine; not run on
Databricks, where Python processes of the driver may be isolated: then
[KP0704](errors.md#kp0704) says so, and `reportPath` or `reportTopic` is the way.

**One report for each time that Spark runs a batch**: of its commit, whether that went well or
failed, or of its abort when Spark tried no commit. Spark aborts after a commit that failed, too;
that makes no second report. (A Spark that names no local directory has both.)

A destination that fails is a warning ([KP0703](errors.md#kp0703)), because the rows are what they
are.

## Why a batch failed

The report of a batch that failed has `error` (code, text, hint), the attempts of tasks that failed,
brokers with their last answers, application, query and duration. The driver's warning has the same
in one line, and `kprod report show PATH` as a page. Spark passes nothing of a failed task to the
abort, so the attempt leaves its error in a directory beside `reportPath` (without that option, in
the application's local directory), which is removed with the batch. No option is needed, but
driver and executors must share that directory:

| Where | What the report has |
|---|---|
| one machine (`local[*]`), also behind a Connect server | all of it |
| a cluster, `reportPath` on a mount of driver and executors | all of it |
| a cluster without such a mount | [KP0505](errors.md#kp0505), unfinished tasks |
| an executor that was killed; an error in the query before the write | the same |

To have it on a cluster, too, set `reportPath` to a path that all its machines mount. Where it is KP0505,
Spark's exception has the cause (our line in it has the code: `grep -o 'KP[0-9]*'` of the driver's
log), and a stream's `kprod_query_failures_total` its code. The name of a query is always there: it is
an option of the write. The application is that of an earlier report when no task left it, and null
when there is none: Spark passes no id to its Python processes on the driver.
""".splitlines()

_PROGRESS_TOPIC = """\
## What progressTopic gets

A record of JSON from each Python worker that writes for more than ten seconds, every ten seconds,
with the worker as its key and the sums over its tasks of a stage, attempts that failed among them;
and one from a commit that takes longer. [Monitoring](monitoring.md#work-that-runs) reads them.\
""".splitlines()

_RUNNING_TASKS = """\
## A task that runs

Every 30 seconds each task says one line, whatever it waits for: `kprod writes partition=3 ...`, at
INFO in the executor's log (stderr of its Python workers), and from Spark 4.1 on also in
`spark.tvf.python_worker_logs()` of a session with `spark.sql.pyspark.worker.logging.enabled=true`.
A task that is done sooner says nothing. A broker that is down stands in `waitsFor`, with the age of
what it has not answered, and in `lastAnswer`.

`progressListeners` names functions of yours that get the same as a `TaskProgress` (its fields are
those below in snake case), on the executor, on the thread that logs the line. One that raises is a
warning ([KP0703](errors.md#kp0703)). With OpenTelemetry, for example:

```python
# ops/progress.py, on driver and executors: progressListeners=ops.progress:to_meter
from opentelemetry import metrics

RATE = metrics.get_meter("orders").create_gauge("orders.task.rows.rate", "{row}/s")


def to_meter(progress):
    RATE.set(progress.rows_per_second, {"partition": progress.partition})
```

Client metrics are not pushed to brokers (KIP-714). It takes two more APIs, subscriptions that
change while a producer runs, and OTLP in Protobuf, and what arrives is one producer for each task,
alive for seconds. [Metrics](monitoring.md) are made of reports instead.
""".splitlines()
