"""The values that describe the work on one key of the commit log: goals, views and steps.

* A *goal* is the work that a caller requests, such as the commit of a batch.
* The *view* has all facts that this process has collected for the goal.
* A *step* is the next action for the goal. ``table.py`` chooses it from goal and view.
  ``committer.py`` performs it, and adds its result to the view.
* To *open* a key means to fence its earlier writers, and to read its state.
* A *run* is one start of a query or a job.
* The *generation* of a key is a number in its state. Each take-over of the key raises it.
* A run *plans* a batch before the tasks start. The ids of the batch's transactions contain the run
  and the generation of that time.
* A batch is *decided* if the commit log has the decision to commit its transactions.

Goals, views and steps are plain values. The functions of this module are pure: they use no broker,
no clock and no logger. Between two steps other processes may perform any steps, and this process
may stop forever. ``tests/transactions/explorer.py`` tries every order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from spark_kafka_sink.admin.transaction_description import TransactionDescription
from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_state import (
    CommitState,
    Decision,
    LogChangedError,
    LogOutcomeUnknownError,
    NoLeaderError,
)
from spark_kafka_sink.transactions.ending import CommitOutcomes
from spark_kafka_sink.transactions.outcomes import is_lost
from spark_kafka_sink.transactions.ownership import Owner
from spark_kafka_sink.transactions.results import Commit, Refuse, outcome_of_decision
from spark_kafka_sink.transactions.transactional_ids import TransactionalId

# --- goals -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """Goal: make all rows of ``batch`` visible.

    Exception: if ``batch`` is a single write of a block (``spark_kafka_sink.transaction``), the
    goal is to record this write in the commit log. The commit at the end of the block makes the
    rows of all its writes visible.
    """

    owner: Owner
    batch: Batch

    @property
    def key(self) -> str:
        return self.owner.key


def _expected(_: CommitState) -> None:
    """The default of :attr:`RollForward.refusal`: accepts every state of a key. (None means that
    there is no reason to refuse the state.)
    """


@dataclass(frozen=True, slots=True)
class RollForward:
    """Goal: end the decided batch of ``key``, if there is one. Either all transactions of the batch
    are committed, or all are aborted (:class:`EndAll`). After an abort, the batch must be written
    again.
    """

    key: str
    #: A function that is called with the state of the key. It returns None, or the reason why the
    #: caller can't continue from this state.
    refusal: Callable[[CommitState], Refuse | None] = _expected
    #: If true, the transactions are aborted only if brokers have already aborted some of them.
    only_lost: bool = False


@dataclass(frozen=True, slots=True)
class AbortBatch:
    """Goal: abort the prepared transactions of batch ``number``, and then two kinds of other open
    transactions:

    * Transactions of the run ``owner.run_id``, planned at the generation ``owner.generation`` or
      earlier.
    * Transactions of superseded runs, which can't commit any more.

    Exceptions: if the batch is decided, nothing is aborted. If another batch is decided, the
    transactions of that decision stay open.
    """

    owner: Owner
    number: int
    #: The prepared transactions of the batch.
    transactions: tuple[PreparedTransaction, ...]
    #: Whether a task of the batch may still write.
    tasks_may_run: bool

    @property
    def key(self) -> str:
        return self.owner.key


@dataclass(frozen=True, slots=True)
class AbortUnknown:
    """Goal: abort a batch of ``key`` whose run is unknown, because no task has sent a commit
    message.

    ``mine`` returns True for the transactional ids of the batch. The id of a transaction contains
    its run, so the ids of the batch's open transactions show the run.
    """

    key: str
    mine: Callable[[TransactionalId], bool]


@dataclass(frozen=True, slots=True)
class EndByHand:
    """Goal of an operator: abort ``transactions``, which all belong to ``key``. A transaction that
    has changed since the command has read its description is left alone.
    """

    key: str
    transactions: tuple[TransactionDescription, ...]
    #: The ids of transactions that are aborted although a decision names them.
    even_decided: frozenset[str]
    #: If true, transactions of the run that owns the key are also aborted.
    even_owners: bool
    #: True if the runs of some transactions may still commit. Then the key is opened before the
    #: abort, and these runs are recorded as aborted.
    may_decide: bool


@dataclass(frozen=True, slots=True)
class Resolve:
    """Goal of an operator: end the decided batch of ``key`` as the operator chooses (``done``). The
    batch is PARTIAL (some of its transactions are committed, and others were aborted), or the
    outcome of some of its transactions is unknown.
    """

    key: str
    #: The state that the operator has seen.
    planned: CommitState
    #: The ids of transactions whose outcome the operator accepts. If ``done`` is true, these are
    #: aborted transactions, whose rows are lost, and transactions with an unknown outcome, whose
    #: rows may be lost. If ``done`` is false, these are committed transactions, whose rows will be
    #: visible twice.
    accepted: frozenset[str]
    #: If true, the batch counts as done after the command. If false, the batch is written again.
    done: bool


@dataclass(frozen=True, slots=True)
class Reset:
    """Goal of an operator: replace the state of ``key`` by an empty state. ``planned`` is the state
    that the operator has seen. If the key has another state now, the command fails.
    """

    key: str
    planned: CommitState


@dataclass(frozen=True, slots=True)
class Forget:
    """Goal of an operator: remove the records of ``key`` from the commit log, because the records
    can't be decoded.
    """

    key: str


Goal = CommitBatch | RollForward | AbortBatch | AbortUnknown | EndByHand | Resolve | Reset | Forget


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of an operator's abort.

    * ``aborted``: the ids of the transactions that were aborted.
    * ``meanwhile``: the ids of transactions that were left alone, because they have ended or
      changed since the operator saw them.
    * ``failed``: the ids of transactions that may still be open, each with the error code of the
      response, or None if there was no response.
    """

    aborted: tuple[str, ...] = ()
    meanwhile: tuple[str, ...] = ()
    failed: tuple[tuple[str, ErrorCode | None], ...] = ()


