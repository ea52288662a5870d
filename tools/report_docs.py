"""Generates docs/reports.md and the JSON Schema of a report from the fields that the code declares.

``datasource/report/write_report.py`` has the description of each field. This module has the other
text of the page.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

from spark_kafka_sink.base import described_fields
from spark_kafka_sink.datasource.report import write_report
from spark_kafka_sink.datasource.report.write_report import WriteOutcome, WriteReport
from spark_kafka_sink.datasource.write.task_progress import TaskProgress
from spark_kafka_sink.datasource.write.worker_progress import WorkerProgress

_MEANINGS = {
    WriteOutcome.ACKNOWLEDGED: "Without exactly-once: all tasks succeeded. With at-least-once,"
    " brokers have acknowledged every row. With the [guarantee](delivery-guarantees.md) `none`,"
    " every row was sent, and brokers have acknowledged the rows if `kafka.acks` requires that.",
    WriteOutcome.COMMITTED: "Exactly-once: every transaction of the batch is committed.",
    WriteOutcome.DONE_BEFORE: "Exactly-once: an earlier run has committed the batch, so nothing was"
    " written.",
    WriteOutcome.NO_ROWS: "Exactly-once: the batch had no row, so there was nothing to commit.",
    WriteOutcome.PREPARED: "The write is one of several writes in a [`transaction`"
    " block](exactly-once.md#several-writes-one-decision). The end of the block commits or aborts"
    " all writes of the block together.",
    WriteOutcome.FAILED: "All tasks succeeded, but the commit failed. With exactly-once, no row of"
    " this write is visible. The field `error` has the reason. If a task failed, the outcome is"
    " `aborted`.",
    WriteOutcome.UNKNOWN: "Exactly-once: it is unknown whether the batch is committed. The next"
    " start of the query or job finds out, and ends the batch.",
    WriteOutcome.PARTIAL: "Exactly-once: brokers aborted a part of the batch after the decision to"
    " commit it. [What to do](runbook.md#partial).",
    WriteOutcome.ABORTED: "The batch was aborted before the commit, because a task failed, the"
    " query was stopped, or the code in a `transaction` block raised an exception.",
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
    yield from (
        *("## Outcomes", ""),
        "The field `outcome` has one of these values. In the line of the driver's log, hyphens",
        "replace the spaces of the value: `outcome=done-before`.",
        "",
    )
    for outcome in WriteOutcome:
        yield f"- `{outcome}`: {_MEANINGS[outcome]}"
    yield from (
        "",
        f"## Version {write_report.REPORT_VERSION}",
        "",
        "The package has a JSON Schema of this version: `write_report.schema.json` in",
        "`spark_kafka_sink/datasource/report`. New fields can be added to version 1. If a field is",
        "removed or changes its meaning, `reportVersion` becomes 2. The values of fields with `Ms`",
        "at the end are in milliseconds. `writtenAtMs` is a time: milliseconds since 1970-01-01.",
        "",
    )
    yield from _fields(WriteReport)
    for title, cls in (
        ("`error`", write_report.ErrorReport),
        ("Each of `failedAttempts`", write_report.FailedAttempt),
        ("`deadLetters`", write_report.DeadLettersReport),
        ("Each of `deadLetters.byReason`", write_report.LetterCount),
        ("`slowestTask`", write_report.TaskReport),
        ("Each of `topicCounts`", write_report.TopicReport),
        ("Each of `brokers`", write_report.BrokerReport),
        ("Each of `partitions`", write_report.PartitionReport),
        ("`audit`", write_report.AuditReport),
    ):
        yield from (f"### {title}", "")
        yield from _fields(cls)
    yield from (*_RUNNING_TASKS, "")
    yield from _fields(TaskProgress, _OF_A_REPORT)
    yield from (*_PROGRESS_TOPIC, "")
    yield from _fields(WorkerProgress, _OF_A_REPORT)


def _names(cls: type) -> tuple[str, ...]:
    return tuple(name for name, _, _ in described_fields.described_fields(cls))


#: Fields that a running task's figures share with a report, so that their names are enough.
_OF_A_REPORT = frozenset(_names(WriteReport)) - {"elapsedMs", "commitMs", "rowsPerSecond"}


def _fields(cls: type, known: Collection[str] = ()) -> Iterator[str]:
    """Each field with its meaning; the fields of ``known`` are only named."""
    for name, described, _ in described_fields.described_fields(cls):
        if name not in known:
            yield f"- `{name}`: {described.meaning}"
    same = [f"`{name}`" for name in _names(cls) if name in known]
    if same:
        yield f"- {', '.join(same)}: the same as in a report, up to now."
    yield ""


_INTRODUCTION = """\
After each batch or micro-batch, the driver writes a report: a JSON object with the outcome, the
number of rows, and the times of the write. Most [failed writes](#why-a-batch-failed) have a report
too. A report contains no rows and no secrets. A [notebook](notebooks/report.md) reads and plots the
reports of five writes.

## Where reports go

A report can go to several destinations at the same time:

- the driver's log always gets one line for each batch. If the batch succeeded, the line begins with
  `kprod wrote`, and has the main figures of the report and the offsets of at most 20 partitions. If
  the batch failed, the line is a warning with the error
- the option `reportPath` with the path of a file on the driver: each report is one line of the file
- the option `reportPath` with the path of a directory on the driver: each report is a new file
- the option `reportTopic`: each report is a record in partition 0 of this topic
- the option `reportListeners`: each report is passed to your own functions on the driver, as an
  object of the class `WriteReport`

**A directory**: `reportPath` is a directory if a directory with this path exists, or if the path
ends in `/`. The sink writes each file in this directory only once, and never appends to it. So the
directory may be on a volume or an object store that can't append to a file. The directory must be
mounted on the driver. The order of the file names is the order of the reports' times.

**Rotation**: a file of reports grows by about 2 KB with each batch. If the file has 1 GiB, the sink
appends no more reports to it, and logs a warning. To prevent that, use logrotate:

```text
/var/log/kprod/*.jsonl {
    weekly
    rotate 4
    create
    missingok
}
```

After a rotation, [`KprodListener`](monitoring.md), which exports metrics, continues with the new
file. The command [`kprod report`](cli.md#kprod-report-show-path) also reads the new file.

If `reportPath` is a directory, delete old reports with
`find DIRECTORY -name '*.json' -mtime +30 -delete`, or with a lifecycle rule of the object store.

**`reportTopic` with exactly-once**: the [outcome](#outcomes) of a batch determines whether and when
consumers with `isolation.level=read_committed` see its report:

| outcome | the report in the topic |
|---|---|
| `committed` | is committed in the same step as the batch. The report is written before the \
commit, so it does not contain the duration of the commit |
| `prepared, to be decided with other writes` | is committed or aborted together with the \
[`transaction` block](exactly-once.md#several-writes-one-decision). If the block is aborted, \
consumers do not see the report |
| `done before` | no report is written to the topic: the report of the earlier run is there. A \
report `no rows` of the earlier run can be missing, if its driver died |
| `no rows`, `aborted`, `failed`, `unknown`, `partial` | is written without a transaction, so \
consumers see it immediately |

The topic gets a report of each write of a `transaction` block, also of a write without rows. In the
topic, such a report has the outcome `committed`, because consumers see it only after the block is
committed. At the other destinations, it has the outcome `prepared, to be decided with other
writes`, and the end of the block has a report too. If the block is aborted, the topic gets one
report with the outcome `aborted`, and no report of its writes.

!!! warning "A report may be in the topic twice"
    A report that is written without a transaction may be duplicated. With exactly-once, a report
    with the outcome `committed` has a transaction, and is not duplicated. Without exactly-once, any
    report may be duplicated. All copies of a report have the same `reportId`.

    If the commit has failed with the outcome `unknown`, and a later start finishes it, the topic
    has two reports with the same `reportId`: `unknown` and `committed`. Then `committed` counts.

**`reportListeners`**: your functions run in the Python process in which Spark commits the write.
This is not the process of your session, so the functions have no Spark session. The next
micro-batch waits until they return.

```python
def to_pager(report):          # reportListeners=ops.reports:to_pager
    if not report.outcome.is_success:
        page(report.query_name, report.outcome, report.error and report.error.message)
```

**In a session**, you can read the last report without any option, also with Spark Connect:

```python
from spark_kafka_sink import last_report

report = last_report(query)    # the last batch of this query
                               # (last_report(spark): the last write of the application)
if report is not None:         # None: nothing was written yet
    print(report.outcome, report.rows, report.brokers)
    print(report.explain())    # why it failed, or what the tasks waited for most
```

The driver keeps the last report of each query, for up to a hundred queries. With Spark Connect,
`last_report(spark)` returns the last report of the server, even if it is the report of another
client. `last_report` was not tested on Databricks. If `last_report` raises
[KP0704](errors.md#kp0704), use `reportPath` or `reportTopic`.

[`kprod audit`](audit.md) compares the figures of a report with the rows in the topics.

If a report can't be written to a destination, the write continues, and a warning is logged
([KP0703](errors.md#kp0703)). Exception: a report for `reportTopic` that is committed with its batch
is a part of the batch. If this report can't be written, the batch fails.

## Why a batch failed

If the driver gets the error of a failed batch, the report has the error (code, text, hint), the
failed attempts of tasks, and the last response of each broker. The warning in the driver's log has
the same facts in one line. `kprod report show PATH` shows them in a readable form.

Tasks run on executors, and the driver writes the report. So a failed attempt of a task writes its
error into a directory, and the driver reads the error there:

- **With `reportPath`**, this directory is in or next to `reportPath`. An executor on another
  machine can write into the directory only if both machines have mounted the file system of
  `reportPath`.
- **In local mode** (`local[4]`), no `reportPath` is needed: the driver and the tasks share Spark's
  local directory.

The table shows what the report has:

| how the batch ended | the report has |
|---|---|
| a task failed, and the driver can read the directory into which the attempt wrote its error | \
the error, the failed attempts and the brokers' last responses |
| a task failed, and the driver can't read the directory into which the attempt wrote its error | \
the code [KP0505](errors.md#kp0505) and the unfinished tasks. Look for the error in Spark's \
exception. In a stream, `KprodListener` reads the error's code from this exception, for the \
[metric](metrics.md) `kprod_query_failures_total` |
| an executor or a Python worker was killed, for example for its memory | the code KP0505 and the \
unfinished tasks |
| a task failed in another part of the query, before a row reached the sink. For \
example, the task could not read the source | the code KP0505 and the unfinished tasks |
| you stopped the batch: `query.stop()`, a cancelled job, `interruptAll()`, Ctrl-C in a Spark \
Connect client | the code KP0505 and the unfinished tasks. `queryId` can be missing if the option \
`checkpointLocation` is not set |
| Spark refused or stopped the write before it started the first task. For example, a \
column of the query does not exist | there is no report, and nothing was sent |
| Ctrl-C in a session without Spark Connect, or the driver was killed | there is no report. With \
exactly-once, open transactions stay open until the next run of the query or job commits a batch, \
or until `kafka.transaction.timeout.ms` is over |

If an attempt failed and a later attempt succeeded, the batch succeeds, and the error is in
`failedAttempts`. The field `lostAttempts` also counts attempts that left no error, for example on a
killed executor.

After a crash, directories whose names begin with `.kprod-failed-` can remain next to `reportPath`.
You need not delete these directories: a later write with the same `reportPath` deletes them when
they are more than a week old.
""".splitlines()

_PROGRESS_TOPIC = """\
## What progressTopic gets

The option `progressTopic` names a topic for the progress of running tasks and commits. If a Python
worker writes for more than ten seconds, it sends a record of JSON to this topic every ten seconds.
A worker runs several tasks of a stage one after the other. The figures of the record are sums over
these tasks, including failed attempts.

If the commit of an exactly-once batch takes more than ten seconds, the driver also sends a record
every ten seconds. [`KprodListener` and `show_progress`](monitoring.md#progress-of-a-running-batch)
read the records of the workers and of the driver.
\
""".splitlines()

_RUNNING_TASKS = """\
## A task that runs

Every 30 seconds, a running task logs one line, `kprod writes partition=3 ...`, at INFO in the
executor's log (stderr of its Python workers). From Spark 4.1 on, you can also read the line in your
session: set `spark.sql.pyspark.worker.logging.enabled=true` before the write, and then query
`spark.tvf.python_worker_logs()`. If a task waits for a broker, the fields `waitsFor` and
`lastAnswer` of the line name the broker.

The option `progressListeners` names your own functions, which get the same figures. A function is
called on the executor, with a `TaskProgress`. This object has the fields below, with names in snake
case (`elapsed_ms` for `elapsedMs`). If a function raises an error, a warning is logged
([KP0703](errors.md#kp0703)). The function in this example passes a rate to OpenTelemetry:

```python
# ops/progress.py, on driver and executors: progressListeners=ops.progress:to_meter
from opentelemetry import metrics

RATE = metrics.get_meter("orders").create_gauge("orders.task.rows.rate", "{row}/s")


def to_meter(progress):
    RATE.set(progress.rows_per_second, {"partition": progress.partition})
```
""".splitlines()
