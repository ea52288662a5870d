"""Which producer a transaction is of: values that travel between tasks, driver and brokers.

Owns: a producer id with its epoch, a prepared transaction, and the coordinator's states of one.
Never: a producer's state (``producer/transaction``), a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


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


class TransactionState(Enum):
    """The coordinator's states (Java's ``TransactionState``); the values are the wire's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"
    #: A name that is unknown here, or none because of an error.
    UNKNOWN = "Unknown"

    @classmethod
    def _missing_(cls, _: object) -> TransactionState:
        return cls.UNKNOWN

    @property
    def is_committed(self) -> bool:
        """The id's last transaction was, or is being. Then InitProducerId aborts nothing."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
