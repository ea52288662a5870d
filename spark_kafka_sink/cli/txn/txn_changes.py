"""The changes of ``kprod txn``: fence, commit, abort, sweep, resolve, reset.

This module asks for a confirmation before a change, and sets the exit codes. The arguments of the
commands are in ``txn_commands.py``, and the tables are in ``cli/show.py``.
``transactions/operations/operator.py`` makes a change, or refuses it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import typer

from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.errors import (
    CommitLogError,
    ConfigError,
    ErrorCode,
    RefusedError,
    named,
    safe_text,
)
from spark_kafka_sink.cli.arguments import Asked, Where
from spark_kafka_sink.cli.connection import FAILED, Connected, connected, fail, operator_of
from spark_kafka_sink.cli.show import (
    Json,
    any_open_json,
    open_json,
    phase_of,
    print_json,
    report_json,
    say,
    show_all,
    show_kept,
    show_open,
    show_report,
    show_silent,
    state_json,
    summary,
)
from spark_kafka_sink.datasource.jobs.backfill_ledger import ledger_to_read
from spark_kafka_sink.transactions.commit_state import NOTHING_DONE, CommitState, Standing
from spark_kafka_sink.transactions.operations.inspection import KeyReport, check_key
from spark_kafka_sink.transactions.operations.operator import EndPlan, Operator, task_ids
from spark_kafka_sink.transactions.outcomes import Outcome
from spark_kafka_sink.transactions.transactional_ids import (
    SEPARATOR,
    check_part,
    is_for_no_batch,
    is_once,
    parse,
)

#: The timeout of an id that begins no transaction: any value that brokers allow.
_FENCE_TIMEOUT_MS: Final = 60_000
#: Keys that a question lists.
_MOST_NAMED: Final = 4
#: A plan only reads, and only a write shows that a state is the newest.
_MAY_BE_OLD: Final = (
    "A broker that is cut off may return an old state: if an error says that a batch is decided, "
    "run the command again when all brokers are up."
)


class Confirmation:
    """The confirmation of a change: shows the change, and asks the user whether to make it. With
    ``--yes``, the user is not asked. With ``--dry-run``, the change is only shown.
    """

    def __init__(self, asked: Asked) -> None:
        if asked.as_json and not asked.dry_run and not asked.yes:
            raise typer.BadParameter("--json does not prompt: give --yes, or --dry-run")
        self.as_json = asked.as_json
        self._dry_run = asked.dry_run
        self._yes = asked.yes

    def given(self, fields: Json, what: str) -> bool:
        """Asks the user whether to make the change that the text ``what`` describes. Returns True
        if the answer is yes. Ends the command if the answer is no.

        With ``--yes``, returns True without a question. With ``--dry-run``, prints the change and
        returns False.
        """
        if self._dry_run:
            self.end(fields, None, f"Would {what}")
            return False
        if self._yes:
            return True
        unasked = None
        try:
            agreed = typer.confirm(f"{what[:1].upper()}{what[1:]} Continue?", err=True)
        except typer.Abort:  # standard input is at its end
            agreed, unasked = False, "no answer: --yes skips the confirmation"
            sys.stderr.write("\n")
        if not agreed:
            fail("nothing was changed", unasked, FAILED)
        return True

    def end(self, fields: Json, after: Json | None, text: str) -> None:
        """Prints the result of the command: ``text``, or the JSON of ``fields`` and ``after``.
        ``after`` has the fields that the change added, and is None if nothing was changed.
        """
        if not self.as_json:
            say(text)
            return
        print_json({**fields, "dryRun": self._dry_run, **(after or {"changed": False})})


def fence(where: Where, confirmation: Confirmation, name: str) -> None:
    """Aborts another client's open transaction and fences its producer, after a confirmation. If
    the producer is still running, it fails.
    """
    with connected(where, lambda: _check_another(name), as_json=confirmation.as_json) as to:
        found = to.client.describe([name], to.client.deadline())[name]
        before: Json = {"command": "fence", **any_open_json(found, to.client.clock.wall_ms())}
        if found.state is not TransactionState.ONGOING:
            now = found.state.value if found.error is ErrorCode.NONE else found.error.name
            raise RefusedError(
                f"'{name}' has no open transaction (its coordinator says {now})",
                hint="'kprod txn blockers' and 'kprod txn list' show the ids of open ones",
            )
        if not confirmation.as_json:
            show_all([found], to.client.clock.wall_ms())
        if confirmation.given(
            before,
            f"abort the open transaction of '{name}', and fence its producer. If the producer is "
            "running, it fails.",
        ):
            to.client.init_producer_id(name, _FENCE_TIMEOUT_MS, to.client.deadline())
            confirmation.end(
                before, {"changed": True}, f"'{name}' has no open transaction any more."
            )


def commit(where: Where, confirmation: Confirmation, key: str) -> None:
    """Commits the transactions of a batch in the phase DECIDED, after a confirmation. DECIDED means
    that the commit log has the decision to commit the batch. Some transactions may still be open.

    If brokers have aborted some of the transactions and none is committed, the batch is undone: all
    its transactions are aborted, none of its rows is visible, and the exit code is 1.
    """
    with operator_of(where, lambda: check_key(key), as_json=confirmation.as_json) as operator:
        _commit(operator, confirmation, key)


def _commit(operator: Operator, confirmation: Confirmation, key: str) -> None:
    report = operator.plan_commit(key)
    before: Json = {"command": "commit", "key": report_json(report), "after": None}
    decision = report.state.decision
    if decision is None:
        read = f"No decision was read under '{key}': {phase_of(report.state)}."
        confirmation.end(before, None, f"{read} {_MAY_BE_OLD}")
        return
    if not confirmation.as_json:
        show_report(report)
    warning = ""
    lost = report.with_outcome(Outcome.LOST)
    unknown = report.with_outcome(Outcome.UNKNOWN)
    if lost and report.with_outcome(Outcome.COMMITTED):
        warning = f" {len(lost)} are lost: the batch will be PARTIAL."
    elif unknown:
        also = f" {len(lost)} are lost, and" if lost else ""
        warning = f"{also} {len(unknown)} are unknown to their coordinators: this will fail."
    elif lost:
        becomes = "be undone: none of its rows becomes visible"
        warning = f" {len(lost)} are lost: the batch will {becomes}."
    task = parse(decision.ids[0])
    if task is not None and is_once(key, task.run):
        warning += " If its job was run again, all rows are duplicated."
    what = f"batch {decision.number} of '{key}', {len(decision.ids)} transactions."
    if confirmation.given(before, f"commit {what}{warning}"):
        state, committed = operator.commit(report)
        after = {**_after(key, state), "committed": committed}
        if committed:
            shown = f"Batch {decision.number} is committed. '{key}' is {phase_of(state)}."
            confirmation.end(before, after, shown)
            return
        confirmation.end(
            before,
            after,
            f"Batch {decision.number} of '{key}' is undone: some of its transactions were "
            "aborted before any was committed, so all are aborted, and none of its rows is "
            "visible. Start its query, which writes the batch again. A job must be run again.",
        )
        raise typer.Exit(FAILED)


def abort(where: Where, confirmation: Confirmation, ids: Sequence[str], *, force: bool) -> None:
    """Aborts the open transactions with the transactional ids ``ids``, after a confirmation. If
    ``force`` is False, the command refuses, and aborts nothing, in two cases:

    - One of the transactions is decided: the commit log contains the decision to commit its batch.
    - One of the transactions belongs to a run that owns its key in the commit log. A run is one
      start of a query or job. The run owns the key until a later run takes over.
    """
    with operator_of(where, lambda: task_ids(ids), as_json=confirmation.as_json) as operator:
        _end(operator, operator.plan_abort(ids, force=force), confirmation, "abort")


def abort_run(
    where: Where, confirmation: Confirmation, prefix: str, run: str, *, force: bool
) -> None:
    """Aborts all open transactions of the run with the id ``run``, after a confirmation. A run is
    one start of a query or job. If ``force`` is False, the command refuses, and aborts nothing, in
    two cases:

    - One of the transactions is decided: the commit log contains the decision to commit its batch.
    - The run owns its key in the commit log: no later run of the query or job has taken over.
    """
    with operator_of(
        where, lambda: _check_run(prefix, run), as_json=confirmation.as_json
    ) as operator:
        _end(operator, operator.plan_abort_run(prefix, run, force=force), confirmation, "abort")


def sweep(
    where: Where,
    confirmation: Confirmation,
    prefix: str,
    *,
    run: str | None,
    older_than_ms: int | None,
    force: bool,
) -> None:
    """Aborts the orphans of a prefix, after a confirmation. An orphan is an open transaction that
    fulfils two conditions:

    * The commit log has no decision to commit the transaction's batch.
    * The transaction's run owns no key in the commit log. A run is one start of a query or job. A
      key is the name of a query or job. A run owns its key until a later run takes over.

    The arguments:

    * ``run``: if given, only transactions of this run are aborted.
    * ``older_than_ms``: if given, only transactions that have been open for longer are aborted.
      This limit protects a running job in its first batch. The commit log does not name the job's
      run yet, so the job's transactions look like orphans. If they are aborted, the job fails.
    * ``force``: if True, transactions of a run that owns a key are also aborted.
    """
    with operator_of(
        where, lambda: _check_run(prefix, run), as_json=confirmation.as_json
    ) as operator:
        plan = operator.plan_sweep(prefix, run=run, older_than_ms=older_than_ms, force=force)
        _end(operator, plan, confirmation, "sweep")


def resolve(
    where: Where, confirmation: Confirmation, key: str, batch: int, *, done: bool, force: bool
) -> None:
    """Ends a batch in the phase PARTIAL, after a confirmation. PARTIAL means that some transactions
    of the batch are committed, and others are lost.

    If ``done`` is True, the batch counts as written, without the lost rows. If ``done`` is False,
    the query writes the batch again, and the committed rows are duplicated.
    """
    with operator_of(where, lambda: check_key(key), as_json=confirmation.as_json) as operator:
        plan = operator.plan_resolve(key, batch, done=done, force=force)
        before: Json = {
            "command": "resolve",
            "key": report_json(plan.report),
            "as": "done" if done else "replay",
            "after": None,
        }
        if not confirmation.as_json:
            show_report(plan.report)
        what = "count as done" if plan.done else "be written again"
        more = "commit" if plan.done else "abort"
        also = f", and {more} the {len(plan.open_ids)} that are open" if plan.open_ids else ""
        if confirmation.given(
            before,
            f"let batch {batch} of '{key}' {what} ({summary(plan.report.transactions)}){also}.",
        ):
            state = operator.resolve(plan)
            confirmation.end(before, _after(key, state), f"'{key}' is {phase_of(state)}.")


def reset(where: Where, confirmation: Confirmation, key: str, *, force: bool) -> None:
    """Forgets the batches of a key of the commit log, after a confirmation. If a forgotten batch is
    written again, its rows are duplicated.

    Only the key's generation stays in the commit log: a number that rises with each reset and with
    each new run of the query or job.
    """
    with connected(where, lambda: check_key(key), as_json=confirmation.as_json) as to:
        _reset(to, confirmation, key, force=force)


def _reset(to: Connected, confirmation: Confirmation, key: str, *, force: bool) -> None:
    operator = Operator(to.log, to.client)
    if force and (damage := operator.damage(key)) is not None:
        _forget(operator, confirmation, key, damage)
        return
    report = operator.plan_reset(key, force=force)
    backfill = "" if force else _unsettled(to, key)
    if backfill:
        raise RefusedError(
            f"{backfill}: after a reset, the next call would write its rows again, even if they are"
            " visible already",
            hint="call backfill once more, which finds out whether they are; or use --force",
        )
    before: Json = {"command": "reset", "key": report_json(report)}
    if not confirmation.as_json:
        show_report(report)
    what = f"forget '{key}' ({phase_of(report.state)}).{_duplicates(key, report)}"
    if confirmation.given(before, what):
        operator.reset(report)
        confirmation.end(before, {"changed": True}, f"'{key}' is forgotten.")


def _unsettled(to: Connected, key: str) -> str:
    """A text with the txnVersion of the backfill's unfinished step. Empty if there is no such step,
    or if ``key`` does not belong to a backfill.

    The process of the backfill may have died after it wrote the rows of the step. Then only the
    state of ``key`` in the commit log shows that these rows are written. So ``key`` must not be
    forgotten.
    """
    prefix, _, name = key.partition(SEPARATOR)
    progress = ledger_to_read(to.client, to.log, prefix, name).progress() if name else None
    if progress is None or progress.step is None:
        return ""
    return f"txnVersion {progress.step.version} of the backfill '{name}' is not settled"


def _duplicates(key: str, report: KeyReport) -> str:
    """A warning for the user before a reset, or an empty text.

    - For a job without txnAppId, the warning says that the job may still be running, and can then
      commit after the reset.
    - For any other key, the warning names the batches whose rows may be duplicated.
    """
    state = report.state
    if is_once(key, state.newest_run):
        return " If its job is still running, the job can commit then."
    told = ""
    if state.decision is not None:
        told += (
            f" Batch {state.decision.number} is not ended ({summary(report.transactions)}): the "
            "rows of its committed transactions are duplicated if it is written again."
        )
    if state.last_done != NOTHING_DONE:
        told += (
            f" If batch {state.last_done} or an earlier one is written again, its rows are "
            "duplicated. A query or a backfill whose driver died may repeat its last batch."
        )
    return told


def _forget(
    operator: Operator, confirmation: Confirmation, key: str, damage: CommitLogError
) -> None:
    """Forgets the batches of ``key``, after a confirmation. The records of ``key`` in the commit
    log can't be read. ``damage`` is the error of the read.
    """
    before: Json = {"command": "reset", "key": {"key": key, "error": damage.message}}
    if not confirmation.as_json:
        say(f"{damage.message}. Whether its last batch is committed is not known.")
    if confirmation.given(before, f"forget '{key}', whose records can't be read."):
        operator.forget(key)
        confirmation.end(before, {"changed": True}, f"'{key}' is forgotten.")


# -- what they share ------------------------------------------------------------------------------


def _check_another(name: str) -> None:
    if parse(name) is not None:
        raise ConfigError(
            f"'{safe_text(name, 400)}' is the transactional id of a task of this package",
            hint="'kprod txn abort' ends it, after checking the commit log",
        )
    if is_for_no_batch(name):
        raise ConfigError(
            f"'{safe_text(name, 400)}' is the transactional id of a driver of this package: it "
            "writes the commit log",
            hint="the transaction ends in a moment, or times out; the next start of the query"
            " fences the driver",
        )


def _check_run(prefix: str, run: str | None) -> None:
    check_part("PREFIX", prefix)
    if run is not None:
        check_part("RUN", run)


def _after(key: str, state: CommitState) -> Json:
    return {"changed": True, "after": state_json(key, state)}


def _end(operator: Operator, plan: EndPlan, confirmation: Confirmation, command: str) -> None:
    """Aborts the transactions of ``plan`` after a confirmation. Also shows the transactions that
    are not aborted, with the reasons.
    """
    before: Json = {
        "command": command,
        "transactions": [open_json(t) for t in plan.transactions],
        "kept": dict(plan.kept),
        "ended": [],
        "failed": {},
        "silent": list(plan.silent),
    }
    if not confirmation.as_json:
        show_kept("Kept", plan.kept)
        if plan.transactions:
            show_open("To be aborted", plan.transactions)
        show_silent(plan.silent)
    _end_known(operator, plan, confirmation, before)
    if plan.silent:
        raise typer.Exit(FAILED)


def _end_known(operator: Operator, plan: EndPlan, confirmation: Confirmation, before: Json) -> None:
    if not plan.transactions:
        known = "There is nothing to abort" + " on the others" * bool(plan.silent)
        confirmation.end(before, None, f"{known}.")
        return
    runs = len({t.id.run for t in plan.transactions})
    count = len(plan.transactions)
    what = f"abort {_many(count, 'transaction')} of {_many(runs, 'run')}.{_who_fails(plan)}"
    if not confirmation.given(before, what):
        return
    aborted = operator.end(plan)
    after: Json = {
        "changed": bool(aborted.ended or aborted.runs),
        "kept": {**plan.kept, **aborted.kept},
        "ended": list(aborted.ended),
        "failed": dict(aborted.failed),
    }
    if not confirmation.as_json:
        show_kept("Kept after the second check", aborted.kept)
        show_kept("Not aborted", aborted.failed)
    said = f"Aborted {_many(len(aborted.ended), 'transaction')}."
    if aborted.runs:
        said += f" Runs that can't commit any more: {named(aborted.runs, _MOST_NAMED)}."
    confirmation.end(before, after, said)
    if aborted.failed or (before["command"] == "abort" and aborted.kept):
        raise typer.Exit(FAILED)


def _who_fails(plan: EndPlan) -> str:
    """A warning for the user: the jobs that fail if they still run when the transactions of
    ``plan`` are aborted. The text is empty if no such job can be running.
    """
    told = ""
    if owned := {t.id.key for t in plan.transactions if t.standing is Standing.OWNER}:
        keys = named([f"'{key}'" for key in sorted(owned)], _MOST_NAMED)
        told += f" The query of {keys} owns some of them: if it is running, it fails."
    if any(t.standing is Standing.UNKNOWN for t in plan.transactions):
        told += (
            " A run that is not in the commit log belongs to a dead job, or to a job that has not"
            " committed anything yet: if the job is running, it fails."
        )
    return told


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