# --- what is known -----------------------------------------------------------------------------


#: The state before the key is read, and the state of a key that the log does not have.
_NEVER_WRITTEN: Final = CommitState()


class Failure(Enum):
    """The kind of a step's failure. The kind determines whether the step may be tried again."""

    SHUT_OUT = "others have opened the key, or it was read from a deposed leader"
    NO_LEADER = "a partition has no leader"
    UNCLEAR = "whether the log has the write is not known"
    FINAL = "another attempt would not help"


@dataclass(frozen=True, slots=True)
class Failed:
    """A step that has failed.

    * ``how``: the kind of failure.
    * ``at_ms``: the time of the failure, in ms of the client's clock.
    * ``error``: the error of the step.
    """

    how: Failure
    step: Step
    at_ms: int
    error: KafkaError = field(compare=False)


@dataclass(frozen=True, slots=True)
class View:
    """All facts that this process has collected while it works on one goal, such as the commit of a
    batch.

    If a step fails, the process may open the key again. Then some facts are kept, and the others
    are dropped. Two comments between the fields show which.
    """

    #: The state of the key that this process has most recently read or written.
    state: CommitState = _NEVER_WRITTEN
    #: The wall-clock time when this process opened the key.
    wall_ms: int = 0
    # The following facts are kept when the key is opened again.
    #: The unique name of this commit.
    name: str = ""
    #: The decision that this commit has written, or may have written.
    tried: Decision | None = None
    #: The decision of this commit, if it is certain that the log has or had this decision.
    decided: Decision | None = None
    #: The prepared transactions that the driver itself writes: a report, a group's offsets.
    prepared: tuple[PreparedTransaction, ...] = ()
    #: The number of openings of the key, the start of the last opening, and the time until which
    #: the key is opened again if another process opens it.
    openings: int = 0
    begun_ms: int = 0
    until_ms: int = 0
    #: The last failed write, as long as it is unknown whether the log has it. ``was_unclear`` is
    #: True if there was such a write at any time.
    unclear: Failed | None = None
    was_unclear: bool = False
    #: The open transactions of a batch whose run is not known, by the last search.
    found: frozenset[TransactionalId] = frozenset()
    searches: int = 0
    #: ``CommitState.newest_run`` when this process opened the key for the first time.
    first_run: str | None = None

    # The following facts are dropped when the key is opened again.
    is_open: bool = False
    is_read: bool = False
    #: No write was in progress when the state was read without opening the key.
    is_settled: bool = False
    #: The log's leader has taken a record since the key was opened: ``state`` is the newest.
    is_confirmed: bool = False
    failed: Failed | None = None
    #: The batch was decided since the key was opened. Until ``young_until_ms``, its transactions
    #: may be committed without a further check of their ages.
    is_fresh: bool = False
    young_until_ms: int = 0
    #: The coordinators' descriptions of the transactions of ``tried``. If no descriptions were
    #: received, the error.
    seen: tuple[TransactionDescription, ...] | KafkaError | None = None
    #: The outcomes of the transactions of the state's decision, after they were ended.
    ended: CommitOutcomes | None = None
    #: ``prepared``, if these transactions were prepared since the key was opened, or were seen to
    #: be still open since then.
    own: tuple[PreparedTransaction, ...] | None = None
    #: None before the attempt to abort the prepared transactions of the batch. After the attempt,
    #: False if one of these transactions may still be open, and True if none is open.
    is_aborted: bool | None = None
    #: The coordinators' descriptions of these transactions before the attempt, in the same order.
    #: Empty if no descriptions were received in time.
    before_abort: tuple[TransactionDescription, ...] = ()
    #: The orphans that were aborted, and the number of searches for orphans.
    swept: tuple[str, ...] = ()
    sweeps: int = 0
    #: Whether the last sweep found open transactions of the run ``Sweep.spared``, which it does not
    #: abort. Transactions of a decision do not count.
    is_left_open: bool = False
    #: The result of an operator's abort.
    by_hand: Ended | None = None
    #: Transactions of a batch that contradict the operator's resolution of the batch.
    contrary: tuple[str, ...] | None = None
    #: Runs of the goal were put into ``superseded`` since the key was opened. (The list does not
    #: keep more than 32 runs. If it drops a run, the generation grows, which supersedes the dropped
    #: run.)
    has_superseded: bool = False
    #: The last write of the goal is done.
    is_recorded: bool = False
    #: The result of a commit that has succeeded.
    how: Commit | None = None
    #: The failure of the goal.
    refused: Refuse | None = None


