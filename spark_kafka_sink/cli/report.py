"""``kprod report``: shows reports of writes.

This module reads the reports from a file of lines, a folder of files or a topic. It shows one
report as a page, or the last reports as a table. ``datasource/report/write_report.py`` has the
content of a report.
"""

from __future__ import annotations

import heapq
import io
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_kafka_sink.admin.committed_reader import CommittedReader
from spark_kafka_sink.base.described_fields import described_fields
from spark_kafka_sink.base.errors import ConfigError, named, safe_text
from spark_kafka_sink.base.json_object import json_object
from spark_kafka_sink.base.security import allow_lists
from spark_kafka_sink.base.security.local_files import (
    MAX_REPORT,
    UnusableFileError,
    read_file,
)
from spark_kafka_sink.cli.arguments import Where
from spark_kafka_sink.cli.connection import connected, one_line_errors, warning
from spark_kafka_sink.cli.progress import bar
from spark_kafka_sink.cli.show import Json, print_json, say, show_rows
from spark_kafka_sink.cli.watching import watched
from spark_kafka_sink.datasource.report.waits import WAITS, explained
from spark_kafka_sink.datasource.report.write_report import (
    EPOCH_MS,
    REPORT_VERSION,
    WriteReport,
    certainty_of,
)

_VERSION: Final = "reportVersion"
#: The end of the name that logrotate gives to the file before.
_FORMER: Final = ".1"
_MOST_PARTITIONS: Final = 20
_MOST_NAMED: Final = 3
#: A time in the year 5138; later times are errors.
_LATEST_MS: Final = 10**14
_WRITTEN: Final = "writtenAtMs"
_ID: Final = "reportId"
#: The largest number of reports that are left out. A run is rarely stopped during its commit, so
#: few runs have two reports.
_MOST_SECOND: Final = 20
_UNFINISHED: Final = "unfinished"
#: Of which a zero says something; the others are left out then.
_SHOWN_AS_ZERO: Final = ("batchId", "txnVersion", "tasks", "rows")
_PLURALS: Final = {
    "tasks": "task",
    "rows": "row",
    "batches": "batch",
    "requests": "request",
    "connections": "connection",
    "transactions": "transaction",
    "partitions": "partition",
}


@dataclass(frozen=True, slots=True)
class Source:
    """The place of the reports: the file or folder ``path``, or the topic ``topic`` of the Kafka
    cluster ``where``. The topic counts only if ``path`` is None.
    """

    where: Where
    path: Path | None
    topic: str | None

    def __str__(self) -> str:
        return _shown(self.path) if self.path is not None else f"topic '{self.topic}'"


def show(source: Source, batch: int | None, *, as_json: bool) -> None:
    """Shows the last report: a summary of five lines, and a table of the fields. If ``batch`` is
    given, shows the last report with this batch id or txnVersion.
    """
    with one_line_errors():
        report = last_of(source, batch, as_json=as_json)
    if as_json:
        print_json(report)
        return
    rows = [
        (name, _with_unit(name, report[name], described.unit), described.meaning)
        for name, described, _ in described_fields(WriteReport)
        if report.get(name) not in (None, []) and (report[name] or name in _SHOWN_AS_ZERO)
    ]
    for line in _summary(report):
        say(line)
    show_rows(f"Batch {_named(report)}", ("field", "value", "meaning"), rows)


def last_of(source: Source, batch: int | None, *, as_json: bool) -> Json:
    """The last report, as JSON. If ``batch`` is given, the last report with this batch id or
    txnVersion. Raises ConfigError if there is no such report.
    """
    found = _reports(source, 1, batch, as_json=as_json)
    if not found:
        of = "" if batch is None else f" of batch {batch}"
        raise ConfigError(f"{source} has no report{of}")
    return found[-1]


