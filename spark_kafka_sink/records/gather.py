"""Reads the buffers of Arrow columns as numpy arrays, and joins byte strings from many columns in
one buffer.

The functions return the lengths, offsets and nulls of binary columns, and the items of list
columns. :class:`Gather` joins byte strings in any order.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.records.varint import Packed, UInt64s

Indices = npt.NDArray[np.integer]
Slots = slice | npt.NDArray[np.integer]
#: A 64-bit word for each row, or one word for all rows.
Words = UInt64s | np.uint64
_INT32_MAX = 2**31 - 1
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
#: A string with at most this many bytes is stored in the view itself.
_INLINE = np.uint64(12)
#: The most views for which a thread keeps its memory (4 MiB). A chunk of 65 536 rows with key and
#: value has as many views.
_KEPT_VIEWS = 1 << 18
_LEARNED_BYTES = 8 << 20
#: The types with offsets of 8 bytes. The offsets of all other types have 4 bytes.
_LARGE = frozenset({pa.large_binary().id, pa.large_string().id, pa.large_list(pa.null()).id})
#: The id of the type pa.binary_view(), which old versions of Arrow do not have.
_VIEW = getattr(pa.lib, "Type_BINARY_VIEW", -1)
_WIDE, _NARROW = (np.dtype(np.int64), 8), (np.dtype(np.int32), 4)


def offsets_of(array: pa.Array) -> Indices:
    """The ``len(array) + 1`` offsets of an array of the type binary, string or list, or of their
    large variants.

    Returns an int32 or int64 array that shares the memory of ``array``. The offsets count from the
    start of the data buffer, even if ``array`` is a slice.
    """
    dtype, width = _WIDE if array.type.id in _LARGE else _NARROW
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(len(array) + 1, dtype)
    return np.frombuffer(buffer, dtype, len(array) + 1, array.offset * width)


def list_items(array: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Returns the items of all rows of a list or map array in one array, and an int64 array of
    offsets.

    Row i has the items ``offsets[i]`` to ``offsets[i + 1] - 1``. A null row has no items.
    """
    valid = valid_of(array)
    if valid is not None and (np.diff(offsets_of(array))[~valid] != 0).any():
        array = array.take(pa.array(np.arange(len(array))))  # without what nulls cover
    offsets = offsets_of(array).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    # Not .keys and .items of a map, which begin at the first row whatever the slice is.
    return array.values.slice(first, last - first), offsets - first


