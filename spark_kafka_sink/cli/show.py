"""The output of commands: a table for people, JSON for scripts.

This module formats the content in both forms. ``transactions/operations/inspection.py`` finds the
content. In the JSON, times are milliseconds, and an unknown value is null. A later version of this
package keeps all names in the JSON, and may add names.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from spark_kafka_sink.admin.transaction_description import TransactionDescription
from spark_kafka_sink.base.errors import safe_text
from spark_kafka_sink.transactions.commit_state import NOTHING_DONE, CommitState, Phase, Standing
from spark_kafka_sink.transactions.operations.blockers import Blocker
from spark_kafka_sink.transactions.operations.inspection import (
    DecidedBy,
    DecidedTransaction,
    KeyReport,
    OpenTransaction,
    Overview,
)
from spark_kafka_sink.transactions.outcomes import Outcome
from spark_kafka_sink.transactions.transactional_ids import parse

Json = dict[str, object]

#: Rows of a table for people; JSON has all.
_MOST_ROWS = 100
#: Partitions of a cell.
_MOST_HELD = 12
#: The width of a table in a file or a pipe, which have no width.
_WIDTH = 200
#: Characters of a line.
_MOST_SHOWN = 1000
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def print_json(fields: Json) -> None:
    """Prints a JSON object on standard output."""
    sys.stdout.write(json.dumps(fields, indent=2) + "\n")


def say(text: str) -> None:
    """Prints a line of text on standard output, for people."""
    new_console().print(_shown(text), soft_wrap=True)


# -- JSON -----------------------------------------------------------------------------------------


def open_json(t: OpenTransaction) -> Json:
    """An open transaction of this package as JSON."""
    return {
        "transactionalId": str(t.id),
        "run": t.id.run,
        "runIs": t.standing.value,
        "state": t.found.state.value,
        "producerId": t.found.producer_id,
        "epoch": t.found.producer_epoch,
        "ageMs": t.age_ms,
        "timeoutMs": t.found.timeout_ms,
        "partitions": {topic: sorted(ps) for topic, ps in sorted(t.found.partitions)},
        "decided": _decided_json(t.decided),
    }


def any_open_json(t: TransactionDescription, now_ms: int) -> Json:
    """An open transaction of any client as JSON."""
    ours = parse(t.transactional_id)
    return {
        "transactionalId": t.transactional_id,
        "prefix": None if ours is None else ours.prefix,
        "state": t.state.value,
        "producerId": t.producer_id,
        "epoch": t.producer_epoch,
        "ageMs": t.age_ms(now_ms),
        "timeoutMs": t.timeout_ms,
        "partitions": {topic: sorted(ps) for topic, ps in sorted(t.partitions)},
    }


def state_json(key: str, state: CommitState) -> Json:
    """The state of a key of the commit log as JSON. The key is the name of a query or a batch job
    in the commit log.
    """
    return {
        "key": key,
        "phase": state.phase.name,
        "batch": None if state.decision is None else state.decision.number,
        "lastDone": None if state.last_done == NOTHING_DONE else state.last_done,
        "generation": state.generation,
        "takeOver": list(state.take_over) if any(state.take_over) else None,
        "runId": state.run_id,
        "queryId": state.query_id or None,
        "superseded": list(state.superseded),
        "lost": list(state.lost),
    }


def report_json(report: KeyReport) -> Json:
    """The state of a key of the commit log as JSON. If a commit is in progress, the JSON also has
    the transactions of that commit, with the state that their coordinators return.
    """
    transactions = [
        {
            "transactionalId": t.transaction.transactional_id,
            "producerId": t.transaction.producer_id,
            "epoch": t.transaction.producer_epoch,
            "version": t.transaction.transaction_version,
            "outcome": _OUTCOMES[t.outcome],
            "coordinator": {
                "error": t.found.error.name if t.found.error else None,
                "state": t.found.state.value,
                "producerId": t.found.producer_id,
                "epoch": t.found.producer_epoch,
            },
        }
        for t in report.transactions
    ]
    return {**state_json(report.key, report.state), "transactions": transactions}


def blocker_json(b: Blocker) -> Json:
    """A transaction that blocks consumers of a topic, as JSON."""
    return {
        "transactionalId": b.transactional_id,
        "producerId": b.producer_id,
        "epoch": b.producer_epoch,
        "startOffsets": {str(p): offset for p, offset in b.starts.items()},
        "holdsLastStableOffset": [one.partition for one in b.held],
        "offsetsBehind": {str(one.partition): one.behind for one in b.held},
        "groupsBehind": {
            group: {str(one.partition): one.groups[group] for one in b.held if group in one.groups}
            for group in _groups(b)
        },
        "whose": b.whose.value,
        "state": None if b.found is None else b.found.state.value,
        "ageMs": b.age_ms,
        "timeoutMs": None if b.found is None else b.found.timeout_ms,
        "runIs": None if b.standing is None else b.standing.value,
        "decided": _decided_json(b.decided),
        "advice": b.advice,
    }


def _groups(b: Blocker) -> list[str]:
    return sorted({group for one in b.held for group in one.groups})


def _decided_json(by: DecidedBy | None) -> Json | None:
    return None if by is None else {"key": by.key, "batch": by.number}


#: The words for outcomes. RETRY is "open": the transaction can still be committed or aborted.
_OUTCOMES: Mapping[Outcome, str] = {
    Outcome.COMMITTED: "committed",
    Outcome.RETRY: "open",
    Outcome.LOST: "lost",
    Outcome.UNKNOWN: "unknown",
}


# -- tables ---------------------------------------------------------------------------------------


def show_overview(prefix: str, log_topic: str, overview: Overview) -> None:
    """Shows the result of ``kprod txn list``."""
    if overview.open:
        show_open(f"Open transactions of '{prefix}'", overview.open)
    elif not overview.silent:
        say(f"No transaction of '{prefix}' is open.")
    show_silent(overview.silent)
    if overview.keys is None:
        say(f"There is no commit log: the topic {log_topic} is missing.")
        return
    if not overview.keys:
        say(f"The commit log {log_topic} has no key of '{prefix}'.")
        return
    rows = [
        (
            key,
            state.phase.name,
            "" if state.decision is None else str(state.decision.number),
            _batch(state.last_done),
            str(state.generation),
            state.run_id,
        )
        for key, state in sorted(overview.keys.items())
    ]
    columns = ("key", "phase", "batch", "last done", "generation", "owner (run)")
    _table(f"Commit log {log_topic}", columns, rows)


def show_silent(brokers: Sequence[str]) -> None:
    """Shows the brokers that did not respond. Open transactions on these brokers are unknown."""
    if brokers:
        say(f"No answer from {', '.join(brokers)}: the list lacks its transactions.")


def show_open(title: str, transactions: Sequence[OpenTransaction]) -> None:
    """Shows a table of open transactions."""
    rows = [
        (
            str(t.id),
            t.found.state.value,
            age(t.age_ms),
            f"{t.found.producer_id}/{t.found.producer_epoch}",
            _partitions(t.found.partitions),
            t.standing.value
            if t.decided is None
            else f"{t.standing.value}; batch {t.decided.number} of {t.decided.key} is decided",
        )
        for t in transactions
    ]
    columns = ("transactional id", "state", "age", "producer id/epoch", "partitions", "its run is")
    _table(f"{title} ({len(rows)})", columns, rows)


def show_blockers(topic: str, found: Sequence[Blocker], again: str) -> None:
    """Shows the result of ``kprod txn blockers``, and suggests commands that end the transactions.
    ``again`` has the options of the command line for the cluster, such as ``-b host:9092``. The
    suggested commands contain them.
    """
    rows = [
        (
            b.transactional_id or "?",
            f"{b.producer_id}/{b.producer_epoch}",
            age(b.age_ms),
            _partitions(((topic, tuple(b.starts)),)),
            "\n".join(
                f"{one.partition} at {one.offset}, {one.behind} behind"
                for one in b.held[:_MOST_HELD]
            )
            or "none",
            b.owner,
            "\n".join(_groups(b)[:_MOST_HELD]),
        )
        for b in found
    ]
    columns = (
        "transactional id",
        "producer id/epoch",
        "age",
        "partitions",
        "holds",
        "of",
        "groups",
    )
    shown = len(columns) - (not any(map(_groups, found)))
    title = f"Open transactions in {topic} ({len(rows)})"
    _table(title, columns[:shown], [row[:shown] for row in rows])
    # Not in the table, whose cells are wrapped: these commands are meant to be copied.
    for b in found[:_MOST_ROWS]:
        options = f" {again}" * ("kprod txn" in b.advice)  # not Kafka's own tool's
        say(f"{b.transactional_id or f'producer {b.producer_id}'}: {b.advice}{options}")


def show_all(found: Sequence[TransactionDescription], now_ms: int) -> None:
    """Shows the result of ``kprod txn list`` without a prefix."""
    rows = [
        (
            t.transactional_id,
            "another client" if (one := parse(t.transactional_id)) is None else one.prefix,
            t.state.value,
            age(t.age_ms(now_ms)),
            f"{t.producer_id}/{t.producer_epoch}",
            _partitions(t.partitions),
        )
        for t in found
    ]
    columns = ("transactional id", "prefix", "state", "age", "producer id/epoch", "partitions")
    _table(f"Open transactions ({len(rows)})", columns, rows)


def show_report(report: KeyReport) -> None:
    """Shows the state of a key of the commit log, and the transactions of a commit in progress."""
    state = report.state
    facts = [
        ("phase", state.phase.name),
        ("last done", _batch(state.last_done)),
        ("owner (run)", state.run_id),
        ("generation", str(state.generation)),
    ]
    if any(state.take_over):
        facts.append(("last take-over", "generation {} to {}".format(*state.take_over)))
    if state.query_id:
        facts.append(("query", state.query_id))
    if state.superseded:
        facts.append((Standing.SUPERSEDED.value, "\n".join(state.superseded)))
    if state.decision is not None:
        facts.append(("current batch", str(state.decision.number)))
        facts.append(("its transactions", summary(report.transactions)))
    if state.lost:
        facts.append(("recorded as lost", str(len(state.lost))))
    _table(f"'{report.key}' in the commit log", ("", ""), facts, heads=False)
    if not report.transactions:
        return
    # Entries that need attention come first.
    order = (Outcome.LOST, Outcome.UNKNOWN, Outcome.RETRY, Outcome.COMMITTED)
    rows = [
        (
            t.transaction.transactional_id,
            _OUTCOMES[t.outcome],
            t.found.error.name if t.found.error else t.found.state.value,
            f"{t.transaction.producer_id}/{t.transaction.producer_epoch}",
            f"{t.found.producer_id}/{t.found.producer_epoch}",
        )
        for t in sorted(report.transactions, key=lambda t: order.index(t.outcome))
    ]
    columns = ("transactional id", "outcome", "coordinator says", "as decided", "as it is now")
    _table("The decision", columns, rows)


def show_rows(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Shows a table with all its rows."""
    _table(title, columns, rows, most=len(rows))


