"""The result of an abort: how many rows of the batch are visible to consumers with read_committed.

Spark may abort a batch after its commit has begun, or even after the commit has succeeded. So the
batch may be decided, done, or committed only in part. This module sends no request: the abort
itself (``committer.py``) has collected all facts.
"""

from __future__ import annotations

from spark_kafka_sink.admin.transaction_description import TransactionDescription
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_state import Decision
from spark_kafka_sink.transactions.outcomes import (
    Outcome,
    is_committed,
    is_lost,
    is_prepared,
    outcome_of,
)
from spark_kafka_sink.transactions.ownership import Numbering
from spark_kafka_sink.transactions.result_errors import error_of
from spark_kafka_sink.transactions.results import (
    AbortResult,
    Commit,
    DecidedBefore,
    EndNotShown,
    Refuse,
    StaysInPart,
    Visible,
    in_part,
)
from spark_kafka_sink.transactions.steps import AbortBatch, View


def result_of_abort(goal: AbortBatch, view: View, *, may_be_committed: bool) -> AbortResult:
    """Returns the result of the abort ``goal``, from all facts that the abort has collected.
    ``may_be_committed`` is False if no commit of the batch has begun.
    """
    decision = view.state.decision
    if view.is_aborted is None and decision is not None:
        return _of_decided(goal, decision, view.state.lost)
    if not may_be_committed:
        return AbortResult(view.swept)
    # The transactions of the batch show whether its rows are visible. A done batch with its number
    # may have rows of another run, or of another thread that writes the same version.
    visible = _by_descriptions(goal, view) if goal.transactions else _by_log(goal, view)
    if visible is Visible.SOME:
        lost = tuple(
            t.transactional_id for t, now in _pairs(goal, view) if not is_committed(t, now)
        )
        reason = StaysInPart(goal.number, len(goal.transactions), lost)
        error = error_of(goal.key, Refuse(Commit.PARTIAL, reason))
        return AbortResult(view.swept, visible, error)
    if visible is Visible.UNKNOWN:
        error = error_of(goal.key, Refuse(Commit.UNKNOWN, EndNotShown(goal.number)))
        return AbortResult(view.swept, visible, error)
    return AbortResult(view.swept, visible)


def _of_decided(goal: AbortBatch, decision: Decision, lost: tuple[str, ...]) -> AbortResult:
    """The result if the log has the decision to commit the batch. An abort never undoes it."""
    how = Refuse(Commit.UNKNOWN, DecidedBefore(goal.number))
    if lost:
        how = in_part(decision, lost)
    return AbortResult((), how.visible, error_of(goal.key, how), is_decided=True)


def _by_log(goal: AbortBatch, view: View) -> Visible:
    """Whether a batch is done, by the state of the key. Only for a batch without a task's
    transaction: it is the end of a block, or commits only the offsets of a consumer group. The log
    does not show whose rows a done batch has: another driver may have committed them.

    UNKNOWN if another run has taken over the key, or if an operator has reset the key.
    """
    state = view.state
    # (This abort may have made its run the newest one, so the first state counts, too.)
    by_us = state.newest_run == view.first_run == goal.owner.run_id
    if not by_us or not goal.owner.numbering.is_of_micro_batches:
        return Visible.UNKNOWN
    done = state.done_batch(goal.number)
    if done is None:
        # (An operator may have resolved a PARTIAL batch, to be written again. This is not shown.)
        return Visible.NONE if state.last_done < goal.number else Visible.UNKNOWN
    # (If an operator has resolved the batch as done, it has neither.)
    return Visible.ALL if done.payloads or done.digest else Visible.UNKNOWN


def _pairs(
    goal: AbortBatch, view: View
) -> list[tuple[PreparedTransaction, TransactionDescription]]:
    """Each transaction of the batch, with its description before the abort. Empty if there is no
    description.
    """
    return list(zip(goal.transactions, view.before_abort, strict=False))


def _by_descriptions(goal: AbortBatch, view: View) -> Visible:
    """How many rows are visible, by the coordinators' descriptions of the batch's transactions.
    UNKNOWN if there are no descriptions, or if these do not show it.
    """
    pairs = _pairs(goal, view)
    committed = [is_committed(t, now) for t, now in pairs]
    # (The abort has ended the open transactions, or they time out: the log has no decision.)
    not_committed = [is_prepared(t, now) or _is_aborted(goal, t, now) for t, now in pairs]
    if not pairs:
        return Visible.UNKNOWN
    if all(committed):
        return Visible.ALL
    if all(not_committed):
        return Visible.NONE
    return Visible.SOME if any(committed) and any(not_committed) else Visible.UNKNOWN


def _is_aborted(
    goal: AbortBatch, transaction: PreparedTransaction, now: TransactionDescription
) -> bool:
    # Other threads of the run may write later versions, in transactions with the same ids. In all
    # other cases, this abort comes before the next batch of the run.
    if goal.owner.numbering is Numbering.VERSIONS:
        return is_lost(transaction, now)
    return outcome_of(transaction, now) is Outcome.LOST
