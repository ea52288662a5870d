"""The goals, views and steps of a commit, an abort and an operator's change, as values.

Owns: the goals, :class:`View`, the steps, and the change of the view by a performed step. Never:
the choice of the next step (``table.py``), a broker, a clock, a log line (``committer.py`` performs
the steps).

Between two steps other processes may take any step, and this process may stop forever.
``tests/transactions/explorer.py`` visits every order.
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
from spark_kafka_sink.transactions.results import Commit, Refuse, ended_by_others
from spark_kafka_sink.transactions.transactional_ids import TransactionalId

# --- goals -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """The goal: make ``batch`` of ``owner`` visible as a whole, or record the batch as one write of
    a block.
    """

    owner: Owner
    batch: Batch

    @property
    def key(self) -> str:
        return self.owner.key


def _expected(_: CommitState) -> None:
    """Accepts every state."""


@dataclass(frozen=True, slots=True)
class RollForward:
    """The goal: end the decision of ``key``, if there is one.

    ``refusal`` returns the reason for a state that the caller does not expect. With ``only_lost``,
    a decision is undone only if brokers have aborted a part of it.
    """

    key: str
    refusal: Callable[[CommitState], Refuse | None] = _expected
    only_lost: bool = False


@dataclass(frozen=True, slots=True)
class AbortBatch:
    """The goal: abort ``transactions`` of batch ``number``, and all other open transactions of
    ``owner``'s run.
    """

    owner: Owner
    number: int
    transactions: tuple[PreparedTransaction, ...]
    tasks_may_run: bool

    @property
    def key(self) -> str:
        return self.owner.key


@dataclass(frozen=True, slots=True)
class AbortUnknown:
    """The goal: abort a batch of ``key`` whose run is unknown. All runs with an open transaction
    that ``mine`` accepts are aborted.
    """

    key: str
    mine: Callable[[TransactionalId], bool]


@dataclass(frozen=True, slots=True)
class EndByHand:
    """The goal of an operator: abort ``transactions``, if they are still as they were described.

    Transactions of a decision are only aborted if they are in ``even_decided``, and transactions of
    the owner only with ``even_owners``. If ``may_decide`` is true, some of the transactions' runs
    may still decide. So the key is opened first, and these runs are recorded as aborted.
    """

    key: str
    transactions: tuple[TransactionDescription, ...]
    even_decided: frozenset[str]
    even_owners: bool
    may_decide: bool


@dataclass(frozen=True, slots=True)
class Resolve:
    """The goal of an operator: end the batch in progress, which then counts as done (``done``) or
    is written again.

    ``planned`` is the state that the operator has seen. ``accepted`` are the ids of the
    transactions that the operator has seen to contradict the goal: with ``done``, the transactions
    whose rows are lost or may be lost, otherwise the committed transactions.
    """

    key: str
    planned: CommitState
    accepted: frozenset[str]
    done: bool


@dataclass(frozen=True, slots=True)
class Reset:
    """The goal of an operator: forget the state of ``key``, which the operator has seen as
    ``planned``.
    """

    key: str
    planned: CommitState


@dataclass(frozen=True, slots=True)
class Forget:
    """The goal of an operator: remove the unreadable records of ``key``."""

    key: str


Goal = CommitBatch | RollForward | AbortBatch | AbortUnknown | EndByHand | Resolve | Reset | Forget


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of an operator's abort, by transactional id.

    ``meanwhile`` are transactions that others have ended. ``failed`` are transactions that may
    still be open, each with the error code of the response. The code is None if there was no
    response.
    """

    aborted: tuple[str, ...] = ()
    meanwhile: tuple[str, ...] = ()
    failed: tuple[tuple[str, ErrorCode | None], ...] = ()


# --- what is known -----------------------------------------------------------------------------


#: The key is not read, or the log does not have it.
_NEVER_WRITTEN: Final = CommitState()


class Failure(Enum):
    """The effect of a failed step on its goal."""

    SHUT_OUT = "others have opened the key, or it was read from a deposed leader"
    NO_LEADER = "a partition has no leader"
    UNCLEAR = "whether the log has the write is not known"
    FINAL = "another attempt would not help"


@dataclass(frozen=True, slots=True)
class Failed:
    """The failure of ``step``, at the time ``at_ms``."""

    how: Failure
    step: Step
    at_ms: int
    error: KafkaError = field(compare=False)


