"""``kprod backfill``: shows the progress of a backfill, or deletes its progress and its plan.

This module has the command and its output. ``datasource/jobs/backfill_ledger.py`` has the records
of progress and plan in the commit log.
"""

from __future__ import annotations

from dataclasses import asdict

from spark_kafka_sink.base.errors import CommitLogError, RefusedError, safe_text
from spark_kafka_sink.cli.arguments import Asked, Where
from spark_kafka_sink.cli.connection import connected
from spark_kafka_sink.cli.show import Json, print_json, say
from spark_kafka_sink.cli.txn.txn_changes import Confirmation
from spark_kafka_sink.datasource.jobs.backfill_ledger import Ledger, Progress, ledger_to_read
from spark_kafka_sink.datasource.jobs.backfill_plan import BackfillPlan
from spark_kafka_sink.datasource.jobs.backfill_result import totals
from spark_kafka_sink.transactions.transactional_ids import check_part

#: Characters of a fact of the plan.
_MOST_SHOWN = 200


def show(where: Where, prefix: str, name: str, *, as_json: bool) -> None:
    """Shows the progress and the plan of a backfill. Changes nothing."""
    with connected(where, lambda: _check(prefix, name), as_json=as_json) as to:
        ledger = ledger_to_read(to.client, to.log, prefix, name)
        progress = ledger.progress()
        if progress is None:
            raise _no_such(prefix, name)
        plan, damage = _plan(ledger, progress)
    if as_json:
        print_json(_json(name, progress, plan, damage))
        return
    for line in _lines(name, progress, plan, damage):
        say(line)


def forget(where: Where, asked: Asked, prefix: str, name: str) -> None:
    """Deletes the progress and the plan of a backfill, after a confirmation. Records that this
    version of the package can't read are also deleted.

    The rows that the backfill has already written stay in the topic. The next ``backfill()`` with
    this name writes all rows again, so the rows in the topic are duplicated.
    """
    confirmation = Confirmation(asked)
    check = lambda: _check(prefix, name)  # noqa: E731 - as the others
    with connected(where, check, as_json=confirmation.as_json) as to:
        ledger = ledger_to_read(to.client, to.log, prefix, name)
        fields, what = _to_forget(ledger, prefix, name)
        if confirmation.given(fields, what):
            ledger.forget()
            confirmation.end(fields, {"changed": True}, f"Forgotten: backfill {name}.")


def _to_forget(ledger: Ledger, prefix: str, name: str) -> tuple[Json, str]:
    """The progress and the plan of the backfill as JSON, and the question for the confirmation."""
    again = "and the next call of that name writes all rows once more."
    try:
        progress = ledger.progress()
    except CommitLogError as error:
        if not ledger.has_progress():
            raise
        what = f"forget the backfill {name} ({error.message}): its rows stay written, {again}"
        return {"command": "backfill", "name": name, "damage": error.message}, what
    if progress is None:
        raise _no_such(prefix, name)
    what = (
        f"forget the backfill {name}: {progress.rows:,} rows in {progress.steps} steps stay "
        f"written, {again}"
    )
    if progress.caller is not None:
        what += f" The last call was of {progress.caller}: make sure that it has ended."
    return _json(name, progress, *_plan(ledger, progress)), what


def _plan(ledger: Ledger, progress: Progress) -> tuple[BackfillPlan | None, str]:
    """The plan of the backfill, or None and the reason why the plan can't be read."""
    try:
        return ledger.plan_of(progress), ""
    except CommitLogError as error:
        return None, error.message


def _check(prefix: str, name: str) -> None:
    check_part("--prefix", prefix)
    check_part("NAME", name)


def _no_such(prefix: str, name: str) -> RefusedError:
    return RefusedError(
        f"there is no backfill '{name}' with the transactionalIdPrefix '{prefix}'",
        hint="it begins with the first call of backfill(..., name=...); --prefix is its option "
        "transactionalIdPrefix",
    )


def _share(progress: Progress, plan: BackfillPlan | None) -> float:
    if plan is None:
        return 0.0
    return plan.weight(0, progress.at) / (plan.weight(0, plan.end) or 1.0)


def _json(name: str, progress: Progress, plan: BackfillPlan | None, damage: str) -> Json:
    step = progress.step
    return {
        "command": "backfill",
        "name": name,
        "finished": plan is not None and progress.at >= plan.end,
        "share": None if damage else round(_share(progress, plan), 4),
        "steps": progress.steps,
        "rows": progress.rows,
        "bytes": progress.bytes,
        "milliseconds": progress.ms,
        "openStep": None if step is None else step.version,
        "caller": None if progress.caller is None else asdict(progress.caller),
        "ranges": None if plan is None else len(plan.bounds) + 1,
        "pin": None if plan is None else plan.pin,
        "plan": None if plan is None else dict(plan.facts),
        "damage": damage or None,
    }


def _lines(name: str, progress: Progress, plan: BackfillPlan | None, damage: str) -> list[str]:
    done = plan is not None and progress.at >= plan.end
    share = "a share that is not known" if damage else f"{_share(progress, plan):.0%}"
    state = "finished" if done else f"{share} written"
    written = totals(progress.steps, progress.rows, progress.bytes, ", ")
    lines = [f"{name}: {state}, {written}"]
    if progress.step is not None:
        lines.append(f"txnVersion {progress.step.version} was begun, and is not settled")
    caller = progress.caller
    lines.append("no call runs" if caller is None else f"the last call is, or was, of {caller}")
    if plan is not None:
        lines += [f"{one}: {safe_text(text, _MOST_SHOWN)}" for one, text in plan.facts.items()]
        if plan.pin:
            lines.append(f"version that is read: {plan.pin}")
    if damage:
        lines.append(damage)
    return lines
