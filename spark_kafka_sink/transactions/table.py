"""The rules of "Who may act when" of docs/design/commit-protocol.md, as one table for each goal.

Each row of a table is a function of a goal and a view (see the list). A row that applies returns
the next step. A row that does not apply returns None. The first row that applies counts. The
docstring of a row is its rule: the condition under which the row applies, and what the next step
does. docs/design/commit-protocol.md has a copy of these rules. :func:`next_step` is a pure
function. ``committer.py`` performs the steps.

* A *goal* is the work that a caller requests for one key of the commit log, such as the commit of a
  batch. A key is the name of a query or of a job.
* The *view* has all facts that the process has collected for the goal.
* A *step* is the next request, or the result that ends the goal.
* To *open* a key means to fence its earlier writers, and to read its state.
* A *run* is one start of a query or a job.
* The *owner* of a key is the run that may commit its batches.
* If another run takes the key over, the earlier owner is *superseded*: its commits are refused.
* The *generation* is a number in the state of the key. Each take-over raises it.
* A run *plans* a batch before the tasks start. The generation of a batch is the generation of its
  key at the planning. The ids of the batch's transactions contain the run and this generation.
* A batch is *decided* if the log has the decision to commit its transactions. The decision names
  these transactions.
* A batch is *done* if the log shows that nothing of the batch is left to commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from spark_kafka_sink.admin.transaction_description import TransactionDescription
from spark_kafka_sink.base.errors import (
    BatchError,
    CommitLogError,
    CommitOutcomeUnknownError,
    KafkaError,
    KafkaTimeoutError,
    PartialCommitError,
)
from spark_kafka_sink.transactions.batches import (
    Batch,
    decision_of,
    done_refusal,
    number_refusal,
)
from spark_kafka_sink.transactions.commit_state import (
    NOTHING_DONE,
    CommitState,
    Decision,
    Done,
    Part,
    Payload,
    Phase,
    Standing,
)
from spark_kafka_sink.transactions.ownership import Numbering
from spark_kafka_sink.transactions.results import (
    BatchBefore,
    Changed,
    Commit,
    Contradicted,
    Fate,
    NotInTime,
    NotRecorded,
    OutcomeUnknown,
    Refuse,
    RunAborted,
    Undone,
    in_part,
    not_finished,
    outcome_of_decision,
    perhaps_decided,
    raised,
    refused,
)
from spark_kafka_sink.transactions.steps import (
    AbortAll,
    AbortBatch,
    AbortExactly,
    AbortUnknown,
    CommitBatch,
    Confirm,
    Decide,
    EndAll,
    EndByHand,
    EndRest,
    Failed,
    Failure,
    Forget,
    Goal,
    LookAt,
    Open,
    PrepareOwn,
    Read,
    Remove,
    Reset,
    Resolve,
    Return,
    RollForward,
    Search,
    Step,
    Sweep,
    View,
    Write,
    Writing,
)
from spark_kafka_sink.transactions.transactional_ids import TransactionalId, is_once, parse

#: If other processes keep opening a key, this process opens the key at least this number of times,
#: even if max.block.ms is over.
MOST_OPENINGS: Final = 5
#: If it is unknown whether a write is in the log, this process opens the key at least this number
#: of times, even if max.block.ms is over. Each opening may show whether the log has the write.
MOST_UNCLEAR: Final = 3
#: The longest pause while a partition has no leader.
LEADER_MS: Final = 500
#: The reasons for which an operator's command leaves a transaction open.
DECIDED: Final = "its batch is decided"
OWNED: Final = "its run is the owner in the commit log"
#: The failures that depend on the state of the key. The leader of the log's partition must confirm
#: the state before the caller gets such a failure.
_NEED_NEWEST_STATE: Final = (Commit.NOT_VISIBLE, Commit.PARTIAL, Commit.NOT_REACHED)
#: The fate of a decision's transactions when a write with this purpose has failed.
_FATES: Final = {
    Writing.DONE: Fate.ENDED,
    Writing.UNDONE: Fate.ABORTED,
    Writing.LOST: Fate.NOT_ENDED,
    Writing.CONFIRMED: Fate.NOT_ENDED,
}


def next_step(goal: Goal, view: View) -> Step:
    """Returns the next step towards ``goal``. The first row in the goal's table that applies gives
    this step.

    Exception: the state of an open key may be old. So before some steps, the result is
    :class:`Confirm`. :func:`_needs_newest_state` selects these steps.
    """
    found = (row(goal, view) for row in TABLES[type(goal)])
    step = next(step for step in found if step is not None)
    # The state may be old, because a deposed leader may have returned it: a broker that no longer
    # leads the log's partition, and does not know that. The leader confirms the state by
    # acknowledging a write. A take-over by another run is not confirmed: it is certain even if the
    # state is old, and the write would fence the other run.
    # (If a step has failed, for example Confirm itself, there is no further Confirm.)
    is_to_be_shown = view.is_open and not view.is_confirmed and view.failed is None
    return Confirm() if is_to_be_shown and _needs_newest_state(goal, step) else step


def _needs_newest_state(goal: Goal, step: Step) -> bool:
    """Whether ``step`` is right only if the state is the newest. If True, the leader of the log's
    partition must confirm the state before ``step``. These steps need the newest state:

    * For any goal: to fail with NOT_VISIBLE, PARTIAL or NOT_REACHED.
    * For an operator's abort or sweep: to abort the transactions, and to end without an error.
    * For an operator's resolve or reset: to end without an error.
    """
    if isinstance(step, Refuse):
        return step.how in _NEED_NEWEST_STATE
    if isinstance(goal, EndByHand):
        return isinstance(step, AbortExactly | Return)
    return isinstance(goal, Resolve | Reset) and isinstance(step, Return)


def decides_next(goal: Goal, view: View) -> bool:
    """Whether the next step of ``goal`` writes the decision to commit its batch. False if the
    driver must first write the batch's report or its consumer group's offsets.
    """
    # (A commit uses a session of the log that an earlier commit of this process has kept, but only
    # if the result is True. If another process has fenced the session, only a write shows that. The
    # driver would notice it after it has prepared the report and the offsets. By then the other
    # process may have committed the batch, and an error of the report's topic would hide this
    # commit.)
    if isinstance(goal, CommitBatch) and goal.batch.report is None and goal.batch.offsets is None:
        view = replace(view, own=())  # there are none to prepare
    return isinstance(next_step(goal, view), Decide)


# --- each goal ---------------------------------------------------------------------------------


def a_step_has_failed(goal: Goal, view: View) -> Step | None:
    """If a step has failed, the next step opens the key again, for another attempt. For example,
    another driver may have fenced this driver. Exception: the roll forward, the commit, the abort
    or the operator's command fails if another attempt would not help, or if the time for attempts
    is over.
    """
    if view.failed is None:
        return None
    # A fenced driver opens the key again, because the other driver may be superseded, and stop:
    #   1. B opens the log, and finds that it may take over.
    #   2. A, stalled until now, opens the log: B is fenced.
    #   3. A finds itself superseded, and stops.
    #   4. B's write is refused. B opens the key again, and finds no decision, or A's decision.
    again = _again(view, view.failed)
    return _failure(goal, view, view.failed) if again is None else again


def the_key_is_not_open(_: Goal, view: View) -> Step | None:
    """If this process does not have the key open, the next step opens the key. To open a key, the
    process sends InitProducerId for the transactional id of the log's writer (`{key}~~log`). This
    fences every earlier writer of the key. Then the process reads the key's state from the log.
    """
    return None if view.is_open else Open()


def it_is_over(_: Goal, __: View) -> Step | None:
    """If no earlier row of this table applies, nothing is left to do. The roll forward, the abort
    or the operator's command ends, and its caller gets the result.
    """
    return Return()


# --- planning, roll forward, an operator's commit ----------------------------------------------


def the_key_is_not_read(_: RollForward, view: View) -> Step | None:
    """If the state of the key is not known yet, the next step reads it from the log, without
    opening the key. So other drivers can still write the key.
    """
    return None if view.is_read or view.is_open else Read()


def the_state_that_was_read_is_enough(goal: RollForward, view: View) -> Step | None:
    """The caller of a roll forward has a check that accepts or refuses a state of the key. If no
    write is in progress, and no batch is DECIDED or PARTIAL, this row checks the state that was
    read without opening the key. If the check accepts the state, the roll forward ends, and its
    caller gets this state. If the check finds that another run has taken over, the roll forward
    fails at once. If the check refuses the state for another reason, later rows open the key, and
    check the state again.
    """
    if view.is_open or not view.is_settled or view.state.phase is not Phase.DONE:
        return None
    refusal = goal.refusal(view.state)
    if refusal is None:
        return Return()
    return None if refusal.how is Commit.NOT_VISIBLE else refusal


def a_batch_is_decided(goal: RollForward, view: View) -> Step | None:
    """If the log has the decision to commit a batch, the roll forward ends the transactions of the
    decision, and then writes the result to the log. There are four results. First, the usual
    result: all transactions are committed, and the batch becomes DONE. Second: if none is committed
    or has an unknown outcome, and some were aborted or are near their timeout, the roll forward
    aborts all, and removes the decision from the log. Exception: for an operator's command, the
    roll forward does not abort all only because some are near their timeout. Third: if some are
    committed and others were aborted, the roll forward adds the list `lost` of the aborted
    transactions to the state, and fails. A later roll forward that finds this list also fails.
    Fourth: if the outcome of a transaction stays unknown, the roll forward fails.
    """
    decision = view.state.decision
    if decision is None:
        return None
    return _end(goal, view, decision, only_lost=goal.only_lost)


def the_state_is_not_expected(goal: RollForward, view: View) -> Step | None:
    """The roll forward fails if the check of its caller refuses the state of the key. For example,
    the batch that Spark plans may have a number that can't follow the last done batch.
    """
    return goal.refusal(view.state)


PLANNING: Final = (
    a_step_has_failed,
    the_key_is_not_read,
    the_state_that_was_read_is_enough,
    the_key_is_not_open,
    a_batch_is_decided,
    the_state_is_not_expected,
    it_is_over,
)


# --- the commit of a batch ---------------------------------------------------------------------


def it_is_a_job_without_rows(goal: CommitBatch, _: View) -> Step | None:
    """If a job without txnAppId has no rows, the commit succeeds. Nothing is written to the log,
    because such a job is never repeated.
    """
    is_once = goal.owner.numbering is Numbering.ONCE
    return Return(Commit.EMPTY) if is_once and not goal.batch.transactions else None


def it_has_succeeded(goal: CommitBatch, view: View) -> Step | None:
    """If the commit has succeeded, it aborts open transactions that will not be committed, and then
    returns. There are three kinds of commits. First: a commit that only records one write of a
    block aborts none, because the batch of the block is not over. Second: the commit of a version
    (txnVersion) aborts the transactions of superseded runs, except its own run. If it has decided
    the version itself, and its own run has open transactions, it then adds its run to the list
    `superseded` in the state of the key, and aborts these transactions. Third: every other commit
    aborts the transactions of superseded runs, and the transactions of its own run with the
    generation of the batch or an earlier one.
    """
    how, run = view.how, goal.owner.run_id
    if how is None:
        return None
    if how is not Commit.PREPARED and not view.sweeps:
        return _sweep(goal, how)
    if not view.is_left_open or not view.is_fresh or how is not Commit.COMMITTED:
        return Return(how)
    # Another thread of the driver may write the next version in the same run. Without the entry in
    # the list, this could happen:
    #   1. A commits version 1, and writes DONE. B, of the same run, has prepared version 2.
    #   2. A finds open transactions of its run.
    #   3. B writes DECIDED 2.
    #   4. A aborts the transactions: version 2 is visible in part.
    # So A writes that its run is superseded. If B has not decided, B's commit is refused. If B has
    # decided, B has fenced A, so A's write fails, and B ends its transactions itself.
    if run not in view.state.superseded:
        return Write(
            view.state.with_aborted_run(run, view.wall_ms), Writing.ABORTED, how, may_fail=True
        )
    return Sweep(frozenset([run]), goal.owner.generation, superseded=True, may_fail=True, how=how)


def it_has_decided(goal: CommitBatch, view: View) -> Step | None:
    """If the log has the decision that this commit wrote, the commit ends its batch. First it
    commits all transactions of the decision, or aborts all of them. Then it writes the result to
    the log. The commit does this even if an operator has aborted the run since the decision,
    because some rows may already be visible.
    """
    decision, tried = view.state.decision, view.tried
    if decision is None or tried is None or set(decision.ids) != set(tried.ids):
        return None
    return _end(goal, view, decision, is_ours=True)


def its_decision_is_undone(goal: CommitBatch, view: View) -> Step | None:
    """The commit fails if its decision was undone: all transactions of the batch are aborted, and
    none of its rows is visible. A decision is undone only if none of these transactions was
    committed, and some had been aborted by others or were near their timeout.
    """
    return refused(Undone(goal.batch.number)) if view.is_fresh else None


def others_may_have_ended_its_decision(goal: CommitBatch, view: View) -> Step | None:
    """If the decision of this commit may have been in the log, but is not there now, the next step
    requests descriptions of the decision's transactions from their coordinators. If all are
    committed, the commit has succeeded. If each is open or aborted, the later rows of this table
    apply, and the commit may decide again. If some are committed and others were aborted, the
    commit fails. Otherwise the outcome is unknown, and the commit fails. Exception: the commit has
    succeeded if the log had the decision, the log now shows the batch as done, and the log shows no
    take-over by another run.
    """
    if view.tried is None:
        return None
    if view.seen is None:
        return LookAt(view.tried)
    found = outcome_of_decision(view.tried, view.seen)
    by_us = view.state.newest_run == goal.owner.run_id
    is_done = by_us and view.decided is not None and view.state.has_done(view.decided)
    if is_done and isinstance(found, Refuse) and found.how is Commit.UNKNOWN:
        found = Commit.COMMITTED
    return _sweep(goal, found) if isinstance(found, Commit) else found


def its_run_may_not_decide(goal: CommitBatch, view: View) -> Step | None:
    """The commit fails if its run may not decide the batch. For example, another run has taken over
    the key, the run was aborted, or the log has lost the state that the planning of the batch has
    read. Exception: the commit of a txnVersion does not fail here in two cases. In the first case,
    this version is done, and the commit has no transactions. In the second case, the run was
    aborted, and a later version is done.
    """
    owner, batch, state = goal.owner, goal.batch, view.state
    refusal = owner.refusal(state)
    if refusal is None or owner.numbering is not Numbering.VERSIONS:
        return refusal
    is_repeated = not batch.transactions and state.done_batch(batch.number) is not None
    is_late = isinstance(refusal.reason, RunAborted) and batch.number < state.last_done
    return None if is_repeated or is_late else refusal


def another_decision_is_there(goal: CommitBatch, view: View) -> Step | None:
    """If the log has the decision of another commit, this commit first ends that decision: it
    commits all transactions of the decision, or aborts all of them, and writes the result to the
    log. If the decision can't be ended, this commit fails. If the decision is for another batch
    number, and this commit has not tried to write a decision of its own, no row of its batch is
    visible after this failure.
    """
    decision = view.state.decision
    if decision is None:
        return None
    step = _end(goal, view, decision)
    is_other = decision.number != goal.batch.number
    if is_other and isinstance(step, Refuse):
        return refused(BatchBefore(goal.batch.number, step))
    return step


def it_can_not_be_the_next_one(goal: CommitBatch, view: View) -> Step | None:
    """The commit fails if its batch can't follow the last done batch of the key. Either the numbers
    don't fit, for example because a stream has left out a batch, or the two batches belong to
    different queries.
    """
    owner = goal.owner
    return number_refusal(owner.numbering, owner.query_id, goal.batch.number, view.state)


def it_is_done(goal: CommitBatch, view: View) -> Step | None:
    """If a batch with the number of the new batch is done already, the commit compares the two
    batches by their inputs, or by their numbers of rows and bytes. If they differ, the commit
    fails. If they are the same, the commit aborts all transactions that tasks or this commit have
    prepared for the new batch, and then succeeds. A transaction that can't be aborted now stays
    open until a later sweep, or until its timeout.
    """
    return _drop(goal, view) if goal.batch.number <= view.state.last_done else None


def it_is_a_write_of_a_block(goal: CommitBatch, view: View) -> Step | None:
    """If the batch is one write of a `transaction` block, the commit only records this write in the
    log, and decides nothing. Before that, the driver writes the report of this write and the
    offsets of a consumer group, if there are any, in transactions of its own that stay open. The
    record makes the run the owner of the key: from then on, commits of the earlier owner are
    refused. The commit at the end of the block decides all writes of the block together.
    """
    return _record(goal, view) if goal.batch.is_recorded_only else None


def it_is_to_be_decided(goal: CommitBatch, view: View) -> Step | None:
    """If no earlier row of this table applies, the driver decides the batch. First it prepares its
    own transactions, with the batch's report and the offsets of a consumer group, if there are any.
    Second, it produces DECIDED to the log, with this run as the owner of the key. Third, it checks
    all transactions. Fourth, it commits the write of DECIDED: from then on, commits of the earlier
    owner are refused. Exception: a batch without transactions is written to the log as done,
    without a decision. If such a batch is a txnVersion of a job, nothing is written, because a
    later commit may write rows for this version.
    """
    state = _taken_over(goal, view)
    decision = decision_of(goal.batch, state)
    if isinstance(decision, Refuse):
        return decision
    if view.own is None:
        # Threads of one run may commit versions at the same time. If two of them chose one id, one
        # thread would abort the transaction of the other thread.
        is_shared = goal.owner.numbering is Numbering.VERSIONS
        return PrepareOwn(0, view.name if is_shared else "")
    decision = replace(decision, transactions=decision.transactions + view.own)
    if decision.transactions:
        return Decide(state.decided(decision))
    if goal.owner.numbering is Numbering.VERSIONS:
        return _sweep(goal, Commit.EMPTY)
    done = Done(goal.batch.number, decision.payloads, decision.digest)
    return Write(state.skipped_to(done), Writing.OWNED, Commit.EMPTY)


COMMIT: Final = (
    it_is_a_job_without_rows,
    a_step_has_failed,
    the_key_is_not_open,
    it_has_succeeded,
    it_has_decided,
    its_decision_is_undone,
    others_may_have_ended_its_decision,
    its_run_may_not_decide,
    another_decision_is_there,
    it_can_not_be_the_next_one,
    it_is_done,
    it_is_a_write_of_a_block,
    it_is_to_be_decided,
)


# --- the abort of a batch ----------------------------------------------------------------------


def it_was_decided(goal: AbortBatch, view: View) -> Step | None:
    """If the log has the decision to commit this batch, the abort ends and aborts no transaction,
    because an abort never undoes a decision. The abort recognizes this decision in one of two ways.
    If the tasks' commit messages name transactions of the batch, the decision has at least one of
    these transactions. If the messages name no transaction, the decision has the number of this
    batch, and the run of the batch owns the key.
    """
    decision = view.state.decision
    if decision is None:
        return None
    ids = {t.transactional_id for t in goal.transactions}
    if ids:
        return Return() if ids & set(decision.ids) else None
    is_its_run = view.state.run_id == goal.owner.run_id
    return Return() if is_its_run and decision.number == goal.number else None


def its_run_may_still_decide(goal: AbortBatch, view: View) -> Step | None:
    """If the run of the batch is not superseded yet, the next step adds this run to the list
    `superseded` in the state of the key. So no later commit of the run can write a decision.
    """
    # (Another thread of the run may have decided a batch with this number. Even then the run is
    # added, because this decision may be undone later.)
    owner, state = goal.owner, view.state
    is_superseded = state.standing(owner.run_id, owner.generation) is Standing.SUPERSEDED
    if is_superseded or view.has_superseded:
        return None
    # Spark may call abort while a commit of the same batch still runs, for example if a user has
    # stopped a query that hung. The opening fences a commit that has opened the key earlier than
    # this abort, but not a commit that opens it later. Without the list, this could happen:
    #   1. The abort opens the log, and finds no decision.
    #   2. The commit opens the log, and finds all transactions prepared.
    #   3. The abort ends the transactions.
    #   4. The commit writes DECIDED: a batch whose transactions are gone.
    # The write of the list fails if this process has read an old state from a deposed leader: a
    # broker that no longer leads the log's partition, and does not know that.
    return Write(state.with_aborted_run(owner.run_id, view.wall_ms), Writing.ABORTED)


def its_transactions_may_be_open(goal: AbortBatch, view: View) -> Step | None:
    """If the prepared transactions of the batch may be open, the next step aborts them. If a
    coordinator can't describe one of them, none is aborted at this step. If a partition of a
    transaction has no leader, this transaction stays open, and the others are aborted.
    """
    return AbortAll(goal.transactions) if view.is_aborted is None else None


def its_run_may_have_more_open(goal: AbortBatch, view: View) -> Step | None:
    """If the abort has not searched for other open transactions yet, the next step searches for
    them, and aborts two kinds. The first kind are transactions of the batch's run with the
    generation of the batch or an earlier one. The second kind are transactions that can't be
    committed any more, because their run is superseded. Transactions that a decision names stay
    open.
    """
    # (A planning does not abort transactions of superseded runs, so an abort does it.)
    owner = goal.owner
    if view.sweeps:
        return None
    return Sweep(frozenset([owner.run_id]), owner.generation, superseded=True)


def its_tasks_may_still_run(goal: AbortBatch, view: View) -> Step | None:
    """If tasks of the batch may still run, they may open more transactions. So the next step waits
    until Spark has had time to kill the tasks. Then it searches for open transactions once more,
    and aborts the same two kinds as the row `its run may have more open`. Transactions that a
    decision names stay open.
    """
    if not goal.tasks_may_run or view.sweeps > 1:
        return None
    owner = goal.owner
    return Sweep(frozenset([owner.run_id]), owner.generation, superseded=True, when_killed=True)


def nothing_will_follow_it(goal: AbortBatch, view: View) -> Step | None:
    """If the batch belongs to a job without txnAppId, the next step removes the key of the job from
    the log, because such a job is never repeated. Exception: the key stays if a prepared
    transaction may still be open, or if the log shows the batch as decided or done.
    """
    # (A commit of the job also removes the key. So a missing key does not show whether the rows of
    # the job are visible.)
    is_once = goal.owner.numbering is Numbering.ONCE
    has_rows = view.state.decision is not None or view.state.last_done != NOTHING_DONE
    if not is_once or has_rows or not view.is_aborted or view.is_recorded:
        return None
    return Write(None, Writing.FORGOTTEN, may_fail=True)


ABORT: Final = (
    a_step_has_failed,
    the_key_is_not_open,
    it_was_decided,
    its_run_may_still_decide,
    its_transactions_may_be_open,
    its_run_may_have_more_open,
    its_tasks_may_still_run,
    nothing_will_follow_it,
    it_is_over,
)


# --- the abort of a batch without a commit message ---------------------------------------------


def its_runs_are_not_known(_: AbortUnknown, view: View) -> Step | None:
    """If no open transaction of the batch is known, the next step searches for open transactions of
    the batch. Their ids show the runs of the batch. A transaction is ignored if the decision in the
    log names it. If the first search finds none, a second search follows, after Spark has had time
    to kill the tasks, because a task may open its transaction between the two searches.
    """
    if _undecided(view) or view.searches > 1:
        return None
    return Search(when_killed=view.searches > 0)


def it_has_nothing_to_abort(_: AbortUnknown, view: View) -> Step | None:
    """If both searches have found no open transaction of the batch, the abort ends without a write
    to the log. A transaction is ignored if the decision in the log names it, because an abort never
    undoes a decision.
    """
    return None if _undecided(view) else Return()


def its_runs_may_still_decide(_: AbortUnknown, view: View) -> Step | None:
    """The next step adds the runs of the batch's open transactions to the list `superseded` in the
    state of the key, with one write. So no later commit of these runs can write a decision.
    Exception: a transaction is ignored if the decision in the log names it, or if its run can't
    commit it any more.
    """
    return None if view.has_superseded else _superseding(view, _undecided(view))


def its_transactions_are_open(_: AbortUnknown, view: View) -> Step | None:
    """The next step aborts the open transactions of the batch, because their runs can't write a
    decision any more. It also aborts the open transactions of all other superseded runs. Exception:
    a transaction stays open if the decision in the log names it. The abort takes this step twice:
    at once, and again after Spark has had time to kill the tasks. A task that still runs can open a
    new transaction between the two steps.
    """
    # (If a run is still not superseded, it planned at a later generation than the state has: the
    # log has lost records.)
    late = frozenset(one for one in _undecided(view) if not _is_superseded(one, view.state))
    runs, planned = frozenset(one.run for one in late), max((i.planned for i in late), default=0)
    is_second = view.sweeps > 0
    return None if view.sweeps > 1 else Sweep(runs, planned, superseded=True, when_killed=is_second)


ABORT_UNKNOWN: Final = (
    a_step_has_failed,
    its_runs_are_not_known,
    it_has_nothing_to_abort,
    the_key_is_not_open,
    its_runs_may_still_decide,
    its_transactions_are_open,
    it_is_over,
)

# --- an operator's abort and sweep -------------------------------------------------------------


def the_key_is_not_open_and_they_may_be_decided(goal: EndByHand, view: View) -> Step | None:
    """If the run of one of the transactions may still commit, the next step opens the key, before
    the abort. If all runs are superseded, the key is not opened: none of the transactions can be
    committed any more. The run of a job without txnAppId never counts as superseded here, because
    an operator's reset of the key removes the list of aborted runs.
    """
    # Without the opening, this could happen:
    #   1. We read the state: no decision names transaction T.
    #   2. The driver finds that all transactions are prepared.
    #   3. We abort T.
    #   4. The driver writes DECIDED with T: a partial batch.
    # After the opening, the state shows each decision that was written until then. The opening
    # fences every earlier writer, so no such writer adds a decision.
    return Open() if goal.may_decide and not view.is_open else None


def their_runs_may_still_decide(goal: EndByHand, view: View) -> Step | None:
    """Before the abort, the next step adds the runs of the transactions to the list `superseded` in
    the state of the key, with one write. So no later commit of these runs can write a decision. The
    key of a job without txnAppId is not removed here, because the job may be running. Later the
    job's own abort removes the key. If the job is dead, an operator's reset removes the key.
    """
    if not view.is_open or view.has_superseded:
        return None
    # (The state says that the run can't commit any more. If the key of a running job were removed,
    # the job would find no state that stops it. It would commit without the rows of a transaction
    # that the operator has aborted.)
    return _superseding(view, map(_id, aborted_by_hand(goal, view.state)))


def they_are_not_ended(goal: EndByHand, view: View) -> Step | None:
    """The next step aborts the transactions that the operator has selected. Two kinds are left
    alone: transactions that a decision names, and transactions of the run that owns the key and may
    still commit. With `--force`, the operator can include both kinds. A transaction that has ended
    or changed since the operator saw it is always left alone.
    """
    if view.by_hand is not None:
        return None
    return AbortExactly(aborted_by_hand(goal, view.state), goal.even_decided)


BY_HAND: Final = (
    a_step_has_failed,
    the_key_is_not_open_and_they_may_be_decided,
    their_runs_may_still_decide,
    they_are_not_ended,
    it_is_over,
)


# --- an operator's resolve ---------------------------------------------------------------------


def it_is_resolved(goal: Resolve, view: View) -> Step | None:
    """If the log already has the state that the operator's command is to write, the command ends.
    This attempt of the command or an earlier attempt may have written the state.
    """
    is_there = view.state == goal.planned.resolved(done=goal.done)
    return Return() if view.is_recorded or is_there else None


def the_decision_has_changed(goal: Resolve, view: View) -> Step | None:
    """The command fails if the decision in the log is not the decision that the operator has
    seen.
    """
    if view.state.decision == goal.planned.decision:
        return None
    return Refuse(Commit.NOT_REACHED, Changed(view.was_unclear))


def its_transactions_are_not_ended(goal: Resolve, view: View) -> Step | None:
    """The next step ends the open transactions of the batch. If the operator wants the batch to
    count as done, they are committed. If the batch is to be written again, they are aborted. The
    write to the log comes later, because no driver ends the transactions after that write.
    """
    if view.contrary is not None or view.state.decision is None:
        return None
    return EndRest(view.state.decision, goal.done, goal.accepted)


def some_contradict_it(goal: Resolve, view: View) -> Step | None:
    """The command fails if an open transaction could not be ended as the operator wants. If the
    batch is to count as done, the command also fails if a transaction was aborted after the
    operator saw the batch. If the batch is to be written again, the command also fails if a
    transaction was committed after the operator saw the batch.
    """
    if not view.contrary:
        return None
    return Refuse(Commit.NOT_REACHED, Contradicted(view.contrary, goal.done))


def it_is_to_be_resolved(goal: Resolve, view: View) -> Step | None:
    """The next step writes the end of the batch to the log. If the operator wants the batch to
    count as done, the log then shows the batch as DONE. If the batch is to be written again, the
    log then shows the batch as neither decided nor done.
    """
    return Write(view.state.resolved(done=goal.done), Writing.RESOLVED)


RESOLVE: Final = (
    a_step_has_failed,
    the_key_is_not_open,
    it_is_resolved,
    the_decision_has_changed,
    its_transactions_are_not_ended,
    some_contradict_it,
    it_is_to_be_resolved,
)


# --- an operator's reset -----------------------------------------------------------------------


def it_is_reset(goal: Reset, view: View) -> Step | None:
    """If the log already has the state that the reset is to write, the command ends. This attempt
    of the command or an earlier attempt may have written this state.
    """
    state, before = view.state, goal.planned.generation
    is_removed = _is_of_job(goal) and state == CommitState()
    is_there = state.generation > before and state == CommitState(generation=state.generation)
    return Return() if view.is_recorded or is_removed or is_there else None


def the_state_has_changed(goal: Reset, view: View) -> Step | None:
    """The command fails if the state of the key is not the state that the operator has seen."""
    is_as_planned = view.state == goal.planned
    return None if is_as_planned else Refuse(Commit.NOT_REACHED, Changed(view.was_unclear))


def it_is_to_be_reset(goal: Reset, view: View) -> Step | None:
    """The next step replaces the state of the key by an empty state with a higher generation. So no
    batch that was planned before the reset can be decided any more. Exception: if the key belongs
    to a job without txnAppId, the next step removes the key. If such a job is still running, it can
    commit after the reset, because the log keeps neither the generation nor the list `superseded`.
    The confirmation that the command requests from the operator mentions this risk.
    """
    state = None if _is_of_job(goal) else view.state.forgotten(view.wall_ms)
    return Write(state, Writing.RESET)


RESET: Final = (
    a_step_has_failed,
    the_key_is_not_open,
    it_is_reset,
    the_state_has_changed,
    it_is_to_be_reset,
)

# --- an operator forgets a key that can't be read ----------------------------------------------


def its_removal_has_failed(goal: Forget, view: View) -> Step | None:
    """If the removal of the key's records has failed, the next step tries it again. The command
    fails if another attempt would not help, or if the time for attempts is over. Unlike in the
    other tables, the key is not opened before another attempt. To open the key, the process would
    have to decode the key's records. These records can't be decoded, so the opening would fail, and
    the records would never be removed. The removal itself fences the writers of the key.
    """
    step = a_step_has_failed(goal, view)
    return Remove(step.up_to_ms, step.most_ms) if isinstance(step, Open) else step


def it_is_to_be_removed(_: Forget, view: View) -> Step | None:
    """If the records of the key are not removed yet, the next step removes them. It does not find
    out whether the last batch of the key is committed.
    """
    return None if view.is_recorded else Remove()


FORGET: Final = (its_removal_has_failed, it_is_to_be_removed, it_is_over)

TABLES: Final[dict[type[Goal], tuple[Callable[..., Step | None], ...]]] = {
    CommitBatch: COMMIT,
    RollForward: PLANNING,
    AbortBatch: ABORT,
    AbortUnknown: ABORT_UNKNOWN,
    EndByHand: BY_HAND,
    Resolve: RESOLVE,
    Reset: RESET,
    Forget: FORGET,
}


# --- what the rows share -----------------------------------------------------------------------


def decided_ids(state: CommitState) -> frozenset[str]:
    """The transactional ids of the decision in ``state``. These transactions must stay open."""
    return frozenset() if state.decision is None else frozenset(state.decision.ids)


def aborted_by_hand(goal: EndByHand, state: CommitState) -> tuple[TransactionDescription, ...]:
    """The transactions that the operator's command aborts: all in ``goal``, except the transactions
    of :func:`kept_by_hand`.
    """
    kept = kept_by_hand(goal, state)
    return tuple(one for one in goal.transactions if one.transactional_id not in kept)


def kept_by_hand(goal: EndByHand, state: CommitState) -> dict[str, str]:
    """The transactions of ``goal`` that the operator's command leaves open. Returns a reason for
    each transactional id:

    * DECIDED: the commit log has the decision to commit the transaction. Exception: the command
      aborts the transaction if it is in ``goal.even_decided``.
    * OWNED: the run of the transaction owns the key, and may still commit the transaction.
      Exception: the command aborts the transaction if ``goal.even_owners`` is true.
    """
    decided = decided_ids(state) - goal.even_decided
    kept: dict[str, str] = {}
    for t in goal.transactions:
        if t.transactional_id in decided:
            kept[t.transactional_id] = DECIDED
        elif not goal.even_owners and _standing(_id(t), state) is Standing.OWNER:
            kept[t.transactional_id] = OWNED
    return kept


def _id(t: TransactionDescription) -> TransactionalId:
    found = parse(t.transactional_id)
    assert found is not None  # only tasks' ids are listed
    return found


def _standing(one: TransactionalId, state: CommitState) -> Standing:
    return state.standing(one.run, one.planned)


def _is_superseded(one: TransactionalId, state: CommitState) -> bool:
    return _standing(one, state) is Standing.SUPERSEDED


def _is_of_job(goal: Reset) -> bool:
    """Whether the key belongs to a job without txnAppId. Such a job is never repeated."""
    return is_once(goal.key, goal.planned.newest_run)


def _undecided(view: View) -> frozenset[TransactionalId]:
    """The open transactions that the last search has found, except the transactions of the decision
    in the commit log.
    """
    decided = decided_ids(view.state)
    return frozenset(one for one in view.found if str(one) not in decided)


def _superseding(view: View, transactions: Iterable[TransactionalId]) -> Write | None:
    """The step that makes the runs of ``transactions`` superseded: a write of the key's state, with
    these runs in its list ``superseded``. From then on, commits of these runs are refused. (The
    transactional id of a transaction contains its run.)

    Transactions that can't be committed any more, by the state of the key, are left out. Returns
    None if no transaction is left.
    """
    state = view.state
    runs = sorted({one.run for one in transactions if not _is_superseded(one, state)})
    for run in runs:
        state = state.with_aborted_run(run, view.wall_ms)
    return Write(state, Writing.ABORTED) if runs else None


def _again(view: View, failed: Failed) -> Open | None:
    """The step that opens the key again, for the next attempt. Returns None if there is no next
    attempt:

    * After a failure of the kind FINAL: never. Another attempt would not help.
    * After a failure of the kind UNCLEAR: if max.block.ms was over at the failure, and this process
      has opened the key at least MOST_UNCLEAR times.
    * After any other failure: if max.block.ms was over when the last attempt began, and this
      process has opened the key at least MOST_OPENINGS times.
    """
    if failed.how is Failure.UNCLEAR:
        # InitProducerId fences a write in flight. Then the log shows whether it has the write.
        is_over = view.openings >= MOST_UNCLEAR and failed.at_ms >= view.until_ms
        return None if is_over else Open()
    if failed.how is Failure.FINAL:
        return None
    if view.openings >= MOST_OPENINGS and view.begun_ms >= view.until_ms:
        return None
    # Processes that may all take over would keep fencing each other. A user may run any number of
    # threads (writes of a block, versions, plannings, aborts). So the second retry and each later
    # one begins with a random pause. Its longest time is at first twice the duration of the failed
    # attempt, and grows with each retry. While a partition has no leader, it is at most LEADER_MS.
    took_ms, left_ms = failed.at_ms - view.begun_ms, max(0, view.until_ms - failed.at_ms)
    up_to_ms = (1 + took_ms) * (2 ** min(view.openings, 11) - 2)
    is_of_a_leader = failed.how is Failure.NO_LEADER
    return Open(up_to_ms, min(left_ms, LEADER_MS) if is_of_a_leader else left_ms)


def _failure(goal: Goal, view: View, failed: Failed) -> Refuse:
    """The result of a commit, an abort or a command that ends because a step has failed."""
    if isinstance(failed.step, Open) and view.unclear is not None:
        failed = view.unclear  # the outcome of that write can't be read
    how, step, error = failed.how, failed.step, failed.error
    is_unclear, is_shut_out = how is Failure.UNCLEAR, how is Failure.SHUT_OUT
    batch = goal.batch if isinstance(goal, CommitBatch) else None
    # (If the block of a write is done, its rows are visible already. Then it does not matter
    # whether the write is recorded again.)
    is_new = batch is not None and batch.number > view.state.last_done
    if batch is not None and batch.is_recorded_only and is_unclear and is_new:
        return refused(NotRecorded(batch.number, error))
    if isinstance(step, Decide) and is_unclear:
        assert view.tried is not None
        return perhaps_decided(view.tried, error)
    decision, fate = view.state.decision, None
    if isinstance(step, EndAll):
        fate = Fate.NOT_ENDED
    elif isinstance(step, Write):
        fate = _FATES.get(step.why)
    # (The error itself may say that the batch is committed in part, or has an unknown outcome.)
    is_known = not is_unclear and isinstance(error, CommitOutcomeUnknownError | PartialCommitError)
    is_end = not is_known and not (is_shut_out and batch is not None)
    if decision is not None and fate is not None and is_end:
        return _not_finished(batch, view, not_finished(decision, fate, error), error)
    # (A damaged log does not show whether it has the decision that this commit tried to write.)
    is_clear = isinstance(error, BatchError) and not isinstance(error, CommitLogError)
    if not is_clear or is_shut_out:
        if view.decided is not None and view.tried is not None:
            return not_finished(view.decided, Fate.NOT_ENDED, error)
        if view.tried is not None:
            # Even if the log was read without this decision: a deposed leader may have returned it.
            return perhaps_decided(view.tried, error)
        if isinstance(step, Decide) and isinstance(error, KafkaTimeoutError):
            assert step.state.decision is not None
            return refused(NotInTime(step.state.decision.number, error))
    # A commit that has decided nothing makes nothing visible.
    return raised(error, Commit.NOT_REACHED if batch is None else Commit.NOT_VISIBLE)


def _not_finished(batch: Batch | None, view: View, end: Refuse, error: KafkaError) -> Refuse:
    """The failure of a goal that could not end the decision in the log, because of ``error``. There
    are three cases:

    * The decision is for ``batch``, or ``batch`` is None: the result is the argument ``end``, which
      describes the decision.
    * The decision is for another batch, and this goal may have decided ``batch``: the result says
      that it is unknown whether ``batch`` is decided (``PerhapsDecided``).
    * The decision is for another batch, and this goal has decided nothing: the result says that
      ``batch`` is not decided (``BatchBefore``).
    """
    decision = view.state.decision
    if batch is None or decision is None or batch.number == decision.number:
        return end
    if view.tried is not None:
        return perhaps_decided(view.tried, error)
    return refused(BatchBefore(batch.number, end))


def _end(
    goal: CommitBatch | RollForward,
    view: View,
    decision: Decision,
    *,
    is_ours: bool = False,
    only_lost: bool = False,
) -> Step:
    """The next step to end ``decision``. First all transactions of the decision are committed, or
    all are aborted. Then the result is written to the log. Returns a failure if the batch is
    committed only in part, or if the outcome of a transaction stays unknown.

    * ``is_ours``: this commit wrote the decision.
    * ``only_lost``: False if transactions that are near their timeout are also aborted
      (:class:`EndAll`).
    """
    state, ended = view.state, view.ended
    if state.lost:
        return in_part(decision, state.lost)
    if ended is None:
        return EndAll(decision, only_lost)
    if set(ended.lost) == set(decision.ids):
        return Write(state.undone(), Writing.UNDONE)
    left = ended.unknown + ended.unclear
    # (`lost` is written only if a transaction is known to be committed. Otherwise all may be
    # aborted in the end, and no part of the batch would be visible. It is not written while a
    # transaction may be open, because it names all lost transactions.)
    is_shown = len(ended.lost + left) < len(decision.ids)
    if ended.lost and is_shown and not ended.unclear:
        return Write(state.partly_lost(ended.lost), Writing.LOST)
    if left:
        # The batch may be done, and its ids used again since: another thread has ended the batch,
        # or a deposed leader has returned an old state. The write of the state shows that.
        if ended.unknown and not ended.is_confirmed:
            return Write(state, Writing.CONFIRMED)
        reason = OutcomeUnknown(decision.number, len(decision.ids), left, ended)
        return Refuse(Commit.UNKNOWN, reason)
    if not is_ours:
        return Write(state.finished(), Writing.DONE)
    # If this write fails, the commit still succeeds: a repeated job would duplicate its rows. The
    # next planning sends EndTxn(commit) again, which changes nothing, and writes DONE.
    is_once = isinstance(goal, CommitBatch) and goal.owner.numbering is Numbering.ONCE
    done = None if is_once else state.finished()
    return Write(done, Writing.DONE, Commit.COMMITTED, may_fail=True)


def _drop(goal: CommitBatch, view: View) -> Step:
    """The next step of a commit whose batch has the number of a done batch, or a lower number. If
    the batch may not be dropped as a repetition of the done batch (:func:`done_refusal`), the
    commit fails. Otherwise the rows are visible already: the transactions of the new batch are
    aborted, and the commit succeeds.
    """
    owner, batch, state = goal.owner, goal.batch, view.state
    refusal = done_refusal(batch, state, view.name)
    if refusal is not None:
        return refusal
    if view.is_aborted is None:
        return AbortAll((*batch.transactions, *view.prepared))
    # A dropped batch of a stream or a job does not take over. The owner of the key may be about to
    # decide, and the sweep must not take the owner for superseded.
    if owner.numbering is Numbering.MICRO_BATCHES:
        # The query id may be unknown. Two queries with one name and equal payloads would keep
        # dropping each other's batches; taking over stops the other one.
        state = _taken_over(goal, view)
        if batch.block is not None and batch.block.writes is None and batch.payload is not None:
            part = Part((), batch.payload, view.name)
            state = state.with_part(batch.number, batch.block.token, part)
        elif not batch.is_recorded_only:
            state = state.without_parts()
    if state != view.state:
        return Write(state, Writing.OWNED, Commit.ALREADY_DONE)
    return _sweep(goal, Commit.ALREADY_DONE)


def _record(goal: CommitBatch, view: View) -> Step:
    """The next step of the commit of one write in a ``transaction`` block. Such a commit only
    records the write in the log. The commit at the end of the block makes the rows of all writes of
    the block visible.
    """
    batch = goal.batch
    assert batch.block is not None
    block, state = batch.block, _taken_over(goal, view)
    if any(part.name == view.name for part in state.parts_by(batch.number, block.token)):
        return Return(Commit.PREPARED)  # by the previous attempt
    if view.own is None:
        return PrepareOwn(block.number)
    transactions = batch.transactions + view.own
    part = Part(transactions, batch.payload or Payload(), view.name, block.letters)
    recorded = state.with_part(batch.number, block.token, part)
    return Write(recorded, Writing.RECORDED, Commit.PREPARED)


def _sweep(goal: CommitBatch, how: Commit) -> Sweep:
    """The step after a commit has succeeded with the result ``how``. It aborts two kinds of open
    transactions:

    * Transactions of superseded runs, which can't commit any more.
    * Transactions of the commit's own run with the generation of the batch or an earlier one.

    Exception: the commit of a version (txnVersion) aborts no transaction of its own run.
    """
    run = goal.owner.run_id
    # (Several threads of one run may commit versions. An open transaction of the run may belong to
    # the decision of another thread.)
    is_own = goal.owner.numbering is not Numbering.VERSIONS
    return Sweep(
        frozenset([run] if is_own else []),
        goal.owner.generation,
        superseded=True,
        spared="" if is_own else run,
        may_fail=True,
        how=how,
    )


def _taken_over(goal: CommitBatch, view: View) -> CommitState:
    owner = goal.owner
    return view.state.taken_over(owner.run_id, owner.query_id, view.wall_ms)
