"""``kprod txn``: list, blockers, fence, describe, commit, abort, sweep, resolve, reset.

Owns: arguments, the question before a change, exit codes. Never: what is refused and how a change
is made (``transactions/operations.py``), how it looks (``show.py``), connections
(``connection.py``).

A command that changes something first shows what it would do; ``--dry-run`` ends there, else it
asks, unless ``--yes`` is given.
"""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from typing import Annotated, Final

import typer

from spark_kafka_sink.cli.arguments import TIMEOUT_S, AsJson, Config, LogTopic, Servers, Timeout
from spark_kafka_sink.cli.connection import (
    FAILED,
    Cluster,
    complain,
    connected,
    operator_and_log,
    operator_of,
)
from spark_kafka_sink.cli.show import (
    Json,
    any_open_json,
    blocker_json,
    open_json,
    phase_of,
    print_json,
    report_json,
    say,
    show_all,
    show_blockers,
    show_kept,
    show_open,
    show_overview,
    show_report,
    state_json,
    summary,
)
from spark_kafka_sink.errors import ConfigError, safe_text
from spark_kafka_sink.transactions.blockers import blockers as find_blockers
from spark_kafka_sink.transactions.blockers import every_open
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.inspection import check_key
from spark_kafka_sink.transactions.operations import EndPlan, Operator
from spark_kafka_sink.transactions.outcomes import Outcome
from spark_kafka_sink.transactions.transactional_ids import check_part, parse

