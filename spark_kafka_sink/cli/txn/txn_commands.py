"""``kprod txn``: list, blockers, fence, describe, commit, abort, sweep, resolve, reset.

This module has the names, arguments and help of the commands. ``txn_reads.py`` and
``txn_changes.py`` have the work of the commands. They are imported when a command runs, so that
help and completion are fast.

A command that changes something first shows the change, and asks for a confirmation. With
``--dry-run``, the command only shows the change. With ``--yes``, the command makes the change
without a confirmation.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final

import typer

from spark_kafka_sink.cli.arguments import (
    EXAMPLE,
    AsJson,
    Asked,
    Watch,
    Where,
    changing,
    flag,
    to_commit_log,
)

app = typer.Typer(
    help="Transactions of exactly-once writes: inspect them, and end abandoned ones.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class As(StrEnum):
    """The two ways to resolve a partially committed batch. DONE: the batch counts as done. REPLAY:
    the batch is written again.
    """

    DONE = "done"
    REPLAY = "replay"


_A_PREFIX: Final = "A transactionalIdPrefix."
_Prefix = Annotated[str, typer.Argument(metavar="PREFIX", help=_A_PREFIX)]
_OptionalPrefix = Annotated[str | None, typer.Argument(metavar="PREFIX", help=_A_PREFIX)]
_Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="A key of the commit log. For a stream: its transactionalIdPrefix. For other writes: "
        "transactionalIdPrefix~NAME. NAME is the txnAppId, or the name in the call of "
        "foreach_batch() or transaction(). For a batch job without txnAppId, NAME is the id of "
        "the run.",
    ),
]
_OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than",
        metavar="15m",
        help="Only transactions that have been open for longer than this time (ms, s, m, h, d).",
    ),
]


@app.command("list", epilog=EXAMPLE + "kprod txn list orders-sink -b broker1:9092")
@to_commit_log
def list_(
    where: Where,
    prefix: _OptionalPrefix = None,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """List the open transactions of a prefix, and the prefix's keys in the commit log.

    PREFIX is the whole value of the option transactionalIdPrefix. For example, the command does not
    find the transactions of orders-sink if PREFIX is orders. Without PREFIX, the command lists the
    open transactions of all clients. Transactional ids are listed only if you have DESCRIBE on
    them. If a broker does not respond, the exit code is 1.
    """
    from spark_kafka_sink.cli.txn import txn_reads

    _check_watch(watch=watch, as_json=as_json)
    if prefix is None:
        txn_reads.list_all(where, watch=watch, as_json=as_json)
    else:
        txn_reads.list_prefix(where, prefix, watch=watch, as_json=as_json)


def _check_watch(*, watch: bool, as_json: bool) -> None:
    if watch and as_json:
        raise typer.BadParameter("--json writes one object: leave out --watch")


@app.command(epilog=EXAMPLE + "kprod txn blockers orders -b broker1:9092")
@to_commit_log
def blockers(
    where: Where,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic that the consumer reads.")
    ],
    older_than: _OlderThan = None,
    watch: Watch = False,
    prometheus: Annotated[
        bool,
        flag(
            "--prometheus",
            help="Write metrics in Prometheus' text format. The exit code is 0, even if a "
            "transaction is open.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the transactions that block consumers of a topic, and how to end them.

    Consumers with isolation.level=read_committed read a partition up to the beginning of its oldest
    open transaction. This offset is the last stable offset. The command shows for each open
    transaction:

    - how many offsets of the partition come after the last stable offset
    - the consumer groups that wait at the last stable offset, or will wait there. A group is listed
      if it has members, and if its committed offset is at or before the last stable offset.

    The transactions may belong to any client. The host of a client is not shown, because Kafka has
    no API for it. With --older-than, the command ignores transactions that have been open for a
    shorter time.

    - Exit code 0: no transaction is open.
    - Exit code 1: the command failed.
    - Exit code 2: an argument is wrong.
    - Exit code 3: a transaction is open.

    Needs Kafka 3.0 or later, and READ on the topic. Transactional ids and groups are shown only if
    you have DESCRIBE on them.
    """
    from spark_kafka_sink.cli.txn import txn_reads

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
@changing
def fence(
    where: Where,
    asked: Asked,
    name: Annotated[
        str, typer.Argument(metavar="ID", help="A transactional id that 'blockers' shows.")
    ],
) -> None:
    """Abort an open transaction of a client that is not from this package, and fence its producer.

    The command registers a new producer with the transactional id, as a restart of the client
    would. So the brokers abort the open transaction. If the client's producer is still running, it
    fails with ProducerFencedException.

    If the id has no open transaction, the command refuses. Needs WRITE on the id. For transactions
    of this package, use 'abort' or 'sweep', which read the commit log first.
    """
    from spark_kafka_sink.cli.txn import txn_changes

    confirmation = txn_changes.Confirmation(asked)
    txn_changes.fence(where, confirmation, name)


