"""Commits or aborts transactions for an operator's command.

:func:`abort_exactly` performs the step ``AbortExactly`` of ``kprod txn abort`` and ``sweep``.
:func:`end_rest` performs the step ``EndRest`` of ``kprod txn resolve``. ``table.py`` chooses the
transactions of a step from those that the command names, and the records that the command writes to
the commit log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.transactions.ending import commit_all, described_when_ended
from spark_kafka_sink.transactions.outcomes import Outcome, outcome_of
from spark_kafka_sink.transactions.steps import AbortExactly, Ended, EndRest

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient

_ONGOING: Final = TransactionState.ONGOING


def abort_exactly(client: TransactionClient, step: AbortExactly) -> Ended:
    """Aborts the transactions of ``step`` that have not changed since the operator's command has
    read their descriptions: they are open, and have the same producer id and epoch.

    All other transactions are left alone. The field ``meanwhile`` of the result has their ids.
    """
    ids = [one.transactional_id for one in step.transactions]
    found = described_when_ended(client, ids, client.deadline()) if ids else {}
    open_ = {}
    for one in step.transactions:
        now = found[one.transactional_id]
        same = one.producer_id, one.producer_epoch
        if now.state is _ONGOING and (now.producer_id, now.producer_epoch) == same:
            open_[one.transactional_id] = now
    meanwhile = tuple(i for i in ids if i not in open_)
    if not open_:
        return Ended(meanwhile=meanwhile)
    answers = client.abort_exactly(open_, client.deadline(), prepared=step.prepared)
    failed = tuple((i, code) for i, code in answers.items() if code is not ErrorCode.NONE)
    aborted = tuple(i for i in open_ if answers.get(i) is ErrorCode.NONE)
    return Ended(aborted, meanwhile, failed)


def end_rest(client: TransactionClient, step: EndRest) -> tuple[str, ...]:
    """Ends the open transactions of ``step.decision``. If ``step.done`` is true, the operator wants
    the batch to count as done, and the transactions are committed. If it is false, they are
    aborted.

    Returns the ids of the decision's transactions that did not end as the operator wants:

    * The transaction was open, and could not be ended now.
    * ``step.done`` is true, and the transaction was already aborted, or its outcome was unknown.
    * ``step.done`` is false, and the transaction was already committed.

    Exception: in the last two cases, an id in ``step.accepted`` is left out, because the operator
    has accepted the outcome of this transaction.
    """
    decision = step.decision
    described = client.describe(decision.ids, client.deadline())
    outcomes = {
        t.transactional_id: outcome_of(t, described[t.transactional_id])
        for t in decision.transactions
    }
    found = {i: described[i] for i, how in outcomes.items() if how is Outcome.RETRY}
    if not step.done:
        answers = client.abort_exactly(found, client.deadline(), prepared=found) if found else {}
        failed = (i for i, code in answers.items() if code is not ErrorCode.NONE)
        committed = (i for i, how in outcomes.items() if how is Outcome.COMMITTED)
        return (*failed, *(i for i in committed if i not in step.accepted))
    gone = (i for i, how in outcomes.items() if how in (Outcome.LOST, Outcome.UNKNOWN))
    # (Brokers would drop the markers of transactions that have a partition without a leader.)
    away = client.leaderless(found, client.deadline())
    left = [
        t
        for t in decision.transactions
        if t.transactional_id in found and t.transactional_id not in away
    ]
    ended = commit_all(
        client,
        left,
        client.deadline(),
        is_one_committed=Outcome.COMMITTED in outcomes.values(),
    )
    more = (i for i in gone if i not in step.accepted)
    return (*more, *away, *ended.lost, *ended.unknown, *ended.unclear)
