"""Serializers for the keys and values of single records (Java's ``common.serialization``).

This module has the built-in serializers, with Java's class names and with short names, and imports
a user's serializer class. Rows of ``send_columns`` need no serializer, because their keys and
values are already bytes or strings.

Numbers are big-endian, as in Java. If a key or value is None, null is written, and no serializer is
called.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from spark_kafka_sink.base.errors import ConfigError, SerializationError, safe_text
from spark_kafka_sink.base.security import import_paths
from spark_kafka_sink.producer.producer_record import Headers


@runtime_checkable
class Serializer(Protocol):
    """The interface of a serializer, which converts a key or a value to bytes. Several threads may
    call a serializer at the same time.
    """

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes | None:
        """Returns ``data`` as bytes. ``data`` is not None. If the result is None, null is written.
        A serializer may add headers to ``headers``.

        If a serializer raises a TypeError or UnicodeEncodeError, ``send`` raises SerializationError
        ("can't convert") instead. Other exceptions of a serializer are not converted.
        """
        ...


class BytesSerializer:
    """Serializes bytes, bytearray and memoryview unchanged, and str as UTF-8. This is the default
    serializer.
    """

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:  # noqa: ARG002
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        if isinstance(data, str):
            return data.encode()
        raise TypeError


class StringSerializer:
    """Serializes str as UTF-8."""

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:  # noqa: ARG002
        if not isinstance(data, str):
            raise TypeError
        return data.encode()


class _Number:
    """Serializes numbers with a big-endian format of :mod:`struct`. The subclasses set the format.
    A bool, and a number that is too large for the format, are rejected.
    """

    _format = struct.Struct(">i")

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:  # noqa: ARG002
        if isinstance(data, bool):
            raise TypeError
        try:
            return self._format.pack(data)
        except (struct.error, OverflowError) as error:
            raise TypeError from error


class ShortSerializer(_Number):
    """Serializes int as 2 bytes."""

    _format = struct.Struct(">h")


class IntegerSerializer(_Number):
    """Serializes int as 4 bytes."""

    _format = struct.Struct(">i")


class LongSerializer(_Number):
    """Serializes int as 8 bytes."""

    _format = struct.Struct(">q")


class FloatSerializer(_Number):
    """Serializes float (or int) as IEEE 754, 4 bytes."""

    _format = struct.Struct(">f")


class DoubleSerializer(_Number):
    """Serializes float (or int) as IEEE 754, 8 bytes."""

    _format = struct.Struct(">d")


class BooleanSerializer:
    """Serializes bool as 1 byte, 0 or 1."""

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:  # noqa: ARG002
        if not isinstance(data, bool):
            raise TypeError
        return bytes((data,))


class UUIDSerializer:
    """Serializes uuid.UUID as text of 36 characters."""

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:  # noqa: ARG002
        if not isinstance(data, uuid.UUID):
            raise TypeError
        return str(data).encode()


class VoidSerializer:
    """Rejects every value. Use this serializer for keys or values that are always None: null is
    written for None without a call of the serializer.
    """

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:  # noqa: ARG002
        raise TypeError


class ListSerializer:
    """Serializes a list or tuple, in the layout of Java's ``ListSerializer``. The serializer
    ``inner`` converts each item. Counts, sizes and indexes are 4 bytes.

    If ``inner`` is the serializer of a number or of a UUID, all items have the same size. The bytes
    are then:

    * a byte 0
    * the number of null items, and the index of each null item
    * the number of all items
    * the bytes of the items that are not null

    With any other ``inner`` the bytes are:

    * a byte 1
    * the number of items
    * the size and the bytes of each item. The size of a null item is -1.
    """

    def __init__(self, inner: Serializer) -> None:
        self._inner = inner
        self._one_size = isinstance(inner, _Number | UUIDSerializer)

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:
        if not isinstance(data, list | tuple):
            raise TypeError
        items = [None if x is None else self._inner.serialize(topic, x, headers) for x in data]
        count = _INT32.pack(len(items))
        if self._one_size:
            nulls = [index for index, item in enumerate(items) if item is None]
            head = b"\0" + b"".join(map(_INT32.pack, (len(nulls), *nulls))) + count
            return head + b"".join(item for item in items if item is not None)
        sized = (_NULL if item is None else _INT32.pack(len(item)) + item for item in items)
        return b"\1" + count + b"".join(sized)


_INT32 = struct.Struct(">i")
_NULL = _INT32.pack(-1)
_LIST_OF = re.compile(r"list<(.+)>")

_JAVA_PACKAGE = "org.apache.kafka.common.serialization."

_BUILT_IN: dict[str, Callable[[], Serializer]] = {
    "bytes": BytesSerializer,
    "str": StringSerializer,
    "string": StringSerializer,
    "short": ShortSerializer,
    "int": IntegerSerializer,
    "long": LongSerializer,
    "float": FloatSerializer,
    "double": DoubleSerializer,
    "boolean": BooleanSerializer,
    "uuid": UUIDSerializer,
    "void": VoidSerializer,
    "ByteArraySerializer": BytesSerializer,
    "BytesSerializer": BytesSerializer,
    "ByteBufferSerializer": BytesSerializer,
    "StringSerializer": StringSerializer,
    "ShortSerializer": ShortSerializer,
    "IntegerSerializer": IntegerSerializer,
    "LongSerializer": LongSerializer,
    "FloatSerializer": FloatSerializer,
    "DoubleSerializer": DoubleSerializer,
    "BooleanSerializer": BooleanSerializer,
    "UUIDSerializer": UUIDSerializer,
    "VoidSerializer": VoidSerializer,
}


def serializer(given: object, option: str) -> Serializer:
    """Returns the serializer object for an option. ``given`` is the value of the option: a
    serializer object, a class, a short name such as ``int``, a class name of Java, or an import
    path. None and an empty text mean :class:`BytesSerializer`.

    Raises ConfigError for any other value, for an import path that can't be imported, and for a
    class whose constructor raises an exception. The message names the option ``option``.
    """
    if given is None or given == "":
        return BytesSerializer()
    found = given
    if isinstance(given, str):
        made = _BUILT_IN.get(given.removeprefix(_JAVA_PACKAGE))
        if made is not None:
            return made()
        if (of := _LIST_OF.fullmatch(given)) is not None:
            return ListSerializer(serializer(of[1], option))
        if given.startswith(_JAVA_PACKAGE) or not ("." in given or ":" in given):
            raise ConfigError(
                f"{option}: {safe_text(given)} is not known; known are {', '.join(_BUILT_IN)}, "
                "and list<NAME> for Java's ListSerializer",
                hint="or give an import path, package.module:Name",
            )
        found = import_paths.make(given, option)
    elif isinstance(given, type):
        found = import_paths.made_of(given, option, given.__qualname__)
    if not isinstance(found, Serializer):
        raise ConfigError(
            f"{option}: {safe_text(str(given)) if isinstance(given, str) else type(found).__name__}"
            " has no method serialize(topic, data, headers)"
        )
    return found


def serialize(
    by: Serializer, option: str, topic: str, data: object, headers: Headers
) -> bytes | None:
    """Converts ``data`` to bytes with the serializer ``by``. Returns None if ``data`` is None.

    Raises SerializationError in two cases:

    * The serializer raises a TypeError or UnicodeEncodeError.
    * The serializer returns an object that is not bytes, bytearray, memoryview or None.

    The message names the option ``option``, and never has the content of ``data``. Other exceptions
    of the serializer are raised unchanged.
    """
    if data is None:
        return None
    try:
        made = by.serialize(topic, data, headers)
    except TypeError as error:
        # Not chained: a serializer of the user's may have put the value into its text.
        what = option.partition(".")[0]
        raise SerializationError(
            f"Can't convert {what} of class {type(data).__name__} to class {type(by).__name__}"
            f" specified in {option}: {import_paths.place_of(error)}",
            hint="a number may also be too large for that class",
        ) from None
    except UnicodeEncodeError:
        # Not chained: it holds the whole text.
        what = option.partition(".")[0]
        raise SerializationError(
            f"Can't convert {what} of class str to UTF-8: it holds a surrogate",
            hint='is it a file name? encode("utf-8", "surrogateescape") gives its bytes back',
        ) from None
    if type(made) is bytes or made is None:
        return made
    if isinstance(made, bytes | bytearray | memoryview):
        return bytes(made)
    raise SerializationError(
        f"class {type(by).__name__} specified in {option} returned {type(made).__name__}, not bytes"
    )