app = typer.Typer(
    help="Transactions of exactly-once writes: look at them, and end what nobody else will end.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
#: Of an id that begins no transaction: any that brokers allow.
_FENCE_TIMEOUT_MS: Final = 60_000
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
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


def _check_ids(ids: list[str], prefix: str | None) -> None:
    """ConfigError for what can't be of a task of ours."""
    if prefix is not None:
        check_part("PREFIX", prefix)
    for one in ids:
        if parse(one) is None:
            raise ConfigError(
                f"'{safe_text(one, 400)}' is not the transactional id of a task",
                hint="'kprod txn list PREFIX' shows them; 'kprod txn fence' ends another client's",
            )


@app.command("list")
def list_(
    prefix: Annotated[
        str | None, typer.Argument(metavar="PREFIX", help="A transactionalIdPrefix.")
    ] = None,
    bootstrap_servers: Servers = None,
    config: Config = None,
    log_topic: LogTopic = None,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Open transactions of exactly this prefix, and its keys in the commit log.

    Without PREFIX: what is open in the whole cluster, of other clients too, as far as the principal
    may DESCRIBE it.
    """
    where = Cluster(bootstrap_servers, config, log_topic, timeout)
    if prefix is None:
        _list_all(where, as_json)
        return
    with operator_and_log(where, lambda: check_part("PREFIX", prefix)) as (operator, log_topic):
        found = operator.look.overview(prefix)
        if not as_json:
            show_overview(prefix, log_topic, found)
            return
        print_json(
            {
                "command": "list",
                "prefix": prefix,
                "logTopic": log_topic,
                "logTopicExists": found.keys is not None,
                "open": [open_json(t) for t in found.open],
                "keys": [
                    state_json(key, state) for key, state in sorted((found.keys or {}).items())
                ],
            }
        )


def _list_all(where: Cluster, as_json: bool) -> None:
    with connected(where) as to:
        deadline = to.client.deadline()
        ids = [one.transactional_id for one in every_open(to.client, deadline)]
        described = to.client.describe(ids, deadline) if ids else {}
        now_ms = to.client.clock.wall_ms()
        found = sorted((t for t in described.values() if t.start_ms >= 0), key=lambda t: t.start_ms)
        if as_json:
            print_json({"command": "list", "open": [any_open_json(t, now_ms) for t in found]})
        elif found:
            show_all(found, now_ms)
            say("'kprod txn list PREFIX' also shows what the commit log says of a prefix.")
        else:
            say("No transaction is open.")


@app.command()
def blockers(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What the consumer reads.")],
    bootstrap_servers: Servers = None,
    config: Config = None,
    log_topic: LogTopic = None,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Who makes consumers of a topic wait that read committed, and what ends it.

    The oldest open transaction of a partition holds its last stable offset, which such consumers
    do not read beyond. Needs READ on the topic. Transactions of every client are shown.
    """
    where = Cluster(bootstrap_servers, config, log_topic, timeout)
    with connected(where) as to:
        found = find_blockers(to.client, to.log, topic, to.client.deadline())
        if as_json:
            rows = [blocker_json(b) for b in found]
            print_json({"command": "blockers", "topic": topic, "blockers": rows})
        elif found:
            show_blockers(topic, found)
        else:
            say(f"No transaction is open in {topic}: nobody who reads it waits for one.")


@app.command()
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
    """Abort what another client left open, and fence that client.

    As if it had been started again: its producer, if it lives, fails with ProducerFencedException.
    Needs WRITE on the id. What this package wrote is ended by 'abort' or 'sweep', which look into
    the commit log first.
    """
    ask = _Asking(as_json, dry_run, yes)
    where = Cluster(bootstrap_servers, config, log_topic, timeout)
    with connected(where, lambda: _check_another(name)) as to:
        before: Json = {"command": "fence", "transactionalId": name}
        if ask.goes_on(before, f"abort what is open of '{name}', and fence its producer."):
            to.client.init_producer_id(name, _FENCE_TIMEOUT_MS, to.client.deadline())
            ask.end(before, {"changed": True}, f"'{name}' has nothing open any more.")


def _check_another(name: str) -> None:
    if parse(name) is not None:
        raise ConfigError(
            f"'{safe_text(name, 400)}' is the transactional id of a task of this package",
            hint="'kprod txn abort' ends it, after a look into the commit log",
        )


@app.command()
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
    """What the commit log says, and what coordinators hold of each decided transaction."""
    where = Cluster(bootstrap_servers, config, log_topic, timeout)
    with operator_of(where, lambda: check_key(name)) as operator:
        reports = operator.look.describe(name)
        if as_json:
            keys = [report_json(report) for report in reports]
            print_json({"command": "describe", "name": name, "keys": keys})
            return
        for report in reports:
            show_report(report)


@app.command()
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
    """End a batch that is DECIDED: commit its transactions, as the next start would.

    Changes nothing when no batch is decided. When the brokers have aborted some of its transactions
    meanwhile, the batch becomes PARTIAL, and that is an error.
    """
    ask = _Asking(as_json, dry_run, yes)
    where = Cluster(bootstrap_servers, config, log_topic, timeout)
    with operator_of(where, lambda: check_key(key)) as operator:
        report = operator.plan_commit(key)
        before: Json = {"command": "commit", "key": report_json(report), "after": None}
        decision = report.state.decision
        if decision is None:
            ask.end(before, None, f"Nothing is decided under '{key}': {phase_of(report.state)}.")
            return
        if not as_json:
            show_report(report)
        warning = ""
        if lost := report.with_outcome(Outcome.LOST):
            some = report.with_outcome(Outcome.COMMITTED)
            becomes = "be PARTIAL" if some else "be undone: it is to be written again"
            warning = f" {len(lost)} are lost: the batch will {becomes}."
        elif unknown := report.with_outcome(Outcome.UNKNOWN):
            warning = f" {len(unknown)} are unknown to their coordinators: that will fail."
        what = f"batch {decision.number} of '{key}', {len(decision.ids)} transactions."
        if ask.goes_on(before, f"commit {what}{warning}"):
            state = operator.commit(report)
            ask.end(before, _after(key, state), f"'{key}' is {phase_of(state)}.")


@app.command()
def abort(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Transactional ids, as 'list' shows them."),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="All that is open of this run.")
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
            help="Also what a decision names. If anything of that batch is committed already, it "
            "is PARTIAL: the aborted rows are lost until 'resolve --as replay'. If nothing is, the "
            "next start writes all of it again.",
        ),
    ] = False,
    yes: _Yes = False,
) -> None:
    """Abort open transactions by name, or all of a run.

    A driver that is committing them at that moment fails with SupersededError. Refuses when a
    decision names one of them.
    """
    if bool(ids) == (run is not None) or (run is None) != (prefix is None):
        raise typer.BadParameter("give transactional ids, or --run RUN with --prefix PREFIX")
    ask = _Asking(as_json, dry_run, yes)
    where = Cluster(bootstrap_servers, config, log_topic, timeout)
    with operator_of(where, lambda: _check_ids(ids or [], prefix)) as operator:
        if run is not None and prefix is not None:
            plan = operator.plan_abort_run(prefix, run, force=force)
        else:
            plan = operator.plan_abort(ids or [], force=force)
        _end(operator, plan, ask, "abort")


@app.command()
def sweep(
    prefix: _Prefix,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Only what is open of this run.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="15m", help="Only what is open for longer (ms, s, m, h, d)."
        ),
    ] = None,
    bootstrap_servers: Servers = None,
    config: Config = None,
    log_topic: LogTopic = None,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
    dry_run: _DryRun = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also what the owner of a key of the log left open.")
    ] = False,
    yes: _Yes = False,
) -> None:
    """Abort orphans: what is open, not decided, and not of a run that owns a key of the log.

    Look before you say yes: a run that has not committed anything yet is 'not in the log', as the
    run of a dead job is. Ending its transactions fails its job. Decided transactions are never
    swept.
    """
    older_than_ms = None if older_than is None else duration_ms(older_than)
    ask = _Asking(as_json, dry_run, yes)
    where = Cluster(bootstrap_servers, config, log_topic, timeout)
    with operator_of(where, lambda: check_part("PREFIX", prefix)) as operator:
        plan = operator.plan_sweep(prefix, run=run, older_than_ms=older_than_ms, force=force)
        _end(operator, plan, ask, "sweep")


