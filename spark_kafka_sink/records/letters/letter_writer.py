"""Makes dead letters from rows that can't be sent. A dead letter is a record for another topic,
with the reason why the row can't be sent.

A dead letter has the row's key, value, timestamp and headers, as far as they can be sent. After the
row's own headers, the letter has headers about the error: Kafka Connect's headers
``__connect.errors.*``, and headers of this package. If the row already has a header with the same
name, both headers are kept, and the last one counts, as in Connect.

``bad_rows`` finds the rows. The caller sends the dead letters, and limits their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import RecordTooLargeError
from spark_kafka_sink.config.sink_config import DeadLetterOptions
from spark_kafka_sink.records.bad_rows.bad_rows import Finding
from spark_kafka_sink.records.gather import binary_of, integers, lengths_of, offsets_of, sizes_of
from spark_kafka_sink.records.letters.letter_fields import CONNECT, OURS
from spark_kafka_sink.records.letters.row_limits import RowLimits, outside
from spark_kafka_sink.records.record_columns import RecordColumns
from spark_kafka_sink.records.row_pieces import RowPieces
from spark_kafka_sink.records.varint import MAX_VARINT_BYTES, Int64s, pack, read_varint, sized

#: The values of a header: one value for all letters, a list with a value for each finding, or an
#: array with a value for each row.
_Value: TypeAlias = str | int | list[str] | pa.Array

#: The most bytes of a topic or another text in a header. No valid name of a topic has as many
#: bytes.
_MOST_OF_A_TOPIC = 1000
#: The last header of a letter, without its value.
_TRUNCATED = sized(f"{OURS}value.truncated".encode())
#: The bytes of the last header, and the bytes by which the lengths of headers, key and value can
#: grow.
_REST = len(_TRUNCATED) + len(sized(b"false")) + 1 + 2 * 5


@dataclass(frozen=True, slots=True)
class LetterWriter:
    """Makes dead letters from rows that can't be sent. A dead letter is a record for the
    dead-letter topic.

    ``options`` are the options for dead letters. ``limits`` are the limits of the producer and of
    the dead-letter topic. ``connector``, ``task`` and ``batch_id`` are written into headers.
    """

    options: DeadLetterOptions
    limits: RowLimits
    connector: str
    task: int
    batch_id: int

    def letters(
        self,
        rows: RecordColumns,
        which: Int64s,
        found: Sequence[Finding],
        numbers: Int64s,
        now_ms: int,
    ) -> RecordColumns:
        """Makes a dead letter from each row of ``rows``.

        * ``found[which[i]]``: the reason why row i of ``rows`` can't be sent.
        * ``numbers[i]``: the number of row i within the task.
        * ``now_ms``: the time now, in milliseconds since the epoch. It replaces a timestamp that
          the dead-letter topic would reject.

        The end of a value is cut off if the value is larger than the options or the limits allow.
        Raises RecordTooLargeError if the key and headers of a row are too large even without the
        value.
        """
        sizes = np.full(rows.rows, -1) if rows.value is None else sizes_of(rows.value)
        named = self._headers(rows, found, numbers, sizes)
        pieces = RowPieces(rows.rows)
        _begin_headers(pieces, rows.headers, len(named) + 1)
        for name, text in named:
            _add_header(pieces, sized(name.encode()), text, which)
        room = self.limits.most_content - (pieces.sizes() + _REST)
        if rows.key is not None:
            room -= lengths_of(rows.key)
        if (room < 0).any():
            row = int(np.argmax(room < 0))
            raise RecordTooLargeError(
                f"key and headers of row {numbers[row]} are {-room[row]} bytes more than "
                "kafka.max.request.size and that topic's max.message.bytes allow",
                hint="raise kafka.max.request.size, and max.message.bytes of that topic",
            )
        kept = np.minimum(sizes, np.minimum(room, self.options.max_value_bytes))
        cut, value = kept < sizes, rows.value
        if cut.any():
            begin = offsets_of(value)[:-1].astype(np.int64)
            value = _slices(value, begin, begin + np.maximum(kept, 0))
        _add_header(pieces, _TRUNCATED, ["false", "true"], cut.astype(np.int64))
        times = rows.timestamp
        if times is not None:
            times = np.where(outside(times, self.limits.topic, now_ms), now_ms, times)
        headers = binary_of(*pieces.joined())
        return RecordColumns(rows.rows, self.options.topic, None, rows.key, value, headers, times)

    def _headers(
        self, rows: RecordColumns, found: Sequence[Finding], numbers: Int64s, sizes: Int64s
    ) -> list[tuple[str, _Value]]:
        """The names and values of the headers about the error, except the header
        ``__kprod.errors.value.truncated``. ``sizes`` are the sizes of the rows' values in bytes.
        """
        # (``letters`` adds this header after it has cut the values. The sizes of all other headers
        # determine how much room is left for a value.)
        topic = rows.topic if isinstance(rows.topic, str) else asked_topics(rows.topic)
        reasons = [one.reason for one in found]
        exceptions = [f"org.apache.kafka.{one.of}.errors.{one.exception}" for one in reasons]
        made: list[tuple[str, _Value]] = [
            (f"{CONNECT}topic", topic),
            (f"{CONNECT}partition", -1 if rows.partition is None else _texts(rows.partition)),
            (f"{CONNECT}offset", -1),
            (f"{CONNECT}connector.name", self.connector),
            (f"{CONNECT}task.id", self.task),
            (f"{CONNECT}stage", [one.stage for one in reasons]),
            (f"{CONNECT}class.name", [f"spark_kafka_sink.{one.module}" for one in reasons]),
            (f"{CONNECT}exception.class.name", exceptions),
            (f"{CONNECT}exception.message", [one.text for one in found]),
            (f"{OURS}code", [one.kind.kp_code for one in reasons]),
            (f"{OURS}topic", topic),
            (f"{OURS}batch.id", self.batch_id),
            (f"{OURS}row", _texts(numbers)),
            (f"{OURS}value.size", _texts(sizes)),
        ]
        return [one for one in made if self.options.context_headers or one[0].startswith(OURS)]


def asked_topics(topic: pa.DictionaryArray) -> pa.Array:
    """Converts a topic column to the bytes of each row's topic. A topic of more than 1000 bytes is
    cut. Null for a row without a topic.
    """
    names = topic.dictionary.cast(pa.binary())
    return pc.binary_slice(names, 0, _MOST_OF_A_TOPIC).take(topic.indices)


def _begin_headers(pieces: RowPieces, own: pa.Array | None, added: int) -> None:
    """Appends the first pieces of each letter's headers: the number of headers, and then the
    headers of the row itself (``own``).

    The caller appends ``added`` more headers later. The number of headers counts both kinds.
    """
    counts = np.full(pieces.rows, added, np.int64)
    if own is None:
        pieces.add_packed(pack(counts))
    else:
        lengths = pc.binary_slice(own, 0, MAX_VARINT_BYTES).to_pylist()
        count, begin = np.array([read_varint(one, 0) for one in lengths]).T
        pieces.add_packed(pack(counts + count))
        pieces.add_column(_slices(own, offsets_of(own)[:-1] + begin, offsets_of(own)[1:]))


def _add_header(pieces: RowPieces, name: bytes, value: _Value, which: Int64s) -> None:
    if isinstance(value, pa.Array):
        pieces.add_choice([name], 0)
        pieces.add_packed(pack(lengths_of(value)))
        pieces.add_column(value)
    elif isinstance(value, list):
        pieces.add_choice([name + sized(text.encode()) for text in value], which)
    else:
        pieces.add_choice([name + sized(str(value).encode()[:_MOST_OF_A_TOPIC])], 0)


def _slices(array: pa.Array, begin: Int64s, end: npt.NDArray[np.integer]) -> pa.Array:
    """For each row i, the bytes ``begin[i]`` to ``end[i] - 1`` of the array's data buffer. Nulls
    stay null.
    """
    bounds = np.stack((begin, end), axis=1).reshape(-1)
    between = binary_of(bounds, array.buffers()[2])
    return between.take(pc.if_else(array.is_valid(), integers(np.arange(0, len(bounds), 2)), None))


def _texts(values: npt.NDArray[np.integer]) -> pa.Array:
    """Converts each number to decimal text."""
    return integers(values).cast(pa.string()).cast(pa.binary())
