"""The producer identity of a transaction, as values that tasks, driver and brokers exchange.

Owns: a producer id with its epoch, and a prepared transaction. Never: a producer's state
(``producer/transaction``), a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class ProducerIdAndEpoch(NamedTuple):
    """A producer id with its epoch. It is (-1, -1) if there is no producer id."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id >= 0


NO_PRODUCER_ID = ProducerIdAndEpoch(-1, -1)


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """The data that any process needs to commit or abort a transaction, over any connection.
    Picklable.

    ``transaction_version`` (1 or 2) determines the version of the EndTxn request, also for a retry.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int