@app.command(epilog=EXAMPLE + "kprod txn describe orders-sink -b broker1:9092")
@to_commit_log
def describe(
    where: Where,
    name: Annotated[
        str,
        typer.Argument(
            metavar="KEY",
            help="A key of the commit log, or a transactionalIdPrefix. For a prefix, all its keys "
            "are shown: PREFIX and PREFIX~NAME.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Show a key's state in the commit log, and the state of each decided transaction."""
    from spark_kafka_sink.cli.txn import txn_reads

    txn_reads.describe(where, name, as_json=as_json)


@app.command(epilog=EXAMPLE + "kprod txn commit orders-sink --dry-run -b broker1:9092")
@changing
def commit(
    where: Where,
    asked: Asked,
    key: _Key,
) -> None:
    """Commit the transactions of a batch that is DECIDED.

    'describe' shows the batch and its transactions. The result depends on the transactions:

    - All are open or committed: the open transactions are committed.
    - The brokers have aborted a transaction, and none is committed: the open transactions are
      aborted. The query writes the batch again when it starts.
    - The brokers have aborted a transaction, and another one is committed: the batch becomes
      PARTIAL.
    - The brokers no longer know the outcome of a transaction: the command fails.

    Without --dry-run, the exit code is 0 in two cases:

    - All rows of the batch are visible.
    - The command has read no decision for KEY. A broker that is cut off from the other brokers can
      return an old state of the commit log, without the decision. So if an error of the query says
      that the batch is decided, run the command again when all brokers are up.

    You can run this command while the query runs. The command fences the producer with which the
    driver writes the commit log, but the driver can commit the batch's transactions nevertheless.
    """
    from spark_kafka_sink.cli.txn import txn_changes

    confirmation = txn_changes.Confirmation(asked)
    txn_changes.commit(where, confirmation, key)


@app.command(
    epilog=EXAMPLE + "kprod txn abort --prefix orders-sink --run 1b2c3d --dry-run -b broker1:9092"
)
@changing
def abort(
    where: Where,
    asked: Asked,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Transactional ids that 'list' shows."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Abort all open transactions of this run."),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", metavar="PREFIX", help="The transactionalIdPrefix of the run."),
    ] = None,
    force: Annotated[
        bool,
        flag(
            "--force",
            help="Also abort transactions of a run that owns a key, and transactions that a "
            "decision names. A running query fails. If no transaction of the batch is committed, "
            "the next start of the query writes the batch again. If some transactions of the batch "
            "are committed, the batch becomes PARTIAL: the aborted rows are lost, unless you run "
            "'resolve --as replay'. A running driver that has written its decision can commit some "
            "of the transactions before this command aborts the others.",
        ),
    ] = False,
) -> None:
    """Abort open transactions by transactional id, or all open transactions of a run.

    Without --force, the command refuses in two cases:

    - The commit log has the decision to commit the transaction's batch.
    - The transaction's run owns its key in the commit log: no later run of the query or job has
      taken over.

    If a driver writes its decision after the command has shown the change, the command does not
    abort the transactions, and the driver commits them. If the command aborts the transactions
    first, the driver fails with CommitError.
    """
    from spark_kafka_sink.cli.txn import txn_changes

    if bool(ids) == (run is not None) or (run is None) != (prefix is None):
        raise typer.BadParameter("give transactional ids, or --run RUN with --prefix PREFIX")
    confirmation = txn_changes.Confirmation(asked)
    if run is not None and prefix is not None:
        txn_changes.abort_run(where, confirmation, prefix, run, force=force)
    else:
        txn_changes.abort(where, confirmation, ids or [], force=force)


@app.command(
    epilog=EXAMPLE + "kprod txn sweep orders-sink --older-than 5m --dry-run -b broker1:9092"
)
@changing
def sweep(
    where: Where,
    asked: Asked,
    prefix: _Prefix,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Abort only transactions of this run."),
    ] = None,
    older_than: _OlderThan = None,
    force: Annotated[
        bool,
        flag(
            "--force",
            help="Also abort transactions of a run that owns a key. Even with --force, the "
            "command does not abort transactions that a decision names.",
        ),
    ] = False,
) -> None:
    """Abort the orphans of a prefix: open transactions that usually no query needs.

    A run is one start of a query or job. From its first commit, until a later run takes over, it
    owns the key (the name) of the query or job in the commit log.

    An orphan fulfils these two conditions:

    - The commit log has no decision to commit the transaction's batch.
    - The transaction's run owns no key.

    A run that still writes its first batch owns no key yet. The command lists the transactions of
    this run as orphans too, and shows that the run is 'not in the log'. If you abort these
    transactions, the query or job fails. So check the list before you confirm. --older-than leaves
    out transactions that were opened recently.
    """
    from spark_kafka_sink.cli.txn import txn_changes

    older_than_ms = None if older_than is None else duration_ms(older_than)
    confirmation = txn_changes.Confirmation(asked)
    txn_changes.sweep(
        where, confirmation, prefix, run=run, older_than_ms=older_than_ms, force=force
    )


