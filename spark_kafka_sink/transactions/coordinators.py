"""What the driver asks transaction coordinators: the seam between its decisions and the brokers.

Owns: :class:`Coordinators` and the values of its answers. Never: a connection
(``transaction_client.py``), what an answer means (``outcomes.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.producer.transaction_states import PreparedTransaction
from spark_kafka_sink.protocol.messages import InitProducerIdResponse
from spark_kafka_sink.protocol.transaction_admin_messages import (
    TransactionDescription,
    TransactionListing,
)

#: Of transactions, by transactional id. None: no clear answer came in time.
EndAnswers = Mapping[str, ErrorCode | None]
FenceAnswers = Mapping[str, InitProducerIdResponse | None]


class Coordinators(Protocol):
    """All coordinators of one cluster. Each call asks them in parallel and goes on (new
    coordinators, CONCURRENT_TRANSACTIONS, lost connections, time-outs) until every answer is clear
    or ``deadline_ms`` (of the clock) is there. Authorization and authentication errors are raised.
    """

    def end(
        self, transactions: Sequence[PreparedTransaction], *, committed: bool, deadline_ms: int
    ) -> EndAnswers:
        """EndTxn for each, with the request's version following the transaction's. NONE: it is
        decided durably; markers follow.
        """
        ...

    def describe(
        self, transactional_ids: Sequence[str], deadline_ms: int
    ) -> Mapping[str, TransactionDescription]:
        """DescribeTransactions; TRANSACTIONAL_ID_NOT_FOUND is an ``error`` of an answer.

        Raises KafkaTimeoutError when a coordinator does not answer in time.
        """
        ...

    def fence(self, transactional_ids: Sequence[str], deadline_ms: int) -> FenceAnswers:
        """InitProducerId for each: what is open is aborted, and its writer can't go on. With NONE
        comes the identity that the id has now.
        """
        ...

    def open_transactions(
        self, prefix: str, deadline_ms: int, *, idle: bool = False
    ) -> Iterable[TransactionListing]:
        """ListTransactions of all brokers: data ids of exactly this prefix that are Ongoing; with
        ``idle`` also the Empty ones, whose writer has an identity and was not heard of since.
        """
        ...

    def older_than(self, prefix: str, age_ms: int, deadline_ms: int) -> frozenset[str] | None:
        """Those of them that are open for longer, by their broker's clock; None: brokers before
        3.8 can't tell.
        """
        ...
