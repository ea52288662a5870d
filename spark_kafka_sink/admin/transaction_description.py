"""A transaction as its coordinator describes it.

Owns: :class:`TransactionState`, the coordinator's states of a transaction, and
:class:`TransactionDescription`. Never: the consequences of a state (``transactions/``), a request
(``protocol/transaction_requests.py``).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from spark_kafka_sink.base.errors import ErrorCode

if TYPE_CHECKING:
    from spark_kafka_sink.protocol.messages import describe_transactions


class TransactionState(Enum):
    """The coordinator's states of a transaction (Java's ``TransactionState``). The values are the
    names in responses.
    """

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
        """True if the id's last transaction is committed, or is being committed. InitProducerId
        then aborts nothing.
        """
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The description of one transactional id by its coordinator.

    ``start_ms`` is the time when the first partition was added, by the coordinator's clock. It is
    -1 if no transaction was opened yet. ``partitions`` are topics with their partition numbers. In
    the states PREPARE_COMMIT and PREPARE_ABORT, they are only the partitions that have no marker
    yet. If ``error`` is set, all other fields are unset: UNKNOWN, -1 and empty.
    """

    error: ErrorCode
    transactional_id: str
    state: TransactionState = TransactionState.UNKNOWN
    timeout_ms: int = -1
    start_ms: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    partitions: Sequence[tuple[str, array[int]]] = ()

    @classmethod
    def of(cls, one: describe_transactions.TransactionState) -> TransactionDescription:
        if one.error_code is not ErrorCode.NONE:
            return cls(one.error_code, one.transactional_id)
        return cls(
            ErrorCode.NONE,
            one.transactional_id,
            TransactionState(one.transaction_state),
            one.transaction_timeout_ms,
            max(-1, one.transaction_start_time_ms),
            one.producer_id,
            one.producer_epoch,
            one.topics.checked(lambda topic: (topic.topic, topic.partitions)),
        )

    def age_ms(self, wall_ms: int) -> int | None:
        """The transaction's age in milliseconds at the wall time ``wall_ms``. None if no
        transaction is open.
        """
        return max(0, wall_ms - self.start_ms) if self.start_ms >= 0 else None
