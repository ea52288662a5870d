"""``kprod txn``: list, blockers, fence, describe, commit, abort, sweep, resolve, reset.

Owns: names, arguments and help. Never: what a command does (``txn_reads.py``,
``txn_changes.py``): that is imported when it runs, so that help and completion answer at once.

A command that changes something first shows what it would do; ``--dry-run`` ends there, else it
asks, unless ``--yes`` is given.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final

import typer

from spark_kafka_sink.cli.arguments import (
    EXAMPLE,
    TIMEOUT_S,
    AsJson,
    Config,
    LogTopic,
    Servers,
    Timeout,
    Watch,
    Where,
)

app = typer.Typer(
    help="Transactions of exactly-once writes: inspect them, and end abandoned ones.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class As(StrEnum):
    """How a batch that is committed in part is ended."""

    DONE = "done"
    REPLAY = "replay"


_Prefix = Annotated[str, typer.Argument(metavar="PREFIX", help="A transactionalIdPrefix.")]
_Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="A key of the commit log: a stream's transactionalIdPrefix, or "
        "transactionalIdPrefix~txnAppId.",
    ),
]
_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")
]
_OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than",
        metavar="15m",
        help="Only those that are open for longer (ms, s, m, h, d).",
    ),
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


@app.command("list", epilog=EXAMPLE + "kprod txn list orders-sink -b broker1:9092")
def list_(
    prefix: Annotated[
        str | None, typer.Argument(metavar="PREFIX", help="A transactionalIdPrefix.")
    ] = None,
    bootstrap_servers: Servers = None,
    config: Config = None,
    log_topic: LogTopic = None,
    timeout: Timeout = TIMEOUT_S,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Open transactions of exactly this prefix, and its keys in the commit log. Exit code 1: a
    broker does not answer.

    Without PREFIX: all open transactions of the cluster, of other clients, too, that the principal
    may DESCRIBE it.
    """
    from spark_kafka_sink.cli.txn import txn_reads

    where = Where(bootstrap_servers, config, log_topic, timeout)
    _check_watch(watch=watch, as_json=as_json)
    if prefix is None:
        txn_reads.list_all(where, watch=watch, as_json=as_json)
    else:
        txn_reads.list_prefix(where, prefix, watch=watch, as_json=as_json)


def _check_watch(*, watch: bool, as_json: bool) -> None:
    if watch and as_json:
        raise typer.BadParameter("--json writes one object: leave out --watch")


@app.command(epilog=EXAMPLE + "kprod txn blockers orders -b broker1:9092")
def blockers(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What the consumer reads.")],
    older_than: _OlderThan = None,
    bootstrap_servers: Servers = None,
    config: Config = None,
    log_topic: LogTopic = None,
    timeout: Timeout = TIMEOUT_S,
    watch: Watch = False,
    prometheus: Annotated[
        bool,
        typer.Option("--prometheus", help="Metrics in Prometheus' text format; exit code 0."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The open transactions that block read_committed consumers of a topic, and how to end them.

    The oldest open transaction of a partition holds its last stable offset, which such consumers
    do not read beyond: shown with the number of offsets behind it, and the groups with members
    that wait there or come to it (brokers since 3.0). Transactions of every client are shown; no
    API of Kafka has the host of one. Needs READ on the topic, and DESCRIBE on ids and groups,
    which are not seen else. Exit codes: 0 none is open (for longer than --older-than), 3 some are,
    1 it failed, 2 wrong usage.
    """
    from spark_kafka_sink.cli.txn import txn_reads

    where = Where(bootstrap_servers, config, log_topic, timeout)
    _check_watch(watch=watch, as_json=as_json)
    if prometheus:
        if watch or as_json or older_than is not None:
            raise typer.BadParameter("--prometheus goes with no other form of output")
        txn_reads.blockers_metrics(where, topic)
        return
    txn_reads.blockers(
        where,
        topic,
        older_than_ms=-1 if older_than is None else duration_ms(older_than),
        watch=watch,
        as_json=as_json,
    )


@app.command(epilog=EXAMPLE + "kprod txn fence other-client-1 --dry-run -b broker1:9092")
def fence(
    name: Annotated[
        str, typer.Argument(metavar="ID", help="A transactional id, as 'blockers' shows it.")
    ],
    bootstrap_servers: Servers = None,
    config: Config = None,
    log_topic: LogTopic = None,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
    dry_run: _DryRun = False,
    yes: _Yes = False,
) -> None:
    """Abort another client's open transaction, and fence that client.

    As if it had been restarted: its producer, if it is running, fails with ProducerFencedException.
    Refuses an id without an open transaction. Needs WRITE on the id. For transactions of this
    package use 'abort' or 'sweep', which read the commit log first.
    """
    from spark_kafka_sink.cli.txn import txn_changes

    confirmation = txn_changes.Confirmation(as_json, dry_run, yes)
    where = Where(bootstrap_servers, config, log_topic, timeout)
    txn_changes.fence(where, confirmation, name)


@app.command(epilog=EXAMPLE + "kprod txn describe orders-sink -b broker1:9092")
def describe(
    name: Annotated[
        str, typer.Argument(metavar="PREFIX|KEY", help="One key, or all keys of a prefix.")
    ],
    bootstrap_servers: Servers = None,
    config: Config = None,
    log_topic: LogTopic = None,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """The state in the commit log, and the coordinator's state of each decided transaction."""
    from spark_kafka_sink.cli.txn import txn_reads

    where = Where(bootstrap_servers, config, log_topic, timeout)
    txn_reads.describe(where, name, as_json=as_json)


@app.command(epilog=EXAMPLE + "kprod txn commit orders-sink --dry-run -b broker1:9092")
def commit(
    key: _Key,
    bootstrap_servers: Servers = None,
    config: Config = None,
    log_topic: LogTopic = None,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
    dry_run: _DryRun = False,
    yes: _Yes = False,
) -> None:
    """End a batch that is DECIDED: commit its transactions.

    Aborts none, unless brokers have aborted some of them and none is committed: then the batch is
    undone, and written again by its query. If some are committed, it becomes PARTIAL. The exit code
    is 0 only when all of its rows are visible (dead letters aside; with READ on their topics), or
    when no batch is decided. It may run beside the query.
    """
    from spark_kafka_sink.cli.txn import txn_changes

    confirmation = txn_changes.Confirmation(as_json, dry_run, yes)
    where = Where(bootstrap_servers, config, log_topic, timeout)
    txn_changes.commit(where, confirmation, key)


@app.command(
    epilog=EXAMPLE + "kprod txn abort --prefix orders-sink --run 1b2c3d --dry-run -b broker1:9092"
)
def abort(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Transactional ids, as 'list' shows them."),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="All open transactions of this run.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="PREFIX", help="The prefix of --run.")
    ] = None,
    bootstrap_servers: Servers = None,
    config: Config = None,
    log_topic: LogTopic = None,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
    dry_run: _DryRun = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also of the run that owns its key, whose query fails if it is running; and what "
            "a decision names. If anything of that batch is committed, or its driver runs and "
            "commits the rest, it is PARTIAL: the aborted rows are lost until 'resolve --as "
            "replay'. Else the next start writes it again.",
        ),
    ] = False,
    yes: _Yes = False,
) -> None:
    """Abort open transactions by name, or all of a run.

    Refuses when one is of the run that owns its key, or when a decision names it. A driver that
    is committing them at that moment fails with CommitError.
    """
    from spark_kafka_sink.cli.txn import txn_changes

    if bool(ids) == (run is not None) or (run is None) != (prefix is None):
        raise typer.BadParameter("give transactional ids, or --run RUN with --prefix PREFIX")
    confirmation = txn_changes.Confirmation(as_json, dry_run, yes)
    where = Where(bootstrap_servers, config, log_topic, timeout)
    if run is not None and prefix is not None:
        txn_changes.abort_run(where, confirmation, prefix, run, force=force)
    else:
        txn_changes.abort(where, confirmation, ids or [], force=force)


