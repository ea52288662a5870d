"""The last actions before a decision to commit a batch:

1. :func:`prepared_once` prepares the transactions that the driver itself writes: one with the
   report of the batch, and one with the offsets of a consumer group. They are committed together
   with the tasks' transactions.
2. :func:`unready` checks all transactions of the batch.

``committer.py`` writes the decision to the commit log.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.errors import (
    CommitError,
    ErrorCode,
    InvalidTxnStateError,
    KafkaTimeoutError,
    ProducerFencedError,
)
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_state import Decision
from spark_kafka_sink.transactions.driver_transactions import prepare
from spark_kafka_sink.transactions.ending import abort_all, near_timeout
from spark_kafka_sink.transactions.lease import margin_ms
from spark_kafka_sink.transactions.outcomes import is_prepared
from spark_kafka_sink.transactions.ownership import Owner
from spark_kafka_sink.transactions.result_errors import error_of
from spark_kafka_sink.transactions.results import (
    Commit,
    NoLeader,
    NotOpen,
    OwnEnded,
    Refuse,
    TooOld,
    refused,
)
from spark_kafka_sink.transactions.steps import PrepareOwn
from spark_kafka_sink.transactions.transactional_ids import OFFSETS, REPORT, TransactionalId

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient

#: The maximum number of ids that the search for a free id tries: 1, then 2, then 4, and so on.
_MOST_OWN_IDS: Final = 1_023


def decision_deadline(client: TransactionClient) -> int:
    """Returns the deadline for the write of a decision, in ms of the client's clock.

    The *margin* (:func:`margin_ms`) is the part of transaction.timeout.ms that is reserved for the
    commit. The write may take max.block.ms, but not more than half of the margin. So at least half
    of the margin is left for the commit after the decision.
    """
    half_of_margin = margin_ms(client.config.transaction_timeout_ms) // 2
    return client.deadline(min(client.config.max_block_ms, half_of_margin))


def prepared_once(
    client: TransactionClient,
    owner: Owner,
    batch: Batch,
    step: PrepareOwn,
    before: tuple[PreparedTransaction, ...],
) -> tuple[PreparedTransaction, ...]:
    """Prepares the transactions of ``batch`` that the driver itself writes: one with the report,
    and one with the offsets of the consumer group. Returns these transactions. The result is empty
    if ``batch`` has neither a report nor offsets.

    ``before`` has the transactions that an earlier attempt of the same commit has prepared. If all
    of them are still open, they are the result. If ``before`` is empty, or one of them is not open
    any more, all are prepared anew with other ids.
    """
    found = client.describe([t.transactional_id for t in before], client.deadline())
    if before and all(is_prepared(t, found[t.transactional_id]) for t in before):
        return before
    return _prepared_by_us(client, owner, batch, step)


def _prepared_by_us(
    client: TransactionClient, owner: Owner, batch: Batch, step: PrepareOwn
) -> tuple[PreparedTransaction, ...]:
    """Writes the report and the offsets of ``batch`` into new transactions of the driver, and
    returns these transactions.
    """
    deadline = client.deadline()
    try:
        return tuple(
            prepare(client, _own_id(client, owner, name, step, deadline), content, deadline)
            for name, content in ((REPORT, batch.report), (OFFSETS, batch.offsets))
            if content is not None
        )
    except (ProducerFencedError, InvalidTxnStateError) as error:
        # Another driver that has taken over may have ended the new transaction. So the log is read
        # again: it shows whether another driver has taken over.
        ended = Refuse(Commit.SUPERSEDED, OwnEnded(batch.number, error))
        raise error_of(owner.key, ended) from error


def _own_id(
    client: TransactionClient, owner: Owner, content: str, step: PrepareOwn, deadline: int
) -> str:
    """Returns a transactional id for a transaction that the driver itself writes. There is a
    sequence of 1023 possible ids. The result is the first id that its coordinator does not know, or
    whose last transaction was committed.

    ``content`` is "report" or "offsets". Raises CommitError if no id is left.
    """
    name = f"{content}.{step.name}" if step.name else content
    tried = 0
    while tried < _MOST_OWN_IDS:
        # (Each retry of a commit may have used an id. So each request describes twice as many ids
        # as the request before.)
        ids = [
            str(TransactionalId(owner.key, owner.run_id, worker, step.number, owner.generation))
            for n in range(tried, 2 * tried + 1)
            for worker in [f"{name}.{n}" if n else name]
        ]
        found = client.describe(ids, deadline)
        for one in (found[i] for i in ids):
            if one.state.is_committed or one.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return one.transactional_id
        tried += len(ids)
    raise CommitError(
        f"the {content} of run {owner.run_id} of '{owner.key}' has no transactional id: brokers "
        f"show {tried} ids as used and not committed; nothing of the batch is visible",
        hint="start the query or the job again: its new run has new transactional ids",
    )


def unready(
    client: TransactionClient, decision: Decision, log: str, deadline: int
) -> Refuse | None:
    """Checks that ``decision`` may be committed now. Returns None, or the reason why not. These
    conditions are checked, in this order:

    1. Each transaction is prepared: it is open, with the producer id and epoch of the decision.
    2. Each transaction is younger than its timeout minus the margin (:func:`margin_ms`).
    3. Each partition of the transactions has a leader. The partition of the log also has a leader.

    If the first or the second condition is not met, this function aborts all transactions of the
    decision. If only the third condition is not met, it aborts none, because a later attempt may
    succeed.

    ``log`` is the transactional id with which the decision is written to the log. If the log's
    partition has no leader, the function waits for a leader until ``deadline``.
    """
    ids, number = decision.ids, decision.number
    timeout_ms = client.config.transaction_timeout_ms  # usually that of the tasks, too
    beside = client.beside(ids, timeout_ms - margin_ms(timeout_ms), coordinator_of=log)
    found = dict(client.describe((*ids, log), deadline, beside=beside))
    own = {log: found.pop(log)}
    shown_by = log
    if own[log].state is not TransactionState.ONGOING:
        # This broker does not know the write that is open: it is cut off, or not the coordinator.
        client.loop.forget_coordinators((log,))
        shown_by, beside = "", None
    gone = [
        t.transactional_id
        for t in decision.transactions
        if not is_prepared(t, found[t.transactional_id])
    ]
    late = frozenset() if gone else near_timeout(client, found, margin_ms, deadline, beside=beside)
    if not gone and not late:
        away = client.leaderless(found | own, deadline, coordinator_of=shown_by, beside=beside)
        # Without a leader, brokers may drop the marker of the log's transaction. Without its commit
        # marker, the next start would write the batch again. Without its abort marker, the next
        # start could not read the log.
        while log in away and client.clock.now_ms() < deadline:
            client.loop.pause(6, deadline)  # about 0.1 s
            with suppress(KafkaTimeoutError):  # then the last result counts
                away = client.leaderless(found | own, deadline, coordinator_of=shown_by)
        left = tuple(sorted({str(tp) for partitions in away.values() for tp in partitions}))
        return refused(NoLeader(number, left)) if left else None
    abort_all(client, decision.transactions, client.deadline())
    first = next(i for i in ids if i in gone or i in late)
    if gone:
        state = found[first].state.value
        return refused(NotOpen(number, len(ids), len(gone), first, state))
    timeout_ms = found[first].timeout_ms
    young_ms = timeout_ms - margin_ms(timeout_ms)
    return refused(TooOld(number, len(ids), len(late), first, young_ms, timeout_ms))