def _summary(report: Json) -> Iterator[str]:
    """The five lines of a summary: outcome and rate; time and place; tasks; bytes; and the cause of
    the failure or the longest wait.
    """

    def number(field: str) -> str:
        return _value(report.get(field) or 0)

    rate, took = report.get("rowsPerSecond"), report.get("elapsedMs")
    speed = f" in {took} ms" * (took is not None) + f" ({_value(rate)} rows/s)" * bool(rate)
    yield f"{_named(report)}: {report.get('outcome')}, {number('rows')} rows{speed}"
    place = ", ".join(f"{n}={report[n]}" for n in ("applicationId", "topic") if report.get(n))
    yield f"written: {_time(report)}" + f" ({place})" * bool(place)
    failed, letters = report.get("failedAttempts"), report.get("deadLetters")
    total = letters.get("total") if isinstance(letters, dict) else 0
    attempts = len(failed) if isinstance(failed, list) else 0
    yield (
        f"tasks: {number('tasks')}, failed attempts: {attempts}, lost attempts: "
        f"{number('lostAttempts')}, dead letters: {total or 0}"
    )
    yield (
        f"sent: {number('bytes')} bytes in {number('batches')} batches and {number('requests')} "
        f"requests, retried: {number('retries')}"
    )
    yield explained(report)


def tail(source: Source, count: int, *, watch: bool) -> None:
    """Shows the last ``count`` reports, one per line. With ``watch``, repeats this until Ctrl-C."""

    def show_last() -> None:
        with one_line_errors():
            found = _reports(source, count, None, as_json=False)
        if not found:
            say(f"{source} has no report yet")
            return
        rows = [
            (
                _time(one),
                _named(one),
                str(one.get("outcome")),
                str(one.get("rows")),
                _value(one.get("rowsPerSecond")),
                *(str(one.get(field)) for field in ("elapsedMs", "retries")),
                _longest_wait(one),
                _code(one),
            )
            for one in found
        ]
        numbers = ("rows", "rows/s", "ms", "retries", "longest wait")
        show_rows(
            f"Reports ({len(rows)})", ("written", "batch", "outcome", *numbers, "error"), rows
        )

    watched(show_last, watch=watch)


def _longest_wait(report: Json) -> str:
    """The longest wait of the tasks and its milliseconds, such as ``buffer 5000 ms``."""
    waits = {name: ms for name in WAITS if isinstance(ms := report.get(name), int) and ms > 0}
    longest = max(waits, key=lambda name: waits[name], default=None)
    return "" if longest is None else f"{longest.removesuffix('WaitMs')} {waits[longest]} ms"


def _reports(source: Source, count: int, batch: int | None, *, as_json: bool) -> list[Json]:
    """The last ``count`` reports, the oldest first. If ``batch`` is set, only reports with this
    batch id or txnVersion count. Of two reports of one run, only the report with the more certain
    outcome counts. Raises ConfigError if no line is a report.
    """
    others: list[str] = []
    most_certain: dict[str, int] = {}

    def listed() -> Iterator[tuple[int, int, Json]]:
        for number, one in enumerate(_every_report(source, others, as_json=as_json)):
            if batch is None or batch in _numbers(one):
                run = _run(one, number)
                most_certain[run] = max(certainty_of(one), most_certain.get(run, -1))
                yield _written_ms(one), number, one

    found = [
        one
        for _, number, one in heapq.nlargest(count + _MOST_SECOND, listed())
        if certainty_of(one) == most_certain[_run(one, number)]
    ]
    if others:
        said = f"no report of version {REPORT_VERSION}: {named(others, _MOST_NAMED)}"
        if not found and batch is None:
            raise ConfigError(said, hint="the option reportPath writes files of reports")
        warning(f"skipped, {said}")
    return found[:count][::-1]


def _every_report(source: Source, others: list[str], *, as_json: bool) -> Iterator[Json]:
    """Yields all reports of the source one by one, because there may be a hundred thousand. Raises
    ConfigError or KafkaError.

    Skips each line or record that is not a report. Adds its place to ``others``, such as
    ``partition 0, offset 17``.
    """
    if source.path is not None:
        yield from _reports_of_files(source.path, others, as_json=as_json)
        return
    with connected(source.where, as_json=as_json) as to:
        reader = CommittedReader(to.client, str(source.topic))
        for tp, end in reader.partitions():
            for record in reader.read(tp, end):
                found = json_object(record.value or b"")
                if found is not None and found.get(_VERSION) == REPORT_VERSION:
                    yield found
                else:
                    others.append(f"partition {tp.partition}, offset {record.offset}")


