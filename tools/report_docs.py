"""docs/reports.md and the JSON Schema of a report, out of the fields that the code declares.

Owns: their text. Never: a field's meaning (``datasource/report/write_report.py``).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

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
    " [What to do](runbook.md#partial).",
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
    yield from ("## Outcomes", "", "The field `outcome`:", "")
    for outcome in Outcome:
        yield f"- `{outcome}`: {_MEANINGS[outcome]}"
    yield from (
        "",
        f"## Version {write_report.REPORT_VERSION}",
        "",
        "A JSON Schema of it is in the package: `write_report.schema.json` in",
        "`spark_kafka_sink/datasource/report`. Fields may be added to a version; one that goes, or",
        "means something else, makes the next version (`reportVersion`). Fields in `Ms` are",
        "milliseconds (`writtenAtMs`: since 1970-01-01 UTC).",
        "",
    )
    yield from _fields(WriteReport)
    for title, cls in (
        ("`error`", write_report.ErrorReport),
        ("`slowestTask`", write_report.TaskReport),
        ("Each of `topicCounts`", write_report.TopicReport),
        ("Each of `brokers`", write_report.BrokerReport),
        ("Each of `partitions`", write_report.PartitionReport),
    ):
        yield from (f"### {title}", "")
        yield from _fields(cls)
    yield from (*_RUNNING_TASKS, "")
    yield from _fields(TaskProgress, _OF_A_REPORT)
    yield from (*_PROGRESS_TOPIC, "")
    yield from _fields(WorkerProgress, _OF_A_REPORT)


def _names(cls: type) -> tuple[str, ...]:
    return tuple(name for name, _, _ in described_fields.described_fields(cls))


#: What a running task's figures have in common with a report, and need no further words.
_OF_A_REPORT = frozenset(_names(WriteReport)) - {"elapsedMs", "commitMs", "rowsPerSecond"}


def _fields(cls: type, known: Collection[str] = ()) -> Iterator[str]:
    """Each field with its meaning; those of ``known`` by their names."""
    for name, described, _ in described_fields.described_fields(cls):
        if name not in known:
            yield f"- `{name}`: {described.meaning}"
    same = [f"`{name}`" for name in _names(cls) if name in known]
    if same:
        yield f"- {', '.join(same)}: as in a report, so far."
    yield ""


_INTRODUCTION = """\
Every batch and micro-batch leaves a report on the driver, whether it was written or not. No report
holds a row or a secret.

## Where reports go

All of these at once, if asked for:

- the driver's log: one line at INFO for each batch that was written, with the offsets of at most
  twenty partitions; a warning for each that was not
- `reportPath`, a file of the driver: a line of JSON for each report, appended
- `reportPath`, a directory of the driver: a file of JSON for each report
- `reportTopic`, a topic of the same cluster: a record of JSON for each report, in partition 0
- `reportListeners`, your functions on the driver: each report, as a `WriteReport`

**A directory** is what exists as one, or a path that ends in `/`. Files appear whole and are
never appended to, so volumes and mounted object stores do. Their names sort by time.

**Rotation**: `reportPathRetentionBytes` and `reportPathRetentionMs` rename a file to its name
with `.1` when it has half of what may be kept, and delete a directory's oldest reports. logrotate
and `find -delete` in a directory work too; `KprodListener` goes on reading.

**`reportTopic` with exactly-once**: the report is one more transaction of the batch's own
decision, so consumers that read committed see it if and only if the batch is committed, and once.
Its figures end where the decision begins. Reports of batches that failed or had no rows, and
those without exactly-once, are written at least once: `reportId` identifies duplicates.

**`reportListeners`** run in the process of Spark's commit, which is not your session's: they see
no `spark`, and the next micro-batch waits for them.

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
    print(report.explain())    # why it failed, or what the tasks waited for most
```

The driver keeps the last report of each query, of a hundred at most. Over Connect
`last_report(spark)` is the server's last. It was not run on Databricks, where the driver's Python
processes may be isolated: [KP0704](errors.md#kp0704) says so then, and `reportPath` or
`reportTopic` is the way.

Spark's abort after a commit that failed makes no second report. A destination that fails is a
warning ([KP0703](errors.md#kp0703)).

## Why a batch failed

The report of a failed batch has `error` (code, text, hint), the attempts that failed, and the
brokers' last answers. The driver's warning has the same in one line, and `kprod report show PATH`
as a page. A failed attempt leaves its error in a directory beside `reportPath` (without it, or on a
full disk, in the application's local directory): on a cluster, `reportPath` needs a path that all
machines mount.

| what ended the batch | its report |
|---|---|
| a task failed | has all of this, where that directory is shared |
| it is not shared; an executor was killed; the query failed before the write \
| [KP0505](errors.md#kp0505) and the unfinished tasks: Spark's exception has the cause, \
a stream's `kprod_query_failures_total` its code |
| it was stopped: `query.stop()`, a cancelled job, `interruptAll()`, Ctrl-C in a Connect client \
| KP0505 and the unfinished tasks; without the option `checkpointLocation` no \
`queryId` before the first task |
| Ctrl-C in a classic session; a killed driver; a refusal, or stop, while Spark plans (nothing was \
sent); rarely, a stop as it begins to abort \
| none; transactions stay open until the next start or their time-out |

What is left there (`.kprod-failed-*`) goes with the first write to that `reportPath` after a week.
""".splitlines()

_PROGRESS_TOPIC = """\
## What progressTopic gets

Every ten seconds, a record of JSON from each Python worker that writes for longer than that, with
the worker as its key and the sums over its tasks of a stage, failed attempts included; and one
from a commit that takes longer. [Monitoring](monitoring.md#work-that-runs) reads them.\
""".splitlines()

_RUNNING_TASKS = """\
## A task that runs

Every 30 seconds a running task logs one line, `kprod writes partition=3 ...`, at INFO in the
executor's log (stderr of its Python workers), and from Spark 4.1 on also in
`spark.tvf.python_worker_logs()` of a session with
`spark.sql.pyspark.worker.logging.enabled=true`. A broker that is down is named in `waitsFor`,
with the age of what it has not answered, and in `lastAnswer`.

`progressListeners` names functions of yours that get the same as a `TaskProgress` (the fields
below, in snake case), on the executor, on the thread that logs the line. One that raises is a
warning ([KP0703](errors.md#kp0703)). With OpenTelemetry, for example:

```python
# ops/progress.py, on driver and executors: progressListeners=ops.progress:to_meter
from opentelemetry import metrics

RATE = metrics.get_meter("orders").create_gauge("orders.task.rows.rate", "{row}/s")


def to_meter(progress):
    RATE.set(progress.rows_per_second, {"partition": progress.partition})
```
""".splitlines()