@dataclass(frozen=True, slots=True)
class View:
    """The facts about a key and its transactions that the process performing a goal has collected.

    ``state`` is the log's state when it was opened or read, and changes with each write.
    ``wall_ms`` is the time when the key was opened.
    """

    state: CommitState = _NEVER_WRITTEN
    wall_ms: int = 0
    #: Of all openings: the name of this commit, a decision that the log may have, one
    #: that it had, and the driver's own transactions that were prepared.
    name: str = ""
    tried: Decision | None = None
    decided: Decision | None = None
    prepared: tuple[PreparedTransaction, ...] = ()
    #: The number of openings of the key, the start of the last opening, and the time until which
    #: the key is opened again if another process opens it.
    openings: int = 0
    begun_ms: int = 0
    until_ms: int = 0
    #: The last failed write, if it may be in the log; and whether there was any such write.
    unclear: Failed | None = None
    was_unclear: bool = False
    #: The runs that have an open transaction of a batch whose run is not known, by each search.
    runs: frozenset[str] = frozenset()
    searches: int = 0

    # Of this opening.
    is_open: bool = False
    is_read: bool = False
    #: No write was in progress when the state was read without opening the key.
    is_settled: bool = False
    #: The log's leader has taken a record since the key was opened: ``state`` is the newest.
    is_confirmed: bool = False
    failed: Failed | None = None
    #: The batch was decided since the key was opened. Until ``young_until_ms`` its transactions are
    #: known to be young.
    is_fresh: bool = False
    young_until_ms: int = 0
    #: The transactions of ``tried``, or the error that prevents their description.
    seen: tuple[TransactionDescription, ...] | KafkaError | None = None
    #: The outcomes of the transactions of the state's decision, after they were ended.
    ended: CommitOutcomes | None = None
    #: The driver's own transactions of the batch.
    own: tuple[PreparedTransaction, ...] | None = None
    #: Whether all transactions of the tasks are aborted; False: one may still be open.
    is_aborted: bool | None = None
    #: The orphans that were aborted, and the number of searches for orphans.
    swept: tuple[str, ...] = ()
    sweeps: int = 0
    #: Whether the run that the last search spared has open transactions that are not decided.
    is_left_open: bool = False
    #: The result of an operator's abort.
    by_hand: Ended | None = None
    #: Transactions of a batch that contradict the operator's resolution of the batch.
    contrary: tuple[str, ...] | None = None
    #: Runs of the goal were put into ``superseded`` since the key was opened. (It does not keep all
    #: of more than 32 runs; the generation, which grows then, supersedes the others.)
    has_superseded: bool = False
    #: The last write of the goal is done.
    is_recorded: bool = False
    #: The result of a commit that has succeeded.
    how: Commit | None = None
    #: The failure of the goal.
    refused: Refuse | None = None


# --- steps -------------------------------------------------------------------------------------


class Writing(Enum):
    """The purpose of a write of the log, and the effect of its failure."""

    DONE = "all transactions of a decision are committed"
    UNDONE = "all transactions of a decision are aborted"
    LOST = "brokers have aborted a part of a decision"
    #: The state is written unchanged: a deposed leader may have returned it, with the batch done.
    CONFIRMED = "the outcome of a decision is not known"
    RECORDED = "a write of a block is prepared"
    OWNED = "a batch is dropped, or has no rows"
    ABORTED = "a run decides nothing any more"
    FORGOTTEN = "nothing will follow under the key"
    RESOLVED = "an operator has ended a batch"
    RESET = "an operator has forgotten a key"


#: The last writes of a goal.
_LAST: Final = (Writing.FORGOTTEN, Writing.RESOLVED, Writing.RESET)


@dataclass(frozen=True, slots=True)
class Read:
    """Reads the key without opening it: no driver is fenced."""


@dataclass(frozen=True, slots=True)
class Open:
    """Opens the key after a pause. The pause is a random time between 0 and ``up_to_ms``
    milliseconds, but at most ``most_ms``.
    """

    up_to_ms: int = 0
    most_ms: int = 0


@dataclass(frozen=True, slots=True)
class Remove:
    """Opens the key and removes its records without decoding them, after a pause as in
    :class:`Open`.
    """

    up_to_ms: int = 0
    most_ms: int = 0


@dataclass(frozen=True, slots=True)
class Confirm:
    """Checks that the log was read from its current leader.

    For this check, the step writes the unchanged state, and aborts that write. A deposed leader
    does not accept the write.
    """