# --- steps -------------------------------------------------------------------------------------


class Writing(Enum):
    """The reason for a write to the commit log. If the write fails, the reason shows whether rows
    of the batch are visible.
    """

    DONE = "all transactions of a decision are committed"
    UNDONE = "all transactions of a decision are aborted"
    LOST = "brokers have aborted a part of a decision"
    #: The state is written unchanged. The write fails if a deposed leader has returned the state.
    #: In the newest state, the batch may be done.
    CONFIRMED = "the outcome of a decision is not known"
    RECORDED = "a write of a block is prepared"
    OWNED = "a batch is dropped, or has no rows"
    ABORTED = "a run decides nothing any more"
    FORGOTTEN = "nothing will follow under the key"
    RESOLVED = "an operator has ended a batch"
    RESET = "an operator has forgotten a key"


#: The writes after which nothing more is written for the goal.
_LAST: Final = (Writing.FORGOTTEN, Writing.RESOLVED, Writing.RESET)


@dataclass(frozen=True, slots=True)
class Read:
    """Step: read the state of the key from the commit log, without fencing its writers."""


@dataclass(frozen=True, slots=True)
class Open:
    """Step: open the key, which fences its earlier writers and reads its state.

    Before that, wait for a random time of at most ``up_to_ms`` milliseconds, but not longer than
    ``most_ms`` milliseconds. The wait is random so that several processes do not fence each other
    again and again.
    """

    up_to_ms: int = 0
    most_ms: int = 0


