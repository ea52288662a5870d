"""Reading a log: where a partition begins and ends, and its batches. ListOffsets and Fetch.

Owns: both requests with their responses. Never: the content of fetched bytes
(``records/log_records.py``); fetch sessions: the reader of a commit log reads few partitions, a few
times. That reader must see what is not committed yet; only ``kprod check --exactly-once`` reads as
a consumer with READ_COMMITTED does. Used on the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.bodies import (
    ControlRequest,
    Message,
    by_topic,
    once_each,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages import fetch, list_offsets
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.wire import MalformedError, WireReader, error_of

__all__ = [
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchedPartition",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "OffsetSpec",
    "PartitionOffset",
]

#: A consumer, not a replica.
_NO_REPLICA: Final = -1
#: Everything up to the high watermark, what is not committed yet too; or up to the last stable
#: offset, with the list of what was aborted.
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_NO_RECORDS: Final = memoryview(b"")


class OffsetSpec(IntEnum):
    """Which offset to list; the values are the wire's timestamps."""

    LATEST = -1
    EARLIEST = -2


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """``offset`` is -1 when ``error`` is not NONE. LATEST is the high watermark."""

    error: ErrorCode
    offset: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsetsResponse:
    """``partitions``: every one that was requested."""

    partitions: Mapping[TopicPartition, PartitionOffset]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class ListOffsetsRequest(ControlRequest[ListOffsetsResponse]):
    """Where ``partitions`` begin or end: sent to their leader.

    Versions above 9 are for logs in remote storage, below 2 there is no isolation level.
    """

    partitions: tuple[TopicPartition, ...]
    spec: OffsetSpec = OffsetSpec.LATEST

    api_key = ApiKey.LIST_OFFSETS
    versions = VersionRange(2, 9)

    def message(self, version: int) -> Message:
        wire = list_offsets
        return wire.ListOffsetsRequest(
            replica_id=_NO_REPLICA,
            isolation_level=_READ_UNCOMMITTED,
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

    def read(self, reader: WireReader, version: int) -> ListOffsetsResponse:
        """The response, which has every partition of this request once and no other."""
        answer = list_offsets.ListOffsetsResponse.read(reader, version)
        found = once_each(
            (
                (TopicPartition(topic.name, one.partition_index), _partition_offset(one))
                for topic in answer.topics
                for one in topic.partitions
            ),
            self.partitions,
        )
        return ListOffsetsResponse(found, max(0, answer.throttle_time_ms))


def _partition_offset(one: list_offsets.ListOffsetsPartitionResponse) -> PartitionOffset:
    error = error_of(one.error_code)
    if error is not ErrorCode.NONE:
        return PartitionOffset(error)
    if one.offset < 0:
        raise MalformedError("an offset is negative")
    return PartitionOffset(error, one.offset)


@dataclass(frozen=True, slots=True)
class FetchPartition:
    """From which offset to read a partition, and about how many bytes of it at most.

    The broker gives whole batches, the first one whatever its size; the last may be cut off.
    """

    tp: TopicPartition
    offset: int
    max_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """What came of one partition.

    ``records`` are whole batches, of which the first may begin before ``fetch_offset`` and the last
    may be cut off; it is a view of the response's bytes. With ``read_committed`` the transactions
    of ``aborted``, by producer id and first offset, are among them.
    """

    error: ErrorCode
    fetch_offset: int
    records: memoryview = _NO_RECORDS
    last_stable_offset: int = -1
    aborted: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """``partitions``: every one that was requested, or none when ``error`` is not NONE."""

    error: ErrorCode
    partitions: Mapping[TopicPartition, FetchedPartition]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class FetchRequest(ControlRequest[FetchResponse]):
    """Batches of ``partitions``, which must differ: sent to their leader.

    The broker waits up to ``max_wait_ms`` for ``min_bytes``. Versions from 13 on name topics by
    id and are not needed: every broker up to 4.x reads 12. Brokers refuse topics with zstd below 10
    (UNSUPPORTED_COMPRESSION_TYPE).
    """

    partitions: tuple[FetchPartition, ...]
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 16 * 1024 * 1024
    read_committed: bool = False

    api_key = ApiKey.FETCH
    versions = VersionRange(4, 12)

    def message(self, version: int) -> Message:
        wire = fetch
        topics: dict[str, list[fetch.FetchPartition]] = {}
        for piece in self.partitions:
            topics.setdefault(piece.tp.topic, []).append(
                wire.FetchPartition(
                    partition=piece.tp.partition,
                    fetch_offset=piece.offset,
                    partition_max_bytes=piece.max_bytes,
                )
            )
        # The defaults request no session.
        return wire.FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=_READ_COMMITTED if self.read_committed else _READ_UNCOMMITTED,
            topics=[
                wire.FetchTopic(topic=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    def read(self, reader: WireReader, version: int) -> FetchResponse:
        """The response, which has every partition of this request once and no other."""
        requested = {piece.tp: piece.offset for piece in self.partitions}
        answer = fetch.FetchResponse.read(reader, version)
        throttle_ms, error = max(0, answer.throttle_time_ms), error_of(answer.error_code)
        found: dict[TopicPartition, FetchedPartition] = {}
        for topic in answer.responses:
            for one in topic.partitions:
                tp = TopicPartition(topic.topic, one.partition_index)
                if tp in found or tp not in requested:
                    raise MalformedError("a partition comes twice, or was not requested")
                found[tp] = _fetched(one, requested[tp], aborted=self.read_committed)
        if error is not ErrorCode.NONE:
            found = {}
        elif len(found) != len(requested):
            raise MalformedError("a partition that was requested is not in it")
        return FetchResponse(error, found, throttle_ms)


def _fetched(one: fetch.PartitionData, fetch_offset: int, *, aborted: bool) -> FetchedPartition:
    error = error_of(one.error_code)
    if error is not ErrorCode.NONE:
        return FetchedPartition(error, fetch_offset)
    if one.high_watermark < 0 or one.last_stable_offset < -1 or one.log_start_offset < -1:
        raise MalformedError("an offset is negative")
    listed = one.aborted_transactions if aborted else ()
    ended = tuple((each.producer_id, each.first_offset) for each in listed)
    return FetchedPartition(error, fetch_offset, one.records, one.last_stable_offset, ended)
