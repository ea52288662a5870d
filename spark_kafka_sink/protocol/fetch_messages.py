"""Reading a log: where a partition begins and ends, and its batches. ListOffsets and Fetch.

Owns: these two requests with their answers, and the isolation level. Never: what the fetched bytes
hold (``records/log_records.py``), and no fetch sessions: the reader of a decision log asks for few
partitions, a few times. Used on the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol import messages
from spark_kafka_sink.protocol.bodies import (
    by_topic,
    check_version,
    once_each,
    read_body,
    topic_name,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange
from spark_kafka_sink.protocol.wire import MalformedError, WireReader, error_code

if TYPE_CHECKING:
    from spark_kafka_sink.protocol.messages import fetch, list_offsets

__all__ = [
    "AbortedTransaction",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchedPartition",
    "IsolationLevel",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "OffsetSpec",
    "PartitionOffset",
]

#: A consumer, not a replica.
_NO_REPLICA: Final = -1
_NO_RECORDS: Final = memoryview(b"")


class IsolationLevel(IntEnum):
    """READ_COMMITTED ends at the last stable offset: before the first open transaction."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetSpec(IntEnum):
    """Which offset to list; the values are the wire's timestamps."""

    LATEST = -1
    EARLIEST = -2


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """``offset`` is -1 when ``error`` is not NONE; ``leader_epoch`` -1 when it is unknown (< v4).

    LATEST is the high watermark, or with READ_COMMITTED the last stable offset.
    """

    error: ErrorCode
    offset: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsetsResponse:
    """``partitions``: every one that was requested."""

    partitions: Mapping[TopicPartition, PartitionOffset]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class ListOffsetsRequest:
    """Where ``partitions`` begin or end: sent to their leader.

    Versions above 9 are for logs in remote storage, below 2 there is no isolation level.
    """

    partitions: tuple[TopicPartition, ...]
    spec: OffsetSpec = OffsetSpec.LATEST
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED

    api_key = ApiKey.LIST_OFFSETS
    versions = VersionRange(2, 9)

    def encode(self, version: int) -> Buffers:
        check_version(self, version)
        wire = messages.list_offsets
        request = wire.ListOffsetsRequest(
            replica_id=_NO_REPLICA,
            isolation_level=int(self.isolation_level),
            topics=[
                wire.ListOffsetsTopic(
                    name=name,
                    partitions=[
                        wire.ListOffsetsPartition(partition_index=number, timestamp=int(self.spec))
                        for number in numbers
                    ],
                )
                for name, numbers in by_topic(self.partitions).items()
            ],
        )
        return [request.encode(version)]

    def decode(self, version: int, body: memoryview) -> ListOffsetsResponse:
        """The answer, which names every partition of this request once and no other."""

        def parse(reader: WireReader, version: int) -> ListOffsetsResponse:
            answer = messages.list_offsets.ListOffsetsResponse.read(reader, version)
            found = once_each(
                (
                    (TopicPartition(topic.name, one.partition_index), _partition_offset(one))
                    for topic in answer.topics
                    for one in topic.partitions
                ),
                self.partitions,
            )
            return ListOffsetsResponse(found, max(0, answer.throttle_time_ms))

        return read_body(self, version, body, parse)


def _partition_offset(one: list_offsets.ListOffsetsPartitionResponse) -> PartitionOffset:
    error = error_code(one.error_code)
    if error is not ErrorCode.NONE:
        return PartitionOffset(error)
    if one.offset < 0:
        raise MalformedError("an offset is negative")
    return PartitionOffset(error, one.offset, max(-1, one.leader_epoch))