def show_kept(title: str, kept: Mapping[str, str]) -> None:
    """Shows the transactions that the command does not abort, each with the reason. Shows nothing
    if there are none.
    """
    if kept:
        _table(f"{title} ({len(kept)})", ("transactional id", "because"), sorted(kept.items()))


def summary(transactions: Iterable[DecidedTransaction]) -> str:
    """The number of transactions by outcome, such as ``3: 2 committed, 1 lost``."""
    counts: dict[Outcome, int] = {}
    for t in transactions:
        counts[t.outcome] = counts.get(t.outcome, 0) + 1
    parts = ", ".join(f"{counts[o]} {_OUTCOMES[o]}" for o in Outcome if o in counts)
    return f"{sum(counts.values())}: {parts}"


def phase_of(state: CommitState) -> str:
    """The phase of a key in the commit log as text. Two examples:

    - ``DONE, last batch 7``.
    - ``PARTIAL 8, 2 lost``. Of batch 8, some transactions are committed, and 2 are lost.
    """
    if state.decision is None:
        return f"DONE, last batch {_batch(state.last_done)}"
    lost = f", {len(state.lost)} lost" if state.phase is Phase.PARTIAL else ""
    return f"{state.phase.name} {state.decision.number}{lost}"


def age(milliseconds: int | None) -> str:
    """A duration in its two largest units, such as ``3 min 12 s``."""
    if milliseconds is None:
        return "unknown"
    parts: list[str] = []
    for size, unit in _UNITS:
        if milliseconds >= size or (unit == "s" and not parts):
            parts.append(f"{milliseconds // size} {unit}")
            milliseconds %= size
    return " ".join(parts[:2])


def _batch(number: int) -> str:
    return "none" if number == NOTHING_DONE else str(number)


def _partitions(partitions: Iterable[tuple[str, Sequence[int]]]) -> str:
    shown = [
        f"{topic}: {', '.join(map(str, sorted(ps)[:_MOST_HELD]))}"
        f"{', ...' if len(ps) > _MOST_HELD else ''}"
        for topic, ps in sorted(partitions)
    ]
    return "\n".join(shown)


def _table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    heads: bool = True,
    most: int = _MOST_ROWS,
) -> None:
    table = Table(title=title, title_justify="left", show_header=heads)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows[:most]:
        table.add_row(*map(_shown, row))
    console = new_console()
    console.print(table)
    if len(rows) > most:
        console.print(f"+{len(rows) - most} more; --json shows all")


def _shown(cell: str) -> str:
    """Removes control characters from a text before it is printed to a terminal. The text may come
    from a log or a broker.
    """
    return "\n".join(safe_text(line, _MOST_SHOWN) for line in cell.split("\n"))


def new_console(*, markup: bool = False) -> Console:
    """A Rich console on standard output. Markup is off by default, because texts of brokers may
    contain brackets.
    """
    console = Console(file=sys.stdout, markup=markup, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH
    return console
