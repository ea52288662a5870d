"""Ends the transactions of a decided batch, each until its outcome is known.

Owns: the rounds of EndTxn and DescribeTransactions, when a decision can be undone. Never: the
decision (``committer.py``), what a response means (``outcomes.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.base.clock import Latch
from spark_kafka_sink.base.errors import ErrorCode, KafkaTimeoutError
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.transaction_admin_messages import TransactionDescription
from spark_kafka_sink.transactions.lease import NEVER_TIMES_OUT_MS, margin_ms
from spark_kafka_sink.transactions.outcomes import Outcome, is_prepared, outcome_of

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient

#: Between two rounds for transactions that are neither committed nor aborted yet.
_ROUND_MS = 20


@dataclass(frozen=True, slots=True)
class CommitOutcomes:
    """Transactional ids: ``lost`` were aborted by a broker, those of ``unknown`` expired, for
    ``unclear`` no definite response came in time. All others are committed.
    """

    lost: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()


def commit_all(
    client: TransactionClient, transactions: Sequence[PreparedTransaction], deadline_ms: int
) -> CommitOutcomes:
    """Commit each of ``transactions``; harmless for those that are committed already."""
    lost: list[str] = []
    unknown: list[str] = []
    open_ = {t.transactional_id: t for t in transactions}
    while open_:
        answers = client.end(list(open_.values()), committed=True, deadline_ms=deadline_ms)
        doubtful = [i for i, code in answers.items() if code not in (ErrorCode.NONE, None)]
        try:
            found = client.describe(doubtful, deadline_ms) if doubtful else {}
        except KafkaTimeoutError:
            found = {}
        outcomes = {i: outcome_of(open_[i], description) for i, description in found.items()}
        lost += [i for i in doubtful if outcomes.get(i) is Outcome.LOST]
        unknown += [i for i in doubtful if outcomes.get(i) is Outcome.UNKNOWN]
        unsettled = {i for i, code in answers.items() if code is None}
        unsettled |= {i for i in doubtful if outcomes.get(i, Outcome.RETRY) is Outcome.RETRY}
        open_ = {i: t for i, t in open_.items() if i in unsettled}
        now = client.clock.now_ms()
        if now >= deadline_ms:
            break
        if open_:
            client.clock.wait(Latch(), min(deadline_ms, now + _ROUND_MS))
    return CommitOutcomes(tuple(lost), tuple(unknown), tuple(open_))


def abort_all(
    client: TransactionClient, transactions: Sequence[PreparedTransaction], deadline_ms: int
) -> bool:
    """Abort each as far as it is open; a broker refuses to abort what is committed. True: each got
    a definite response.
    """
    if not transactions:
        return True
    answers = client.end(transactions, committed=False, deadline_ms=deadline_ms)
    return None not in answers.values()


def undo(
    client: TransactionClient,
    transactions: Sequence[PreparedTransaction],
    deadline_ms: int,
    *,
    only_lost: bool,
) -> bool:
    """Abort all of a decision of which brokers have aborted some, or are about to (not with
    ``only_lost``), and none is committed; True: all are aborted.

    One that is about to time out may be gone when its EndTxn arrives, and others would be committed
    without it. Each is judged by its own time-out: the process that looks may have other options
    than the one that wrote them.
    """
    ids = [t.transactional_id for t in transactions]
    found = client.describe(ids, deadline_ms)
    if not _lost_or_open(transactions, found):
        return False
    if all(is_prepared(t, found[t.transactional_id]) for t in transactions):
        if only_lost or not near_timeout(client, found, lambda t: margin_ms(t) // 4, deadline_ms):
            return False
        # One that another driver has committed meanwhile is in no list of open ones, either.
        found = client.describe(ids, deadline_ms)
        if not _lost_or_open(transactions, found):
            return False
    open_ = [t for t in transactions if is_prepared(t, found[t.transactional_id])]
    if not abort_all(client, open_, deadline_ms):
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
) -> frozenset[str]:
    """Those of ``found`` that are open for longer than their own time-out less its margin. Brokers
    before 3.8 don't return them; then it is by our clock, which is not theirs. (A transaction of
    two-phase commit never times out.)
    """
    by_timeout: dict[int, list[str]] = defaultdict(list)
    for one, description in found.items():
        if description.timeout_ms < NEVER_TIMES_OUT_MS:
            by_timeout[description.timeout_ms].append(one)
    near: set[str] = set()
    for timeout_ms, ids in by_timeout.items():
        age_ms = timeout_ms - margin_of(timeout_ms)
        old = client.older_than(ids, age_ms, deadline_ms)
        if old is None:
            begun = client.clock.wall_ms() - age_ms
            old = frozenset(i for i in ids if 0 <= found[i].start_ms < begun)
        near |= old
    return frozenset(near)