@dataclass(frozen=True, slots=True)
class Remove:
    """Step: fence the writers of the key, and remove its records without decoding them.

    Before that, wait for a random time of at most ``up_to_ms`` milliseconds, but not longer than
    ``most_ms`` milliseconds. The wait is random so that several processes do not fence each other
    again and again.
    """

    up_to_ms: int = 0
    most_ms: int = 0


@dataclass(frozen=True, slots=True)
class Confirm:
    """Step: check that the state is the newest state of the key in the commit log. The state may be
    old, because a former leader of the log's partition may have returned it.

    The step produces the unchanged state in a transaction, and then aborts the transaction. Only
    the present leader accepts the record, and returns its offset. The step reads the log up to this
    offset. If the log has a record of the key that this process has not read, the state is old, and
    the step fails.
    """


@dataclass(frozen=True, slots=True)
class LookAt:
    """Step: find out whether the transactions of ``decision`` are committed, aborted or still open.
    The coordinators of the transactions show this in response to DescribeTransactions.

    ``decision`` is not in the commit log now, but may have been there before.
    """

    decision: Decision


@dataclass(frozen=True, slots=True)
class EndAll:
    """Step: commit all transactions of ``decision``. Exception: all are aborted if none is
    committed yet, and one of these is true:

    * Some were already aborted, for example by brokers.
    * ``only_lost`` is False, and some are near their timeout.
    """

    decision: Decision
    only_lost: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """Step: write ``state`` as the state of the key. If ``state`` is None, remove the records of
    the key.
    """

    state: CommitState | None
    #: The reason for the write.
    why: Writing
    #: The result of the commit, if the commit succeeds with this write or has succeeded before.
    #: None for all other writes.
    how: Commit | None = None
    #: If true, the commit or the abort goes on even if this write fails.
    may_fail: bool = False


@dataclass(frozen=True, slots=True)
class Decide:
    """Step: decide a batch. This is the commit point: ``state``, with the decision to commit the
    batch, is written to the commit log. After this write, the transactions of the batch are to be
    committed.

    The transactions are checked before the write takes effect. The step fails, and the batch is not
    decided, in each of these cases:

    * A transaction is not open.
    * A transaction is too near to its timeout.
    * A partition of a transaction, or the partition of the log, has no leader.
    """

    state: CommitState


@dataclass(frozen=True, slots=True)
class PrepareOwn:
    """Step: write the report of the batch and the offsets of a consumer group, if there are any,
    each in a transaction of the driver itself. These transactions stay open, and are committed with
    the batch. Their transactional ids contain the fields ``number`` and ``name``.
    """

    #: The number of the write, if the batch is one write of a block. 0 for all other batches.
    number: int
    #: The name of the commit, if the batch is a txnVersion of a job. Empty for all other batches.
    #: (Several threads of one run may commit versions at the same time.)
    name: str = ""


@dataclass(frozen=True, slots=True)
class AbortAll:
    """Step: abort ``transactions``, the prepared transactions of a batch. Only transactions that
    are still open are aborted.
    """

    transactions: tuple[PreparedTransaction, ...]


@dataclass(frozen=True, slots=True)
class Search:
    """Step: find the open transactions of a batch whose run is unknown (:class:`AbortUnknown`).

    If ``when_killed`` is true, first wait until Spark has had time to kill the batch's tasks.
    """

    when_killed: bool = False


