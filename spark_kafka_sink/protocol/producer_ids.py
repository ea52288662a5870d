"""The producer identity of a transaction, in values that travel between tasks, driver and brokers.

Owns: a producer id with its epoch, and a prepared transaction. Never: a producer's state
(``producer/transaction``), a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class ProducerIdAndEpoch(NamedTuple):
    """A producer id with its epoch; (-1, -1) without a producer id."""

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
