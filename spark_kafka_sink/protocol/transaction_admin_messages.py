"""What brokers know of transactions and of producers: DescribeTransactions, ListTransactions,
DescribeProducers (KIP-664, brokers since 3.0).

Owns: the three requests with their responses, and the coordinator's states of a transaction.
Never: what follows from a state (``transactions/``). Not on a record's way: the driver sends them
before it commits, and to find orphans.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.bodies import ControlRequest, Message, by_topic, once_each
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages import (
    describe_producers,
    describe_transactions,
    list_transactions,
)
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.wire import MalformedError, WireReader, error_of

__all__ = [
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "PartitionProducers",
    "ProducerState",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
]


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
    def parse(cls, name: str) -> TransactionState:
        return _STATES.get(name, cls.UNKNOWN)


_STATES: Final = {state.value: state for state in TransactionState}


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """One transactional id as its coordinator sees it.

    ``start_ms`` is the coordinator's clock when the first partition was added, -1 when no
    transaction was opened yet. ``partitions`` are topics with their numbers; in PREPARE_COMMIT and
    PREPARE_ABORT only those that have no marker yet. With an ``error`` nothing is known: UNKNOWN,
    -1 and empty.
    """

    error: ErrorCode
    transactional_id: str
    state: TransactionState = TransactionState.UNKNOWN
    timeout_ms: int = -1
    start_ms: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    partitions: Sequence[tuple[str, array[int]]] = ()

    def age_ms(self, wall_ms: int) -> int | None:
        """Its age at the wall time ``wall_ms``, in ms; None when it isn't open."""
        return max(0, wall_ms - self.start_ms) if self.start_ms >= 0 else None


@dataclass(frozen=True, slots=True)
class DescribeTransactionsResponse:
    """``transactions`` by transactional id: every id that was requested."""

    transactions: Mapping[str, TransactionDescription]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class DescribeTransactionsRequest(ControlRequest[DescribeTransactionsResponse]):
    """Describes ``transactional_ids``: sent to their coordinator.

    TRANSACTIONAL_ID_NOT_FOUND for an id that it has no memory of; NOT_COORDINATOR and
    COORDINATOR_LOAD_IN_PROGRESS come for each id, too.
    """

    transactional_ids: tuple[str, ...]

    api_key = ApiKey.DESCRIBE_TRANSACTIONS
    versions = VersionRange(0, 0)

    def message(self, version: int) -> Message:
        return describe_transactions.DescribeTransactionsRequest(
            transactional_ids=tuple(dict.fromkeys(self.transactional_ids))
        )

    def read(self, reader: WireReader, version: int) -> DescribeTransactionsResponse:
        """The response, which has every id of this request once and no other."""
        answer = describe_transactions.DescribeTransactionsResponse.read(reader, version)
        found = once_each(
            ((one.transactional_id, _description(one)) for one in answer.transaction_states),
            self.transactional_ids,
            "a transactional id",
        )
        return DescribeTransactionsResponse(found, max(0, answer.throttle_time_ms))


def _description(one: describe_transactions.TransactionState) -> TransactionDescription:
    error = error_of(one.error_code)
    if error is not ErrorCode.NONE:
        return TransactionDescription(error, one.transactional_id)
    if one.producer_id < -1 or one.producer_epoch < -1 or one.transaction_timeout_ms < 0:
        raise MalformedError("a producer id, epoch or timeout is negative")
    return TransactionDescription(
        error,
        one.transactional_id,
        TransactionState.parse(one.transaction_state),
        one.transaction_timeout_ms,
        max(-1, one.transaction_start_time_ms),
        one.producer_id,
        one.producer_epoch,
        one.topics.checked(_topic),
    )