@dataclass(frozen=True, slots=True)
class Sweep:
    """Step: abort open transactions that will not be committed. The fields select these
    transactions. Exception: a transaction stays open if the decision in the commit log names it.
    """

    #: The open transactions of these runs are aborted, if they were planned at the generation
    #: ``planned`` or earlier.
    runs: frozenset[str] = frozenset()
    planned: int = 0
    #: If true, the open transactions of all superseded runs are also aborted. Such a run can't
    #: commit any more: another run has taken over the key, or the run was aborted.
    superseded: bool = False
    #: A run whose transactions are not aborted, even if this run is superseded.
    spared: str = ""
    #: If true, first wait until Spark has had time to kill the batch's tasks.
    when_killed: bool = False
    #: If true, the commit goes on even if this step fails.
    may_fail: bool = False
    #: The result that the commit has reached before this step. None for an abort.
    how: Commit | None = None


@dataclass(frozen=True, slots=True)
class AbortExactly:
    """Step: abort ``transactions``. A transaction that has changed since the command has read its
    description is left alone.

    ``prepared`` has the ids of transactions that a decision names. For these ids EndTxn is sent,
    and never InitProducerId, because after an InitProducerId a coordinator can't show any more how
    the earlier transaction of the id has ended.
    """

    transactions: tuple[TransactionDescription, ...]
    prepared: frozenset[str]


@dataclass(frozen=True, slots=True)
class EndRest:
    """Step: end the transactions of ``decision`` that are still open. If ``done`` is true, these
    transactions are committed. If ``done`` is false, they are aborted.

    ``accepted`` has the ids of ended transactions whose outcome the operator has accepted
    (:class:`Resolve`). All other transactions must end as ``done`` requires, or the operator's
    command fails.
    """

    decision: Decision
    done: bool
    accepted: frozenset[str]


@dataclass(frozen=True, slots=True)
class Return:
    """Step: end the goal without an error. ``how`` is the result of a commit, and None for all
    other goals.
    """

    how: Commit | None = None


Step = (
    Read | Open | Remove | Confirm | LookAt | EndAll | Write | Decide | PrepareOwn | AbortAll
    | Search | Sweep | AbortExactly | EndRest | Return | Refuse
)  # fmt: skip


# --- what a step adds --------------------------------------------------------------------------


def with_read(view: View, state: CommitState, *, is_settled: bool) -> View:
    """Returns a copy of ``view`` with ``state``, which was read without fencing the writers of the
    key. ``is_settled`` is false if a write of the key was in progress during the read.
    """
    return replace(view, state=state, is_read=True, is_settled=is_settled)


def opened(before: View, state: CommitState, wall_ms: int, begun_ms: int = 0) -> View:
    """Creates the view after the key was opened. The opening began at the time ``begun_ms``, and
    has read ``state``. ``wall_ms`` is the wall-clock time.

    The new view keeps the facts of ``before`` that do not depend on the state, such as the time
    limit. All other facts are dropped.

    ``before.tried`` is the decision that an earlier attempt of this commit has tried to write. If
    ``state`` contains this decision, the write has succeeded, and the new view has the decision in
    the field ``decided``.
    """
    found, tried = state.decision, before.tried
    is_ours = found is not None and tried is not None and set(found.ids) == set(tried.ids)
    return View(
        state,
        wall_ms,
        before.name,
        tried,
        found if is_ours else before.decided,
        before.prepared,
        before.openings + 1,
        begun_ms,
        before.until_ms,
        before.unclear,
        before.was_unclear,
        before.found,
        before.searches,
        before.first_run,
        is_open=True,
    )


def failure_of(error: KafkaError) -> Failure:
    """Returns the kind of a step's failure, which depends on the type of ``error``. The kind is
    FINAL for all types that have no other kind.
    """
    if isinstance(error, LogOutcomeUnknownError):
        return Failure.UNCLEAR
    if isinstance(error, LogChangedError):
        return Failure.SHUT_OUT
    return Failure.NO_LEADER if isinstance(error, NoLeaderError) else Failure.FINAL


