"""The commands of ``kprod txn`` that only read: list, blockers, describe.

This module sends the requests of these commands, and creates their JSON. The arguments of the
commands are in ``txn_commands.py``, and the tables are in ``cli/show.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer

from spark_kafka_sink.cli.arguments import Where
from spark_kafka_sink.cli.connection import (
    BLOCKED,
    FAILED,
    Connected,
    connected,
    operator_and_log,
    operator_of,
)
from spark_kafka_sink.cli.show import (
    Json,
    any_open_json,
    blocker_json,
    open_json,
    print_json,
    report_json,
    say,
    show_all,
    show_blockers,
    show_overview,
    show_report,
    state_json,
)
from spark_kafka_sink.cli.txn.blockers_metrics import metrics_text
from spark_kafka_sink.cli.watching import watched
from spark_kafka_sink.transactions.ending import described_when_ended
from spark_kafka_sink.transactions.operations.blockers import Blocker, every_listed
from spark_kafka_sink.transactions.operations.blockers import blockers as find_blockers
from spark_kafka_sink.transactions.operations.inspection import (
    OPEN,
    Overview,
    check_key,
)
from spark_kafka_sink.transactions.transactional_ids import check_part


def list_prefix(where: Where, prefix: str, *, watch: bool, as_json: bool) -> None:
    """Shows the open transactions of a transactionalIdPrefix, and the prefix's keys in the commit
    log. If a broker does not respond, the exit code is 1.
    """
    with operator_and_log(where, lambda: check_part("PREFIX", prefix), as_json=as_json) as (
        operator,
        log_topic,
    ):
        silent: tuple[str, ...] = ()

        def show() -> None:
            nonlocal silent
            found = operator.inspector.overview(prefix)
            silent = found.silent
            if as_json:
                print_json(_overview_json(prefix, log_topic, found))
            else:
                show_overview(prefix, log_topic, found)

        watched(show, watch=watch)
        if silent:
            raise typer.Exit(FAILED)


def _overview_json(prefix: str, log_topic: str, found: Overview) -> Json:
    return {
        "command": "list",
        "prefix": prefix,
        "logTopic": log_topic,
        "logTopicExists": found.keys is not None,
        "open": [open_json(t) for t in found.open],
        "silent": list(found.silent),
        "keys": [state_json(key, state) for key, state in sorted((found.keys or {}).items())],
    }


def list_all(where: Where, *, watch: bool, as_json: bool) -> None:
    """Shows the open transactions of all clients in the cluster."""
    with connected(where, as_json=as_json) as to:
        watched(lambda: _list_all(to, as_json=as_json), watch=watch)


def _list_all(to: Connected, *, as_json: bool) -> None:
    deadline = to.client.deadline()
    ids = [one.transactional_id for one in every_listed(to.client, OPEN, deadline)]
    described = described_when_ended(to.client, ids, deadline) if ids else {}
    now_ms = to.client.clock.wall_ms()
    open_ = (t for t in described.values() if t.state in OPEN)
    found = sorted(open_, key=lambda t: t.start_ms)
    if as_json:
        print_json({"command": "list", "open": [any_open_json(t, now_ms) for t in found]})
    elif found:
        show_all(found, now_ms)
        say("'kprod txn list PREFIX' also shows the keys of a prefix in the commit log.")
    else:
        say("No transaction that this principal may DESCRIBE is open.")


def blockers(where: Where, topic: str, *, older_than_ms: int, watch: bool, as_json: bool) -> None:
    """Shows the transactions that block consumers of a topic for longer than ``older_than_ms``, or
    for an unknown time. If there are such transactions, the exit code is 3.
    """
    found: list[Blocker] = []

    def show() -> None:
        all_ = find_blockers(to.client, to.log, topic, to.client.deadline())
        found[:] = (b for b in all_ if b.is_older_than(older_than_ms))
        _show_blockers(topic, found, len(all_) - len(found), where.again(), as_json=as_json)

    with connected(where, as_json=as_json) as to:
        watched(show, watch=watch)
    if found:
        raise typer.Exit(BLOCKED)


def blockers_metrics(where: Where, topic: str) -> None:
    """Prints metrics of the open transactions in a topic, in the format of Prometheus."""
    with connected(where, as_json=True) as to:
        found = find_blockers(to.client, to.log, topic, to.client.deadline())
        typer.echo(metrics_text(topic, found, to.client.clock.wall_ms()), nl=False)


def _show_blockers(
    topic: str, found: Sequence[Blocker], younger: int, again: str, *, as_json: bool
) -> None:
    if as_json:
        rows = [blocker_json(b) for b in found]
        print_json({"command": "blockers", "topic": topic, "blockers": rows, "younger": younger})
    elif found:
        show_blockers(topic, found, again)
    elif younger:
        say(f"No transaction has been open in {topic} for that long; {younger} younger are open.")
    else:
        say(f"No transaction is open in {topic}: no consumer waits for one.")


def describe(where: Where, name: str, *, as_json: bool) -> None:
    """Shows the state of the key ``name`` in the commit log. If ``name`` is a
    transactionalIdPrefix, shows all keys with this prefix. Also shows the transactions of commits
    in progress, as the coordinators describe them.
    """
    with operator_of(where, lambda: check_key(name), as_json=as_json) as operator:
        reports = operator.inspector.describe(name)
        if as_json:
            keys = [report_json(report) for report in reports]
            print_json({"command": "describe", "name": name, "keys": keys})
            return
        for report in reports:
            show_report(report)
