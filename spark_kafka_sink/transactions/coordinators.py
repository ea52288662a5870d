"""What the driver asks transaction coordinators: the seam between its decisions and the brokers.

Owns: :class:`Coordinators` and the values of its answers. Never: a connection
(``transaction_client.py``), what an answer means (``outcomes.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.producer.transaction.transaction_states import PreparedTransaction
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.transaction_admin_messages import (
    TransactionDescription,
    TransactionListing,
)

#: Of transactions, by transactional id. None: no clear answer came in time.
EndAnswers = Mapping[str, ErrorCode | None]


class Listed(NamedTuple):
    """``silent`` are brokers that could not be asked, by name."""

    transactions: tuple[TransactionListing, ...]
    silent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """What a consumer group has read when a batch is committed: the offset to read next."""

    group_id: str
    offsets: Mapping[TopicPartition, int]


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

    def abort_exactly(
        self, found: Mapping[str, TransactionDescription], deadline_ms: int
    ) -> EndAnswers:
        """Abort what :meth:`describe` has found open, under the very identity that it has there,
        and keep its writer from going on under it. What came after is not hurt, however late a
        request arrives.

        Version 2: EndTxn(abort), which raises the epoch, also of an id that is Empty. Version 1:
        InitProducerId, because EndTxn leaves the epoch as it is; should that arrive late, it aborts
        what the id has open then, so the id must not be used again. (With the identity, KIP-360, it
        would be refused by a coordinator that has just aborted the transaction for it.)
        """
        ...

    def open_transactions(
        self, prefix: str, deadline_ms: int, *, idle: bool = False, patient: bool = True
    ) -> Listed:
        """ListTransactions of all brokers that the cluster has now: data ids that begin with
        ``prefix``, which may be a key, and a separator, and that are Ongoing; with ``idle`` also
        the Empty ones, whose writer has an identity and was not heard of since. ``patient``: a
        broker that can't be reached is asked again for some seconds, and every time; without, it is
        left out for a while.
        """
        ...

    def older_than(
        self, transactional_ids: Sequence[str], age_ms: int, deadline_ms: int
    ) -> frozenset[str] | None:
        """Those of them that are open for longer, by the clock of their coordinator, or that it
        does not list as open at all; None: brokers before 3.8 can't tell. Nobody else is asked.
        """
        ...

    def prepare_offsets(
        self, transactional_id: str, given: GroupOffsets, deadline_ms: int
    ) -> PreparedTransaction:
        """A new transaction that holds these offsets, to be ended (``offset_commits.py``).

        KafkaTimeoutError, too, when its InitProducerId got lost: should that arrive late, it would
        abort what the id has open then.
        """
        ...

    def transaction_version(self, deadline_ms: int) -> int:
        """2 when the cluster writes transactions of version 2 (KIP-890), else 1."""
        ...