@app.command(
    epilog=EXAMPLE + "kprod txn sweep orders-sink --older-than 15m --dry-run -b broker1:9092"
)
def sweep(
    prefix: _Prefix,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Only open transactions of this run.")
    ] = None,
    older_than: _OlderThan = None,
    bootstrap_servers: Servers = None,
    config: Config = None,
    log_topic: LogTopic = None,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
    dry_run: _DryRun = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also transactions of the owner of a key of the log.")
    ] = False,
    yes: _Yes = False,
) -> None:
    """Abort orphans: open transactions, not decided, and not of a run that owns a key of the log.

    Check the list before you confirm: a run that has not committed anything yet is 'not in the
    log', like the run of a dead job. Ending its transactions fails its job. Decided transactions
    are never swept.
    """
    from spark_kafka_sink.cli.txn import txn_changes

    older_than_ms = None if older_than is None else duration_ms(older_than)
    confirmation = txn_changes.Confirmation(as_json, dry_run, yes)
    where = Where(bootstrap_servers, config, log_topic, timeout)
    txn_changes.sweep(
        where, confirmation, prefix, run=run, older_than_ms=older_than_ms, force=force
    )


@app.command(
    epilog=EXAMPLE + "kprod txn resolve orders-sink --batch 8 --as done --dry-run -b broker1:9092"
)
def resolve(
    key: _Key,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=0, help="The batch to end.")],
    as_: Annotated[
        As,
        typer.Option(
            "--as",
            metavar="done|replay",
            help="done: continue without the lost rows. replay: write the whole batch again; "
            "rows of its committed transactions are duplicated.",
        ),
    ],
    bootstrap_servers: Servers = None,
    config: Config = None,
    log_topic: LogTopic = None,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
    dry_run: _DryRun = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also a DECIDED batch whose outcome the brokers no longer have."
        ),
    ] = False,
    yes: _Yes = False,
) -> None:
    """End a batch that is PARTIAL.

    Its open transactions are committed with 'done' and aborted with 'replay'.
    """
    from spark_kafka_sink.cli.txn import txn_changes

    confirmation = txn_changes.Confirmation(as_json, dry_run, yes)
    where = Where(bootstrap_servers, config, log_topic, timeout)
    txn_changes.resolve(where, confirmation, key, batch, done=as_ is As.DONE, force=force)


@app.command(epilog=EXAMPLE + "kprod txn reset orders-sink --dry-run -b broker1:9092")
def reset(
    key: _Key,
    bootstrap_servers: Servers = None,
    config: Config = None,
    log_topic: LogTopic = None,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
    dry_run: _DryRun = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also while a batch is in progress, or the owner's transactions are open.",
        ),
    ] = False,
    yes: _Yes = False,
) -> None:
    """Forget a key of the commit log, after its checkpoint was deleted on purpose.

    What is done is forgotten with it: an old checkpoint, or a txnVersion that was done, would be
    written again. Its generation stays, so that the next start ends what was open before.
    """
    from spark_kafka_sink.cli.txn import txn_changes

    confirmation = txn_changes.Confirmation(as_json, dry_run, yes)
    where = Where(bootstrap_servers, config, log_topic, timeout)
    txn_changes.reset(where, confirmation, key, force=force)


def duration_ms(text: str) -> int:
    """``15m`` in milliseconds; BadParameter for what is none."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"'{text}' is no time: give a number with ms, s, m, h or d (15m)")
    return int(found[1]) * _UNITS_MS[found[2]]
