"""Converts Arrow columns to the types that Kafka needs.

:class:`RecordColumns` has the topic, partition, key, value, headers and timestamp of many rows.
:func:`from_record_batch` converts an Arrow batch to RecordColumns, without a loop over rows. It
also finds rows that can't be sent.

``column_plan`` has the roles of the columns. After the conversion, ``partitioners`` chooses the
partitions, and ``record_encoder`` encodes the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import safe_text
from spark_kafka_sink.base.topic_name import VALID_NAME, checked_topic_name
from spark_kafka_sink.config.named_columns import OnNullValue
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Mask, Reason
from spark_kafka_sink.records.column_plan import ColumnPlan as ColumnPlan  # noqa: PLC0414 - for callers
from spark_kafka_sink.records.gather import (
    bools,
    ends_of,
    filtered_views,
    integers,
    lengths_of,
    span_of,
    valid_of,
)
from spark_kafka_sink.records.record_headers import check_headers, encode_headers

#: The default limit of a chunk's input bytes. The rows of a chunk are encoded together (rule R5).
CHUNK_BYTES = 4 * 1024 * 1024
#: The default limit of a chunk's rows. Short rows cost memory beyond their bytes. The arrays of
#: more rows do not fit into the cache (measured: 65 536 rows of 10 bytes are encoded at half the
#: rate).
CHUNK_ROWS = 32768

_NULL_TOPIC = (
    "The Kafka message data sent to the producer contains a null topic."
    " Use the `topic` option for setting a default topic."
)
_NULL_KEY = (
    "a null key, and the topic is compacted (cleanup.policy): brokers refuse a record without one",
    "key",
    (
        "give each row a key, or filter rows without one; preflight=off writes without this look at"
        " the topic"
    ),
)
_NULL_KEY_OF_CHANGE = (
    "a null key, and a later change of the row would not find the record (changelog)",
    "key",
    "name the table's primary key in keyColumns, or filter rows without one",
)
_NULL_VALUE = (
    "a null value, and onNullValue is error",
    "value",
    "onNullValue=tombstone writes it, onNullValue=skip leaves the row out and counts it",
)
_LOG_TOPIC = "the topic is the commit log's, which takes no rows"
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """The limits of a chunk. A chunk is the rows that the producer encodes together.

    * ``max_rows``: the most rows of a chunk.
    * ``max_bytes``: the most bytes of a chunk before encoding.
    * ``wanted_rows``: from this number of rows on, the encoding is efficient. Fewer rows should be
      joined with the next rows.
    """

    max_rows: int = CHUNK_ROWS
    max_bytes: int = CHUNK_BYTES
    wanted_rows: int = 1


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Many records as columns. Every array has ``rows`` entries. Immutable.

    * ``topic``: one name for all rows, or a dictionary<int32, string> array without nulls.
    * ``partition``: int32. -1 means that the partitioner chooses the partition of the row. None
      means that the partitioner chooses the partitions of all rows.
    * ``key``, ``value``: binary or large_binary. None if all keys or all values are null. After
      :meth:`filter`, values and headers can be views (binary_view).
    * ``headers``: the encoded headers section of each row: the number of headers as a varint, and
      the headers. None if no row has headers.
    * ``timestamp``: int64 milliseconds since the epoch. None means that each row gets the time of
      sending.
    * ``first_row``: the index of the first row in its Arrow batch, for messages.
    """

    rows: int
    topic: str | pa.DictionaryArray
    partition: npt.NDArray[np.int32] | None = None
    key: pa.BinaryArray | pa.LargeBinaryArray | None = None
    value: pa.BinaryArray | pa.LargeBinaryArray | None = None
    headers: pa.BinaryArray | pa.LargeBinaryArray | None = None
    timestamp: npt.NDArray[np.int64] | None = None
    first_row: int = 0

    def topics(self) -> list[str]:
        """The names of all topics, each once, in the order of their first rows."""
        if isinstance(self.topic, str):
            return [self.topic]
        used = pc.unique(self.topic.indices).to_pylist()
        names = self.topic.dictionary.to_pylist()
        return [names[i] for i in used]

    def slice(self, offset: int, length: int) -> RecordColumns:
        """A part of the rows, without a copy: ``length`` is the number of rows, and ``offset`` is
        the index of the first row.
        """
        end = offset + length
        return RecordColumns(
            rows=length,
            topic=self.topic if isinstance(self.topic, str) else self.topic.slice(offset, length),
            partition=None if self.partition is None else self.partition[offset:end],
            key=None if self.key is None else self.key.slice(offset, length),
            value=None if self.value is None else self.value.slice(offset, length),
            headers=None if self.headers is None else self.headers.slice(offset, length),
            timestamp=None if self.timestamp is None else self.timestamp[offset:end],
            first_row=self.first_row + offset,
        )

    def take(self, rows: npt.NDArray[np.int64]) -> RecordColumns:
        """A copy of the rows with the indexes ``rows``, in the order of ``rows``. In the copy, the
        dictionary of ``topic`` contains only the topics of these rows.
        """
        index = integers(rows)
        return self._picked(rows, lambda column: without_views(column).take(index))

    def filter(self, kept: Mask) -> RecordColumns:
        """The rows for which ``kept`` is true. This method does not copy values and headers, unlike
        :meth:`take`.
        """
        flags = bools(kept)
        return self._picked(
            kept, lambda column: column.filter(flags), lambda column: filtered_views(column, kept)
        )

    def _picked(
        self,
        rows: npt.NDArray[np.int64] | Mask,
        pick: Callable[[pa.Array], pa.Array],
        pick_large: Callable[[pa.Array], pa.Array] | None = None,
    ) -> RecordColumns:
        pick_large = pick_large or pick
        topic = self.topic
        if not isinstance(topic, str):
            topic = _used_topics(topic.dictionary, pick(topic.indices))
        return RecordColumns(
            rows=int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows),
            topic=topic,
            partition=None if self.partition is None else self.partition[rows],
            key=None if self.key is None else pick(self.key),
            value=None if self.value is None else pick_large(self.value),
            headers=None if self.headers is None else pick_large(self.headers),
            timestamp=None if self.timestamp is None else self.timestamp[rows],
            first_row=self.first_row,
        )

    def input_bytes(self) -> npt.NDArray[np.int64]:
        """The size of key, value and headers of each row, in bytes."""
        total = np.zeros(self.rows, np.int64)
        for column in (self.key, self.value, self.headers):
            if column is not None:
                total += lengths_of(column)
        return total

    def span_bytes(self) -> int:
        """An upper bound of the size of all keys, values and headers together, in bytes. For most
        Arrow types, this method does not look at each row.
        """
        columns = (self.key, self.value, self.headers)
        return sum(span_of(column) for column in columns if column is not None)

    def payload_bytes(self) -> int:
        """The total size of all keys and values, in bytes."""
        columns = (column for column in (self.key, self.value) if column is not None)
        return sum(int(lengths_of(column).sum()) for column in columns)

    def chunks(self, size: ChunkSize) -> Iterator[RecordColumns]:
        """Yields consecutive rows in parts, each within the limits of ``size``. A row with more
        bytes than ``size.max_bytes`` is the only row of its part.
        """
        if 0 < self.rows <= size.max_rows and self.span_bytes() <= size.max_bytes:
            yield self  # as most are, after small batches were joined
            return
        ends = self.input_bytes().cumsum()
        start = taken = 0
        while start < self.rows:
            fits = int(ends.searchsorted(taken + size.max_bytes, side="right"))
            end = min(max(fits, start + 1), start + size.max_rows)
            yield self.slice(start, end - start)
            start, taken = end, int(ends[end - 1])