def _topic(one: describe_transactions.TopicData) -> tuple[str, array[int]]:
    if one.partitions and min(one.partitions) < 0:
        raise MalformedError("a partition is negative")
    return one.topic, one.partitions


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One transactional id in a list; see also :class:`DescribeTransactionsRequest`."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class ListTransactionsResponse:
    """What one broker coordinates. ``transactions`` is empty when ``error`` is not NONE."""

    error: ErrorCode
    transactions: Sequence[TransactionListing]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class ListTransactionsRequest(ControlRequest[ListTransactionsResponse]):
    """The transactions that one broker coordinates: request them from every broker.

    An id without the right to describe it is left out silently. COORDINATOR_LOAD_IN_PROGRESS when
    any of the broker's coordinator partitions loads: then nothing is listed.

    All filters must hold. ``prefix`` is compared exactly, in every version: brokers since 4.1 (v2,
    KIP-1152) filter by it, and each response is filtered here again. ``min_duration_ms`` needs
    brokers since 3.8 (v1, KIP-994); an id that never opened a transaction is as old as the epoch,
    so give ``states``, too.
    """

    states: tuple[TransactionState, ...] = ()
    producer_ids: tuple[int, ...] = ()
    min_duration_ms: int | None = None
    prefix: str = ""

    api_key = ApiKey.LIST_TRANSACTIONS

    @property
    def versions(self) -> VersionRange:
        return VersionRange(0 if self.min_duration_ms is None else 1, 2)

    def message(self, version: int) -> Message:
        return list_transactions.ListTransactionsRequest(
            state_filters=[state.value for state in self.states],
            producer_id_filters=self.producer_ids,
            duration_filter=-1 if self.min_duration_ms is None else self.min_duration_ms,
            transactional_id_pattern=(
                _pattern_of(self.prefix) if version >= 2 and self.prefix else None
            ),
        )

    def read(self, reader: WireReader, version: int) -> ListTransactionsResponse:
        answer = list_transactions.ListTransactionsResponse.read(reader, version)
        error = error_of(answer.error_code)
        found = answer.transaction_states.checked(
            _listing, lambda one: one.transactional_id.startswith(self.prefix)
        )
        return ListTransactionsResponse(
            error,
            found if error is ErrorCode.NONE else (),
            max(0, answer.throttle_time_ms),
        )


def _pattern_of(prefix: str) -> str:
    """The expression (RE2) that matches whole ids beginning with ``prefix``, and no other."""
    # A backslash before a letter or digit would mean something; before anything else in ASCII it
    # takes the meaning away.
    quoted = "".join(f"\\{c}" if c.isascii() and not c.isalnum() else c for c in prefix)
    return f"(?s){quoted}.*"


def _listing(one: list_transactions.TransactionState) -> TransactionListing:
    state = TransactionState.parse(one.transaction_state)
    return TransactionListing(one.transactional_id, one.producer_id, state)


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A leader's state of one producer. -1 means none, in every field but the first.

    ``transaction_start_offset``: the first offset of the transaction that is open on this
    partition; it holds the partition's last stable offset back.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int


@dataclass(frozen=True, slots=True)
class PartitionProducers:
    """``producers`` is empty when ``error`` is not NONE; ``message`` is the broker's text."""

    error: ErrorCode
    producers: Sequence[ProducerState]
    message: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeProducersResponse:
    """``partitions``: every one that was requested."""

    partitions: Mapping[TopicPartition, PartitionProducers]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class DescribeProducersRequest(ControlRequest[DescribeProducersResponse]):
    """The producers that the leader of ``partitions`` remembers: sent to their leader.

    A transaction that is open here, but not at a coordinator, hangs.
    """

    partitions: tuple[TopicPartition, ...]

    api_key = ApiKey.DESCRIBE_PRODUCERS
    versions = VersionRange(0, 0)

    def message(self, version: int) -> Message:
        topic = describe_producers.TopicRequest
        return describe_producers.DescribeProducersRequest(
            topics=[
                topic(name=name, partition_indexes=numbers)
                for name, numbers in by_topic(self.partitions).items()
            ]
        )

    def read(self, reader: WireReader, version: int) -> DescribeProducersResponse:
        """The response, which has every partition of this request once and no other."""
        answer = describe_producers.DescribeProducersResponse.read(reader, version)
        found = once_each(
            (
                (TopicPartition(topic.name, one.partition_index), _producers(one))
                for topic in answer.topics
                for one in topic.partitions
            ),
            self.partitions,
        )
        return DescribeProducersResponse(found, max(0, answer.throttle_time_ms))


def _producers(one: describe_producers.PartitionResponse) -> PartitionProducers:
    error, producers = error_of(one.error_code), one.active_producers.checked(_producer)
    return PartitionProducers(
        error, producers if error is ErrorCode.NONE else (), one.error_message
    )


def _producer(one: describe_producers.ProducerState) -> ProducerState:
    return ProducerState(
        one.producer_id,
        one.producer_epoch,
        one.last_sequence,
        one.last_timestamp,
        one.coordinator_epoch,
        one.current_txn_start_offset,
    )
