"""Reading a broker's bytes, bounded: the primitives under every decoder of this room.

Owns: :class:`WireReader`, :class:`WireArray`, and :func:`decoding`, which turns every way that
bytes can be wrong into one RemoteProtocolError. Never: what a field means.

Why not kio's own decoder (0.6.5): it reserves memory for as many items as an array *claims*, so
that 16 bytes from a broken broker ask for 16 GiB. Where the address space is limited the process
then aborts, since a failed allocation in native code is no exception; elsewhere the kernel may
promise the memory and nothing happens. It also refuses every answer with an error code newer than
itself. Here nothing is allocated before the bytes for it have arrived, and time is linear in them.

How much is allocated: Python objects weigh more than the bytes that name them, 300 for 18 at the
worst. So what a broker may send much of is kept as columns or as bytes, and what was not asked for
is an error: no answer takes more than four times its bytes and 64 KiB, beside what each item of the
question takes (``tests/protocol/test_hostile_answers.py``).
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar, overload

from spark_kafka_sink.errors import ErrorCode, RemoteProtocolError
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.request import ApiKey, Buffer

T = TypeVar("T")

INT8: Final = struct.Struct(">b")
INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")

# Ready-made layouts for what nearly every array of ids is.
_FEW: Final = 8
_FEW_INT32: Final = [struct.Struct(f">{count}i") for count in range(_FEW)]

_CODES: Final = {code.value: code for code in ErrorCode}
_LARGEST_PORT: Final = 65535
#: The longest string of Kafka's protocol (MessageGenerator writes the same check into Java's).
_LONGEST_STRING: Final = 0x7FFF
#: Answers up to this size are copied once, because bytes are quicker to read than a view.
_COPIED: Final = 16 * 1024
#: A DNS name has at most 253 characters; an address in brackets with a zone fits, too.
_LONGEST_HOST: Final = 255


class MalformedError(Exception):
    """Inside this room only: what is wrong, in words without any of the bytes."""


def error_code(code: int) -> ErrorCode:
    """As ErrorCode.parse, at the price of a dict look-up."""
    return _CODES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


class WireReader:
    """A cursor over one answer. Flexible versions have compact lengths and tagged fields.

    Every method raises MalformedError, struct.error, IndexError or UnicodeDecodeError when the
    bytes end early or break a rule; :func:`decoding` is where these end.
    """

    __slots__ = ("_end", "data", "flexible", "position")

    def __init__(self, data: bytes | memoryview, *, flexible: bool) -> None:
        self.data = data
        self.flexible = flexible
        self.position = 0
        self._end = len(data)

    @property
    def remaining(self) -> int:
        return self._end - self.position

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """Fixed-size integers that stand side by side."""
        values: tuple[int, ...] = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return values

    def int16(self) -> int:
        return self.unpack(INT16)[0]

    def int32(self) -> int:
        return self.unpack(INT32)[0]

    def boolean(self) -> bool:
        return self.unpack(INT8)[0] != 0

    def raw(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        start = self.position
        if not 0 <= size <= self._end - start:
            raise MalformedError("a field is longer than the answer")
        self.position = start + size
        return bytes(self.data[start : start + size])

    def unsigned_varint(self) -> int:
        """At most five bytes and 32 bits."""
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

    def count(self, smallest_item: int) -> int:
        """An array's count. No larger than what the rest can hold of items of that many bytes.

        A null array counts as empty: none of the arrays that we read tells the two apart.
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
        """Four bytes for each number, where a tuple takes 36."""
        values = array("i")
        count = self.count(4)
        start, self.position = self.position, self.position + 4 * count
        values.frombytes(self.data[start : self.position])
        if sys.byteorder == "little":
            values.byteswap()
        return values

    def int32s_into(self, target: array[int]) -> None:
        """Append an array to ``target``."""
        start = self.position
        count = self.count(4)
        if count < _FEW:
            target.extend(_FEW_INT32[count].unpack_from(self.data, self.position))
            self.position += 4 * count
        else:
            self.position = start
            target.extend(self.int32_array())

    def skip_int32s(self) -> None:
        count = self.count(4)  # which moves the cursor, too
        self.position += 4 * count

    def tagged_fields(self) -> Iterator[int]:
        """Yield each tag with the cursor on its value; a value left unread is skipped.

        Tags must ascend (KIP-482), so that none comes twice, and a value that is read must fill
        its field exactly. Nothing to yield in versions that are not flexible.
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
        """Raise when bytes are left over."""
        if self.position != self._end:
            raise MalformedError("bytes are left over behind the answer")


class WireArray(Sequence[T]):
    """An array of an answer, kept as its checked bytes; an item is made whenever it is asked for.

    For arrays as long as the broker likes, whose items weigh many times the bytes that name them.
    ``array[i]`` walks there from the first: this is for whoever goes through it once.
    """

    __slots__ = ("_count", "_data", "_flexible", "_item")

    def __init__(
        self, count: int, data: bytes, item: Callable[[WireReader], T], *, flexible: bool
    ) -> None:
        self._count = count
        self._data = data
        self._item = item
        self._flexible = flexible

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        reader = WireReader(self._data, flexible=self._flexible)
        return (self._item(reader) for _ in range(self._count))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        numbers = range(self._count)[index]
        if isinstance(numbers, range):
            return tuple(self)[index]
        return next(islice(self, numbers, None))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __reduce__(self) -> tuple[type[tuple[T, ...]], tuple[tuple[T, ...]]]:
        return tuple, (tuple(self),)

    def __repr__(self) -> str:
        return f"WireArray({list(self)!r})"


def read_array(
    reader: WireReader,
    smallest_item: int,
    item: Callable[[WireReader], T],
    keep: Callable[[T], bool] | None = None,
) -> Sequence[T]:
    """The array at the cursor, every item of it checked; those only that ``keep`` wants."""
    count = reader.count(smallest_item)
    start = reader.position
    if keep is None:
        for _ in range(count):
            item(reader)
        kept: bytes | bytearray | memoryview = reader.data[start : reader.position]
    else:
        kept, wanted = bytearray(), 0
        for _ in range(count):
            start = reader.position
            if keep(item(reader)):
                kept += reader.data[start : reader.position]
                wanted += 1
        count = wanted
    return WireArray(count, bytes(kept), item, flexible=reader.flexible) if count else ()


def decoding(
    api_key: ApiKey,
    version: int,
    body: Buffer,
    parse: Callable[[WireReader], T],
    *,
    flexible: bool,
    whole: bool = True,
) -> T:
    """What ``parse`` makes of ``body``. Raises RemoteProtocolError, nothing else.

    With ``whole`` every byte must have been read. The error names API and version and never
    shows the bytes; it is raised outside of the except clause, so that no traceback keeps them.
    """
    data = bytes(body) if len(body) <= _COPIED else memoryview(body)
    reader = WireReader(data, flexible=flexible)
    try:
        value = parse(reader)
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
    raise RemoteProtocolError(
        f"{api_key.name} v{version}: the broker's answer is malformed: {reason}",
        hint="the broker, or something between it and here, does not speak Kafka's protocol",
    )


def checked_node(node_id: int, host: str, port: int, rack: str | None) -> Node:
    """A broker as an answer names it, when one could connect to that."""
    if node_id < 0:
        raise MalformedError(f"a broker has the negative id {node_id}")
    if not 1 <= port <= _LARGEST_PORT:
        raise MalformedError(f"broker {node_id} has the port {port}")
    if not host or len(host) > _LONGEST_HOST or not host.isprintable() or " " in host:
        raise MalformedError(f"broker {node_id} has a host name that can't be one")
    return Node(node_id, host, port, rack)
