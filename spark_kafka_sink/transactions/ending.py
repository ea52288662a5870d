"""Ending the transactions of a batch: what is decided, each until its outcome is known.

Owns: the rounds of EndTxn and DescribeTransactions, and when a decision can be undone. Never: the
decision (``committer.py``), what an answer means (``outcomes.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_kafka_sink.clock import Clock, Latch
from spark_kafka_sink.errors import ErrorCode, KafkaTimeoutError
from spark_kafka_sink.producer.transaction.transaction_states import PreparedTransaction
from spark_kafka_sink.transactions.coordinators import Coordinators
from spark_kafka_sink.transactions.outcomes import Outcome, is_prepared, outcome_of

#: Between two rounds for transactions that are neither committed nor aborted yet.
_ROUND_MS = 20


@dataclass(frozen=True, slots=True)
class Ended:
    """Transactional ids: ``lost`` were aborted by a broker, of ``unknown`` nobody can tell, of
    ``unclear`` no clear answer came in time. All others are committed.
    """

    lost: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()


def commit_all(
    coordinators: Coordinators,
    transactions: Sequence[PreparedTransaction],
    clock: Clock,
    deadline_ms: int,
) -> Ended:
    """Commit each of ``transactions``; harmless for those that are committed already."""
    lost: list[str] = []
    unknown: list[str] = []
    open_ = {t.transactional_id: t for t in transactions}
    while open_:
        answers = coordinators.end(list(open_.values()), committed=True, deadline_ms=deadline_ms)
        doubtful = [i for i, code in answers.items() if code not in (ErrorCode.NONE, None)]
        try:
            found = coordinators.describe(doubtful, deadline_ms) if doubtful else {}
        except KafkaTimeoutError:
            found = {}
        outcomes = {i: outcome_of(open_[i], description) for i, description in found.items()}
        lost += [i for i in doubtful if outcomes.get(i) is Outcome.LOST]
        unknown += [i for i in doubtful if outcomes.get(i) is Outcome.UNKNOWN]
        unsettled = {i for i, code in answers.items() if code is None}
        unsettled |= {i for i in doubtful if outcomes.get(i, Outcome.RETRY) is Outcome.RETRY}
        open_ = {i: t for i, t in open_.items() if i in unsettled}
        now = clock.now_ms()
        if now >= deadline_ms:
            break
        if open_:
            clock.wait(Latch(), min(deadline_ms, now + _ROUND_MS))
    return Ended(tuple(lost), tuple(unknown), tuple(open_))


def abort_all(
    coordinators: Coordinators, transactions: Sequence[PreparedTransaction], deadline_ms: int
) -> bool:
    """Abort each as far as it is open; a broker refuses to abort what is committed. True: each got
    a clear answer.
    """
    if not transactions:
        return True
    answers = coordinators.end(transactions, committed=False, deadline_ms=deadline_ms)
    return None not in answers.values()


def undo(
    coordinators: Coordinators, transactions: Sequence[PreparedTransaction], deadline_ms: int
) -> bool:
    """Abort all of a decision of which brokers have aborted some and nobody has committed any: a
    driver stayed away for too long between its decision and its first EndTxn. True: nothing of it
    is visible, or ever will be, so the batch can be written again.

    It may be left at any line: the log still says DECIDED, and the next driver comes here again.
    """
    ids = [t.transactional_id for t in transactions]
    found = coordinators.describe(ids, deadline_ms)
    outcomes = {t: outcome_of(t, found[t.transactional_id]) for t in transactions}
    if Outcome.LOST not in outcomes.values():
        return False
    open_ = [t for t in transactions if is_prepared(t, found[t.transactional_id])]
    if any(o is not Outcome.LOST for t, o in outcomes.items() if t not in open_):
        return False  # committed, about to be, or nobody knows
    if not abort_all(coordinators, open_, deadline_ms):
        return False
    found = coordinators.describe(ids, deadline_ms)
    return all(outcome_of(t, found[t.transactional_id]) is Outcome.LOST for t in transactions)
