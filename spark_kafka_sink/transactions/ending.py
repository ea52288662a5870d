"""Ends the transactions of a decided batch, each until its outcome is known.

Owns: the rounds of EndTxn and DescribeTransactions, until when a decision is committed and from
when it is undone. Never: the decision (``committer.py``), what a response means (``outcomes.py``).

A driver commits its decision while another one, started a moment ago, finds the same decision
about to time out, and undoes it. Without a rule that both keep, the batch is torn::

    A decides; the coordinators load for so long that A sends EndTxn(commit) again and again
    B starts: all are open, and about to time out. It sends EndTxn(abort)
    the coordinators are back: one takes A's request first, another one B's

So both look at the ages of the transactions, and do one thing at a time, as "Times" of
docs/design/commit-protocol.md has it (m is the margin of ``lease.py``): none sends EndTxn(commit)
after timeout - 3m/8, then each waits until a request that is on its way has arrived, and none sends
EndTxn(abort) before timeout - m/4, nor after timeout - m/8, unless one was aborted.

When B looks again, A has sent nothing for m/8: B sees what A has committed. If that is one, both
commit the others, at any age. If it is none, B aborts all, and A finds them aborted. An operator's
command, which aborts nothing, commits from timeout - 3m/32, and has waited for m/32. Only a request
that takes longer to arrive still tears the batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

from spark_kafka_sink.admin.transaction_description import TransactionDescription, TransactionState
from spark_kafka_sink.base.clock import NEVER, Latch
from spark_kafka_sink.base.errors import ErrorCode, KafkaTimeoutError
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.lease import NEVER_TIMES_OUT_MS, margin_ms
from spark_kafka_sink.transactions.outcomes import Outcome, is_prepared, outcome_of

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient

#: Between two rounds for transactions that are neither committed nor aborted yet.
_ROUND_MS = 20
#: Between two looks at transactions that are too old to be committed, and too young to be undone.
_WAIT_MS = 1_000


@dataclass(frozen=True, slots=True)
class CommitOutcomes:
    """Transactional ids: ``lost`` were aborted, those of ``unknown`` expired, for ``unclear`` no
    definite response came in time.
    """

    lost: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()


class _Next(Enum):
    """What may be done about a decision."""

    #: Commit, for a while.
    COMMIT = auto()
    #: Commit, for less: brokers abort in a moment.
    HURRY = auto()
    #: Commit to the end: one is committed, or its outcome is not known.
    FINISH = auto()
    WAIT = auto()
    UNDO = auto()


def end_decided(
    client: TransactionClient,
    transactions: Sequence[PreparedTransaction],
    deadline_ms: int,
    *,
    checked_until_ms: int,
    only_lost: bool,
) -> CommitOutcomes:
    """Commit all of a decision; or abort all, which are ``lost`` then, if none is committed, and
    brokers have aborted some, or are about to (not with ``only_lost``).

    The first look is at ``checked_until_ms``: until then they are known to be young.
    """
    until_ms = checked_until_ms
    while True:
        ended = commit_all(client, transactions, deadline_ms, first_by_ms=until_ms)
        begun_ms = client.clock.now_ms()
        if not ended.unclear or begun_ms >= deadline_ms:
            return ended
        found = client.describe([t.transactional_id for t in transactions], deadline_ms)
        todo = _next(client, transactions, found, deadline_ms, only_lost=only_lost)
        margin = min(margin_ms(d.timeout_ms) for d in found.values())
        if todo is _Next.FINISH:
            until_ms = deadline_ms
        elif todo is _Next.COMMIT:
            until_ms = begun_ms + margin // 8
        elif todo is _Next.HURRY:
            until_ms = begun_ms + margin // 32
        elif todo is _Next.WAIT:
            pause_ms = min(_WAIT_MS, margin // 32)
            client.clock.wait(Latch(), min(deadline_ms, begun_ms + pause_ms))
        elif undo(client, transactions, deadline_ms, begun_ms + margin // 16):
            return CommitOutcomes(lost=tuple(found))


def _next(
    client: TransactionClient,
    transactions: Sequence[PreparedTransaction],
    found: Mapping[str, TransactionDescription],
    deadline_ms: int,
    *,
    only_lost: bool,
) -> _Next:
    """Each is judged by its own time-out: its writer may have had other options than we have."""
    open_ = {i: d for i, d in found.items() if d.state is TransactionState.ONGOING}
    # Brokers drop markers for a partition without a leader. It may get one in time.
    away = client.leaderless(open_, deadline_ms)
    half = partial(
        near_timeout, client, margin_of=lambda t: margin_ms(t) // 2, deadline_ms=deadline_ms
    )
    if not _lost_or_open(transactions, found):
        return _Next.WAIT if away and not half(open_) else _Next.FINISH
    if not all(is_prepared(t, found[t.transactional_id]) for t in transactions):
        return _Next.UNDO
    if not half(found):
        return _Next.WAIT if away else _Next.COMMIT
    wait_until, last = (3, 1) if only_lost else (8, 6)
    # (One that moves to another coordinator is in no list, and may be young: others commit it.)
    old = near_timeout(
        client, found, lambda t: margin_ms(t) * wait_until // 32, deadline_ms, only_listed=True
    )
    if not old or near_timeout(client, found, lambda t: margin_ms(t) * last // 32, deadline_ms):
        return _Next.WAIT
    if only_lost:
        return _Next.WAIT if away else _Next.HURRY
    return _Next.UNDO


def commit_all(
    client: TransactionClient,
    transactions: Sequence[PreparedTransaction],
    deadline_ms: int,
    *,
    first_by_ms: int = NEVER,
) -> CommitOutcomes:
    """Commit each of ``transactions``; harmless for those that are committed already. It ends at
    ``first_by_ms`` when none is committed by then.
    """
    limit_ms = min(first_by_ms, deadline_ms)
    open_ = {t.transactional_id: t for t in transactions}
    outcomes: dict[str, Outcome] = {}
    while open_:
        answers = client.end(list(open_.values()), committed=True, deadline_ms=limit_ms)
        outcomes |= {i: Outcome.COMMITTED for i, code in answers.items() if code is ErrorCode.NONE}
        doubtful = [i for i, code in answers.items() if code not in (ErrorCode.NONE, None)]
        with suppress(KafkaTimeoutError):
            found = client.describe(doubtful, limit_ms) if doubtful else {}
            judged = {i: outcome_of(open_[i], description) for i, description in found.items()}
            outcomes |= {i: how for i, how in judged.items() if how is not Outcome.RETRY}
        open_ = {i: t for i, t in open_.items() if i not in outcomes}
        if Outcome.COMMITTED in outcomes.values():
            limit_ms = deadline_ms
        now = client.clock.now_ms()
        if now >= limit_ms:
            break
        if open_:
            client.clock.wait(Latch(), min(limit_ms, now + _ROUND_MS))

    def those(how: Outcome) -> tuple[str, ...]:
        return tuple(i for i in outcomes if outcomes[i] is how)

    return CommitOutcomes(those(Outcome.LOST), those(Outcome.UNKNOWN), tuple(open_))


def abort_all(
    client: TransactionClient, transactions: Sequence[PreparedTransaction], deadline_ms: int
) -> bool:
    """Abort each as far as it is open. True: each got a definite response. What can't be described
    in time, or has no leader somewhere, is left open: a sweep looks at it again, or it times out.
    """
    try:
        found = client.describe([t.transactional_id for t in transactions], deadline_ms)
        prepared = [t for t in transactions if is_prepared(t, found[t.transactional_id])]
        open_ = {t.transactional_id: found[t.transactional_id] for t in prepared}
        answers = client.abort_exactly(open_, deadline_ms, prepared=open_)
    except KafkaTimeoutError:
        return False
    return not {None, ErrorCode.LEADER_NOT_AVAILABLE} & set(answers.values())


def undo(
    client: TransactionClient,
    transactions: Sequence[PreparedTransaction],
    deadline_ms: int,
    until_ms: int,
) -> bool:
    """Abort all, unless one is committed; True: all are aborted. The first by ``until_ms``."""
    ids = [t.transactional_id for t in transactions]
    # Again: one that another driver has committed meanwhile is in no list of open ones, either.
    found = client.describe(ids, deadline_ms)
    if not _lost_or_open(transactions, found):
        return False
    open_ = [t for t in transactions if is_prepared(t, found[t.transactional_id])]
    limit_ms = min(until_ms, deadline_ms) if len(open_) == len(ids) else deadline_ms
    if not abort_all(client, open_, limit_ms):
        return False
    found = client.describe(ids, deadline_ms)
    return all(outcome_of(t, found[t.transactional_id]) is Outcome.LOST for t in transactions)


def _lost_or_open(
    transactions: Sequence[PreparedTransaction], found: Mapping[str, TransactionDescription]
) -> bool:
    """None of them is committed, about to be, or not known."""
    return all(
        is_prepared(t, found[t.transactional_id])
        or outcome_of(t, found[t.transactional_id]) is Outcome.LOST
        for t in transactions
    )


def near_timeout(
    client: TransactionClient,
    found: Mapping[str, TransactionDescription],
    margin_of: Callable[[int], int],
    deadline_ms: int,
    *,
    only_listed: bool = False,
) -> frozenset[str]:
    """Those of ``found`` that are open for longer than their own time-out less its margin, as in
    ``TransactionClient.older_than``. Brokers before 3.8 don't return them; then it is by our clock,
    which is not theirs. (A transaction of two-phase commit never times out.)
    """
    by_timeout: dict[int, list[str]] = defaultdict(list)
    for one, description in found.items():
        if description.timeout_ms < NEVER_TIMES_OUT_MS:
            by_timeout[description.timeout_ms].append(one)
    near: set[str] = set()
    for timeout_ms, ids in by_timeout.items():
        age_ms = timeout_ms - margin_of(timeout_ms)
        old = client.older_than(ids, age_ms, deadline_ms, only_listed=only_listed)
        if old is None:
            begun = client.clock.wall_ms() - age_ms
            old = frozenset(i for i in ids if 0 <= found[i].start_ms < begun)
        near |= old
    return frozenset(near)
