"""The description of a transaction by its coordinator.

This module has :class:`TransactionState` and :class:`TransactionDescription`. The package
``transactions`` decides what follows from a state.
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
    """The states of a transaction at its coordinator (Java's ``TransactionState``). The values are
    the names in responses.
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"
    #: The state if the response has a name that this enum does not have, or if the response has an
    #: error.
    UNKNOWN = "Unknown"

    @classmethod
    def _missing_(cls, _: object) -> TransactionState:
        return cls.UNKNOWN

    @property
    def is_committed(self) -> bool:
        """True if the last transaction of the id is committed or is being committed. InitProducerId
        then does not abort this transaction.
        """
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The description of one transactional id by its coordinator (DescribeTransactions). If
    ``error`` is set, the other fields are UNKNOWN, -1 or empty.

    * ``start_ms``: the time of the coordinator's clock at which the first partition was added to
      the transaction, in ms since the epoch. It is -1 if there was no transaction.
    * ``partitions``: each topic with its partition numbers, such as ``("orders", (0, 3))``. In the
      states PREPARE_COMMIT and PREPARE_ABORT, these are only the partitions without a marker.
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
        """Returns the time in ms from the start of the transaction until ``wall_ms`` (ms since the
        epoch). For an open transaction, this is its age. Returns None if the coordinator reports no
        start, for example because the id has had no transaction.
        """
        return max(0, wall_ms - self.start_ms) if self.start_ms >= 0 else None
