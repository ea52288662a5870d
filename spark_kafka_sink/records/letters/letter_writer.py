"""Dead letters: rows that can't be sent, as records of another topic with the reason in headers.

Owns: :class:`LetterWriter`, which makes them by columns: the headers ``__connect.errors.*`` of
Kafka Connect and our own, and what of a value, a timestamp and headers can be sent. Never: which
rows these are (``bad_rows``), their sending, the end of a write that has too many.

A letter's headers are the row's, then pieces that are the same for all rows of a finding, or differ
from row to row; one gather puts them together. As in Connect, one of the same name that the row has
stays in front: the last one counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import RecordTooLargeError
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Finding
from spark_kafka_sink.records.gather import (
    data_of,
    ends_of,
    lengths_of,
    new_gather,
    offsets_of,
    valid_of,
)
from spark_kafka_sink.records.letters.letter_fields import CONNECT, OURS
from spark_kafka_sink.records.letters.row_limits import VARINT_BOUNDS, RowLimits, outside
from spark_kafka_sink.records.record_columns import RecordColumns
from spark_kafka_sink.records.varint import Packed, pack, varint

Int64s = npt.NDArray[np.int64]

#: Letters that are made at once: their headers are memory besides the rows'.
_MOST_LETTERS = 8192
#: Bytes of an asked topic, which may be any text, in a header: no name has as many.
_MOST_OF_A_TOPIC = 1000
#: Bytes of key and value lengths, at most.
_LENGTHS = 2 * 5
#: Bytes of the headers behind the last piece of the first ones: row, value.size, value.truncated.
_REST_OF_HEADERS = 200


@dataclass(frozen=True, slots=True)
class LetterWriter:
    """Makes letters to ``topic``, within the ``limits`` of the producer and of that topic.
    ``connector``, ``task`` and ``batch_id`` are for headers; ``context``: those of Connect, too.
    """

    topic: str
    limits: RowLimits
    connector: str
    task: int
    batch_id: int
    context: bool
    max_value_bytes: int

    def letters(
        self, columns: RecordColumns, bad: BadRows, numbers: Int64s, now_ms: int
    ) -> Iterator[RecordColumns]:
        """The letters of the rows of ``columns`` that are ``bad``, some thousands at a time;
        ``numbers`` are those of all rows within the task.

        Raises RecordTooLargeError, with both causes, for a row whose key and headers leave no room.
        """
        rows = bad.which.nonzero()[0]
        for start in range(0, len(rows), _MOST_LETTERS):
            part = rows[start : start + _MOST_LETTERS]
            taken, which = columns.take(part), bad.which.take(part) - 1
            yield self._letters(taken, which, bad.found, numbers.take(part), now_ms)

    def _letters(
        self,
        rows: RecordColumns,
        which: Int64s,
        found: Sequence[Finding],
        numbers: Int64s,
        now_ms: int,
    ) -> RecordColumns:
        headers = self._headers(rows, which, found, numbers)
        value, cut = rows.value, np.zeros(rows.rows, np.bool_)
        sizes = np.full(rows.rows, -1, np.int64)
        room = self.limits.most_content - _taken(rows, headers)
        if (room < 0).any():
            row = int(np.argmax(room < 0))
            raise self._too_large(found[which[row]], int(numbers[row]), int(room[row]))
        if value is not None:
            lengths, valid = lengths_of(value), valid_of(value)
            sizes = lengths if valid is None else np.where(valid, lengths, -1)
            kept = np.minimum(lengths, np.minimum(room, self.max_value_bytes))
            cut = kept < lengths
            if cut.any():
                begin = offsets_of(value)[:-1].astype(np.int64)
                value = _slices(value, begin, begin + kept)
        headers.add(f"{OURS}value.size", _texts(sizes))
        truncated = _binary_array([b"false", b"true"])
        headers.add(f"{OURS}value.truncated", truncated.take(_int64s(cut.astype(np.int64))))
        times = rows.timestamp
        if times is not None:
            times = np.where(outside(times, self.limits.topic, now_ms), now_ms, times)
        return replace(
            rows,
            topic=self.topic,
            partition=None,
            value=value,
            headers=headers.joined(rows.headers),
            timestamp=times,
        )

    def _headers(
        self,
        rows: RecordColumns,
        which: Int64s,
        found: Sequence[Finding],
        numbers: Int64s,
    ) -> _Headers:
        """All but those about the value."""
        made = _Headers(which, len(found))
        topic = self.asked_topics(rows)
        reasons = [one.reason for one in found]
        if self.context:
            made.add(f"{CONNECT}topic", topic)
            asked = b"-1" if rows.partition is None else _texts(rows.partition.astype(np.int64))
            made.add(f"{CONNECT}partition", asked)
            made.add(f"{CONNECT}offset", b"-1")
            made.add(f"{CONNECT}connector.name", self.connector.encode())
            made.add(f"{CONNECT}task.id", b"%d" % self.task)
            made.add(f"{CONNECT}stage", [one.stage.encode() for one in reasons])
            made.add(f"{CONNECT}class.name", [one.module.encode() for one in reasons])
            made.add(f"{CONNECT}exception.class.name", [one.exception.encode() for one in reasons])
            made.add(f"{CONNECT}exception.message", [one.text.encode() for one in found])
        made.add(f"{OURS}code", [one.code.encode() for one in reasons])
        made.add(f"{OURS}topic", topic)
        made.add(f"{OURS}batch.id", b"%d" % self.batch_id)
        made.add(f"{OURS}row", _texts(numbers))
        return made

    def _too_large(self, finding: Finding, row: int, room: int) -> RecordTooLargeError:
        return RecordTooLargeError(
            f"row {row} of partition {self.task} of the DataFrame can't be sent ({finding.text}), "
            f"and can't be written to the dead letter queue {self.topic} either: its key and "
            f"headers are {-room} bytes more than kafka.max.request.size and that topic's "
            "max.message.bytes allow",
            hint="raise kafka.max.request.size, and max.message.bytes of that topic",
            kind=Kind.LETTER_NOT_SENT,
        )

    @staticmethod
    def asked_topics(rows: RecordColumns) -> bytes | pa.Array:
        """The topic that rows ask for: of all, or of each; empty where that is null."""
        if isinstance(rows.topic, str):
            return rows.topic.encode()
        names = rows.topic.dictionary.cast(pa.binary())
        return pc.binary_slice(names, 0, _MOST_OF_A_TOPIC).take(rows.topic.indices)


class _Headers:
    """Headers that are added to those of rows, each of a finding ``which``. What does not differ
    between the rows of a finding is one piece up to what does.
    """

    def __init__(self, which: Int64s, findings: int) -> None:
        self._which = which
        self._count = 0
        #: Of each finding, the bytes behind the last piece.
        self._block = [b""] * findings
        self._pieces: list[Packed | tuple[pa.Array, Int64s | None]] = []
        #: Bytes of each row's pieces.
        self.sizes = np.zeros(len(which), np.int64)

    def add(self, name: str, value: bytes | Sequence[bytes] | pa.Array) -> None:
        """The same for all rows, one for each finding, or one for each row."""
        self._count += 1
        self._block = [block + varint(len(name)) + name.encode() for block in self._block]
        if isinstance(value, pa.Array):
            self._flush()
            lengths = lengths_of(value)
            self._put(pack(lengths)[0], lengths + _varint_sizes(lengths))
            self._pieces.append((value, None))
        else:
            texts = [value] * len(self._block) if isinstance(value, bytes) else value
            self._block = [
                block + varint(len(text)) + text
                for block, text in zip(self._block, texts, strict=True)
            ]

    def _flush(self) -> None:
        lengths = np.array([len(block) for block in self._block])
        self.sizes += lengths.take(self._which)
        self._pieces.append((_binary_array(self._block), self._which))
        self._block = [b""] * len(self._block)

    def _put(self, piece: Packed, sizes: Int64s) -> None:
        self._pieces.append(piece)
        self.sizes += sizes

    def joined(self, own: pa.Array | None) -> pa.Array:
        """Headers sections, with the rows' ``own`` headers in front."""
        self._flush()
        counts = np.full(len(self._which), self._count, np.int64)
        front: list[Packed | tuple[pa.Array, Int64s | None]] = []
        if own is not None:
            own_counts, begin = _counts(own)
            counts += own_counts
            rest = _slices(own, begin, offsets_of(own)[1:])
            front.append((rest, None))
            self.sizes += lengths_of(rest)
        pieces = [pack(counts)[0], *front, *self._pieces]
        self.sizes += _varint_sizes(counts)
        gather = new_gather(len(counts) * len(pieces))
        for at, piece in enumerate(pieces):
            slots = slice(at, None, len(pieces))
            if isinstance(piece, Packed):
                gather.put_packed(slots, piece)
            else:
                gather.put_column(slots, *piece)
        offsets = ends_of(self.sizes)
        buffers = [None, pa.py_buffer(offsets), gather.join(int(offsets[-1]))]
        return pa.Array.from_buffers(pa.large_binary(), len(counts), buffers)


