"""Reads the bytes of a broker's response with limited memory. All decoders of ``protocol`` use this
module.

* :class:`WireReader` reads fields, and does not know their meaning.
* :class:`WireArray` is an array that is kept as bytes. An item is created when a caller reads it,
  because an object can need 300 bytes for an item of 18 bytes.
* :func:`decoding` converts every error in the bytes to a RemoteProtocolError.

Memory is allocated only for bytes that have arrived. A response needs at most four times its own
size, plus 64 KiB, plus some memory for each item of the request. The time for decoding is
proportional to the number of bytes. Tests measure this (``tests/protocol/test_hostile_answers.py``;
for the decoders alone, ``test_generated_messages.py``).
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Final, Never, TypeVar, overload

from spark_kafka_sink.base.errors import ErrorCode, RemoteProtocolError
from spark_kafka_sink.protocol.cluster import Node

T = TypeVar("T")
U = TypeVar("U")
T_co = TypeVar("T_co", covariant=True)

INT8: Final = struct.Struct(">b")
INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")

# Ready-made layouts for what nearly every array of ids is.
_FEW: Final = 8
_FEW_INT32: Final = [struct.Struct(f">{count}i") for count in range(_FEW)]
#: The end offset of an array with at least this many items is cached, so that it is computed once.
#: A cache entry is smaller than the bytes of the items.
_MANY: Final = 256

_CODES: Final = {code.value: code for code in ErrorCode}
#: The value for "no UUID".
ZERO_UUID: Final = bytes(16)
_LARGEST_PORT: Final = 65535
#: The longest string of Kafka's protocol (MessageGenerator writes the same check into Java's).
_LONGEST_STRING: Final = 0x7FFF
#: Responses up to this size are copied once, because bytes are quicker to read than a view.
_COPIED: Final = 16 * 1024
#: A DNS name has at most 253 characters; an address in brackets with a zone fits, too.
_LONGEST_HOST: Final = 255


class MalformedError(Exception):
    """The bytes of a response are malformed. The message contains none of these bytes. Only
    ``protocol`` uses this error: its callers get a RemoteProtocolError.
    """


def error_of(code: int) -> ErrorCode:
    """Returns the ErrorCode for a number in a response. Returns UNKNOWN_SERVER_ERROR if this
    package does not know the number.
    """
    return _CODES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


class WireReader:
    """Reads the fields of one response, one after another.

    Flexible versions have compact lengths and tagged fields. If the bytes end too early or break a
    rule, every method raises MalformedError, struct.error, IndexError or UnicodeDecodeError.
    :func:`decoding` raises RemoteProtocolError in place of these errors.
    """

    __slots__ = ("_end", "_ends", "data", "flexible", "position")

    def __init__(
        self,
        data: bytes | memoryview,
        *,
        flexible: bool,
        position: int = 0,
        ends: dict[int, int] | None = None,
    ) -> None:
        self.data = data
        self.flexible = flexible
        self.position = position
        self._end = len(data)
        #: The ends of large arrays, by their begin.
        self._ends = {} if ends is None else ends

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """Reads several integers of fixed sizes."""
        values: tuple[int, ...] = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return values

    def int8(self) -> int:
        return self.unpack(INT8)[0]

    def int16(self) -> int:
        return self.unpack(INT16)[0]

    def int32(self) -> int:
        return self.unpack(INT32)[0]

    def int64(self) -> int:
        return self.unpack(INT64)[0]

    def boolean(self) -> bool:
        return self.unpack(INT8)[0] != 0

    def uuid(self) -> bytes:
        start = self.position
        self.skip(16)
        return bytes(self.data[start : self.position])

    def skip(self, size: int) -> None:
        """Skips the next ``size`` bytes."""
        end = self.position + size
        if not self.position <= end <= self._end:
            raise MalformedError("a field is longer than the answer")
        self.position = end

    def unsigned_varint(self) -> int:
        """Reads an unsigned varint of at most five bytes and 32 bits."""
        data, position = self.data, self.position
        value = data[position]
        position += 1
        if value >= 0x80:
            value &= 0x7F
            for shift in (7, 14, 21, 28):
                byte = data[position]
                position += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
            else:
                raise MalformedError("a varint is longer than five bytes")
            if value > 0xFFFFFFFF:
                raise MalformedError("a varint is larger than 32 bits")
        self.position = position
        return value

    def nullable_string(self) -> str | None:
        size = self.unsigned_varint() - 1 if self.flexible else self.int16()
        if size < 0:
            if size != -1:
                raise MalformedError("a string's length is negative")
            return None
        if size > _LONGEST_STRING:
            raise MalformedError("a string is longer than 32767 bytes")
        start = self.position
        end = start + size
        if end > self._end:
            raise MalformedError("a field is longer than the answer")
        self.position = end
        return str(self.data[start:end], "utf-8")

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise MalformedError("a string that must be there is null")
        return text

    def skip_string(self) -> None:
        """Skips a string, null or not, without decoding it."""
        if self.flexible and (length := self.data[self.position]) < 0x80:
            # A length is encoded plus one, which is the size of the length itself; 0 is null.
            end = self.position + (length or 1)
            if end > self._end:
                raise MalformedError("a field is longer than the answer")
            self.position = end
            return
        size = self.unsigned_varint() - 1 if self.flexible else self.int16()
        if size > 0:
            self.skip(size)
        elif size < -1:
            raise MalformedError("a string's length is negative")

    def view(self) -> memoryview:
        """Reads a field of type bytes or records, as a view of the response without a copy. A null
        field becomes an empty view.
        """
        start = self._skip_bytes()
        return memoryview(self.data)[start : self.position]

    def byte_string(self) -> bytes:
        """Reads a field of type bytes. A null field becomes an empty ``bytes`` object, because some
        brokers send null together with an error.
        """
        start = self._skip_bytes()
        return bytes(self.data[start : self.position])

    def skip_bytes(self) -> None:
        self._skip_bytes()

    def _skip_bytes(self) -> int:
        """Skips a field of type bytes. Returns the position at which its content begins."""
        size = self.unsigned_varint() - 1 if self.flexible else self.int32()
        if size < -1:
            raise MalformedError("a size of bytes is negative")
        start = self.position
        self.skip(max(0, size))
        return start

    def structs(
        self,
        smallest_item: int,
        read: Callable[[WireReader, int], T],
        skip: Callable[[WireReader, int], object],
        version: int,
    ) -> WireArray[T]:
        """Reads an array of structs, which is kept as bytes: this method only skips the items. An
        item is decoded each time a caller reads it.

        ``read`` decodes an item, and ``skip`` skips an item. ``smallest_item`` is the smallest size
        of an item in bytes.
        """
        count = self.count(smallest_item)
        start = self.position
        self._skip_items(count, skip, version)
        return WireArray(
            self.data, start, count, read, version, flexible=self.flexible, ends=self._ends
        )

    def skip_structs(
        self, smallest_item: int, skip: Callable[[WireReader, int], object], version: int
    ) -> None:
        self._skip_items(self.count(smallest_item), skip, version)

    def _skip_items(
        self, count: int, skip: Callable[[WireReader, int], object], version: int
    ) -> None:
        start = self.position
        end = self._ends.get(start) if count >= _MANY else None
        if end is not None:
            self.position = end
            return
        for _ in range(count):
            skip(self, version)
        if count >= _MANY:
            self._ends[start] = self.position

    def strings(self) -> WireArray[str]:
        """Reads an array of strings, which is kept as bytes. A string is decoded each time a caller
        reads it.
        """
        return self.structs(1, _read_string, _skip_string, 0)

    def count(self, smallest_item: int) -> int:
        """Reads the number of items of an array. Raises an error if the remaining bytes are too few
        for so many items of at least ``smallest_item`` bytes.

        A null array becomes 0, because no caller needs the difference.
        """
        count = self.unsigned_varint() - 1 if self.flexible else self.int32()
        if count < 0:
            if count != -1:
                raise MalformedError("an array's count is negative")
            return 0
        if count * smallest_item > self._end - self.position:
            raise MalformedError("an array claims more items than the answer has bytes for")
        return count

    def int32_array(self) -> array[int]:
        """Reads an array of int32 into an ``array`` with four bytes for each number. (A tuple would
        need 36 bytes for each number.)
        """
        if self.flexible and (length := self.data[self.position]) <= _FEW:
            # A count is encoded plus one; 0 is null. One byte is by far the most common.
            layout = _FEW_INT32[length - 1 if length else 0]
            few = layout.unpack_from(self.data, self.position + 1)
            self.position += 1 + layout.size
            return array("i", few)
        count = self.count(4)
        start, self.position = self.position, self.position + 4 * count
        values = array("i")
        values.frombytes(self.data[start : self.position])
        if sys.byteorder == "little":
            values.byteswap()
        return values

    def skip_int32s(self) -> None:
        if self.flexible and (length := self.data[self.position]) <= _FEW:
            self.skip(4 * length - 3 if length else 1)
            return
        count = self.count(4)  # which moves the cursor, too
        self.position += 4 * count

    def tagged_fields(self) -> Iterator[int]:
        """Yields the tag of each tagged field. Yields nothing in versions that are not flexible.
        The caller may then read the field's value. A value that the caller does not read is
        skipped.

        Raises an error if tags are not in ascending order (KIP-482). Also raises an error if the
        caller reads more or fewer bytes than the field has.
        """
        if not self.flexible:
            return
        previous = -1
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            size = self.unsigned_varint()
            if tag <= previous:
                raise MalformedError("tagged fields are not in order")
            previous = tag
            start = self.position
            if size > self._end - start:
                raise MalformedError("a tagged field is longer than the answer")
            yield tag
            if self.position == start:
                self.position = start + size
            elif self.position != start + size:
                raise MalformedError("a tagged field's size does not fit its value")

    def skip_tagged_fields(self) -> None:
        # Nearly always there are none, and this runs once for every item of every array.
        if self.flexible:
            if self.data[self.position] == 0:
                self.position += 1
                return
            for _ in self.tagged_fields():
                pass

    def finish(self) -> None:
        """Raises an error if the response has bytes that were not read."""
        if self.position != self._end:
            raise MalformedError("bytes are left over after the answer")


def _read_string(reader: WireReader, _version: int) -> str:
    return reader.string()


def _skip_string(reader: WireReader, _version: int) -> None:
    reader.skip_string()


class WireArray(Sequence[T_co]):
    """An array of a response that is kept as bytes. An item is created each time it is read, by the
    function ``read``.

    The bytes contain ``count`` items, but an item can be malformed, such as a string that is not
    UTF-8. The iteration then raises an error of :class:`WireReader`, such as UnicodeDecodeError. So
    iterate only inside of :func:`decoding`. The result of :meth:`checked` can be used anywhere.

    ``array[i]`` first reads all items before ``i``. Iterate if you need more than one item.
    """

    __slots__ = ("_count", "_data", "_ends", "_flexible", "_read", "_start", "_version")

    def __init__(
        self,
        data: bytes | memoryview,
        start: int,
        count: int,
        read: Callable[[WireReader, int], T_co],
        version: int,
        *,
        flexible: bool,
        ends: dict[int, int] | None = None,
    ) -> None:
        self._data = data
        self._start = start
        self._count = count
        self._read = read
        self._version = version
        self._flexible = flexible
        self._ends = ends

    def checked(
        self, of: Callable[[T_co], U], keep: Callable[[U], bool] | None = None
    ) -> Sequence[U]:
        """Validates all items now, and returns a sequence that converts them later. The sequence
        has the result of ``of`` for each item, but only the results for which ``keep`` returns
        True. If ``keep`` is None, it has all results.

        This method decodes and converts every item once, so all errors are raised here. The
        sequence keeps the bytes of its items, and decodes and converts an item again each time it
        is read.
        """
        read, version = self._read, self._version

        def item(reader: WireReader, version: int) -> U:
            return of(read(reader, version))

        reader, kept, count = self._reader(), bytearray(), 0
        for _ in range(self._count):
            start = reader.position
            value = item(reader, version)
            if keep is None or keep(value):
                kept += reader.data[start : reader.position]
                count += 1
        if not count:
            return ()
        return WireArray(bytes(kept), 0, count, item, version, flexible=self._flexible)

    def _reader(self) -> WireReader:
        return WireReader(
            self._data, flexible=self._flexible, position=self._start, ends=self._ends
        )

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T_co]:
        reader, read, version = self._reader(), self._read, self._version
        return (read(reader, version) for _ in range(self._count))

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        numbers = range(self._count)[index]
        if isinstance(numbers, range):
            return tuple(self)[index]
        return next(islice(self, numbers, None))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __reduce__(self) -> tuple[type[tuple[T_co, ...]], tuple[tuple[T_co, ...]]]:
        return tuple, (tuple(self),)

    def __repr__(self) -> str:
        return f"WireArray({list(self)!r})"


def _read_nothing(reader: WireReader, version: int) -> Never:
    raise NotImplementedError


#: In place of an array that a version does not have.
EMPTY_ARRAY: Final = WireArray[Never](b"", 0, 0, _read_nothing, 0, flexible=False)


def decoding(
    api: Enum,
    version: int,
    body: bytes | memoryview,
    read: Callable[[WireReader, int], T],
    *,
    flexible: bool,
    whole: bool = True,
) -> T:
    """Decodes ``body``, the bytes of a response, with ``read``, and returns the result. If
    ``whole`` is true, bytes that ``read`` leaves unread are an error.

    Raises only RemoteProtocolError. The error names the API and the version, and contains none of
    the bytes.
    """
    data = bytes(body) if len(body) <= _COPIED else memoryview(body)
    reader = WireReader(data, flexible=flexible)
    try:
        value = read(reader, version)
        if whole:
            reader.finish()
    except MalformedError as error:
        reason = str(error)
    except (struct.error, IndexError):
        reason = "it ends too early"
    except UnicodeDecodeError:
        reason = "a string is not UTF-8"
    else:
        return value
    # Outside of the except clause: otherwise the traceback would keep the bytes in memory.
    raise RemoteProtocolError(
        f"{api.name} v{version}: the broker's answer is malformed: {reason}",
        hint="the broker, or something between it and here, does not speak Kafka's protocol",
    )


def checked_node(node_id: int, host: str, port: int, rack: str | None) -> Node:
    """Creates a node from the fields of a response. Raises MalformedError if id, host or port are
    invalid.
    """
    if node_id < 0:
        raise MalformedError(f"a broker has the negative id {node_id}")
    if not 1 <= port <= _LARGEST_PORT:
        raise MalformedError(f"broker {node_id} has the port {port}")
    if not host or len(host) > _LONGEST_HOST or not host.isprintable() or " " in host:
        raise MalformedError(f"broker {node_id} has a host name that can't be one")
    return Node(node_id, host, port, rack)
