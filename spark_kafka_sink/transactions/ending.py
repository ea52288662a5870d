"""Ends the transactions of a decided batch: all are committed, or all are aborted. A batch is
decided if the commit log has the decision to commit it.

This module sends EndTxn and DescribeTransactions in rounds, until each outcome is known.
``committer.py`` writes the result to the commit log. ``outcomes.py`` interprets the responses.

Two drivers may end the same decision at the same time. One driver must not abort a transaction
while the other driver commits another transaction. So at a given age of the transactions, the
drivers may only commit, only abort, or only wait (:class:`Age`). The section "Times" of
docs/design/commit-protocol.md has the limits of these ages. Exception: as soon as one transaction
is known to be committed, the driver commits all others, at any age.

These rules do not cover an EndTxn that takes too long to arrive: it can still leave the batch
committed in part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.admin.transaction_description import TransactionDescription, TransactionState
from spark_kafka_sink.base.clock import NEVER, Latch
from spark_kafka_sink.base.errors import ErrorCode, KafkaTimeoutError
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.lease import margin_ms
from spark_kafka_sink.transactions.outcomes import (
    Outcome,
    is_committed,
    is_prepared,
    outcome_of,
)
from spark_kafka_sink.transactions.transactional_ids import is_of_report

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import Beside, LastLook, TransactionClient

#: The pause between two rounds of EndTxn for transactions that are neither committed nor aborted.
_ROUND_MS = 20
#: The time for which EndTxn is sent again before the ages of the transactions are checked again. If
#: a coordinator does not respond in time, the time is doubled, at most ``_DOUBLINGS`` times.
_AGAIN_MS = 8_000
_DOUBLINGS = 2
#: The wait for the ages of transactions that may be too old to wait for a leader. If a broker does
#: not list them in time, the wait is doubled, at most ``_DOUBLINGS`` times.
_AGES_MS = 2_000
#: The pause between two descriptions of transactions that are too old to be committed, and too
#: young to be undone.
_WAIT_MS = 1_000
#: The states of a transaction whose end has begun.
ENDING: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
#: The longest wait for the end of transactions whose commit or abort is in progress. Usually their
#: markers are written within milliseconds.
_MARKERS_MS: Final = 1_000
#: If a transaction is still open this long after its timeout, brokers do not abort it: a
#: coordinator looks for such transactions every 10 s.
_OVERDUE_MS = 60_000


@dataclass(frozen=True, slots=True)
class CommitOutcomes:
    """The transactional ids of a decision, by the outcome of their transactions. The id of a
    committed transaction is in no field. The id of any other transaction is in one of three fields:

    * ``lost``: the transaction was aborted.
    * ``unknown``: the coordinator has described the transaction, but can't show whether it was
      committed or aborted.
    * ``unclear``: at the end of the time limit, the transaction was still open, or its coordinator
      had not responded.

    Two more fields repeat some of these ids:

    * ``expired``: the ids in ``unknown`` that the coordinators no longer have.
    * ``overdue``: the ids in ``unclear`` whose transactions are still open a minute after their
      timeout. Brokers should have aborted these.
    """

    lost: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    overdue: tuple[str, ...] = ()
    #: True after the leader of the log's partition has confirmed that the log has the decision.
    is_confirmed: bool = False


class Ending(Enum):
    """The next action for the transactions of a decision: commit, abort, or wait."""

    #: Send EndTxn(commit), for an eighth of the margin.
    COMMIT = auto()
    #: Send EndTxn(commit), but for a shorter time, because brokers are about to abort.
    HURRY = auto()
    #: Commit all transactions: one is committed already.
    FINISH = auto()
    #: Neither commit nor abort, and check again later.
    WAIT = auto()
    #: Abort all transactions.
    UNDO = auto()


class Age(Enum):
    """How old the open transactions of a decision are, compared with their timeouts."""

    #: All transactions are young enough to be committed.
    YOUNG = auto()
    #: A transaction has the age at which a starting driver undoes the decision, or at which an
    #: operator's command commits it.
    OLD = auto()
    #: Neither YOUNG nor OLD: no transaction has reached the age of OLD yet, or one is beyond this
    #: age. No process may begin to commit or to undo.
    BETWEEN = auto()


def end_decided(
    client: TransactionClient,
    transactions: Sequence[PreparedTransaction],
    deadline_ms: int,
    *,
    checked_until_ms: int,
    look: LastLook | None = None,
    only_lost: bool,
) -> CommitOutcomes:
    """Commits all transactions of a decision, or aborts all of them. Returns the ids of the
    transactions that are not committed, by outcome. If all are aborted, all ids are in ``lost``.

    All are aborted if no transaction is committed or has an unknown outcome, and one of these is
    true:

    * One of them is already aborted, for example by brokers.
    * ``only_lost`` is False, and one of them is near its timeout (:attr:`Age.OLD`).

    At ``deadline_ms``, the transactions that are not known to be ended are returned as ``unclear``.
    The caller has checked the ages of the transactions, so they are not checked again before
    ``checked_until_ms``. ``deadline_ms`` and ``checked_until_ms`` are times of the client's clock.
    ``look`` is the result of the caller's last check that the transactions' partitions have
    leaders.
    """
    until_ms, todo = checked_until_ms, Ending.COMMIT
    found: Mapping[str, TransactionDescription] = {}
    while True:
        ended = commit_all(
            client,
            transactions,
            deadline_ms,
            first_by_ms=until_ms,
            look=look,
            found=found,
            is_one_committed=todo is Ending.FINISH,
        )
        begun_ms = client.clock.now_ms()
        if not ended.unclear or begun_ms >= deadline_ms:
            ended = _with_described(ended, transactions, found)
            return replace(ended, overdue=_overdue(client, ended.unclear, found))
        found = client.describe([t.transactional_id for t in transactions], deadline_ms)
        todo, look = _next(client, transactions, found, deadline_ms, only_lost=only_lost)
        # (If a coordinator no longer has an id, the description of the id has no timeout.)
        margin = min(
            (margin_ms(d.timeout_ms) for d in found.values() if d.timeout_ms > 0), default=0
        )
        if todo is Ending.FINISH:
            until_ms = deadline_ms
        elif todo is Ending.COMMIT:
            until_ms = begun_ms + margin // 8
        elif todo is Ending.HURRY:
            until_ms = begun_ms + margin // 32
        elif todo is Ending.UNDO and undo(
            client, transactions, deadline_ms, begun_ms + margin // 16
        ):
            return CommitOutcomes(lost=tuple(found))
        else:  # (A transaction whose partition has no leader can't be aborted yet.)
            pause_ms = max(_ROUND_MS, min(_WAIT_MS, margin // 32))
            client.clock.wait(Latch(), min(deadline_ms, begun_ms + pause_ms))


def ending(
    transactions: Sequence[PreparedTransaction],
    found: Mapping[str, TransactionDescription],
    age: Age | None,
    *,
    away: bool,
    only_lost: bool,
) -> Ending | None:
    """Returns the next action for the transactions of a decision. The first of these rules that
    applies counts:

    1. A transaction has an unknown outcome, another one is open, and none is committed: WAIT.
    2. A transaction is committed or has an unknown outcome: FINISH. Exception: WAIT if ``away`` is
       True and ``age`` is YOUNG.
    3. A transaction is aborted: UNDO.
    4. ``age`` is YOUNG: COMMIT. Exception: WAIT if ``away`` is True.
    5. ``age`` is BETWEEN: WAIT.
    6. ``age`` is OLD, and ``only_lost`` is False: UNDO.
    7. ``age`` is OLD, and ``only_lost`` is True: HURRY. Exception: WAIT if ``away`` is True.

    The arguments are:

    * ``found``: the coordinators' descriptions of the transactions.
    * ``age``: the age of the open transactions. It may be None, if it was not checked. Then the
      result is None if a rule needs the age.
    * ``away``: True if a partition of an open transaction has no leader.
    * ``only_lost``: True for an operator's commit. Such a commit never aborts transactions because
      of their age.
    """
    # These are the rules of "Times" in docs/design/commit-protocol.md.
    if not _lost_or_open(transactions, found):
        # Brokers or an operator may have aborted the transaction with the unknown outcome. So the
        # open ones are left alone: an operator ends them, or they time out.
        if _is_doubtful(transactions, found):
            return Ending.WAIT
        if not away:
            return Ending.FINISH
        # Brokers drop markers for a partition without a leader. A leader may be elected in time.
        return None if age is None else Ending.WAIT if age is Age.YOUNG else Ending.FINISH
    if not all(is_prepared(t, found[t.transactional_id]) for t in transactions):
        return Ending.UNDO
    if age is None:
        return None
    if age is Age.BETWEEN or (away and (only_lost or age is Age.YOUNG)):
        return Ending.WAIT
    if age is Age.YOUNG:
        return Ending.COMMIT
    return Ending.HURRY if only_lost else Ending.UNDO


def _next(
    client: TransactionClient,
    transactions: Sequence[PreparedTransaction],
    found: Mapping[str, TransactionDescription],
    deadline_ms: int,
    *,
    only_lost: bool,
) -> tuple[Ending, LastLook | None]:
    """Returns two values:

    * The next action for the transactions of a decision, by the rules of :func:`ending`.
    * The result of a check that all partitions of the open transactions have leaders, for
      :func:`commit_all`. None if a partition has no leader, or if there was no partition to check.
    """
    open_ = {i: d for i, d in found.items() if d.state is TransactionState.ONGOING}
    away = bool(client.leaderless(open_, deadline_ms))
    look = None if away else client.last_look
    todo = ending(transactions, found, None, away=away, only_lost=only_lost)
    if todo is None:
        age = _age(client, open_, deadline_ms, only_lost=only_lost)
        todo = ending(transactions, found, age, away=away, only_lost=only_lost)
    assert todo is not None
    return todo, look


def _age(
    client: TransactionClient,
    open_: Mapping[str, TransactionDescription],
    deadline_ms: int,
    *,
    only_lost: bool,
) -> Age:
    """Returns the :class:`Age` of the open transactions ``open_``. Each transaction is compared
    with its own timeout, because another process may have opened it with another
    transaction.timeout.ms. ``only_lost`` is True for an operator's commit, which has other limits.
    """
    if not near_timeout(client, open_, lambda t: margin_ms(t) // 2, deadline_ms):
        return Age.YOUNG
    # Without these limits, a batch could be committed in part:
    #   1. A decides. The coordinators load for so long that A sends EndTxn(commit) again and again.
    #   2. B starts. All transactions are open, and about to time out. B sends EndTxn(abort).
    #   3. The coordinators are back. One takes A's request first, another takes B's first.
    # So EndTxn is sent only at these ages, as long as no transaction is known to be committed or
    # aborted ("Times" of docs/design/commit-protocol.md). m is the margin (``lease.py``):
    #   * EndTxn(commit): below timeout - 3m/8. The request then has m/8 to arrive before an abort.
    #   * EndTxn(abort): from timeout - m/4 to timeout - m/8. An operator's commit sends none.
    #   * EndTxn(commit) of an operator's commit: also from timeout - 3m/32 to the timeout. So each
    #     EndTxn(abort) of a driver has m/32 to arrive.
    wait_until, last = (3, 1) if only_lost else (8, 6)
    # (Only listed transactions count as old here. While a transaction moves to another
    # coordinator, no broker lists it. It may be young, and another process may still commit it.)
    old = near_timeout(
        client, open_, lambda t: margin_ms(t) * wait_until // 32, deadline_ms, only_listed=True
    )
    if not old or near_timeout(client, open_, lambda t: margin_ms(t) * last // 32, deadline_ms):
        return Age.BETWEEN
    return Age.OLD


def commit_all(
    client: TransactionClient,
    transactions: Sequence[PreparedTransaction],
    deadline_ms: int,
    *,
    first_by_ms: int = NEVER,
    look: LastLook | None = None,
    found: Mapping[str, TransactionDescription] = MappingProxyType({}),
    is_one_committed: bool = False,
) -> CommitOutcomes:
    """Sends EndTxn(commit) for ``transactions`` until each outcome is known, or until
    ``deadline_ms``. If none is committed by ``first_by_ms``, returns at that time. Returns the ids
    of the transactions that are not committed, by outcome.

    Each EndTxn follows a check that the transaction's partitions have leaders. The first one uses
    ``look``, the caller's last check, if it is at most a second old. ``found``: known descriptions.

    If ``is_one_committed`` is True, one is committed already, so all others must be committed. Only
    transactions of :attr:`Age.YOUNG` are checked, because an older one can't wait for a leader.
    """
    limit_ms = min(first_by_ms, deadline_ms)
    open_ = {t.transactional_id: t for t in transactions}
    outcomes: dict[str, Outcome] = {}
    gone = set[str]()
    looked_ms, partitions = (None, {}) if look is None else (look.ms, dict(look.partitions))
    partitions |= {i: description.partitions for i, description in found.items()}
    rounds = missed = 0
    old = _aged(client, found, limit_ms) if is_one_committed else frozenset[str]()
    while ids := _to_commit(transactions, open_, is_one_committed=is_one_committed):
        patience = 1 << min(rounds, _DOUBLINGS)
        answers = client.end(
            [open_[i] for i in ids],
            committed=True,
            deadline_ms=min(limit_ms, client.clock.now_ms() + patience * _AGAIN_MS),
            looked_ms=looked_ms,
            partitions=partitions,
            unchecked=old or (),
        )
        outcomes |= {i: Outcome.COMMITTED for i, code in answers.items() if code is ErrorCode.NONE}
        left = [i for i in ids if i not in outcomes]
        found = client.describe_now(left, limit_ms, patience=patience)
        partitions |= {i: description.partitions for i, description in found.items()}
        judged = {i: outcome_of(open_[i], description) for i, description in found.items()}
        gone |= {i for i, one in found.items() if one.error is not ErrorCode.NONE}
        outcomes |= {i: how for i, how in judged.items() if how is not Outcome.RETRY}
        open_ = {i: t for i, t in open_.items() if i not in outcomes}
        if Outcome.COMMITTED in outcomes.values():
            limit_ms, is_one_committed = deadline_ms, True
        if (now := client.clock.now_ms()) >= limit_ms:
            break
        if any(i in open_ for i in ids):
            client.clock.wait(Latch(), min(limit_ms, now + _ROUND_MS))
            looked_ms = None
            rounds += any(i not in found for i in left)
            if is_one_committed:
                old = _aged(client, found, limit_ms, 1 << min(missed, _DOUBLINGS))
                missed += old is None
    unknown = _ids(outcomes, Outcome.UNKNOWN)
    expired = tuple(i for i in unknown if i in gone)
    return CommitOutcomes(_ids(outcomes, Outcome.LOST), unknown, tuple(open_), expired)


def _to_commit(
    transactions: Sequence[PreparedTransaction], open_: Collection[str], *, is_one_committed: bool
) -> list[str]:
    """Returns the ids in ``open_`` whose transactions are to be committed now. ``transactions`` has
    all transactions that :func:`commit_all` commits.

    The reports of the batch are the last, so that consumers do not read a report before its rows.
    As long as no transaction is committed, the reports stay open: the decision may still be undone.
    """
    without_reports = [i for i in open_ if not is_of_report(i)]
    has_only_reports = all(is_of_report(t.transactional_id) for t in transactions)
    return without_reports or (list(open_) if is_one_committed or has_only_reports else [])


def _aged(
    client: TransactionClient,
    found: Mapping[str, TransactionDescription],
    deadline_ms: int,
    patience: int = 1,
) -> frozenset[str] | None:
    """Returns the ids of the open transactions in ``found`` that are not :attr:`Age.YOUNG` any
    more. Exception: transactions that no broker lists are left out, because their ages are unknown.
    Returns None if the brokers don't respond in time: 2 seconds, multiplied by ``patience``.
    """
    open_ = {i: one for i, one in found.items() if one.state is TransactionState.ONGOING}
    soon = min(deadline_ms, client.clock.now_ms() + patience * _AGES_MS)
    try:
        return near_timeout(client, open_, lambda t: margin_ms(t) // 2, soon, only_listed=True)
    except KafkaTimeoutError:
        return None


def _with_described(
    ended: CommitOutcomes,
    transactions: Sequence[PreparedTransaction],
    found: Mapping[str, TransactionDescription],
) -> CommitOutcomes:
    """Returns a copy of ``ended``. If ``found`` shows the outcome of an id in ``unclear``, the id
    is moved to the field of this outcome. The id of a committed transaction is removed.
    """
    left = [t for t in transactions if t.transactional_id in ended.unclear]
    how = {
        t.transactional_id: outcome_of(t, found[t.transactional_id])
        if t.transactional_id in found
        else Outcome.RETRY
        for t in left
    }
    unknown = _ids(how, Outcome.UNKNOWN)
    gone = tuple(i for i in unknown if found[i].error is not ErrorCode.NONE)
    return CommitOutcomes(
        (*ended.lost, *_ids(how, Outcome.LOST)),
        (*ended.unknown, *unknown),
        _ids(how, Outcome.RETRY),
        (*ended.expired, *gone),
    )


def _ids(outcomes: Mapping[str, Outcome], wanted: Outcome) -> tuple[str, ...]:
    return tuple(i for i, outcome in outcomes.items() if outcome is wanted)


def _overdue(
    client: TransactionClient, ids: Sequence[str], found: Mapping[str, TransactionDescription]
) -> tuple[str, ...]:
    """Returns the ids in ``ids`` whose transaction is still open a minute after its timeout, by
    this machine's clock. Brokers should have aborted these transactions.
    """
    now_ms = client.clock.wall_ms()
    return tuple(
        i
        for i in ids
        if i in found
        and found[i].state is TransactionState.ONGOING
        and (found[i].age_ms(now_ms) or 0) > found[i].timeout_ms + _OVERDUE_MS
    )


def described_when_ended(
    client: TransactionClient, ids: Collection[str], deadline_ms: int, wait_ms: int = _MARKERS_MS
) -> Mapping[str, TransactionDescription]:
    """Requests the descriptions of transactions from their coordinators. ``ids`` has the
    transactional ids. If the commit or abort of a transaction is in progress, waits for its end, at
    most ``wait_ms``. If it has not ended by then, its description still shows it as in progress.
    """
    found = dict(client.describe(ids, deadline_ms))
    until_ms, attempts = min(deadline_ms, client.clock.now_ms() + wait_ms), 0
    while (left := [i for i, one in found.items() if one.state in ENDING]) and (
        client.clock.now_ms() < until_ms
    ):
        client.loop.pause(attempts, until_ms)
        found |= client.describe(left, deadline_ms)
        attempts += 1
    return found


def abort_all(
    client: TransactionClient, transactions: Sequence[PreparedTransaction], deadline_ms: int
) -> bool:
    """Aborts each of ``transactions`` that is open. Returns True if all have ended. Returns False
    if some may still be open, for one of these reasons:

    * A transaction can't be described in time. In this case, nothing is aborted.
    * A partition of a transaction has no leader. In this case, the transaction is not aborted, but
      the others are.
    * An abort gets no definite response in time.

    A transaction that is still open is aborted by the sweep of a later commit or abort, or times
    out.
    """
    return abort_and_see(client, transactions, deadline_ms)[0]


def abort_and_see(
    client: TransactionClient, transactions: Sequence[PreparedTransaction], deadline_ms: int
) -> tuple[bool, tuple[TransactionDescription, ...]]:
    """As :func:`abort_all`. The second result has the descriptions of ``transactions`` before the
    abort, in the same order. It is empty if the transactions can't be described in time.
    """
    seen: tuple[TransactionDescription, ...] = ()
    try:
        found = client.describe([t.transactional_id for t in transactions], deadline_ms)
        seen = tuple(found[t.transactional_id] for t in transactions)
        prepared = [t for t in transactions if is_prepared(t, found[t.transactional_id])]
        open_ = {t.transactional_id: found[t.transactional_id] for t in prepared}
        answers = client.abort_exactly(open_, deadline_ms, prepared=open_)
    except KafkaTimeoutError:
        return False, seen
    return not {None, ErrorCode.LEADER_NOT_AVAILABLE} & set(answers.values()), seen


def undo(
    client: TransactionClient,
    transactions: Sequence[PreparedTransaction],
    deadline_ms: int,
    until_ms: int,
) -> bool:
    """Aborts all transactions of a decision, except if one of them is committed or has an unknown
    outcome: then none is aborted. Returns True if all are aborted in the end.

    If one of the transactions is already aborted, EndTxn(abort) is sent until ``deadline_ms``. If
    all are still open, it is sent only until ``until_ms``, because an operator's command may commit
    the transactions later than ``until_ms``. Both are times of the client's clock.
    """
    ids = [t.transactional_id for t in transactions]
    # They are described again, because another driver may have committed one in the meantime.
    found = client.describe(ids, deadline_ms)
    if not _lost_or_open(transactions, found):
        return False
    open_ = [t for t in transactions if is_prepared(t, found[t.transactional_id])]
    # (If all are open, an operator's commit may send EndTxn(commit) after ``until_ms``.)
    limit_ms = min(until_ms, deadline_ms) if len(open_) == len(ids) else deadline_ms
    if not abort_all(client, open_, limit_ms):
        return False
    found = client.describe(ids, deadline_ms)
    return all(outcome_of(t, found[t.transactional_id]) is Outcome.LOST for t in transactions)


def _lost_or_open(
    transactions: Sequence[PreparedTransaction], found: Mapping[str, TransactionDescription]
) -> bool:
    """Whether each transaction is aborted or still open."""
    return all(
        is_prepared(t, found[t.transactional_id])
        or outcome_of(t, found[t.transactional_id]) is Outcome.LOST
        for t in transactions
    )


def _is_doubtful(
    transactions: Sequence[PreparedTransaction], found: Mapping[str, TransactionDescription]
) -> bool:
    """Whether at least one transaction is still open, and none is known to be committed. If another
    transaction has an unknown outcome, it is then doubtful whether the open ones may be committed.
    """
    seen = [(t, found[t.transactional_id]) for t in transactions]
    is_open = any(is_prepared(t, now) for t, now in seen)
    return is_open and not any(is_committed(t, now) for t, now in seen)


def near_timeout(
    client: TransactionClient,
    found: Mapping[str, TransactionDescription],
    margin_of: Callable[[int], int],
    deadline_ms: int,
    *,
    only_listed: bool = False,
    beside: Beside | None = None,
) -> frozenset[str]:
    """Returns the ids in ``found`` whose transactions are near their timeout. A transaction is near
    its timeout if its age is more than timeout - ``margin_of(timeout)``, in milliseconds. The
    coordinators measure the age. Exception: with brokers before 3.8, this machine's clock measures
    it.

    * ``only_listed``: if False, a transaction that no coordinator lists as open also counts as near
      its timeout.
    * ``beside``: requests for ages that were already sent, or None. Their responses are used if
      they are for the same ids and the same ages.
    """
    by_timeout: dict[int, list[str]] = defaultdict(list)
    for one, description in found.items():
        by_timeout[description.timeout_ms].append(one)
    near: set[str] = set()
    for timeout_ms, ids in by_timeout.items():
        age_ms = timeout_ms - margin_of(timeout_ms)
        old = client.older_than(ids, age_ms, deadline_ms, only_listed=only_listed, beside=beside)
        if old is None:
            begun = client.clock.wall_ms() - age_ms
            old = frozenset(i for i in ids if 0 <= found[i].start_ms < begun)
        near |= old
    return frozenset(near)
