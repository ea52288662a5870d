"""What a Fetch brought, as records: batches of a log, its markers, and what of it is committed.

Owns: :func:`log_batches`, which walks fetched bytes, and :func:`committed_records`, which leaves
out what was aborted (Java's ``CompletedFetch``). Never: asking for the bytes
(``protocol/fetch_messages.py``), nor what a record says. It stands beside a record's way: the
driver reads its decision log with it, some records at a time, so records are walked one by one.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from spark_kafka_sink.errors import (
    CorruptRecordError,
    ErrorCode,
    IllegalStateError,
    InvalidRecordError,
)
from spark_kafka_sink.protocol.fetch_messages import FetchedPartition, IsolationLevel
from spark_kafka_sink.protocol.request import Buffer
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    parse_header,
    parse_records,
)

#: About how many unpacked bytes one call turns into records, and the most of one batch.
MAX_UNPACKED = 16 * 1024 * 1024

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_CONTROL_KEY = struct.Struct(">hh")  # version, type


class ControlType(IntEnum):
    """What a marker says of its producer's transaction (Java's ``ControlRecordType``)."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of a log; ``timestamp`` in milliseconds, the broker's if the topic says so."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class LogBatch:
    """One batch as it lies in the log; ``section`` is its records, compressed as they are.

    Compaction leaves a batch its range of offsets when it takes records out, even all of them.
    """

    header: BatchHeader
    section: memoryview

    @property
    def last_offset(self) -> int:
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    def unpack(self, limit: int = MAX_UNPACKED) -> Buffer:
        """The records' bytes. CorruptRecordError when they are more than ``limit``."""
        if not self.header.codec:
            return self.section
        return Codec(self.header.codec).decompress(self.section, limit)

    def records(self, limit: int = MAX_UNPACKED) -> tuple[LogRecord, ...]:
        """The records, which in a control batch are its markers.

        Raises CorruptRecordError for a batch that unpacks to more than ``limit`` bytes or can't be
        unpacked, InvalidRecordError for a record that is not whole.
        """
        return _records_of(self, self.unpack(limit))

    @property
    def marker(self) -> ControlType | None:
        """How a transaction ended here; None for data, and for control records of other kinds."""
        if not self.header.control:
            return None
        records = self.records()
        if not records:
            return None
        key = records[0].key
        if key is None or len(key) < _CONTROL_KEY.size:
            raise InvalidRecordError(
                "a control record's key is too short for its type", code=ErrorCode.INVALID_RECORD
            )
        # Later versions may add fields behind these two.
        _version, kind = _CONTROL_KEY.unpack_from(key)
        return ControlType(kind) if kind in set(ControlType) else None


def log_batches(data: Buffer) -> Iterator[LogBatch]:
    """The whole batches in ``data``, in order; a last one that is cut off is left out.

    Raises CorruptRecordError for a batch with a wrong checksum, of a format before v2, or whose
    offsets don't come behind those of the batch before it.
    """
    view = memoryview(data).cast("B").toreadonly()
    at, expected = 0, 0
    while len(view) - at >= _OFFSET_AND_LENGTH.size:
        _, length = _OFFSET_AND_LENGTH.unpack_from(view, at)
        size = _OFFSET_AND_LENGTH.size + length
        if size > len(view) - at:
            return
        header = parse_header(view[at : at + size])  # (which refuses a size below the header's)
        batch = LogBatch(header, view[at + HEADER_SIZE : at + size])
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise _corrupt("a batch's offsets overlap those before it")
        expected = batch.next_offset
        at += size
        yield batch


def _records_of(batch: LogBatch, unpacked: Buffer) -> tuple[LogRecord, ...]:
    header = batch.header
    found = parse_records(
        unpacked, header.record_count, header.base_timestamp, header.base_offset, gaps=True
    )
    if found and found[-1].offset > batch.last_offset:
        raise InvalidRecordError(
            "a record of a batch has an offset behind the batch's last",
            code=ErrorCode.INVALID_RECORD,
        )
    if not header.log_append_time:
        return tuple(LogRecord(r.offset, r.timestamp, r.key, r.value) for r in found)
    appended = header.max_timestamp
    return tuple(LogRecord(r.offset, appended, r.key, r.value) for r in found)


def committed_records(
    fetched: FetchedPartition, limit: int = MAX_UNPACKED
) -> tuple[list[LogRecord], int]:
    """The records of ``fetched`` that count, from its fetch offset on, and where to fetch next.

    What needs no transaction counts, and what its transaction committed. The next offset lies
    behind all batches that were looked at, markers, aborted ones and the gaps of compaction
    included. So the log is read to its end when the next offset is the high watermark, which takes
    another Fetch when the last marker did not fit into this one; with a transaction open the
    last stable offset stays in front of that. No bytes: nothing counts, and the next offset is the
    fetch offset.

    After about ``limit`` unpacked bytes the rest is left for the next Fetch. Raises
    CorruptRecordError and InvalidRecordError for bytes that are no batches and for one batch that
    unpacks to more than ``limit``, IllegalStateError when the fetch failed or was not
    READ_COMMITTED (then nobody knows what was aborted).
    """
    if fetched.error is not ErrorCode.NONE:
        raise IllegalStateError(f"a fetch that failed with {fetched.error.name} has no records")
    if fetched.isolation_level is not IsolationLevel.READ_COMMITTED:
        raise IllegalStateError("committed records need a fetch with READ_COMMITTED")
    begun = deque(sorted(fetched.aborted, key=lambda transaction: transaction.first_offset))
    aborted: set[int] = set()
    records: list[LogRecord] = []
    next_offset = fetched.fetch_offset
    unpacked, looked_at = 0, False
    for batch in log_batches(fetched.records):
        if unpacked >= limit:
            break
        looked_at = True
        header = batch.header
        while begun and begun[0].first_offset <= batch.last_offset:
            aborted.add(begun.popleft().producer_id)
        if header.control:
            # The same producer may go on with another transaction, and commit that one.
            if batch.marker is ControlType.ABORT:
                aborted.discard(header.producer_id)
        elif batch.next_offset > next_offset and not (
            header.transactional and header.producer_id in aborted
        ):
            raw = batch.unpack(limit)
            unpacked += len(raw)
            records += (r for r in _records_of(batch, raw) if r.offset >= next_offset)
        next_offset = max(next_offset, batch.next_offset)
    if len(fetched.records) and not looked_at:
        # Brokers give the first batch whole, whatever its size: fetching again would bring this.
        raise _corrupt(f"there is no whole batch in {len(fetched.records)} fetched bytes")
    return records, next_offset


def _corrupt(message: str) -> CorruptRecordError:
    return CorruptRecordError(message, code=ErrorCode.CORRUPT_MESSAGE)
