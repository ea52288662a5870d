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
    WriteOutcome.DONE_BEFORE: "Exactly-once: the batch was already committed by an earlier run of"
    " the same micro-batch, or of a batch job with the same [`txnAppId` and"
    " `txnVersion`](exactly-once.md#a-batch-job). So this run added no row.",
    WriteOutcome.NO_ROWS: "Exactly-once: the batch had no row, so there was nothing to commit.",
    WriteOutcome.PREPARED: "Exactly-once: the write is a part of a [`transaction`"
    " block](exactly-once.md#several-writes-one-decision). Its rows become visible when the block"
    " is committed.",
    WriteOutcome.FAILED: "All tasks succeeded, but then the batch failed, for example because there"
    " are too many dead letters. With exactly-once, no row of this write is visible. Without"
    " exactly-once, the rows stay in Kafka.",
    WriteOutcome.UNKNOWN: "Exactly-once: it is unknown whether the batch is committed. The next"
    " run of the query, or of a job with `txnAppId`, finds out. If the batch is not committed, the"
    " next run [commits it or writes it again](runbook.md#what-the-next-start-does).",
    WriteOutcome.PARTIAL: "Exactly-once: only a part of the batch is committed, because brokers"
    " aborted some of its transactions during the commit. The other rows are missing. [What to"
    " do](runbook.md#partial).",
    WriteOutcome.ABORTED: "The batch ended because a task failed, the query or job was stopped,"
    " or the code in a `transaction` block raised an exception. With exactly-once, no row of this"
    " write is visible. Without exactly-once, the rows that were sent stay in Kafka.",
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
        "The field `outcome` has one of these values. The first five values are successes. In",
        "Python, `outcome.is_success` is true for them. In the line of the driver's log, hyphens",
        "replace the spaces of the value: `outcome=done-before`.",
        "",
        "In this list, a row is *visible* if consumers with `isolation.level=read_committed` can",
        "read the row.",
        "",
    )
    for outcome in WriteOutcome:
        yield f"- `{outcome}`: {_MEANINGS[outcome]}"
    yield from (
        "",
        f"## Version {write_report.REPORT_VERSION}",
        "",
        "The JSON Schema of a report is `write_report.schema.json` in the directory",
        "`spark_kafka_sink/datasource/report`. A later release may add fields to version 1, so",
        "ignore fields that you do not know. If a release removes a field or changes its meaning,",
        "`reportVersion` becomes 2.",
        "",
        "- A *record batch* is a group of records that Kafka stores together. A *batch* is a batch",
        "  job or micro-batch of Spark.",
        "- Rows, bytes and waits are sums over the finished tasks. Tasks run at the same time, so",
        "  a sum of waits can be longer than `elapsedMs`.",
        "- If the outcome is `aborted`, the field `brokers` also has the requests of failed",
        "  attempts.",
        "- Fields with `Ms` at the end are in milliseconds. They are durations, except",
        "  `writtenAtMs`, which is a time: milliseconds since 1970-01-01.",
        "- A report has at most 900000 bytes, so that it fits into a record of a topic with the",
        "  default limit of Kafka.",
        "",
        "A report has these fields:",
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
    yield from _fields(
        TaskProgress, _OF_A_REPORT, "as in a report, but only for this attempt, up to now."
    )
    yield from (*_PROGRESS_TOPIC, "")
    yield from _fields(
        WorkerProgress, _OF_A_REPORT, "as in a report, but only for this worker, up to now."
    )


def _names(cls: type) -> tuple[str, ...]:
    return tuple(name for name, _, _ in described_fields.described_fields(cls))


#: Fields that a running task's figures share with a report, so that their names are enough.
_OF_A_REPORT = frozenset(_names(WriteReport)) - {
    *("elapsedMs", "commitMs", "rowsPerSecond"),
    # In a batch job, these are null in a report, and -1 or empty here.
    *("batchId", "queryId", "queryName"),
}


def _fields(cls: type, known: Collection[str] = (), meaning: str = "") -> Iterator[str]:
    """Each field with its meaning. The fields of ``known`` share ``meaning``."""
    for name, described, _ in described_fields.described_fields(cls):
        if name not in known:
            yield f"- `{name}`: {described.meaning}"
    same = [f"`{name}`" for name in _names(cls) if name in known]
    if same:
        yield f"- {', '.join(same)}: {meaning}"
    yield ""


_INTRODUCTION = """\
A report describes one write: one batch job, or one micro-batch of a stream. It is a JSON object
with the [outcome](#outcomes), the number of rows, and the times of the write. The driver makes a
report of each write that succeeds, and of [most writes](#why-a-batch-failed) that fail. A report
contains no data of your rows, and no secrets. A [notebook](notebooks/report.md) shows how to read
and plot reports.

## Where reports go

Without any option, the driver's log gets one line for each write. If the write succeeded, the line
begins with `kprod wrote`, and has the main figures of the report, and the offsets of the first 20
partitions. If the write failed, the line is a warning. If a task failed, the warning has the error.
If the commit failed, the error is in Spark's exception.

The whole report goes to each destination that you choose with an option:

| option | destination |
|---|---|
| `reportPath`, set to a file | each report is one line of this file on the driver |
| `reportPath`, set to a directory | each report is a new file in this directory on the driver |
| `reportTopic` | each report is a record in partition 0 of this topic |
| `reportListeners` | the driver calls your own functions with each report |

If a report can't be written to one of these destinations, the write continues, and the driver logs
a warning ([KP0703](errors.md#kp0703)). There is one exception:

!!! warning "Exactly-once with `reportTopic`"
    The commit of a batch also commits its report `committed`. So the driver writes this report to
    the topic before the commit. If the driver can't write it, the batch fails.

**A file or a directory**: `reportPath` is a directory if a directory with this path exists, or if
the path ends in `/`. In a directory, the alphabetical order of the file names is the order of the
times in the reports (`writtenAtMs`). A URI such as `s3://bucket/reports` is an error. To write to
an object store, mount the store on the driver, and use a directory: many object stores can't append
to a file.

**The size of a file**: a file grows by about 2 KB with each report. If the file is larger than
1 GiB, the sink writes no more reports to it, and logs a warning for each report. To prevent that,
rename the file regularly, for example with logrotate:

```text
/var/log/kprod/*.jsonl {
    weekly
    rotate 4
    create
    missingok
}
```

After logrotate has renamed the file, the sink and the metrics of [`KprodListener`](monitoring.md)
continue with the new file. The command [`kprod report`](cli.md#kprod-report-show-path) also reads
the last renamed file, if its name ends in `.1`.

**The size of a directory**: delete old reports with
`find DIRECTORY -name '*.json' -mtime +30 -delete`, or with a lifecycle rule of the object store.

**`reportTopic` with exactly-once**: the outcome of a write decides when consumers with
`isolation.level=read_committed` see its report:

| outcome | the report in the topic |
|---|---|
| `committed` | Consumers see the report after the rows of the batch |
| `done before` | This run writes no report to the topic. The topic has the report of the run that \
committed the batch |
| `no rows`, `aborted`, `failed`, `unknown`, `partial` | Consumers see the report immediately. \
But if the commit of any write with the same `reportTopic` is running, they may see the report \
only after that commit |

This table is for a write outside a `transaction` block ([reports of a
block](#reports-of-a-transaction-block)). In rare cases, the topic has [several
reports](#several-reports-in-the-topic) of a batch.

**`reportListeners`**: name your functions in the form `package.module:function`. The driver calls
them in a separate Python process. So your module must be importable on the driver, and the
functions can't use your Spark session. Keep the functions short: the next micro-batch waits until
they return. If a function raises an error, the driver only logs a warning.

```python
def to_pager(report):          # reportListeners=ops.reports:to_pager
    if not report.outcome.is_success:
        page(report.query_name, report.outcome, report.error and report.error.message)
```

**`last_report`**: this function returns the last report to your session, without any option. It
also works with Spark Connect:

```python
from spark_kafka_sink import last_report

report = last_report(query)    # the last batch of this query
                               # (last_report(spark): the last write of the application)
if report is not None:         # None: nothing was written yet
    print(report.outcome, report.rows, report.brokers)
    print(report.explain())    # why it failed, or what the tasks waited for most
```

- The driver keeps only the last report of each query, and at most 100 reports.
- With Spark Connect, the application is the server. So `last_report(spark)` may return the report
  of another client.
- If the driver can't keep reports, for example because Spark isolates its Python processes,
  `last_report` raises [KP0704](errors.md#kp0704). Then use `reportPath` or `reportTopic`.
  `last_report` was not tested on Databricks.

To check whether the rows of a report are in the topics, use [`kprod audit`](audit.md).

### Reports of a `transaction` block

A [`transaction` block](exactly-once.md#several-writes-one-decision) commits several writes
together. In `reportTopic`, consumers with `isolation.level=read_committed` see these reports:

- If the block is committed, consumers see a report of each write, even of a write without rows.
  In the topic, these reports have the outcome `committed`. At the other destinations, the reports
  were written before the commit, and have the outcome `prepared, to be decided with other writes`.
- If the block is aborted, consumers see one report with the outcome `aborted`. If a write of the
  block failed, this report describes that write. Otherwise it describes the whole block.
- If the commit of the block failed, no row of the block is visible, and consumers see a report
  `failed`. They may also see a second report, with the outcome `aborted` or `unknown` and another
  `reportId`. Ignore the second report.

At the end of a block, the destinations other than the topic also get a report of the whole block.
But if a write of the block failed, they get a report of this write instead.

If you interrupt a block after the driver has recorded its decision to commit the block, the report
of the whole block has one of these outcomes:

- `done before`: the block is committed, in spite of the interruption. The topic has the reports of
  the writes, but no report of the whole block.
- `unknown` or `partial`: the topic gets the report of the whole block, like the other
  destinations.

### Several reports in the topic

With exactly-once, the topic has one report `committed` of a committed batch. There are two
exceptions: a `transaction` block, and a batch that was written again (`replay`, below). A report
with another outcome than `committed` may be in the topic more than once. The copies have the same
`reportId`.

In these cases, the topic has reports of a batch with different outcomes:

- `unknown` and `committed`: when the report `unknown` was written, nothing showed whether the
  batch was committed. The batch is committed.
- `committed` and `partial`: the report `committed` is visible, but only a part of the rows is. The
  batch is [PARTIAL](runbook.md#partial). If you run `kprod txn resolve` with `--as replay`, the
  next run writes the whole batch again, and the topic gets a second report `committed`.
- `committed`, and then `aborted` or `failed`: a later run of the committed batch has failed,
  for example because it has another number of rows. The rows of the first run stay visible.

The list in the next section shows which of two reports with the same `reportId` counts.

### Two reports of one run

A run of a batch can have two reports with the same `reportId`, one of its commit and one of its
abort. There are two cases:

- You stop a query or job during a commit. Spark then aborts the batch, but the commit may continue
  and succeed.
- A commit fails, and its report is written. Spark then aborts the batch. Usually the driver still
  has the report of the commit, so the abort writes no report. If the driver can't keep reports, the
  abort writes a second report.

The time `writtenAtMs` does not show which of the two reports is the later one, because the report
of a commit has the time at which the commit began. If the outcomes differ, the report with the
higher number in this list counts:

1. `prepared, to be decided with other writes`
2. `aborted`
3. `unknown`
4. any other outcome, such as `committed`
5. `partial`

`last_report` and `kprod report` follow this rule.

## Why a batch failed

The report of a failed batch has the error (code, text, advice), the failed attempts of tasks, and
the last response of each broker. `kprod report show PATH` prints the last report at `reportPath` in
a readable form.

A failed task writes its error into a directory, and the driver reads the error there:

| where Spark runs | what you need |
|---|---|
| local mode (`local[4]`) | nothing: the driver and the tasks share Spark's local directory |
| a cluster | mount a file system on the driver and all executors, and set `reportPath` to a path \
on it |

If the driver does not find the error, the report has the code [KP0505](errors.md#kp0505), and the
field `unfinished` has the indices of the unfinished tasks. Look for the cause in Spark's exception.
The possible causes are:

- A task failed on an executor that does not share the directory with the driver.
- An executor or a Python worker was killed, for example because it used too much memory.
- A task failed in another part of the query, before a row reached the sink. For example, the task
  could not read the source.
- You stopped the batch: `query.stop()`, a cancelled job, `interruptAll()`, or Ctrl-C in a Spark
  Connect client.

In these cases, there is no report:

- Spark refused or stopped the write before it started the first task. For example, a column of the
  query does not exist. Nothing was sent.
- The driver was killed, or you pressed Ctrl-C in a session without Spark Connect.

!!! warning "A killed driver leaves transactions open"
    With exactly-once, these transactions stay open until `kafka.transaction.timeout.ms` is over
    (15 minutes by default). If the query, or a [job with `txnAppId`](exactly-once.md#a-batch-job),
    runs again within this time, the new run [ends the open
    transactions](runbook.md#what-the-next-start-does). While a transaction is open, consumers with
    `isolation.level=read_committed` can't read the records after the first row of the transaction.

If a driver was killed, a directory whose name begins with `.kprod-failed-` can remain in the
directory of the reports. You need not delete it: later writes delete it after a week.
""".splitlines()

_PROGRESS_TOPIC = """\
## What progressTopic gets

The option `progressTopic` names a topic for the progress of running tasks and of commits. If a
Python worker writes for more than ten seconds, it sends a record to this topic every ten seconds.
The value of the record is a JSON object. Its figures are sums over all task attempts of this worker
in the Spark stage so far, failed attempts included. If the commit of an exactly-once batch takes
more than ten seconds, the driver also sends a record every ten seconds.

[`KprodListener` and `show_progress`](monitoring.md#progress-of-a-running-batch) show these records
as metrics or as a progress bar. A record has these fields:
\
""".splitlines()

_RUNNING_TASKS = """\
## A task that runs

Every 30 seconds, a running task logs one line that begins with `kprod writes`. The line has the
level INFO. It is in the stderr of the Python worker, which is a part of the executor's log.

From Spark 4.1 on, you can also query these lines in your session:

1. Before the write, set `spark.sql.pyspark.worker.logging.enabled=true`.
2. Query `spark.tvf.python_worker_logs()`.

The option `progressListeners` names your own functions. Every 30 seconds, the executor calls each
function with the figures of the line, as an object of the class `TaskProgress`. If a function
raises an error, the task continues, and a warning is logged ([KP0703](errors.md#kp0703)). This
example passes a rate to OpenTelemetry:

```python
# ops/progress.py, on driver and executors: progressListeners=ops.progress:to_meter
from opentelemetry import metrics

RATE = metrics.get_meter("orders").create_gauge("orders.task.rows.rate", "{row}/s")


def to_meter(progress):
    RATE.set(progress.rows_per_second, {"partition": progress.partition})
```

The line has these fields. In `TaskProgress`, their names are in snake case, such as `elapsed_ms`:
""".splitlines()
