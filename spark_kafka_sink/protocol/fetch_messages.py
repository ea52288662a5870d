"""Reading a log: where a partition begins and ends, and its batches. ListOffsets and Fetch.

Owns: these two requests with their answers, and the isolation level. Never: what the fetched bytes
hold (``records/log_records.py``), and no fetch sessions: the reader of a decision log asks for few
partitions, a few times. It stands beside a record's way, on the driver.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.kio_codec import check_version, read_body, topic_name, write_body
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange
from spark_kafka_sink.protocol.wire import MalformedError, WireReader, error_code, read_array

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

_PARTITION_ERROR: Final = struct.Struct(">ih")  # partition, error code
_TIME_AND_OFFSET: Final = struct.Struct(">qq")
_ERROR_AND_SESSION: Final = struct.Struct(">hi")
_ABORTED: Final = struct.Struct(">qq")  # producer id, first offset
_OFFSETS_V4: Final = struct.Struct(">qq")  # high watermark, last stable offset
_OFFSETS_V5: Final = struct.Struct(">qqq")  # log start offset
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
    """``offset`` is -1 when ``error`` is not NONE; ``leader_epoch`` -1 when it is not told (< v4).

    LATEST is the high watermark, or with READ_COMMITTED the last stable offset.
    """

    error: ErrorCode
    offset: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsetsResponse:
    """``partitions``: every one that was asked for."""

    partitions: Mapping[TopicPartition, PartitionOffset]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class ListOffsetsRequest:
    """Where ``partitions`` begin or end: ask their leader.

    Versions above 9 are for logs in remote storage, below 2 there is no isolation level.
    """

    partitions: tuple[TopicPartition, ...]
    spec: OffsetSpec = OffsetSpec.LATEST
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED

    api_key = ApiKey.LIST_OFFSETS
    versions = VersionRange(2, 9)

    def encode(self, version: int) -> Buffers:
        check_version(self.api_key, version, self.versions)

        def entity(kio: Any) -> object:  # noqa: ANN401 - a module of kio, one for each version
            topics: dict[str, list[object]] = {}
            for tp in dict.fromkeys(self.partitions):
                topics.setdefault(topic_name(tp.topic), []).append(
                    kio.ListOffsetsPartition(partition_index=tp.partition, timestamp=int(self.spec))
                )
            return kio.ListOffsetsRequest(
                replica_id=_NO_REPLICA,
                isolation_level=int(self.isolation_level),
                topics=tuple(
                    kio.ListOffsetsTopic(name=name, partitions=tuple(partitions))
                    for name, partitions in topics.items()
                ),
            )

        return write_body(self.api_key, version, entity)

    def decode(self, version: int, body: memoryview) -> ListOffsetsResponse:
        """The answer, which names every partition of this request once and no other."""
        check_version(self.api_key, version, self.versions)
        asked = set(self.partitions)

        def parse(reader: WireReader, version: int) -> ListOffsetsResponse:
            response = _read_list_offsets(reader, version, asked)
            if asked:
                raise MalformedError("a partition that was asked for is not in it")
            return response

        return read_body(self.api_key, version, body, parse)


def _read_list_offsets(
    reader: WireReader, version: int, asked: set[TopicPartition]
) -> ListOffsetsResponse:
    """What was answered is taken out of ``asked``."""
    throttle_ms = max(0, reader.int32())
    found: dict[TopicPartition, PartitionOffset] = {}
    for _ in range(reader.count(3)):
        topic = reader.string()
        for _ in range(reader.count(_PARTITION_ERROR.size + _TIME_AND_OFFSET.size)):
            partition, code = reader.unpack(_PARTITION_ERROR)
            _timestamp, offset = reader.unpack(_TIME_AND_OFFSET)
            leader_epoch = reader.int32() if version >= 4 else -1
            reader.skip_tagged_fields()
            tp = TopicPartition(topic, partition)
            if tp not in asked:
                raise MalformedError("a partition comes twice, or was not asked for")
            asked.remove(tp)
            error = error_code(code)
            if error is not ErrorCode.NONE:
                found[tp] = PartitionOffset(error)
                continue
            if offset < 0:
                raise MalformedError("an offset is negative")
            found[tp] = PartitionOffset(error, offset, max(-1, leader_epoch))
        reader.skip_tagged_fields()
    reader.skip_tagged_fields()
    return ListOffsetsResponse(found, throttle_ms)


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
    """``partitions``: every one that was asked for, or none when ``error`` is not NONE."""

    error: ErrorCode
    partitions: Mapping[TopicPartition, FetchedPartition]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Batches of ``partitions``, which must differ: ask their leader.

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
        check_version(self.api_key, version, self.versions)

        def entity(kio: Any) -> object:  # noqa: ANN401 - a module of kio, one for each version
            topics: dict[str, list[object]] = {}
            for piece in self.partitions:
                topics.setdefault(topic_name(piece.tp.topic), []).append(
                    kio.FetchPartition(
                        partition=piece.tp.partition,
                        fetch_offset=piece.offset,
                        partition_max_bytes=piece.max_bytes,
                    )
                )
            # From version 7 on: kio's defaults ask for no session.
            forgotten: dict[str, object] = {"forgotten_topics_data": ()} if version >= 7 else {}
            return kio.FetchRequest(
                max_wait=dt.timedelta(milliseconds=self.max_wait_ms),
                min_bytes=self.min_bytes,
                max_bytes=self.max_bytes,
                isolation_level=int(self.isolation_level),
                topics=tuple(
                    kio.FetchTopic(topic=name, partitions=tuple(partitions))
                    for name, partitions in topics.items()
                ),
                **forgotten,
            )

        return write_body(self.api_key, version, entity)

    def decode(self, version: int, body: memoryview) -> FetchResponse:
        """The answer, which names every partition of this request once and no other."""
        check_version(self.api_key, version, self.versions)
        asked = {piece.tp: piece.offset for piece in self.partitions}

        def parse(reader: WireReader, version: int) -> FetchResponse:
            return _FetchDecoder(reader, version, asked, self.isolation_level).parse()

        return read_body(self.api_key, version, body, parse)


def _aborted(reader: WireReader) -> AbortedTransaction:
    aborted = AbortedTransaction(*reader.unpack(_ABORTED))
    reader.skip_tagged_fields()
    return aborted


class _FetchDecoder:
    """Reads one Fetch answer to a request for ``asked``, partitions with the offsets asked for."""

    __slots__ = ("_asked", "_isolation_level", "_reader", "_version")

    def __init__(
        self,
        reader: WireReader,
        version: int,
        asked: Mapping[TopicPartition, int],
        isolation_level: IsolationLevel,
    ) -> None:
        self._reader = reader
        self._version = version
        self._asked = asked
        self._isolation_level = isolation_level

    def parse(self) -> FetchResponse:
        reader = self._reader
        throttle_ms = max(0, reader.int32())
        code = reader.unpack(_ERROR_AND_SESSION)[0] if self._version >= 7 else 0
        error = error_code(code)
        found: dict[TopicPartition, FetchedPartition] = {}
        for _ in range(reader.count(3)):
            topic = reader.string()
            for _ in range(reader.count(_PARTITION_ERROR.size + _OFFSETS_V4.size)):
                number, code = reader.unpack(_PARTITION_ERROR)
                tp = TopicPartition(topic, number)
                if tp in found or tp not in self._asked:
                    raise MalformedError("a partition comes twice, or was not asked for")
                found[tp] = self._partition(error_code(code), self._asked[tp])
            reader.skip_tagged_fields()
        reader.skip_tagged_fields()
        if error is not ErrorCode.NONE:
            found = {}
        elif len(found) != len(self._asked):
            raise MalformedError("a partition that was asked for is not in it")
        return FetchResponse(error, found, throttle_ms)

    def _partition(self, error: ErrorCode, fetch_offset: int) -> FetchedPartition:
        reader, version = self._reader, self._version
        log_start = -1
        if version >= 5:
            high_watermark, last_stable, log_start = reader.unpack(_OFFSETS_V5)
        else:
            high_watermark, last_stable = reader.unpack(_OFFSETS_V4)
        aborted = read_array(reader, _ABORTED.size, _aborted)
        if version >= 11:
            reader.int32()  # a replica to read from: we name no rack, so there is none
        records = self._records()
        reader.skip_tagged_fields()
        if error is not ErrorCode.NONE:
            return FetchedPartition(error, fetch_offset, self._isolation_level)
        if high_watermark < 0 or last_stable < -1 or log_start < -1:
            raise MalformedError("an offset is negative")
        return FetchedPartition(
            error,
            fetch_offset,
            self._isolation_level,
            high_watermark,
            last_stable,
            log_start,
            aborted,
            records,
        )

    def _records(self) -> memoryview:
        reader = self._reader
        size = reader.unsigned_varint() - 1 if reader.flexible else reader.int32()
        if size < -1:
            raise MalformedError("the records' size is negative")
        size = max(0, size)
        if size > reader.remaining:
            raise MalformedError("the records are longer than the answer")
        start = reader.position
        reader.position += size
        return memoryview(reader.data)[start : reader.position]
