"""What brokers know of transactions and of producers: DescribeTransactions, ListTransactions,
DescribeProducers (KIP-664, brokers since 3.0).

Owns: these three requests with their answers, and the coordinator's states of a transaction.
Never: what follows from a state (``transactions/``). It stands beside a record's way: the driver
asks before it commits, and whoever sweeps.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from spark_kafka_sink.errors import ErrorCode, UnsupportedVersionError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.kio_codec import check_version, read_body, topic_name, write_body
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange
from spark_kafka_sink.protocol.wire import INT64, MalformedError, WireReader, error_code, read_array

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

_TIMES_AND_IDENTITY: Final = struct.Struct(">iqqh")  # timeout, start, producer id, epoch
#: Producer id, epoch, last sequence, last timestamp, coordinator epoch, transaction's first offset.
_PRODUCER: Final = struct.Struct(">qiiqiq")
_PARTITION_ERROR: Final = struct.Struct(">ih")


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
    #: A name that is not known here, or none because of an error.
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


@dataclass(frozen=True, slots=True)
class DescribeTransactionsResponse:
    """``transactions`` by transactional id: every id that was asked for."""

    transactions: Mapping[str, TransactionDescription]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class DescribeTransactionsRequest:
    """What the coordinator of ``transactional_ids`` knows of each: ask the coordinator of them.

    TRANSACTIONAL_ID_NOT_FOUND for an id that it has no memory of; NOT_COORDINATOR and
    COORDINATOR_LOAD_IN_PROGRESS come for each id, too.
    """

    transactional_ids: tuple[str, ...]

    api_key = ApiKey.DESCRIBE_TRANSACTIONS
    versions = VersionRange(0, 0)

    def encode(self, version: int) -> Buffers:
        check_version(self.api_key, version, self.versions)
        ids = tuple(dict.fromkeys(self.transactional_ids))
        return write_body(
            self.api_key,
            version,
            lambda kio: kio.DescribeTransactionsRequest(transactional_ids=ids),
        )

    def decode(self, version: int, body: memoryview) -> DescribeTransactionsResponse:
        """The answer, which names every id of this request once and no other."""
        check_version(self.api_key, version, self.versions)
        asked = set(self.transactional_ids)

        def parse(reader: WireReader, version: int) -> DescribeTransactionsResponse:  # noqa: ARG001 - as the others
            response = _read_describe_transactions(reader, asked)
            if asked:
                raise MalformedError("an id that was asked for is not in it")
            return response

        return read_body(self.api_key, version, body, parse)


def _read_describe_transactions(
    reader: WireReader, asked: set[str]
) -> DescribeTransactionsResponse:
    """What was answered is taken out of ``asked``."""
    throttle_ms = max(0, reader.int32())
    found: dict[str, TransactionDescription] = {}
    for _ in range(reader.count(28)):
        transaction = _transaction(reader)
        if transaction.transactional_id not in asked:
            raise MalformedError("a transactional id comes twice, or was not asked for")
        asked.remove(transaction.transactional_id)
        found[transaction.transactional_id] = transaction
    reader.skip_tagged_fields()
    return DescribeTransactionsResponse(found, throttle_ms)


def _transaction(reader: WireReader) -> TransactionDescription:
    error = error_code(reader.int16())
    transactional_id = reader.string()
    state = TransactionState.parse(reader.string())
    timeout_ms, start_ms, producer_id, epoch = reader.unpack(_TIMES_AND_IDENTITY)
    topics = read_array(reader, 3, _topic)
    reader.skip_tagged_fields()
    if error is not ErrorCode.NONE:
        return TransactionDescription(error, transactional_id)
    if producer_id < -1 or epoch < -1 or timeout_ms < 0:
        raise MalformedError("a producer id, epoch or timeout is negative")
    return TransactionDescription(
        error,
        transactional_id,
        state,
        timeout_ms,
        max(-1, start_ms),
        producer_id,
        epoch,
        topics,
    )


def _topic(reader: WireReader) -> tuple[str, array[int]]:
    topic, partitions = reader.string(), reader.int32_array()
    reader.skip_tagged_fields()
    if partitions and min(partitions) < 0:
        raise MalformedError("a partition is negative")
    return topic, partitions


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One transactional id in a list; :class:`DescribeTransactionsRequest` tells more."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class ListTransactionsResponse:
    """What one broker coordinates. ``transactions`` is empty when ``error`` is not NONE.

    ``unknown_states``: filters that this broker has no state for, so that they filter nothing in.
    """

    error: ErrorCode
    transactions: Sequence[TransactionListing]
    unknown_states: Sequence[str] = ()
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class ListTransactionsRequest:
    """The transactions that one broker coordinates: ask every broker, and join the answers.

    An id without the right to describe it is left out silently. COORDINATOR_LOAD_IN_PROGRESS when
    any of the broker's coordinator partitions loads: then nothing is listed.

    All filters must hold. ``prefix`` is compared exactly, in every version: brokers since 4.1 (v2,
    KIP-1152) filter by it, and the answer of any is filtered here again. ``min_duration_ms`` needs
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

    def encode(self, version: int) -> Buffers:
        if version == 0 and self.min_duration_ms is not None:
            raise UnsupportedVersionError(
                "LIST_TRANSACTIONS v0 can't filter by duration; brokers since 3.8 can",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        check_version(self.api_key, version, self.versions)

        def entity(kio: Any) -> object:  # noqa: ANN401 - a module of kio, one for each version
            fields: dict[str, object] = {}
            if version >= 1 and self.min_duration_ms is not None:
                fields["duration_filter"] = self.min_duration_ms
            if version >= 2 and self.prefix:
                fields["transactional_id_pattern"] = _pattern_of(self.prefix)
            return kio.ListTransactionsRequest(
                state_filters=tuple(state.value for state in self.states),
                producer_id_filters=self.producer_ids,
                **fields,
            )

        return write_body(self.api_key, version, entity)

    def decode(self, version: int, body: memoryview) -> ListTransactionsResponse:
        check_version(self.api_key, version, self.versions)

        def parse(reader: WireReader, version: int) -> ListTransactionsResponse:  # noqa: ARG001 - as the others
            return _read_list_transactions(reader, self.prefix)

        return read_body(self.api_key, version, body, parse)


def _pattern_of(prefix: str) -> str:
    """The expression (RE2) that matches whole ids beginning with ``prefix``, and no other."""
    # A backslash before a letter or digit would mean something; before anything else in ASCII it
    # takes the meaning away.
    quoted = "".join(f"\\{c}" if c.isascii() and not c.isalnum() else c for c in prefix)
    return f"(?s){quoted}.*"


def _read_list_transactions(reader: WireReader, prefix: str) -> ListTransactionsResponse:
    throttle_ms = max(0, reader.int32())
    error = error_code(reader.int16())
    unknown = read_array(reader, 1, WireReader.string)
    found = read_array(reader, 11, _listing, lambda one: one.transactional_id.startswith(prefix))
    reader.skip_tagged_fields()
    if error is not ErrorCode.NONE:
        found = ()
    return ListTransactionsResponse(error, found, unknown, throttle_ms)


def _listing(reader: WireReader) -> TransactionListing:
    transactional_id = reader.string()
    (producer_id,) = reader.unpack(INT64)
    state = TransactionState.parse(reader.string())
    reader.skip_tagged_fields()
    return TransactionListing(transactional_id, producer_id, state)


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a leader remembers of one producer. -1 stands for nothing, in every field but the first.

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
    """``producers`` is empty when ``error`` is not NONE; ``message`` is the broker's own text."""

    error: ErrorCode
    producers: Sequence[ProducerState]
    message: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeProducersResponse:
    """``partitions``: every one that was asked for."""

    partitions: Mapping[TopicPartition, PartitionProducers]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class DescribeProducersRequest:
    """The producers that the leader of ``partitions`` remembers: ask their leader.

    A transaction that is open here, and of which the coordinator knows nothing, hangs.
    """

    partitions: tuple[TopicPartition, ...]

    api_key = ApiKey.DESCRIBE_PRODUCERS
    versions = VersionRange(0, 0)

    def encode(self, version: int) -> Buffers:
        check_version(self.api_key, version, self.versions)
        topics: dict[str, list[int]] = {}
        for tp in dict.fromkeys(self.partitions):
            topics.setdefault(topic_name(tp.topic), []).append(tp.partition)
        return write_body(
            self.api_key,
            version,
            lambda kio: kio.DescribeProducersRequest(
                topics=tuple(
                    kio.TopicRequest(name=topic, partition_indexes=tuple(partitions))
                    for topic, partitions in topics.items()
                )
            ),
        )

    def decode(self, version: int, body: memoryview) -> DescribeProducersResponse:
        """The answer, which names every partition of this request once and no other."""
        check_version(self.api_key, version, self.versions)
        asked = set(self.partitions)

        def parse(reader: WireReader, version: int) -> DescribeProducersResponse:  # noqa: ARG001 - as the others
            response = _read_describe_producers(reader, asked)
            if asked:
                raise MalformedError("a partition that was asked for is not in it")
            return response

        return read_body(self.api_key, version, body, parse)


def _read_describe_producers(
    reader: WireReader, asked: set[TopicPartition]
) -> DescribeProducersResponse:
    """What was answered is taken out of ``asked``."""
    throttle_ms = max(0, reader.int32())
    found: dict[TopicPartition, PartitionProducers] = {}
    for _ in range(reader.count(3)):
        topic = reader.string()
        for _ in range(reader.count(9)):
            partition, code = reader.unpack(_PARTITION_ERROR)
            message = reader.nullable_string()
            producers = read_array(reader, _PRODUCER.size + 1, _producer)
            reader.skip_tagged_fields()
            error = error_code(code)
            tp = TopicPartition(topic, partition)
            if tp not in asked:
                raise MalformedError("a partition comes twice, or was not asked for")
            asked.remove(tp)
            if error is not ErrorCode.NONE:
                producers = ()
            found[tp] = PartitionProducers(error, producers, message)
        reader.skip_tagged_fields()
    reader.skip_tagged_fields()
    return DescribeProducersResponse(found, throttle_ms)


def _producer(reader: WireReader) -> ProducerState:
    state = ProducerState(*reader.unpack(_PRODUCER))
    reader.skip_tagged_fields()
    return state
