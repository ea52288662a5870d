"""The result of an abort: how many rows of the batch are visible to consumers with read_committed.

Spark may abort a batch after its commit has begun, or even after the commit has succeeded. So the
batch may be decided, done, or committed only in part. This module sends no request: the abort
itself (``committer.py``) has collected all facts.
"""

from __future__ import annotations

from spark_kafka_sink.transactions.commit_state import Decision
from spark_kafka_sink.transactions.result_errors import error_of
from spark_kafka_sink.transactions.results import (
    AbortResult,
    Commit,
    DecidedBefore,
    Refuse,
    Visible,
    in_part,
)
from spark_kafka_sink.transactions.steps import AbortBatch, View


def result_of_abort(goal: AbortBatch, view: View) -> AbortResult:
    """Returns the result of the abort ``goal``, from all facts that the abort has collected."""
    decision = view.state.decision
    if view.is_aborted is None and decision is not None:
        return _of_decided(goal, decision, view.state.lost)
    # The transactions of the batch show whether its rows are visible. A done batch with its number
    # may have rows of another run, or of another thread that writes the same version.
    is_done = view.were_committed
    if is_done is None:
        # (This abort may have made its run the newest one, so the first state counts, too.)
        by_us = view.state.newest_run == view.first_run == goal.owner.run_id
        by_us = by_us and goal.owner.numbering.is_of_micro_batches
        is_done = by_us and view.state.done_batch(goal.number) is not None
    return AbortResult(view.swept, Visible.ALL if is_done else Visible.NONE)


def _of_decided(goal: AbortBatch, decision: Decision, lost: tuple[str, ...]) -> AbortResult:
    """The result if the log has the decision to commit the batch. An abort never undoes it."""
    how = Refuse(Commit.UNKNOWN, DecidedBefore(goal.number))
    if lost:
        how = in_part(decision, lost)
    return AbortResult((), how.visible, error_of(goal.key, how), is_decided=True)
