"""The outcome of a transaction: committed, aborted, not ended yet, or unknown. The coordinator's
description of the transaction shows it.

The table ``_COMMITS`` has the outcome for each state, epoch and transaction version in a response
to DescribeTransactions. This module sends no request: ``ending.py`` does that.

The error code of EndTxn(commit) does not show the outcome. INVALID_PRODUCER_EPOCH,
INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING and PRODUCER_FENCED only mean that the transaction
can't be committed now. Brokers may have aborted it, or it was committed long ago. (Flink treated
these errors as "committed", and lost data: FLINK-23839.)
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from spark_kafka_sink.admin.transaction_description import TransactionDescription, TransactionState
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction


class Outcome(Enum):
    """The outcome of a transaction that the driver wants to commit."""

    #: The transaction is committed, and its markers are written.
    COMMITTED = "committed"
    #: The transaction is open, or its commit is not complete yet.
    RETRY = "retry"
    #: The transaction was aborted: no consumer with read_committed will see its rows.
    LOST = "lost"
    #: The coordinator does not show how the transaction ended: its id has expired, or was
    #: initialized again.
    UNKNOWN = "unknown"


_S = TransactionState
#: The states of an aborted transaction: it timed out, or was swept. With version 1, the abort
#: raises the epoch by 1. Kafka 4.0.0 raised it by 2.
_ABORTED: Final = frozenset({_S.PREPARE_ABORT, _S.COMPLETE_ABORT, _S.PREPARE_EPOCH_FENCE})
#: The outcome by (coordinator's epoch minus the transaction's epoch, transaction version, state).
#: In all other cases the id was initialized again, and the outcome of the transaction is not known.
_COMMITS: Final = {
    (0, 1, _S.ONGOING): Outcome.RETRY,
    (0, 2, _S.ONGOING): Outcome.RETRY,
    (0, 1, _S.PREPARE_COMMIT): Outcome.RETRY,  # the first EndTxn was accepted
    (0, 2, _S.PREPARE_COMMIT): Outcome.RETRY,
    (0, 1, _S.COMPLETE_COMMIT): Outcome.COMMITTED,
    # With version 2 a commit raises the epoch by 1. (With version 1, a larger epoch belongs to
    # another transaction.)
    (1, 2, _S.PREPARE_COMMIT): Outcome.RETRY,
    (1, 2, _S.COMPLETE_COMMIT): Outcome.COMMITTED,
}
#: The last epoch of a producer id. After it, the transactional id gets a new producer id when a
#: transaction of version 2 ends.
_LAST_EPOCH: Final = 32_766


def outcome_of(transaction: PreparedTransaction, found: TransactionDescription) -> Outcome:
    """The outcome of ``transaction``, according to its coordinator's description ``found``."""
    if found.error is not ErrorCode.NONE:
        return Outcome.UNKNOWN  # for example, the id has expired
    if found.producer_id != transaction.producer_id:
        overflow = transaction.producer_epoch >= _LAST_EPOCH and found.producer_epoch == 0
        if overflow and transaction.transaction_version >= 2:
            if found.state is _S.COMPLETE_COMMIT:
                return Outcome.COMMITTED
            if found.state in _ABORTED:
                return Outcome.LOST
        return Outcome.UNKNOWN
    ahead = found.producer_epoch - transaction.producer_epoch
    if found.state in _ABORTED and 0 <= ahead <= 2:
        return Outcome.LOST
    version = min(2, transaction.transaction_version)
    return _COMMITS.get((ahead, version, found.state), Outcome.UNKNOWN)


def is_committed(transaction: PreparedTransaction, found: TransactionDescription) -> bool:
    """Whether ``transaction`` is committed, or its coordinator has begun to commit it. Its markers
    may still be missing.
    """
    return found.state.is_committed and outcome_of(transaction, found) is not Outcome.UNKNOWN


def is_lost(transaction: PreparedTransaction, found: TransactionDescription) -> bool:
    """Whether ``transaction`` was certainly aborted.

    With transactions of version 1, the coordinator's state may show the abort of a later
    transaction of the same transactional id. If this is possible, the result is False.
    """
    is_its_own = (
        transaction.transaction_version > 1 or found.producer_epoch == transaction.producer_epoch
    )
    return is_its_own and outcome_of(transaction, found) is Outcome.LOST


def is_prepared(transaction: PreparedTransaction, found: TransactionDescription) -> bool:
    """Whether ``transaction`` is still open, and has the producer id and epoch that it had when its
    task prepared it.
    """
    return (
        found.error is ErrorCode.NONE
        and found.state is _S.ONGOING
        and found.producer_id == transaction.producer_id
        and found.producer_epoch == transaction.producer_epoch
    )