def _used_topics(names: pa.Array, indices: pa.Array) -> pa.DictionaryArray:
    """Creates the topic column from names and indices. Names that no row has are removed, because
    such a name can be invalid.
    """
    numbers = indices.to_numpy()
    used = np.bincount(numbers, minlength=len(names)) > 0
    # Its new number is the number of used names before it.
    numbers = (ends_of(used)[:-1].astype(np.int32)).take(numbers)
    return pa.DictionaryArray.from_arrays(integers(numbers), names.filter(bools(used)))


def from_record_batch(
    batch: pa.RecordBatch, plan: ColumnPlan, now_ms: int, bad: BadRows | None = None
) -> RecordColumns:
    """Converts the rows of ``batch`` to RecordColumns. Strings and binaries are not copied.

    If options such as ``keyColumns`` name columns, the caller must first build the keys, values and
    headers from these columns (``records/formats/composed_columns.py``). A row with a null
    timestamp gets ``now_ms``, in ms since the epoch.

    A row can't be sent in these cases:

    * The topic is null, invalid, or the topic of a commit log.
    * The partition is negative.
    * The timestamp is negative or too large.
    * The timestamp is a bigint, and is before 1980 if it is read as milliseconds. Such a bigint is
      probably in seconds.
    * A header is null, or has a null key.
    * The key or value is null, and ``plan`` does not allow this.

    Such rows are added to ``bad``. If ``bad`` is None, raises DataError for one of these rows. The
    error names the column and the row.

    The result still has the rows in ``bad``, because their dead letters need the key, value, topic,
    partition and valid headers. An invalid timestamp is a negative number in the result.
    """
    assert not plan.names_columns, "the caller composes them"
    bad = bad or BadRows(None)
    topic = _topic(_column(batch, plan.topic_column), plan, bad)
    bad.topic = topic if isinstance(topic, str) else "of the row"
    if plan.keys_required:
        said = _NULL_KEY if plan.changes is None else _NULL_KEY_OF_CHANGE
        _refuse_nulls(_column(batch, plan.key_column), bad, Reason.NULL_KEY, *said)
    if plan.on_null_value is OnNullValue.ERROR:
        _refuse_nulls(_column(batch, plan.value_column), bad, Reason.NULL_VALUE, *_NULL_VALUE)
    return RecordColumns(
        rows=batch.num_rows,
        topic=topic,
        partition=_partition(_column(batch, plan.partition_column), bad),
        key=_binary(_column(batch, plan.key_column)),
        value=_binary(_column(batch, plan.value_column)),
        headers=_headers(_column(batch, plan.headers_column), bad),
        timestamp=_timestamp(_column(batch, plan.timestamp_column), now_ms, bad),
    )


