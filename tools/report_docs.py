"""docs/reports.md and the JSON Schema of a report, out of the fields that the code declares.

Owns: their text. Never: a field's meaning (``datasource/report/write_report.py``).
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
    WriteOutcome.ACKNOWLEDGED: "At-least-once: brokers have acknowledged every row. Guarantee"
    " `none`: every row was sent, and brokers have acknowledged the rows if `kafka.acks` requires"
    " that.",
    WriteOutcome.COMMITTED: "Exactly-once: every transaction of the batch is committed.",
    WriteOutcome.DONE_BEFORE: "Exactly-once: the batch was committed before, so nothing was"
    " written.",
    WriteOutcome.NO_ROWS: "Exactly-once: the batch had no row, so there was nothing to commit.",
    WriteOutcome.PREPARED: "The write is one of several writes in a `transaction(...)` block. The"
    " end of the block commits or aborts all writes of the block together.",
    WriteOutcome.FAILED: "The commit failed; the field `error` has the reason.",
    WriteOutcome.UNKNOWN: "Exactly-once: it is unknown whether the batch is committed. The next"
    " start of the query or job finds out, and ends the batch.",
    WriteOutcome.PARTIAL: "Exactly-once: brokers aborted a part of the batch after the decision to"
    " commit it. [What to do](runbook.md#partial).",
    WriteOutcome.ABORTED: "Spark aborted the batch before the commit, because a task failed or the"
    " query was stopped.",
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
    for outcome in WriteOutcome:
        yield f"- `{outcome}`: {_MEANINGS[outcome]}"
    yield from (
        "",
        f"## Version {write_report.REPORT_VERSION}",
        "",
        "The package has a JSON Schema of this version: `write_report.schema.json` in",
        "`spark_kafka_sink/datasource/report`. A version may get new fields. If a field is removed",
        "or changes its meaning, `reportVersion` rises. Fields that end in `Ms` are milliseconds;",
        "`writtenAtMs` counts milliseconds since 1970-01-01 UTC.",
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
Every batch and micro-batch gets a report on the driver, whether the write succeeded or failed.
Reports contain no rows and no secrets. A [notebook](notebooks/report.md) reads and plots reports of
five writes.

## Where reports go

A report can go to several destinations at the same time:

- the driver's log, always: one line at INFO for each batch that was written, and a warning for each
  batch that was not written. The line has the offsets of at most twenty partitions
- `reportPath`, a file of the driver: a line of JSON for each report, appended
- `reportPath`, a directory of the driver: a file of JSON for each report
- `reportTopic`, a topic of the same cluster: a record of JSON for each report, in partition 0
- `reportListeners`, your functions on the driver: each report, as a `WriteReport`

**A directory**: `reportPath` is a directory if a directory with this path exists, or if the path
ends in `/`. Each file is written as a whole and never changes, so the directory may be on a volume
or a mounted object store. Sorted by name, the files are also sorted by time.

**Rotation**: a file of reports grows by about 2 KB with each batch. At 1 GiB the write appends no
more reports, and logs a warning. To prevent that, use logrotate:

```text
/var/log/kprod/*.jsonl {
    weekly
    rotate 4
    create
    missingok
}
```

After a rotation, `KprodListener` and `kprod report` continue with the new file. From a directory,
delete old reports with `find DIRECTORY -name '*.json' -mtime +30 -delete`, or with a lifecycle rule
of the object store.

**`reportTopic` with exactly-once**: the report is written in a separate transaction, which is
committed together with the transactions of the batch. Consumers that read only committed records
see the report once, and only if the batch is committed. The report is written before the commit, so
it does not contain the duration of the commit.

!!! warning "A report may be in the topic twice"
    Without exactly-once, each report is written at least once, so there may be duplicates. With
    exactly-once, only the reports of batches that failed or had no rows may be duplicated. All
    duplicates of a report have the same `reportId`.

**`reportListeners`** run in the process of Spark's commit, not in the process of your session. They
have no Spark session, and the next micro-batch waits for them.

```python
def to_pager(report):          # reportListeners=ops.reports:to_pager
    if not report.outcome.is_success:
        page(report.query_name, report.outcome, report.error and report.error.message)
```

**In a session**, classic or Spark Connect, no option is needed:

```python
from spark_kafka_sink import last_report

report = last_report(query)    # of the query's last batch; last_report(spark): of any write
if report is not None:         # nothing was written yet
    print(report.outcome, report.rows, report.brokers)
    print(report.explain())    # why it failed, or what the tasks waited for most
```

The driver keeps the last report of each query, for up to a hundred queries. With Spark Connect,
`last_report(spark)` returns the last report of any client of the server. `last_report` was not
tested on Databricks. If Databricks isolates the driver's Python processes from each other,
`last_report` raises [KP0704](errors.md#kp0704). Then use `reportPath` or `reportTopic`.

[`audit`](audit.md) compares the figures of a report with the topics.

If a commit fails, Spark aborts the batch, but the batch gets only one report. If a report can't be
written to a destination, a warning is logged ([KP0703](errors.md#kp0703)).

## Why a batch failed

The report of a failed batch has `error` (code, text, hint), the failed attempts, and the last
response of each broker. The warning in the driver's log has the same facts in one line, and
`kprod report show PATH` shows them as a page.

A failed attempt of a task writes its error into a directory next to `reportPath`, and the driver
reads the error there. Without `reportPath`, or if the disk is full, the attempt writes the
error into a local directory, which other machines cannot read. So on a cluster, set `reportPath` to
a path that all machines mount.

| how the batch ended | the report |
|---|---|
| a task failed, and the machines share the directory | the error, the failed attempts and the \
brokers' last responses |
| a task failed, and the machines do not share the directory | [KP0505](errors.md#kp0505) and the \
unfinished tasks. Spark's exception has the cause; a stream's metric `kprod_query_failures_total` \
has the error's code |
| an executor or a Python worker was killed, for example by the OOM killer, or the query failed \
before the write | KP0505 and the unfinished tasks, as in the row above |
| the batch was stopped: `query.stop()`, a cancelled job, `interruptAll()`, Ctrl-C in a Connect \
client | KP0505 and the unfinished tasks. `queryId` is missing if the option \
`checkpointLocation` is not set and the stop came before the first task |
| Spark refused or stopped the write while it planned | no report; nothing was sent |
| Ctrl-C in a classic session; a killed driver; rarely, a stop at the moment when Spark begins to \
abort | no report; transactions stay open until the next start of the query or job, or until their \
timeout |

If a batch succeeds after failed attempts, `failedAttempts` lists these attempts. `lostAttempts`
counts all earlier attempts of the batch's tasks, including attempts on a killed executor, which
leave no error.

After a crash, the directory with the errors of attempts (`.kprod-failed-*`) can stay. A later write
with the same `reportPath` deletes the directory when it is older than a week.
""".splitlines()