def data_of(array: pa.Array) -> npt.NDArray[np.uint8]:
    """The whole data buffer of a binary array, as a numpy array of bytes, without a copy. If the
    array is a slice, the buffer also has the bytes of other rows.
    """
    buffer = array.buffers()[2]
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def valid_of(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    """The mask of the values that are not null, with a boolean for each row. None if no value is
    null.
    """
    if array.null_count == 0:
        return None
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.bool_)
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    first = array.offset // 8
    flags = np.unpackbits(
        bits[first : (array.offset + len(array) + 7) // 8], bitorder="little"
    ).view(np.bool_)
    return flags[array.offset - first * 8 :][: len(array)]


def lengths_of(array: pa.Array) -> npt.NDArray[np.int64]:
    """The length of each value in bytes. The length of a null is 0, even if Arrow has bytes
    for it.
    """
    if array.type.id == _VIEW:
        lengths = _views_of(array).view(np.int32)[::4].astype(np.int64)
    else:
        offsets = offsets_of(array)
        lengths = np.subtract(offsets[1:], offsets[:-1], dtype=np.int64)
    valid = valid_of(array)
    if valid is not None:
        lengths *= valid
    return lengths


def sizes_of(array: pa.Array) -> npt.NDArray[np.int64]:
    """The length of each value in bytes. The length of a null is -1, as in Kafka's record
    format.
    """
    lengths, valid = lengths_of(array), valid_of(array)
    return lengths if valid is None else np.where(valid, lengths, -1)


def span_of(array: pa.Array) -> int:
    """An upper bound of the size of all values together, in bytes. This function reads only the
    first and the last offset, except for the view types of Arrow.
    """
    if array.type.id == _VIEW:
        return int(lengths_of(array).sum())
    offsets = offsets_of(array)
    return int(offsets[-1]) - int(offsets[0])


def filtered_views(array: pa.Array, kept: npt.NDArray[np.bool_]) -> pa.Array:
    """The entries of a binary array for which the mask ``kept`` is true. The result is a binary
    view array that shares the bytes with ``array``. If this version of Arrow can't cast views, the
    result is a copy with the type of ``array``.
    """
    if not VIEWS_WORK:
        return array.filter(bools(kept))
    array = _as_views(array)
    valid = valid_of(array)
    buffers = [_bits(None if valid is None else valid[kept]), pa.py_buffer(_views_of(array)[kept])]
    count = int(np.count_nonzero(kept))
    return pa.Array.from_buffers(array.type, count, [*buffers, *array.buffers()[2:]])


def _as_views(array: pa.Array) -> pa.Array:
    return array if array.type.id == _VIEW else _rebase_offsets(array).cast(pa.binary_view())


def _views_of(array: pa.Array) -> npt.NDArray[np.complex128]:
    """The 16-byte entries of a binary view array, as a numpy array. The numpy type is complex128,
    because numpy has no other type of 16 bytes.
    """
    return np.frombuffer(array.buffers()[1], np.complex128, len(array), array.offset * 16)


def ends_of(counts: npt.NDArray[np.number] | npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The running totals of ``counts``, with 0 in front: ``[2, 3]`` becomes ``[0, 2, 5]``. If
    ``counts`` are the lengths of strings, the result is Arrow's offsets of these strings.
    """
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


def binary_of(
    offsets: Indices, data: pa.Buffer, valid: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Creates a large binary array from ``offsets`` and ``data``. An entry is null if ``valid`` is
    false for it.
    """
    buffers = [_bits(valid), pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), data]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def binary_array(texts: Sequence[bytes]) -> pa.Array:
    """Creates a large binary array from ``texts``."""
    ends = ends_of(np.array([len(text) for text in texts]))
    return binary_of(ends, pa.py_buffer(b"".join(texts)))


def integers(
    values: npt.NDArray[np.integer], valid: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Converts a numpy array to Arrow integers. A value is null if ``valid`` is false for it.

    This function does not call pa.array(), which would import pandas if pandas is installed.
    """
    buffers = [_bits(valid), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def bools(flags: npt.NDArray[np.bool_]) -> pa.Array:
    """Converts a numpy mask to Arrow booleans, for example for ``filter``."""
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, _bits(flags)])


def _bits(valid: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


class Gather(Protocol):
    """Joins many byte strings in one buffer.

    The buffer consists of numbered *slots*. Strings are put into slots in any order. Each slot must
    be filled exactly once. :meth:`join` then joins the slots in the order of their numbers. In each
    method, ``slots`` is an array of slot numbers, or a slice.
    """

    def put_packed(self, slots: Slots, parts: Packed) -> None:
        """Puts a string of at most 8 bytes into each of ``slots``. ``parts`` has a string for each
        slot, or one string for all slots.
        """
        ...

    def put_packed_pair(self, slots: Slots, first: Packed, second: Packed) -> None:
        """Fills each of ``slots`` with a string of ``first``, followed by a string of ``second``.
        The two strings together have at most 12 bytes.
        """
        ...

    def put_column(self, slots: Slots, array: pa.Array, rows: Indices | None) -> None:
        """Puts the entry ``rows[i]`` of a binary column into slot i of ``slots``. If ``rows`` is
        None, puts entry i into this slot. A null becomes an empty string.
        """
        ...

    def join(self, size: int) -> pa.Buffer:
        """Joins all slots in one buffer. ``size`` is the total size in bytes."""
        ...


class _Scratch(threading.local):
    """Memory for binary views. Each thread has its own memory, and uses it again and again. New
    memory for each chunk would be slower, because the operating system would have to provide new
    pages.
    """

    def __init__(self) -> None:
        self._views = np.empty(0, np.complex128)
        # Never written, so it costs nothing; but glibc learns from the first large block that is
        # freed, and keeps memory up to that size instead of returning it to the system each time.
        np.empty(_LEARNED_BYTES, np.uint8)

    def views(self, count: int) -> npt.NDArray[np.complex128]:
        if count > _KEPT_VIEWS:
            return np.empty(count, np.complex128)
        if len(self._views) < count:
            self._views = np.empty(count, np.complex128)
        return self._views[:count]


_scratch = _Scratch()


# A binary view array has an entry of 16 bytes for each string. The entry has the string itself if
# that has up to 12 bytes, and otherwise a buffer's index and an offset. The entries are put into
# the wanted order. Then one cast to binary copies all strings, in about 4 ns for each string. Arrow
# has this cast since about version 20.
class ViewGather:
    """A :class:`Gather` that builds Arrow binary views. Only :meth:`join` copies bytes: it casts
    the views to binary.

    All instances of a thread use the same memory for the views. So a thread must call :meth:`join`
    of one instance before it creates the next.
    """

    def __init__(self, slots: int) -> None:
        self._views = _scratch.views(slots)
        self._words = self._views.view(np.uint64).reshape(-1, 2)
        self._data: list[pa.Buffer] = []

    def put_packed(self, slots: Slots, parts: Packed) -> None:
        self._put_inline(slots, parts.word, None, parts.size)

    def put_packed_pair(self, slots: Slots, first: Packed, second: Packed) -> None:
        low, high = _joined(first, second)
        self._put_inline(slots, low, high, first.size + second.size)

    def _put_inline(self, slots: Slots, low: Words, high: Words | None, size: Words) -> None:
        self._words[slots, 0] = low << _32 | size
        self._words[slots, 1] = low >> _32 if high is None else low >> _32 | high << _32

    def put_column(self, slots: Slots, array: pa.Array, rows: Indices | None) -> None:
        as_views = _as_views(array)
        buffers, views = as_views.buffers(), _views_of(as_views)
        valid = valid_of(array)
        if rows is not None:
            views = views.take(rows)
            valid = None if valid is None else valid.take(rows)
        if self._data and len(buffers) > 2:
            if rows is None:
                views = views.copy()
            words = views.view(np.uint64).reshape(-1, 2)
            added = np.uint64(len(self._data))
            outside = (words[:, 0] & _LOW) > _INLINE
            words[:, 1] += added if outside.all() else outside * added
        self._data.extend(buffers[2:])
        self._views[slots] = views if valid is None else np.where(valid, views, 0)

    def join(self, size: int) -> pa.Buffer:
        views = pa.Array.from_buffers(
            pa.binary_view(), len(self._views), [None, pa.py_buffer(self._views), *self._data]
        )
        joined = views.cast(pa.binary() if size <= _INT32_MAX else pa.large_binary())
        return joined.buffers()[2] or pa.py_buffer(b"")


class TakeGather:
    """A :class:`Gather` for versions of Arrow that can't cast views. It copies all bytes into one
    buffer, and then uses Arrow's ``take``.
    """

    def __init__(self, slots: int) -> None:
        self._index = np.empty(slots, np.int64)
        # Element 0 of the pool is empty: that is where nulls point.
        self._offsets: list[npt.NDArray[np.int64]] = [np.zeros(1, np.int64)]
        self._bytes: list[npt.NDArray[np.uint8]] = []
        self._elements = 1
        self._size = 0

    def put_packed(self, slots: Slots, parts: Packed) -> None:
        self._put_words(slots, parts.word, None, parts.size)

    def put_packed_pair(self, slots: Slots, first: Packed, second: Packed) -> None:
        low, high = _joined(first, second)
        self._put_words(slots, low, high, first.size + second.size)

    def _put_words(self, slots: Slots, low: Words, high: Words | None, size: Words) -> None:
        count = len(self._index[slots])
        width = 1 if high is None else 2
        words = np.empty((count, width), np.uint64)
        words[:, 0] = low
        if high is not None:
            words[:, 1] = high
        # Elements alternate: the string, then the unused rest of its words.
        offsets = np.empty((count, 2), np.int64)
        offsets[:, 0] = self._size + np.arange(count) * (8 * width)
        offsets[:, 1] = offsets[:, 0] + size.view(np.int64)
        self._index[slots] = self._elements + np.arange(count) * 2
        self._add(offsets.reshape(-1), words.view(np.uint8).reshape(-1))

    def put_column(self, slots: Slots, array: pa.Array, rows: Indices | None) -> None:
        offsets = offsets_of(array)
        first, last = int(offsets[0]), int(offsets[-1])
        index = np.arange(len(array)) if rows is None else rows
        valid = valid_of(array)
        if valid is None:
            self._index[slots] = index + self._elements
        else:
            self._index[slots] = np.where(valid.take(index), index + self._elements, 0)
        self._add(offsets.astype(np.int64) + (self._size - first), data_of(array)[first:last])

    def _add(self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> None:
        self._offsets.append(offsets)
        self._bytes.append(data)
        self._elements += len(offsets)
        self._size += len(data)

    def join(self, size: int) -> pa.Buffer:
        offsets = np.concatenate([*self._offsets, np.array([self._size])])
        data = np.concatenate(self._bytes) if self._bytes else np.empty(0, np.uint8)
        small = max(self._size, size) <= _INT32_MAX
        pool = pa.Array.from_buffers(
            pa.binary() if small else pa.large_binary(),
            len(offsets) - 1,
            [
                None,
                pa.py_buffer(offsets.astype(np.int32) if small else offsets),
                pa.py_buffer(data),
            ],
        )
        joined = pc.take(pool, pa.array(self._index), boundscheck=False)
        return joined.buffers()[2] or pa.py_buffer(b"")


def _rebase_offsets(array: pa.Array) -> pa.Array:
    """Returns an array with the same values that can be cast to an Arrow view array
    (``binary_view``). A view refers to its bytes by an offset into the data buffer. This offset has
    only 31 bits, so the data buffer must have less than 2 GiB.

    * If the data buffer of ``array`` has less than 2 GiB, the result is ``array`` itself.
    * If the data buffer is larger, ``array`` is usually a slice that uses only a part of it. The
      data buffer of the result is this part: it begins at the first byte that ``array`` uses, and
      ends after the last. No value is copied.

    The used part of a ``binary`` array always has less than 2 GiB, because its offsets have 31
    bits. If a ``large_binary`` array uses more, the data buffer of the result is too large, too.
    Then Arrow refuses the cast.
    """
    data = array.buffers()[2]
    if data is None or data.size <= _INT32_MAX:
        return array
    offsets = offsets_of(array)
    first, last = int(offsets[0]), int(offsets[-1])
    return pa.Array.from_buffers(
        array.type,
        len(array),
        [_bits(valid_of(array)), pa.py_buffer(offsets - first), data.slice(first, last - first)],
    )


def _joined(first: Packed, second: Packed) -> tuple[Words, Words]:
    """Joins ``first`` and ``second`` to at most 16 bytes. Returns them as two 64-bit integers: the
    lower 8 bytes, and the upper 8 bytes.
    """
    # numpy shifts by 64 to zero, which is right for an empty ``first``.
    return (first + second).word, second.word >> (np.uint64(64) - (first.size << np.uint64(3)))


def _views_work() -> bool:
    # Not pa.array(): it imports pandas where there is one, half a second in every worker process.
    offsets = pa.py_buffer(np.array([0, 16], np.int32))
    array = pa.Array.from_buffers(
        pa.binary(), 1, [None, offsets, pa.py_buffer(b"0123456789abcdef")]
    )
    try:
        views = array.cast(pa.binary_view())
        return bool(views.cast(pa.binary()).to_pylist() == [b"0123456789abcdef"])
    except (AttributeError, pa.ArrowException, TypeError):
        return False


VIEWS_WORK = _views_work()


def new_gather(slots: int) -> Gather:
    """Creates the fastest kind of :class:`Gather` that this version of Arrow supports."""
    return ViewGather(slots) if VIEWS_WORK else TakeGather(slots)