def rows_with_value(
    batch: pa.RecordBatch, plan: ColumnPlan
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64] | None]:
    """Drops the rows with a null value, for ``onNullValue=skip``. Returns the other rows as a
    batch, and their indexes in ``batch``.

    If no value is null, returns ``batch`` itself and None.
    """
    index = plan.value_column if plan.value is None else plan.value.columns[0].index
    column = _column(batch, index)
    if column is None or column.null_count == 0:
        return batch, None
    numbers = (~_nulls(column)).nonzero()[0]
    return rows_of(batch, numbers), numbers


def rows_of(batch: pa.RecordBatch, numbers: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Copies the rows of ``batch`` with the indexes ``numbers``, in the order of ``numbers``."""
    index = integers(numbers)
    columns = [without_views(one).take(index) for one in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def without_views(column: pa.Array) -> pa.Array:
    """Converts a column of one of Arrow's view types to the type without views, because Arrow's
    ``take`` does not support views.
    """
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(column.type) else column


def _refuse_nulls(
    column: pa.Array | None, bad: BadRows, reason: Reason, text: str, name: str, hint: str
) -> None:
    if column is not None and column.null_count:
        bad.refuse(_nulls(column), reason, text, name, hint)


def _nulls(column: pa.Array) -> Mask:
    nulls: Mask = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _column(batch: pa.RecordBatch, index: int | None) -> pa.Array | None:
    if index is None:
        return None
    column = batch.column(index)
    # A dictionary is only an encoding of a column; topics are encoded again, later.
    return _decoded(column) if isinstance(column, pa.DictionaryArray) else column


def _decoded(column: pa.DictionaryArray) -> pa.Array:
    values = column.dictionary
    try:
        return values.take(column.indices)
    except pa.ArrowInvalid:
        # More than 2 GiB once written out: 64-bit offsets take it.
        return values.cast(pa.large_binary()).take(column.indices)


def _binary(column: pa.Array | None) -> pa.Array | None:
    """Converts any array of strings or bytes to binary or large_binary. Returns None if all values
    are null.
    """
    if column is None or column.null_count == len(column):
        return None
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    if pa.types.is_large_string(column.type):
        return column.cast(pa.large_binary())
    if pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    try:
        return column.cast(pa.binary())
    except pa.ArrowInvalid:
        return column.cast(pa.large_binary())  # views may hold more than 2 GiB together


def _topic(column: pa.Array | None, plan: ColumnPlan, bad: BadRows) -> str | pa.DictionaryArray:
    if plan.topic is not None:
        return plan.topic
    if column is None or (column.null_count == len(column) and len(column) == 0):
        return ""  # no rows, or a plan without any topic, which the driver refuses
    if column.null_count:
        bad.refuse(_nulls(column), Reason.NULL_TOPIC, _NULL_TOPIC)
        column = column.cast(pa.string()).fill_null("")
    encoded = column.cast(pa.string()).dictionary_encode()
    for index in range(len(encoded.dictionary)):
        _check_topic_name(encoded, index, plan.log_topics, bad)
    return encoded if len(encoded.dictionary) > 1 else _only_name(encoded)


def _only_name(encoded: pa.DictionaryArray) -> str | pa.DictionaryArray:
    try:
        return str(encoded.dictionary[0].as_py())
    except UnicodeDecodeError:
        return encoded


def _check_topic_name(
    encoded: pa.DictionaryArray, index: int, log_topics: tuple[str, ...], bad: BadRows
) -> None:
    """If the topic ``encoded.dictionary[index]`` has an invalid name or is a commit log, refuses
    the rows with this topic. Without this check a broker would return an error, but only after a
    wait, and the error would not name the row.
    """
    reason, hint = Reason.TOPIC_NAME, VALID_NAME
    try:
        name = str(encoded.dictionary[index].as_py())
        checked_topic_name(name)
    except UnicodeDecodeError:
        # Spark's strings are bytes: a cast from binary checks nothing.
        name, broken = "", "Topic name is invalid: it is not UTF-8"
    except ValueError as error:
        broken = str(error)
    else:
        if name not in log_topics:
            return
        reason, broken, hint = Reason.COMMIT_LOG, _LOG_TOPIC, "give the row another topic"
    rows, bad.topic = encoded.indices.to_numpy() == index, safe_text(name, 60)
    bad.refuse(rows, reason, broken, "topic", hint)


def _partition(column: pa.Array | None, bad: BadRows) -> npt.NDArray[np.int32] | None:
    if column is None or column.null_count == len(column):
        return None
    valid = valid_of(column)
    numbers = column.fill_null(0) if column.null_count else column
    partition = numbers.cast(pa.int32()).to_numpy()
    negative = partition < 0
    # An error is about its first row, a letter's message about all of them.
    what = f"{int(partition[np.argmax(negative)])}" if bad.raises else "it is negative"
    bad.refuse(
        negative,
        Reason.PARTITION,
        f"Invalid partition: {what}. Partition number should always be non-negative or null.",
        "partition",
        "null lets the partitioner decide",
    )
    return partition if valid is None else np.where(valid, partition, np.int32(-1))


#: The beginning of 1980 in milliseconds since 1970. As seconds, the number means the year 11969. So
#: a smaller number is probably in seconds.
_YEAR_1980_MS = 315_532_800_000
#: The number of each unit in a millisecond. (Seconds are multiplied elsewhere.)
_UNITS = {"us": 1_000, "ns": 1_000_000}


def _timestamp(column: pa.Array | None, now_ms: int, bad: BadRows) -> npt.NDArray[np.int64] | None:
    if column is None or len(column) == 0 or pa.types.is_null(column.type):
        return None
    valid = valid_of(column)
    filled = pa.types.is_timestamp(column.type)
    raw = column.view(pa.int64()) if filled else column.cast(pa.int64())
    ticks = (raw.fill_null(0) if raw.null_count else raw).to_numpy()
    bad.refuse(
        ticks < 0,
        Reason.TIMESTAMP,
        "Invalid timestamp: it lies before 1970-01-01. Timestamp should always be non-negative or"
        " null.",
        "timestamp",
        "null lets the producer take the time of sending",
    )
    unit = column.type.unit if filled else "ms"
    if not filled:
        ticks = _without_seconds(ticks, valid, bad)
    elif unit == "s":
        late = ticks > (2**63 - 1) // 1000
        text = "does not fit into 64 bits of milliseconds"
        bad.refuse(late, Reason.TIMESTAMP, text, "timestamp")
        ticks = np.where(late, -1, ticks) * 1000
    millis = ticks // _UNITS[unit] if unit in _UNITS else ticks
    return millis if valid is None else np.where(valid, millis, np.int64(now_ms))


def _without_seconds(
    ticks: npt.NDArray[np.int64], valid: Mask | None, bad: BadRows
) -> npt.NDArray[np.int64]:
    """Refuses the rows with a timestamp that is probably in seconds: a number that means a time
    before 1980 if it is read as milliseconds. Returns the timestamps in milliseconds, with -1 for
    these rows.
    """
    # If seconds were read as milliseconds, the record would have a timestamp in January 1970, and
    # brokers would soon delete the record.
    early = (ticks >= 0) & (ticks < _YEAR_1980_MS)
    if valid is not None:
        early &= valid
    if not early.any():
        return ticks
    bad.refuse(
        early,
        Reason.TIMESTAMP,
        "Invalid timestamp: a bigint holds milliseconds, and this one lies before 1980. Is it in"
        " seconds?",
        "timestamp",
        "write timestamp_seconds(timestamp) for seconds, timestamp_millis(timestamp) for a time"
        " before 1980; or set timestampColumn=ignore for the time of sending",
    )
    return np.where(early, -1, ticks)


def _headers(column: pa.Array | None, bad: BadRows) -> pa.Array | None:
    if column is None or column.null_count == len(column):
        return None
    if pa.types.is_map(column.type):
        # Not .keys and .items, which begin at the first row of a sliced map.
        key, value, element = column.values.field(0), column.values.field(1), None
    else:
        element = column.values
        key, value = element.field("key"), element.field("value")
    unsendable = check_headers(column, key, element, bad)
    return encode_headers(column, _whole_binary(key), _whole_binary(value), unsendable)


def _whole_binary(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.DictionaryArray):
        column = _decoded(column)
    empty = pa.types.is_null(column.type)
    found = None if empty else _binary(column)
    return pa.nulls(len(column), pa.binary()) if found is None else found