@app.command()
def resolve(
    key: _Key,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=0, help="The batch to end.")],
    as_: Annotated[
        As,
        typer.Option(
            "--as",
            metavar="done|replay",
            help="done: go on without the lost rows. replay: have the whole batch written again; "
            "rows of its committed transactions come twice.",
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
            "--force", help="Also a DECIDED batch of which the brokers forgot the outcome."
        ),
    ] = False,
    yes: _Yes = False,
) -> None:
    """End a batch that is PARTIAL.

    What is still open of it is committed with 'done' and aborted with 'replay'.
    """
    ask = _Asking(as_json, dry_run, yes)
    where = Cluster(bootstrap_servers, config, log_topic, timeout)
    with operator_of(where, lambda: check_key(key)) as operator:
        plan = operator.plan_resolve(key, batch, done=as_ is As.DONE, force=force)
        before: Json = {
            "command": "resolve",
            "key": report_json(plan.report),
            "as": as_.value,
            "after": None,
        }
        if not as_json:
            show_report(plan.report)
        what = "count as done" if plan.done else "be written again"
        more = "commit" if plan.done else "abort"
        also = f", and {more} the {len(plan.open_ids)} that are open" if plan.open_ids else ""
        if ask.goes_on(
            before,
            f"let batch {batch} of '{key}' {what} ({summary(plan.report.transactions)}){also}.",
        ):
            state = operator.resolve(plan)
            ask.end(before, _after(key, state), f"'{key}' is {phase_of(state)}.")


@app.command()
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
            "--force", help="Also while a batch is under way, or the owner's transactions are open."
        ),
    ] = False,
    yes: _Yes = False,
) -> None:
    """Forget a key of the commit log, after its checkpoint was deleted on purpose.

    What is done is forgotten with it: an old checkpoint, or a txnVersion that was done, would be
    written again.
    """
    ask = _Asking(as_json, dry_run, yes)
    where = Cluster(bootstrap_servers, config, log_topic, timeout)
    with operator_of(where, lambda: check_key(key)) as operator:
        report = operator.plan_reset(key, force=force)
        before: Json = {"command": "reset", "key": report_json(report)}
        if not as_json:
            show_report(report)
        if ask.goes_on(before, f"forget '{key}' ({phase_of(report.state)})."):
            operator.reset(report)
            ask.end(before, {"changed": True}, f"'{key}' is forgotten.")


# -- what they share ------------------------------------------------------------------------------


class _Asking:
    """What every change does before it: say what, stop at --dry-run, ask."""

    def __init__(self, as_json: bool, dry_run: bool, yes: bool) -> None:
        if as_json and not dry_run and not yes:
            raise typer.BadParameter("--json asks nothing: give --yes, or --dry-run")
        self.as_json = as_json
        self._dry_run = dry_run
        self._yes = yes

    def goes_on(self, fields: Json, what: str) -> bool:
        """False: --dry-run, and it is said what would be done. Who says no ends the command."""
        if self._dry_run:
            self.end(fields, None, f"Would {what}")
            return False
        if self._yes:
            return True
        unasked = None
        try:
            agreed = typer.confirm(f"{what[:1].upper()}{what[1:]} Go on?", err=True)
        except typer.Abort:  # standard input is at its end
            agreed, unasked = False, "nobody answered: --yes skips the confirmation"
            sys.stderr.write("\n")
        if not agreed:
            complain("nothing was changed", unasked, FAILED)
        return True

    def end(self, fields: Json, after: Json | None, text: str) -> None:
        """The result: ``after`` is None when nothing was changed."""
        if not self.as_json:
            say(text)
            return
        print_json({**fields, "dryRun": self._dry_run, **(after or {"changed": False})})


def _after(key: str, state: CommitState) -> Json:
    return {"changed": True, "after": state_json(key, state)}


def _end(operator: Operator, plan: EndPlan, ask: _Asking, command: str) -> None:
    """Abort what is planned."""
    before: Json = {
        "command": command,
        "transactions": [open_json(t) for t in plan.transactions],
        "kept": dict(plan.kept),
        "ended": [],
        "failed": {},
    }
    if not ask.as_json:
        show_kept("Left alone", plan.kept)
        if plan.transactions:
            show_open("To be aborted", plan.transactions)
    if not plan.transactions:
        ask.end(before, None, "There is nothing to abort.")
        return
    runs = len({t.id.run for t in plan.transactions})
    count = len(plan.transactions)
    what = f"abort {_many(count, 'transaction')} of {_many(runs, 'run')}."
    if not ask.goes_on(before, what):
        return
    aborted = operator.end(plan)
    after: Json = {
        "changed": bool(aborted.ended),
        "kept": {**plan.kept, **aborted.kept},
        "ended": list(aborted.ended),
        "failed": dict(aborted.failed),
    }
    if not ask.as_json:
        show_kept("Left alone after a second look", aborted.kept)
        show_kept("Not aborted", aborted.failed)
    ask.end(before, after, f"Aborted {_many(len(aborted.ended), 'transaction')}.")
    if aborted.failed or (command == "abort" and aborted.kept):
        raise typer.Exit(FAILED)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def duration_ms(text: str) -> int:
    """``15m`` in milliseconds; BadParameter for what is none."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"'{text}' is no time: give a number with ms, s, m, h or d (15m)")
    return int(found[1]) * _UNITS_MS[found[2]]