def _reports_of_files(path: Path, others: list[str], *, as_json: bool) -> Iterator[Json]:
    update = bar("reading reports", as_json=as_json)
    try:
        former = Path(f"{path}{_FORMER}")
        files = [former, path] if former.exists() else [path]
        if path.is_dir():
            files = sorted(f for f in path.glob("*.json*") if not f.name.startswith("."))
        for done, file in enumerate(files):
            update(done, len(files))
            try:
                yield from _reports_in(file, others)
            except UnusableFileError:
                if len(files) == 1 or file.exists():
                    raise
                # It was deleted, or renamed, since.
    except (OSError, UnusableFileError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"{_shown(path)} can't be read: {why}",
            hint="PATH is the value of the option reportPath of the write, on the driver; without "
            "that option, spark_kafka_sink.last_report(query) in the session has the last report",
        ) from None
    finally:
        update(0, 0)


def _reports_in(file: Path, others: list[str]) -> Iterator[Json]:
    """Yields the reports of a file. Skips each line that is not a report, such as a line that a
    full disk has cut off. For each skipped line, adds the file name and the line number to
    ``others``.

    A last line without a line break is not added to ``others``, because the sink may still be
    writing this line.
    """
    # As the sink opens them: a FIFO would block, and a device has no end.
    content = read_file(str(file), "a report", MAX_REPORT, allow_lists.check_report_path)
    for number, line in enumerate(io.BytesIO(content), start=1):
        found = json_object(line)
        if found is not None and found.get(_VERSION) == REPORT_VERSION:
            yield found
        elif line.endswith(b"\n") and line.strip():  # else it is being written
            others.append(f"{_shown(file)}, line {number}")


def _written_ms(report: Json) -> int:
    found = report.get(_WRITTEN)
    return found if isinstance(found, int) and 0 <= found < _LATEST_MS else 0


def _run(report: Json, number: int) -> str:
    """Identifies the run of a report. ``number`` identifies the report, which may have no id."""
    return str(report.get(_ID) or number)


def _numbers(report: Json) -> tuple[object, ...]:
    return report.get("batchId"), report.get("txnVersion")


def _named(report: Json) -> str:
    """The name of the query or application of a report, followed by its batch id or txnVersion. If
    the report does not have them, the text is empty.
    """
    names = ("queryName", "txnAppId", "transactionalIdPrefix", "applicationName")
    whose = next((str(report[name]) for name in names if report.get(name)), "")
    number = next((str(one) for one in _numbers(report) if one is not None), "")
    return f"{whose} {number}".strip()


def _time(report: Json) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(_written_ms(report) / 1000))


def _code(report: Json) -> str:
    error = report.get("error")
    return str(error.get("code", "")) if isinstance(error, dict) else ""


def _with_unit(name: str, value: object, unit: str) -> str:
    """The text of a report's value with its unit. Times are shown as dates, and the unit of the
    value 1 is singular.
    """
    if unit == EPOCH_MS and isinstance(value, int):
        return _time({_WRITTEN: value})
    if name == _UNFINISHED and isinstance(value, list):
        return "task " + ", ".join(map(str, value))
    if value == 1 and unit in _PLURALS:
        unit = _PLURALS[unit]
    return f"{_value(value)} {unit}".strip()


def _value(value: object) -> str:
    """The text of a report's value for a cell of the table. Items of a list are on separate lines,
    and numbers are rounded.
    """
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list):
        more = len(value) - _MOST_PARTITIONS
        shown = [_value(one) for one in value[:_MOST_PARTITIONS]]
        return "\n".join([*shown, f"+{more} more"] if more > 0 else shown)
    if isinstance(value, dict):
        return ", ".join(f"{name}={_value(one)}" for name, one in value.items() if one != "")
    return str(value)


def _shown(path: Path) -> str:
    return f"'{safe_text(str(path))}'"