def with_failure(view: View, step: Step, how: Failure, error: KafkaError, at_ms: int) -> View:
    """Returns a copy of ``view`` that shows the failure of ``step``.

    If ``step`` writes a decision, and the outcome of this write is unknown, the copy has the
    decision in the field ``tried``, because the log may have the decision.
    """
    failed = Failed(how, step, at_ms, error)
    is_unclear = how is Failure.UNCLEAR
    tried = view.tried
    if is_unclear and isinstance(step, Decide):
        tried = step.state.decision
    is_removal = isinstance(step, Remove)  # it opens the key, too; the next attempt begins now
    return replace(
        view,
        failed=failed,
        openings=view.openings + is_removal,
        begun_ms=at_ms if is_removal else view.begun_ms,
        tried=tried,
        unclear=failed if is_unclear else view.unclear if how is Failure.FINAL else None,
        was_unclear=view.was_unclear or is_unclear,
    )


def with_removed(view: View) -> View:
    """Returns a copy of ``view`` that shows that the key's records were removed."""
    return replace(view, is_recorded=True, failed=None)


def with_seen(view: View, seen: tuple[TransactionDescription, ...] | KafkaError) -> View:
    """Returns a copy of ``view`` with ``seen``, the result of the step :class:`LookAt`: the
    coordinators' descriptions of the transactions of ``view.tried``, or the error if no
    descriptions were received.

    * If each of these transactions is aborted or still open, the copy's field ``decided`` is None.
    * If all are certainly aborted, the copy's field ``tried`` is None, too: no row of the batch is
      or will be visible.
    """
    tried = view.tried
    assert tried is not None
    is_gone = outcome_of_decision(tried, seen) is None
    if not isinstance(seen, KafkaError) and all(map(is_lost, tried.transactions, seen)):
        tried = None
    return replace(view, seen=seen, tried=tried, decided=None if is_gone else view.decided)


def with_decision(view: View, state: CommitState, young_until_ms: int) -> View:
    """Returns a copy of ``view`` with a new fact: the decision in ``state`` was written to the
    commit log.

    Until the time ``young_until_ms``, the transactions of the decision may be committed without a
    further check of their ages.
    """
    found = state.decision
    return replace(
        view,
        state=state,
        tried=found,
        decided=found,
        is_confirmed=True,
        is_fresh=True,
        young_until_ms=young_until_ms,
    )


def with_write(view: View, step: Write) -> View:
    """Returns a copy of ``view`` that shows that the state of ``step`` was written to the commit
    log.
    """
    ended = view.ended
    if step.why is not Writing.CONFIRMED:
        ended = None
    elif ended is not None:
        ended = replace(ended, is_confirmed=True)
    return replace(
        view,
        state=view.state if step.state is None else step.state,
        decided=None if step.why is Writing.UNDONE else view.decided,
        ended=ended,
        is_confirmed=True,
        has_superseded=view.has_superseded or step.why is Writing.ABORTED,
        is_recorded=step.why in _LAST,
        how=step.how,
    )


def without_write(view: View, step: Write) -> View:
    """Returns a copy of ``view`` with a new fact: the write ``step`` has failed. Call this function
    only if ``step.may_fail`` is true, which means that the commit or the abort goes on without the
    write.
    """
    # (Another process may have fenced this process, and may have decided a batch. So the facts that
    # depend on a current state are dropped.)
    return replace(
        view,
        is_fresh=False,
        ended=None,
        is_recorded=step.why in _LAST,
        is_left_open=False,
        how=step.how,
    )


def with_sweep(view: View, step: Sweep, swept: tuple[str, ...], *, is_left_open: bool) -> View:
    """Returns a copy of ``view`` that shows that the transactions ``swept`` were aborted.

    ``step.spared`` is the id of a run whose transactions the step does not abort. ``is_left_open``
    is true if this run has open transactions that no decision names.
    """
    return replace(
        view,
        swept=(*view.swept, *swept),
        sweeps=view.sweeps + 1,
        is_left_open=is_left_open,
        how=step.how or view.how,
    )
