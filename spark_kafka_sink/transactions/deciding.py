"""The last actions before a decision: the driver's own transactions, and the check of all
transactions of the batch.

The driver's own transactions have the report and the consumer group's offsets of the batch. They
are committed together with the tasks' transactions.

This module does not write the decision to the commit log: ``committer.py`` does that.
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
from spark_kafka_sink.transactions.transactional_ids import TransactionalId

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient

#: The worker parts in the ids of the driver's own transactions.
_OFFSETS: Final = "offsets"
_REPORT: Final = "report"
#: The maximum number of ids that the search for a free id tries: 1, then 2, then 4, and so on.
_MOST_OWN_IDS: Final = 1_023


def decision_deadline(client: TransactionClient) -> int:
    """Returns the deadline for the write of a decision, as a time of the client's clock in ms.

    The deadline is max.block.ms from now, or half of the margin from now if that is earlier. The
    margin is the part of transaction.timeout.ms that remains for the driver's commit
    (:func:`margin_ms`). So at least half of the margin remains after the decision, to commit the
    decided transactions.
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
    and one with the offsets of the consumer group. Returns the prepared transactions. The result is
    empty if ``batch`` has no report and no offsets.

    ``before`` are the transactions that an earlier attempt of this commit has prepared. If all of
    them are still open, they are returned. Otherwise new transactions are prepared, with other ids.
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
            for name, content in ((_REPORT, batch.report), (_OFFSETS, batch.offsets))
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
    """Finds a transactional id for a transaction that the driver itself writes. Returns the first
    id that its coordinator does not know, or whose last transaction was committed.

    ``content`` is "report" or "offsets". Workers choose their ids by the same rule
    (``transactional_producers.py``).

    Only earlier attempts of the run in ``owner`` can have used these ids. So the search usually
    ends after as many ids as there were attempts. Raises CommitError if brokers show 1023 ids as
    used.
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
    """Checks that ``decision`` may be committed now. Returns None, or the reason why not.

    Each transaction must be prepared and far from its timeout. The partitions of all transactions
    must have leaders. If a transaction is too old, or is not prepared, all transactions of the
    decision are aborted. If only a leader is missing, none is aborted, because a later attempt may
    succeed.

    ``log`` is the transactional id of the log's writer. The log's partition must have a leader as
    well. Without a leader, brokers may drop the commit or abort marker of the log's transaction. If
    the commit marker were missing, the next start would write the batch again. If the abort marker
    were missing, the next start could not read the log.
    """
    ids, number = decision.ids, decision.number
    timeout_ms = client.config.transaction_timeout_ms  # usually that of the tasks, too
    beside = client.beside(ids, timeout_ms - margin_ms(timeout_ms), shown_by=log)
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
        away = client.leaderless(found | own, deadline, shown_by=shown_by, beside=beside)
        while log in away and client.clock.now_ms() < deadline:
            client.loop.pause(6, deadline)  # about 0.1 s
            with suppress(KafkaTimeoutError):  # then the last result counts
                away = client.leaderless(found | own, deadline, shown_by=shown_by)
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
