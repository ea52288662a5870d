"""The states of a producer's identity and of its transaction, in one table; values only.

Owns: :class:`State`, :data:`TRANSITIONS`, who we are to the brokers (:class:`ProducerIdAndEpoch`),
and what a transaction is once it is prepared. Never: a change of state, which is
``transaction_manager.py``'s.

A transactional producer's way, with the call or answer that makes each step::

    UNINITIALIZED -init_transactions-> INITIALIZING -InitProducerId-> READY
    READY -begin-> IN_TRANSACTION -commit-> COMMITTING_TRANSACTION -EndTxn-> READY
                   IN_TRANSACTION -abort--> ABORTING_TRANSACTION ---EndTxn-> READY
                   IN_TRANSACTION -prepare-> PREPARED   (the driver ends it, nobody here)
    a failure in between -> ABORTABLE_ERROR -abort-> ABORTING_TRANSACTION, or FATAL_ERROR

An idempotent producer knows UNINITIALIZED, INITIALIZING, READY and FATAL_ERROR only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class State(Enum):
    """How far the identity, or its transaction, is."""

    UNINITIALIZED = "no producer id"
    INITIALIZING = "InitProducerId is under way or to be retried"
    READY = "has a producer id"
    IN_TRANSACTION = "in a transaction"
    PREPARED = "its transaction is prepared, and only the driver ends it"
    COMMITTING_TRANSACTION = "committing its transaction"
    ABORTING_TRANSACTION = "aborting its transaction"
    ABORTABLE_ERROR = "its transaction has failed and must be aborted"
    FATAL_ERROR = "failed for good"


_S = State

#: Every transition that is allowed; any state may fail for good.
TRANSITIONS: dict[State, frozenset[State]] = {
    _S.UNINITIALIZED: frozenset({_S.INITIALIZING, _S.FATAL_ERROR}),
    # Back to UNINITIALIZED: not authorised, which an administrator can mend.
    _S.INITIALIZING: frozenset({_S.READY, _S.UNINITIALIZED, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    # To UNINITIALIZED: an idempotent producer goes on under a new id after a batch that failed.
    _S.READY: frozenset({_S.IN_TRANSACTION, _S.UNINITIALIZED, _S.FATAL_ERROR}),
    _S.IN_TRANSACTION: frozenset(
        {
            _S.PREPARED,
            _S.COMMITTING_TRANSACTION,
            _S.ABORTING_TRANSACTION,
            _S.ABORTABLE_ERROR,
            _S.FATAL_ERROR,
        }
    ),
    # Only when the driver is known to have ended it; see ``TransactionManager.forget_prepared``.
    _S.PREPARED: frozenset({_S.UNINITIALIZED, _S.FATAL_ERROR}),
    _S.COMMITTING_TRANSACTION: frozenset({_S.READY, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    # To INITIALIZING: it is aborted by asking for a new identity, which fences the old one.
    # To UNINITIALIZED: there was no identity yet.
    _S.ABORTING_TRANSACTION: frozenset(
        {_S.READY, _S.INITIALIZING, _S.UNINITIALIZED, _S.FATAL_ERROR}
    ),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING_TRANSACTION, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.FATAL_ERROR: frozenset({_S.FATAL_ERROR}),
}

#: A transaction of ours is open, or may be.
ONGOING = frozenset(
    {
        _S.IN_TRANSACTION,
        _S.COMMITTING_TRANSACTION,
        _S.ABORTING_TRANSACTION,
        _S.ABORTABLE_ERROR,
    }
)


class ProducerIdAndEpoch(NamedTuple):
    """(-1, -1) while there is none."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id >= 0


NO_PRODUCER_ID = ProducerIdAndEpoch(-1, -1)


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """All that anybody needs to end a transaction: nothing ties it to a process or a connection.

    ``transaction_version`` (1 or 2) decides which version of EndTxn must be used, for each attempt
    of it (``EndTxnRequest``). Picklable.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int
