"""Writes the body of a request. All encoders of ``protocol/messages/`` use this module.

:class:`WireWriter` does not know the meaning of a field. ``protocol/produce.py`` writes the Produce
request without this class, because the buffers of the batches must not be copied.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from spark_kafka_sink.base.errors import (
    IllegalStateError,
    InvalidTopicError,
    UnsupportedVersionError,
)

#: The longest string of Kafka's protocol (MessageGenerator writes the same check into Java's).
_LONGEST_STRING: Final = 0x7FFF
_NO_TAGGED_FIELDS: Final = b"\x00"


class WireWriter:
    """Writes the fields of one body, one after another. Flexible versions have compact lengths and
    tagged fields.
    """

    __slots__ = ("_data", "_flexible")

    def __init__(self, *, flexible: bool) -> None:
        self._data = bytearray()
        self._flexible = flexible

    def body(self) -> bytes:
        """The bytes written so far."""
        return bytes(self._data)

    def pack(self, layout: struct.Struct, *values: int) -> None:
        """Writes several numbers of fixed sizes."""
        self._data += layout.pack(*values)

    def uuid(self, value: bytes) -> None:
        """Writes the 16 bytes of a UUID."""
        self._data += value

    def string(self, text: str | None, *, nullable: bool = False) -> None:
        """Writes a string. None means a null string. Raises IllegalStateError if the string is too
        long, or if it is null and ``nullable`` is false.
        """
        if text is None:
            if not nullable:
                raise IllegalStateError("a string that must be there is null")
            self._data += b"\x00" if self._flexible else b"\xff\xff"
            return
        raw = text.encode()
        size = len(raw)
        if size > _LONGEST_STRING:
            raise IllegalStateError(f"a string is {size} bytes long; the protocol's limit is 32767")
        if self._flexible:
            self._unsigned_varint(size + 1)
        else:
            self._data += size.to_bytes(2, "big")
        self._data += raw

    def topic_name(self, name: str | None, *, nullable: bool = False) -> None:
        """Writes the name of a topic. Raises InvalidTopicError if the name is too long for the
        protocol, or can't be encoded as UTF-8.
        """
        self.string(None if name is None else topic_name(name), nullable=nullable)

    def topic_names(self, names: Sequence[str]) -> None:
        self.strings([topic_name(name) for name in names])

    def byte_string(self, value: bytes) -> None:
        self.count(len(value))
        self._data += value

    def count(self, count: int | None) -> None:
        """Writes the number of items of an array, or the size of a byte string. None means a null
        array.
        """
        if self._flexible:
            self._unsigned_varint(0 if count is None else count + 1)
        else:
            self._data += (-1 if count is None else count).to_bytes(4, "big", signed=True)

    def strings(self, values: Sequence[str] | None) -> None:
        """Writes an array of strings. None means a null array."""
        self.count(None if values is None else len(values))
        for value in values or ():
            self.string(value)

    def int32s(self, values: Sequence[int]) -> None:
        self.count(len(values))
        self._data += struct.pack(f">{len(values)}i", *values)

    def int64s(self, values: Sequence[int]) -> None:
        self.count(len(values))
        self._data += struct.pack(f">{len(values)}q", *values)

    def no_tagged_fields(self) -> None:
        """Ends a struct without tagged fields. Writes nothing in versions that are not flexible."""
        if self._flexible:
            self._data += _NO_TAGGED_FIELDS

    def _unsigned_varint(self, value: int) -> None:
        while value >= 0x80:
            self._data.append(value & 0x7F | 0x80)
            value >>= 7
        self._data.append(value)


def topic_name(name: str) -> str:
    """Returns ``name`` if it can be encoded, otherwise raises InvalidTopicError. The broker checks
    whether the name is legal.
    """
    try:
        size = len(name.encode())
        what = f"is {size} bytes long" if size > _LONGEST_STRING else None
    except UnicodeEncodeError:
        what = "is no text: it holds a surrogate"
    if what is not None:
        raise InvalidTopicError(
            f"a topic's name {what}",
            hint="letters, digits, '.', '_' and '-', at most 249 of them",
        )
    return name


def refuse_fields(api: str, version: int, *fields: str) -> UnsupportedVersionError:
    """Creates the error for a request that can't be sent in ``version``, because it uses ``fields``
    that this version does not have.
    """
    return UnsupportedVersionError(
        f"{api} v{version} has no place for {' or '.join(fields)}",
        hint="a newer version of it has, and newer brokers have that version",
    )
