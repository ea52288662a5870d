"""``kprod audit``: checks whether the rows of a report are in Kafka.

This module has the command, its table and its exit codes. ``datasource/report/audit.py`` does the
audit.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Final

import typer

from spark_kafka_sink.admin.partition_count import TIME_IS_OVER
from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.described_fields import json_name
from spark_kafka_sink.cli.arguments import Where, more_time
from spark_kafka_sink.cli.connection import connected, one_line_errors
from spark_kafka_sink.cli.progress import bar
from spark_kafka_sink.cli.report import Source, last_of
from spark_kafka_sink.cli.show import Json, print_json, say, show_rows
from spark_kafka_sink.datasource.report.audit import AuditResult, audit_over
from spark_kafka_sink.datasource.report.audit_verdict import AuditVerdict, PartitionAudit
from spark_kafka_sink.datasource.report.claims import claims_of

_THERE: Final = frozenset({AuditVerdict.COMPLETE, AuditVerdict.COUNTED, AuditVerdict.SAMPLED})
_LACKS: Final = frozenset(
    {AuditVerdict.MISSING, AuditVerdict.CHANGED, AuditVerdict.SURPLUS, AuditVerdict.DAMAGED}
)
_REMOVED: Final = frozenset({
    AuditVerdict.GONE, AuditVerdict.RECREATED, AuditVerdict.DELETED, AuditVerdict.COMPACTED
})  # fmt: skip
#: Exit codes.
_LACKING, _DELETED, _UNTOLD = 3, 4, 5
#: The time in seconds after the end of ``--within`` in which the audit must show its result.
_TO_SHOW_S: Final = 5.0
#: Partitions of the table; with ``--json`` all are shown.
_MOST_ROWS: Final = 100


def audit(
    where: Where, source: Source, batch: int | None, seed: int | None, *, as_json: bool
) -> None:
    """Audits the last report of ``source``, and prints the result. If the audit finds a missing,
    changed or surplus row, or can't read a partition, the exit code is not 0.

    * ``batch``: a batch id or txnVersion. The last report with this number is audited. If ``batch``
      is None, the last report of ``source`` is audited.
    * ``seed``: a number that determines a sample of the rows. Only the sample is read. If ``seed``
      is None, all rows are read.

    When the time limit ``--within`` is over, the audit stops reading, and prints the result so far.
    This result shows how many partitions were not read to their end.
    """
    with one_line_errors():
        claims = claims_of(last_of(source, batch, as_json=as_json))
    with connected(where, as_json=as_json) as to:
        # The bar counts offsets, and not requests.
        to.client.loop.on_progress = None
        progress = bar("reading", as_json=as_json)
        until_ms = NEVER
        if where.ends_at_s is not None:
            left_s = where.ends_at_s - time.monotonic()
            until_ms = to.client.clock.now_ms() + int(left_s * 1000)
            more_time(_TO_SHOW_S)
        try:
            result = audit_over(to.client, claims, seed, until_ms=until_ms, progress=progress)
        finally:
            progress(0, 0)
    if as_json:
        print_json(_json(result))
    else:
        _show(result)
    if code := _exit_code(result.verdict):
        raise typer.Exit(code)


def _exit_code(verdict: AuditVerdict) -> int:
    if verdict in _THERE:
        return 0
    if verdict in _LACKS:
        return _LACKING
    return _DELETED if verdict in _REMOVED else _UNTOLD


def _json(result: AuditResult) -> Json:
    fields: Json = {"command": "audit", "verdict": str(result.verdict)}
    fields["timeIsOver"] = bool(_not_read_in_time(result))
    for name, value in asdict(result).items():
        if name != "partitions":
            fields[json_name(name)] = value
    fields["partitions"] = [
        {json_name(name): value for name, value in asdict(one).items()} for one in result.partitions
    ]
    return fields


def _show(result: AuditResult) -> None:
    say(str(result))
    if not_read := _not_read_in_time(result):
        say(
            f"The time of --within is over, and this verdict is incomplete: {not_read} of"
            f" {len(result.partitions)} partitions were not read to their end."
        )
    if result.unlisted:
        say(
            f"{result.unlisted} more rows are in partitions that the report does not list, and were"
            " not searched."
        )
    whole = {(one.verdict, one.reason) for one in result.partitions}
    if len(whole) == 1:
        ((_, reason),) = whole
        if reason:
            say(f"every partition: {reason}")
        if result.verdict in _THERE:
            return
    rows = [_row(one) for one in result.partitions if one.verdict not in _THERE]
    rows += [_row(one) for one in result.partitions if one.verdict in _THERE and one.reason]
    if rows:
        columns = ("partition", "claimed", "found", "verdict", "reason")
        show_rows(f"Partitions ({len(rows)})", columns, rows[:_MOST_ROWS])


def _not_read_in_time(result: AuditResult) -> int:
    """The number of partitions that were not read to their end when the time was over."""
    return sum(one.reason == TIME_IS_OVER for one in result.partitions)


def _row(one: PartitionAudit) -> tuple[str, ...]:
    claimed = "" if one.claimed is None else str(one.claimed)
    name = f"{one.topic}-{one.partition}"
    return name, claimed, str(one.found), str(one.verdict), one.reason
