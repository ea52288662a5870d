"""Decodes fetched batches of a log: records, and transaction markers.

* :func:`read_batches` returns the records with certain keys. It decodes records one by one in
  Python, for callers that need few records, such as the records of the commit log. It trusts no
  input, because other clients can write to the topic.
* :func:`whole_batches` yields batches with undecoded records, for callers that read whole topics.

``protocol/log_requests.py`` fetches the bytes. This module does not know the outcome of
transactions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import islice
from typing import Final

from spark_kafka_sink.base.errors import (
    CorruptRecordError,
    ErrorCode,
    IllegalStateError,
    InvalidRecordError,
    RemoteProtocolError,
)
from spark_kafka_sink.protocol.log_requests import FetchedPartition
from spark_kafka_sink.protocol.request import Buffer
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.record_batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    parse_header,
)
from spark_kafka_sink.records.varint import MAX_VARINT_BYTES, MAX_VARLONG_BYTES, read_varint

#: Default limit of the bytes of matching records that are kept of one batch.
MAX_UNPACKED = 16 * 1024 * 1024
#: Limits after which :func:`read_batches` skips the rest of a batch, in bytes and in records. In
#: the commit log, a batch of this package has half a MiB at most (``log_parts.PIECE_BYTES``).
MOST_WALKED: Final = 8 * 1024 * 1024
MOST_RECORDS: Final = 100_000
#: The most chunks that are decompressed of a batch. A chunk has about 1 MiB, but a stream can also
#: consist of any number of empty chunks.
_MOST_CHUNKS: Final = 1000
#: The longest key that may match, in bytes.
_LONGEST_KEY: Final = 64 * 1024
#: Bytes that a kept record counts in addition to its own: a million empty ones need memory, too.
_RECORD_WEIGHT: Final = 256
#: A marker has 6 bytes of value, and may get more fields.
_LARGEST_MARKER: Final = 64 * 1024

OFFSET_AND_LENGTH = struct.Struct(">qi")
_CONTROL_KEY = struct.Struct(">hh")  # version, type


class ControlType(IntEnum):
    """The type of a transaction marker: abort or commit (Java's ``ControlRecordType``)."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record of a log.

    ``timestamp`` is in milliseconds since the epoch. For topics with LogAppendTime, ``timestamp``
    is the broker's time. ``headers`` are empty in the records of :func:`read_batches`.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A record batch of the log, with its records still encoded.

    ``section`` has the records, often compressed. Compaction can remove records from a batch, even
    all records. The batch keeps its range of offsets.
    """

    header: BatchHeader
    section: memoryview

    @property
    def last_offset(self) -> int:
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The reason why a batch, or the record at ``offset``, can't be read. All later records of the
    same batch can't be read either. ``reason`` is one line of text, without bytes of the log.

    These are the reasons:

    * The batch has an impossible length, a wrong checksum or an invalid header.
    * The batch's offsets overlap those of an earlier batch.
    * The batch can't be decompressed.
    * A record is malformed.
    * The records that the caller of :func:`read_batches` wants are too large.

    The last two reasons are found only in batches whose records are read: control batches, and
    batches that contain the byte string ``mention`` of the caller.
    """

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A batch of the log, with the records that the caller wants.

    * ``producer_id``: -1 if the producer is not idempotent.
    * ``control``: true for a control batch.
    * ``marker``: the transaction marker of a control batch. None if the control record is of
      another kind.
    * ``records``: the wanted records. If a record of the batch can't be read, only the wanted
      records before this record.
    * ``unreadable``: the reason why the batch, or one of its records, can't be read. None if no
      such error was found.
    * ``header_known``: false if the header can't be read. Then only ``base_offset`` is known, and
      ``last_offset`` has the same value.
    """

    base_offset: int
    last_offset: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    transactional: bool = False
    control: bool = False
    marker: ControlType | None = None
    records: tuple[LogRecord, ...] = ()
    unreadable: Unreadable | None = None
    header_known: bool = True

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1


def read_batches(
    fetched: FetchedPartition,
    wanted: Callable[[bytes], bool],
    mention: bytes = b"",
    max_kept: int = MAX_UNPACKED,
    *,
    transactional: bool = True,
) -> Iterator[ReadBatch]:
    """Yields the batches of ``fetched``, each with the records for which ``wanted(key)`` is true.

    Batches that end before the fetch offset are left out. Records are returned even if their
    transaction is not committed.

    * ``transactional``: if it is true, records are read only from transactional batches, such as
      those of the commit log. If it is false, they are read only from batches without a
      transaction. Of all other batches, only the header is read.
    * ``mention``: a byte string that every wanted key contains. A batch without this string is
      yielded without records.
    * ``max_kept``: the approximate limit in bytes for the wanted records of a batch. A record
      beyond this limit counts as one that can't be read.

    No content of the log raises an error. If a batch, or one of its records, can't be read, the
    batch is yielded with the reason in ``unreadable``. The iteration ends after a batch with an
    impossible length or with overlapping offsets. Raises IllegalStateError if ``fetched`` has an
    error code.

    The reading of a batch stops after :data:`MOST_WALKED` bytes or :data:`MOST_RECORDS` records, so
    it takes less than a second. The later records of the batch are left out. This is no error, so
    ``unreadable`` is None.
    """
    if fetched.error is not ErrorCode.NONE:
        raise IllegalStateError(f"a fetch that failed with {fetched.error.name} has no records")
    view = fetched.records.cast("B").toreadonly()
    at, expected = 0, 0
    while len(view) - at >= OFFSET_AND_LENGTH.size:
        base, length = OFFSET_AND_LENGTH.unpack_from(view, at)
        size = OFFSET_AND_LENGTH.size + length
        if size < HEADER_SIZE:
            yield _not_a_batch(base, f"a batch has a length of {size} bytes")
            return
        if size > len(view) - at:
            break
        try:
            header = parse_header(view[at : at + size])
        except CorruptRecordError as error:
            yield _not_a_batch(base, error.message)
        else:
            batch = LogBatch(header, view[at + HEADER_SIZE : at + size])
            if base < expected or header.last_offset_delta < 0:
                yield _not_a_batch(base, "a batch's offsets overlap those before it")
                return
            expected = batch.next_offset
            if expected > fetched.fetch_offset:
                if batch.header.transactional is transactional:
                    yield _read(batch, wanted, mention, fetched.fetch_offset, max_kept)
                else:
                    yield _header_of(batch)
        at += size
    if at == 0 and len(view):
        # Brokers return the first batch complete at any size: another fetch would be the same.
        reason = f"there is no whole batch in {len(view)} fetched bytes"
        yield _not_a_batch(fetched.fetch_offset, reason)


def whole_batches(data: Buffer) -> Iterator[LogBatch]:
    """Yields the complete batches in fetched bytes. An incomplete batch at the end is left out: the
    next fetch returns this batch.

    Raises CorruptRecordError for a batch that can't be read.
    """
    view, at = memoryview(data).cast("B"), 0
    while len(view) - at >= OFFSET_AND_LENGTH.size:
        end = at + OFFSET_AND_LENGTH.size + OFFSET_AND_LENGTH.unpack_from(view, at)[1]
        if end > len(view):
            return
        yield LogBatch(parse_header(view[at:end]), view[at + HEADER_SIZE : end])
        at = end


def marker_of(batch: LogBatch) -> ControlType | None:
    """The transaction marker in a control batch. None if the control batch has a control record of
    another kind.
    """
    return _Walk(batch).marker()


def _not_a_batch(offset: int, reason: str) -> ReadBatch:
    offset = max(offset, 0)
    return ReadBatch(offset, offset, unreadable=Unreadable(offset, reason), header_known=False)


def _read(
    batch: LogBatch,
    wanted: Callable[[bytes], bool],
    mention: bytes,
    from_offset: int,
    max_kept: int,
) -> ReadBatch:
    header, found = batch.header, _header_of(batch)
    walk = _Walk(batch)
    try:
        if header.control:
            return replace(found, marker=walk.marker())
        if header.record_count == 0 or not walk.mentions(mention):
            return found
        walk.keep(wanted, from_offset, max_kept)
    except (CorruptRecordError, InvalidRecordError, RemoteProtocolError) as error:
        unreadable = Unreadable(walk.offset, error.message)
        return replace(found, records=tuple(walk.kept), unreadable=unreadable)
    return replace(found, records=tuple(walk.kept))


def _header_of(batch: LogBatch) -> ReadBatch:
    header = batch.header
    return ReadBatch(
        header.base_offset,
        batch.last_offset,
        header.producer_id,
        header.producer_epoch,
        header.transactional,
        header.control,
    )


class _Walk:
    """Reads the records of one batch in order, and decompresses them in parts of about 1 MiB."""

    __slots__ = ("_at", "_batch", "_before", "_chunk", "_chunks", "kept", "offset")

    def __init__(self, batch: LogBatch) -> None:
        self._batch = batch
        #: The offset of the current record, for errors.
        self.offset = batch.header.base_offset
        self.kept: list[LogRecord] = []
        self._begin()

    def _begin(self) -> None:
        self._chunks = self._stream()
        self._chunk: Buffer = b""
        self._at = 0
        #: Bytes of the chunks before this one.
        self._before = 0

    def _stream(self) -> Iterator[Buffer]:
        stream = Codec(self._batch.header.codec).stream(self._batch.section)
        return islice(stream, _MOST_CHUNKS)

    def mentions(self, mention: bytes) -> bool:
        """True if the decompressed records contain the bytes ``mention``. Only the first
        :data:`MOST_WALKED` bytes are searched.
        """
        if not mention:
            return True
        walked, seam = 0, b""
        for chunk in self._stream():
            text = bytes(chunk)
            if mention in text or mention in seam + text[: len(mention)]:
                return True
            walked += len(text)
            if walked > MOST_WALKED:
                return False
            seam = (seam + text[-len(mention) :])[-len(mention) :]
        return False

    def keep(self, wanted: Callable[[bytes], bool], from_offset: int, max_kept: int) -> None:
        """Reads the records from the offset ``from_offset`` on, and adds each record with a wanted
        key to ``kept``.
        """
        header, last_offset = self._batch.header, self._batch.last_offset
        weight, expected = 0, header.base_offset
        for index in range(header.record_count):
            if index == MOST_RECORDS or self._position > MOST_WALKED:
                return
            self.offset = expected
            end = self._record_end()
            self._step(1)  # attributes, of which there are none
            time_delta = self._varint(MAX_VARLONG_BYTES)
            offset = header.base_offset + self._varint()
            if not expected <= offset <= last_offset:
                raise _invalid(f"record {index} of a batch has an offset out of its order")
            self.offset, expected = offset, offset + 1
            size = self._varint()
            if 0 <= size <= min(_LONGEST_KEY, end - self._position):
                key = self._take(size)
                if wanted(key) and offset >= from_offset:
                    weight += _RECORD_WEIGHT + size
                    value = self._value(end, max_kept - weight)
                    weight += len(value or b"")
                    when = header.max_timestamp
                    if not header.log_append_time:
                        when = header.base_timestamp + time_delta
                    self.kept.append(LogRecord(offset, when, key, value))
            self._step(end - self._position)
        if self._position <= MOST_WALKED and self._more():
            raise _invalid(f"bytes follow the {header.record_count} records of a batch")

    def marker(self) -> ControlType | None:
        """The type of the transaction marker in the batch's first record. None if the batch has no
        record, or if the first record is not a transaction marker.
        """
        if self._batch.header.record_count == 0:
            return None
        end = self._record_end()
        if end > _LARGEST_MARKER:
            raise _invalid("a control record is too large to be one")
        self._step(1)
        self._varint(MAX_VARLONG_BYTES)
        self._varint()
        size = self._varint()
        if not _CONTROL_KEY.size <= size <= end - self._position:
            raise _invalid("a control record's key is too short for its type")
        _version, kind = _CONTROL_KEY.unpack(self._take(_CONTROL_KEY.size))
        return ControlType(kind) if kind in set(ControlType) else None

    def _record_end(self) -> int:
        size = self._varint()
        if size < 1:
            raise _invalid(f"a record has a length of {size} bytes")
        return self._position + size

    def _value(self, end: int, limit: int) -> bytes | None:
        size = self._varint()
        if size == -1:
            return None
        if not 0 <= size <= end - self._position:
            raise _invalid(f"a value of {size} bytes runs past the end of its record")
        if size > limit:
            raise _invalid(f"a record of {size} bytes is more than is read of one batch")
        return self._take(size)

    # -- bytes --------------------------------------------------------------------------------

    @property
    def _position(self) -> int:
        return self._before + self._at

    def _more(self) -> bool:
        """True if the batch has a further byte. If the current chunk is at its end, decompresses
        the next chunk.
        """
        while self._at == len(self._chunk):
            following = next(self._chunks, None)
            if following is None:
                return False
            self._before += self._at
            self._chunk, self._at = following, 0
        return True

    def _varint(self, max_bytes: int = MAX_VARINT_BYTES) -> int:
        if len(self._chunk) - self._at >= max_bytes:
            value, self._at = read_varint(self._chunk, self._at, max_bytes)
            return value
        data = b""
        while not data or (data[-1] > 0x7F and len(data) < max_bytes):
            data += self._take(1)
        return read_varint(data, 0, max_bytes)[0]

    def _take(self, size: int) -> bytes:
        """Reads and returns the next ``size`` bytes."""
        if len(self._chunk) - self._at >= size:
            self._at += size
            return bytes(self._chunk[self._at - size : self._at])
        parts = []
        while size:
            parts.append(bytes(self._chunk[self._at : self._at + self._reach(size)]))
            self._at += len(parts[-1])
            size -= len(parts[-1])
        return b"".join(parts)

    def _step(self, size: int) -> None:
        """Skips the next ``size`` bytes."""
        if size < 0:
            raise _invalid("a record's fields run past its end")
        while size:
            reach = self._reach(size)
            self._at += reach
            size -= reach
            if self._position > MOST_WALKED:
                return

    def _reach(self, size: int) -> int:
        """Returns how many of the next ``size`` bytes are in the current chunk. If the current
        chunk is at its end, decompresses the next chunk first. So the result is at least one.
        """
        if not self._more():
            raise _invalid("a record runs past the end of its batch")
        return min(size, len(self._chunk) - self._at)


def _invalid(message: str) -> InvalidRecordError:
    return InvalidRecordError(message)