@dataclass(frozen=True, slots=True)
class FetchPartition:
    """From which offset to read a partition, and about how many bytes of it at most.

    The broker gives whole batches, the first one whatever its size; the last may be cut off.
    """

    tp: TopicPartition
    offset: int
    max_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """The producer's transactional records from ``first_offset`` to its abort marker are void."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """What came of one partition. All offsets are -1 when ``error`` is not NONE.

    ``records`` are whole batches, of which the first may begin before ``fetch_offset`` and the last
    may be cut off; it is a view of the answer's own bytes. ``aborted`` is known with READ_COMMITTED
    only; then ``records`` end before ``last_stable_offset``.
    """

    error: ErrorCode
    fetch_offset: int
    isolation_level: IsolationLevel
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[AbortedTransaction] = ()
    records: memoryview = _NO_RECORDS


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """``partitions``: every one that was requested, or none when ``error`` is not NONE."""

    error: ErrorCode
    partitions: Mapping[TopicPartition, FetchedPartition]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Batches of ``partitions``, which must differ: sent to their leader.

    The broker waits up to ``max_wait_ms`` for ``min_bytes``. Versions from 13 on name topics by
    id and are not needed: every broker up to 4.x reads 12. Brokers refuse topics with zstd below 10
    (UNSUPPORTED_COMPRESSION_TYPE).
    """

    partitions: tuple[FetchPartition, ...]
    isolation_level: IsolationLevel
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 16 * 1024 * 1024

    api_key = ApiKey.FETCH
    versions = VersionRange(4, 12)

    def encode(self, version: int) -> Buffers:
        check_version(self, version)
        wire = messages.fetch
        topics: dict[str, list[fetch.FetchPartition]] = {}
        for piece in self.partitions:
            topics.setdefault(topic_name(piece.tp.topic), []).append(
                wire.FetchPartition(
                    partition=piece.tp.partition,
                    fetch_offset=piece.offset,
                    partition_max_bytes=piece.max_bytes,
                )
            )
        # The defaults ask for no session.
        request = wire.FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=int(self.isolation_level),
            topics=[
                wire.FetchTopic(topic=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        return [request.encode(version)]

    def decode(self, version: int, body: memoryview) -> FetchResponse:
        """The answer, which names every partition of this request once and no other."""
        requested = {piece.tp: piece.offset for piece in self.partitions}

        def parse(reader: WireReader, version: int) -> FetchResponse:
            return _read_fetch(reader, version, requested, self.isolation_level)

        return read_body(self, version, body, parse)


def _read_fetch(
    reader: WireReader,
    version: int,
    requested: Mapping[TopicPartition, int],
    isolation_level: IsolationLevel,
) -> FetchResponse:
    """The answer for ``requested``, partitions with the offsets requested."""
    answer = messages.fetch.FetchResponse.read(reader, version)
    throttle_ms, error = max(0, answer.throttle_time_ms), error_code(answer.error_code)
    found: dict[TopicPartition, FetchedPartition] = {}
    for topic in answer.responses:
        for one in topic.partitions:
            tp = TopicPartition(topic.topic, one.partition_index)
            if tp in found or tp not in requested:
                raise MalformedError("a partition comes twice, or was not requested")
            found[tp] = _fetched(one, requested[tp], isolation_level)
    if error is not ErrorCode.NONE:
        found = {}
    elif len(found) != len(requested):
        raise MalformedError("a partition that was requested is not in it")
    return FetchResponse(error, found, throttle_ms)


def _fetched(
    one: fetch.PartitionData, fetch_offset: int, isolation_level: IsolationLevel
) -> FetchedPartition:
    error = error_code(one.error_code)
    if error is not ErrorCode.NONE:
        return FetchedPartition(error, fetch_offset, isolation_level)
    if one.high_watermark < 0 or one.last_stable_offset < -1 or one.log_start_offset < -1:
        raise MalformedError("an offset is negative")
    return FetchedPartition(
        error,
        fetch_offset,
        isolation_level,
        one.high_watermark,
        one.last_stable_offset,
        one.log_start_offset,
        one.aborted_transactions.checked(
            lambda aborted: AbortedTransaction(aborted.producer_id, aborted.first_offset)
        ),
        one.records,
    )
