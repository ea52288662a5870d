"""The identity of a producer, and the identity of a transaction. Tasks, driver and brokers exchange
these values.

The state of a producer is in ``producer/transaction``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch. (-1, -1) means that there is no producer id."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id >= 0


NO_PRODUCER_ID = ProducerIdAndEpoch(-1, -1)


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """The values that identify a transaction. With these values, any process can commit or abort
    the transaction. Picklable.

    ``transaction_version`` (1 or 2) is the version of transactions that the producer used
    (KIP-890). This version determines the version of the EndTxn request.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int
