"""The states of a producer's identity and of its transaction, in one table; values only.

Owns: :class:`State`, :data:`TRANSITIONS`, :class:`ProducerIdAndEpoch`, and
:class:`PreparedTransaction`. Never: a change of state (``transaction_manager.py``).

The states of a transactional producer, with the call or response of each transition::

    UNINITIALIZED -init_transactions-> INITIALIZING -InitProducerId-> READY
    READY -begin-> IN_TRANSACTION -commit-> COMMITTING_TRANSACTION -EndTxn-> READY
                   IN_TRANSACTION -abort--> ABORTING_TRANSACTION ---EndTxn-> READY
                   IN_TRANSACTION -prepare-> PREPARED   (only the driver commits or aborts it)
    a failure in between -> ABORTABLE_ERROR -abort-> ABORTING_TRANSACTION, or FATAL_ERROR

An idempotent producer has only UNINITIALIZED, INITIALIZING, READY and FATAL_ERROR.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class State(Enum):
    """The state of the identity and of its transaction."""

    UNINITIALIZED = "no producer id"
    INITIALIZING = "InitProducerId is in flight or to be retried"
    READY = "has a producer id"
    IN_TRANSACTION = "in a transaction"
    PREPARED = "its transaction is prepared, and only the driver completes it"
    COMMITTING_TRANSACTION = "committing its transaction"
    ABORTING_TRANSACTION = "aborting its transaction"
    ABORTABLE_ERROR = "its transaction has failed and must be aborted"
    FATAL_ERROR = "failed permanently"


_S = State

#: The allowed transitions; any state may change to FATAL_ERROR.
TRANSITIONS: dict[State, frozenset[State]] = {
    _S.UNINITIALIZED: frozenset({_S.INITIALIZING, _S.FATAL_ERROR}),
    # Back to UNINITIALIZED: not authorised, which an administrator can fix.
    _S.INITIALIZING: frozenset({_S.READY, _S.UNINITIALIZED, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    # To UNINITIALIZED: an idempotent producer continues under a new id after a failed batch.
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
    # Only when the driver has committed or aborted it; see ``TransactionManager.forget_prepared``.
    _S.PREPARED: frozenset({_S.UNINITIALIZED, _S.FATAL_ERROR}),
    _S.COMMITTING_TRANSACTION: frozenset({_S.READY, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    # To INITIALIZING: aborted by requesting a new identity, which fences the old one.
    # To UNINITIALIZED: there was no identity yet.
    _S.ABORTING_TRANSACTION: frozenset(
        {_S.READY, _S.INITIALIZING, _S.UNINITIALIZED, _S.FATAL_ERROR}
    ),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING_TRANSACTION, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.FATAL_ERROR: frozenset({_S.FATAL_ERROR}),
}

#: A transaction of this producer is, or may be, open.
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
    """Everything needed to commit or abort a transaction, from any process and connection.

    ``transaction_version`` (1 or 2) determines the EndTxn version of every attempt
    (``EndTxnRequest``). Picklable.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int