@app.command(
    epilog=EXAMPLE + "kprod txn resolve orders-sink --batch 8 --as done --dry-run -b broker1:9092"
)
@changing
def resolve(
    where: Where,
    asked: Asked,
    key: _Key,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=0, help="The batch to end.")],
    as_: Annotated[
        As,
        typer.Option(
            "--as",
            metavar="done|replay",
            help="done: the query continues without the lost rows. replay: the query writes the "
            "whole batch again, which duplicates the rows of the committed transactions.",
        ),
    ],
    force: Annotated[
        bool,
        flag("--force", help="Also end a DECIDED batch if a transaction's outcome is 'unknown'."),
    ] = False,
) -> None:
    """End a batch that is PARTIAL: some of its transactions are committed, and others are lost.

    Further transactions of the batch may still be open. '--as done' commits the open transactions,
    and '--as replay' aborts them. The command shows the state of the batch, and asks you to
    confirm. Then the command reads the state again. After this read, the command refuses in two
    cases:

    - The batch was ended in another way after the command had shown its state.
    - An open transaction can't be committed or aborted as '--as' requires.
    """
    from spark_kafka_sink.cli.txn import txn_changes

    confirmation = txn_changes.Confirmation(asked)
    txn_changes.resolve(where, confirmation, key, batch, done=as_ is As.DONE, force=force)


@app.command(epilog=EXAMPLE + "kprod txn reset orders-sink --dry-run -b broker1:9092")
@changing
def reset(
    where: Where,
    asked: Asked,
    key: _Key,
    force: Annotated[
        bool,
        flag(
            "--force",
            help="Also reset KEY if its batch is DECIDED or PARTIAL, or if its owner has open "
            "transactions. Also reset KEY if a broker does not respond, or if the records of KEY "
            "can't be read. Also reset the KEY of a backfill with an unfinished step, although the "
            "rows of this step may already be written.",
        ),
    ] = False,
) -> None:
    """Forget a key of the commit log, after you have deleted the query's checkpoint on purpose.

    A key is the name of a query or job. After the reset, the commit log no longer shows which
    micro-batches of the query, or which txnVersions of the job, are finished. If a finished
    micro-batch or txnVersion runs again, its rows are duplicated. This can also happen to a query
    that still has its checkpoint: if the driver died before Spark recorded the last micro-batch in
    the checkpoint, Spark runs this micro-batch again.

    The commit log keeps only the key's generation: a number that rises with each reset and with
    each new run. Each transactional id contains the generation that the key had when the batch
    began. So the next run recognizes the open transactions of earlier runs, and aborts them after
    its first commit.
    """
    from spark_kafka_sink.cli.txn import txn_changes

    confirmation = txn_changes.Confirmation(asked)
    txn_changes.reset(where, confirmation, key, force=force)


def duration_ms(text: str) -> int:
    """Parses a duration such as ``15m`` into milliseconds. Raises BadParameter."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"'{text}' is no time: give a number with ms, s, m, h or d (15m)")
    return int(found[1]) * _UNITS_MS[found[2]]