@dataclass(frozen=True, slots=True)
class LookAt:
    """Describes the transactions of ``decision``, which the log does not have."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class EndAll:
    """Ends the transactions of ``decision`` with ``end_decided``."""

    decision: Decision
    only_lost: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """Replaces the state of the key. A state of None removes the key.

    ``how`` is the result of the commit after the write. It is None if the commit goes on. With
    ``may_fail``, the goal is reached even if the write fails.
    """

    state: CommitState | None
    why: Writing
    how: Commit | None = None
    may_fail: bool = False


@dataclass(frozen=True, slots=True)
class Decide:
    """Writes the decision of ``state`` to the log. This is the commit point. Fails unless the
    decision's transactions are open and young, and their partitions have leaders.
    """

    state: CommitState


@dataclass(frozen=True, slots=True)
class PrepareOwn:
    """Writes the report and the offsets, each in a separate transaction of the driver.

    The transactional ids contain ``number``. They also contain ``name`` if no other commit may use
    the same ids.
    """

    number: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class AbortAll:
    """Aborts the transactions of ``transactions`` that are still open. Tasks have prepared them."""

    transactions: tuple[PreparedTransaction, ...]


@dataclass(frozen=True, slots=True)
class Search:
    """Lists the runs that have an open transaction of the batch.

    With ``when_killed``, the search begins when Spark has had time to kill the batch's tasks.
    """

    when_killed: bool = False


@dataclass(frozen=True, slots=True)
class Sweep:
    """Aborts the open transactions of ``runs`` and, with ``superseded``, of superseded runs.

    The run ``spared`` and the transactions of a decision are left out. With ``when_killed``, the
    sweep begins when Spark has had time to kill the batch's tasks. With ``may_fail``, the goal is
    reached even if the sweep fails. ``how`` is the result of the commit.
    """

    runs: frozenset[str] = frozenset()
    superseded: bool = False
    spared: str = ""
    when_killed: bool = False
    may_fail: bool = False
    how: Commit | None = None


@dataclass(frozen=True, slots=True)
class AbortExactly:
    """Aborts ``transactions``, unless they have changed since they were described. ``prepared``
    lists the transactions of a decision.
    """

    transactions: tuple[TransactionDescription, ...]
    prepared: frozenset[str]


@dataclass(frozen=True, slots=True)
class EndRest:
    """Commits (``done``) or aborts the open transactions of ``decision``. A transaction that
    contradicts this is no error if ``accepted`` has its id (:class:`Resolve`).
    """

    decision: Decision
    done: bool
    accepted: frozenset[str]


@dataclass(frozen=True, slots=True)
class Return:
    """The goal is reached. ``how`` is the result of a commit."""

    how: Commit | None = None


Step = (
    Read | Open | Remove | Confirm | LookAt | EndAll | Write | Decide | PrepareOwn | AbortAll
    | Search | Sweep | AbortExactly | EndRest | Return | Refuse
)  # fmt: skip


# --- what a step adds --------------------------------------------------------------------------


def with_read(view: View, state: CommitState, *, is_settled: bool) -> View:
    """The view after the key was read without opening it."""
    return replace(view, state=state, is_read=True, is_settled=is_settled)


def opened(before: View, state: CommitState, wall_ms: int, begun_ms: int = 0) -> View:
    """The view after the key was opened.

    ``before`` is the view before the opening, and ``begun_ms`` the time when the opening began. If
    the outcome of writing a decision was unclear and the log has that decision, the view records
    that the batch is decided.
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
        before.runs,
        before.searches,
        is_open=True,
    )


def failure_of(error: KafkaError) -> Failure:
    """The effect of a step's ``error`` on its goal."""
    if isinstance(error, LogOutcomeUnknownError):
        return Failure.UNCLEAR
    if isinstance(error, LogChangedError):
        return Failure.SHUT_OUT
    return Failure.NO_LEADER if isinstance(error, NoLeaderError) else Failure.FINAL


def with_failure(view: View, step: Step, how: Failure, error: KafkaError, at_ms: int) -> View:
    """The view after ``step`` failed. If the outcome of writing a decision is unclear, the view
    records that the decision may be in the log.
    """
    failed = Failed(how, step, at_ms, error)
    is_unclear = how is Failure.UNCLEAR
    tried = view.tried
    if is_unclear and isinstance(step, Decide):
        tried = step.state.decision
    is_removal = isinstance(step, Remove)  # it opens the key, too, and begins again from here
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
    """The view after the key's records were removed. An earlier failure of the removal is over."""
    return replace(view, is_recorded=True, failed=None)


def with_seen(view: View, seen: tuple[TransactionDescription, ...] | KafkaError) -> View:
    """The view after the transactions of a decision that may have been in the log were described.

    If all of these transactions are lost, it does not matter whether the batch was decided.
    """
    tried = view.tried
    assert tried is not None
    is_gone = ended_by_others(tried, seen) is None
    if not isinstance(seen, KafkaError) and all(map(is_lost, tried.transactions, seen)):
        tried = None
    return replace(view, seen=seen, tried=tried, decided=None if is_gone else view.decided)


def with_decision(view: View, state: CommitState, young_until_ms: int) -> View:
    """The view after the decision of ``state`` was written to the log."""
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
    """The view after the state of ``step`` was written."""
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
    """The view after the write of ``step`` failed, if the goal can be reached without this write.
    The key counts as opened by another process, which may have decided.
    """
    return replace(
        view,
        is_fresh=False,
        ended=None,
        is_recorded=step.why in _LAST,
        is_left_open=False,
        how=step.how,
    )


def with_sweep(view: View, step: Sweep, swept: tuple[str, ...], *, is_left_open: bool) -> View:
    """The view after orphans were searched, and ``swept`` were aborted."""
    return replace(
        view,
        swept=(*view.swept, *swept),
        sweeps=view.sweeps + 1,
        is_left_open=is_left_open,
        how=step.how or view.how,
    )