def _counts(sections: pa.Array) -> tuple[Int64s, Int64s]:
    """How many headers each section has, and where in the data its first one begins."""
    data, at = data_of(sections), offsets_of(sections)[:-1].astype(np.int64)
    counts, shift = np.zeros(len(at), np.int64), 0
    more = np.ones(len(at), np.bool_)
    while more.any():
        byte = np.where(more, data.take(at, mode="clip"), 0).astype(np.int64)
        counts |= (byte & 0x7F) << shift
        at, shift, more = at + more, shift + 7, more & (byte > 0x7F)
    return counts >> 1, at


def _slices(array: pa.Array, begin: Int64s, end: npt.NDArray[np.integer]) -> pa.Array:
    """Bytes ``begin[i]`` to ``end[i]`` of the data of ``array``, in order; nulls stay."""
    bounds = np.stack((begin, end), axis=1).reshape(-1).astype(np.int64)
    between = pa.Array.from_buffers(
        pa.large_binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), array.buffers()[2]]
    )
    valid = valid_of(array)
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    every_other = np.arange(0, len(bounds), 2)
    index = pa.Array.from_buffers(pa.int64(), len(array), [bits, pa.py_buffer(every_other)])
    return between.take(index)


def _binary_array(texts: Sequence[bytes]) -> pa.Array:
    # Not pa.array(), which imports pandas where there is one.
    offsets = pa.py_buffer(ends_of(np.array([len(text) for text in texts])))
    return pa.Array.from_buffers(
        pa.large_binary(), len(texts), [None, offsets, pa.py_buffer(b"".join(texts))]
    )


def _int64s(values: Int64s) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _varint_sizes(values: Int64s) -> Int64s:
    """Bytes of the varint of each length or count."""
    return VARINT_BOUNDS.searchsorted(values, side="right") + 1


def _taken(rows: RecordColumns, headers: _Headers) -> Int64s:
    """Bytes of each letter without its value, at most."""
    taken = headers.sizes + (_LENGTHS + _REST_OF_HEADERS)
    for part in (rows.key, rows.headers):
        if part is not None:
            taken = taken + lengths_of(part)
    return taken


def _texts(values: Int64s) -> pa.Array:
    """Each number in decimal."""
    return _int64s(np.ascontiguousarray(values)).cast(pa.string()).cast(pa.binary())