_PROGRESS_TOPIC = """\
## What progressTopic gets

A Python worker that writes for more than ten seconds sends a record of JSON every ten seconds to
the topic of the option `progressTopic`. The key of the record is the worker's name. Rows, sizes,
retries and waits are sums over the tasks that the worker has run for the stage, including failed
attempts. During a commit that takes more than ten seconds, the driver also sends records.
[Monitoring](monitoring.md#work-that-runs) reads these records.\
""".splitlines()

_RUNNING_TASKS = """\
## A task that runs

Every 30 seconds a running task logs one line, `kprod writes partition=3 ...`, at INFO in the
executor's log (stderr of its Python workers). From Spark 4.1 on, the line is also in
`spark.tvf.python_worker_logs()` of a session with `spark.sql.pyspark.worker.logging.enabled=true`.
If a broker is down, `waitsFor` in this line names the broker and the age of its oldest request
without a response, and `lastAnswer` also names the broker.

`progressListeners` names your own functions. The argument of a function is a `TaskProgress`, which
has the fields below with names in snake case. The functions run on the executor, on the thread that
logs the line. If a function raises, a warning is logged ([KP0703](errors.md#kp0703)). An example
with OpenTelemetry:

```python
# ops/progress.py, on driver and executors: progressListeners=ops.progress:to_meter
from opentelemetry import metrics

RATE = metrics.get_meter("orders").create_gauge("orders.task.rows.rate", "{row}/s")


def to_meter(progress):
    RATE.set(progress.rows_per_second, {"partition": progress.partition})
```
""".splitlines()
