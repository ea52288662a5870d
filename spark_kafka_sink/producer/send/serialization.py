"""Keys and values of single records to bytes (Java's ``common.serialization``).

Owns: the built-in serializers, by Java's class names and short ones, and the import of a user's
class. A step of ``send``. Never: columns, which are bytes or strings already; headers of a record,
except to pass them to a serializer.

Numbers are big-endian, as Java writes them. None is null everywhere: no serializer sees it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from spark_kafka_sink.base.errors import ConfigError, SerializationError, safe_text
from spark_kafka_sink.base.security import import_paths
from spark_kafka_sink.producer.producer_record import Headers


@runtime_checkable
class Serializer(Protocol):
    """Converts a key or a value to bytes. Called by every thread that sends."""

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes | None:
        """The bytes of ``data``, which is not None; a result None is null. It may add headers.

        A TypeError is reported as "can't convert"; ``send`` raises any other error unchanged.
        """
        ...


class BytesSerializer:
    """bytes, bytearray and memoryview as they are, and str as UTF-8: the default."""

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:  # noqa: ARG002
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        if isinstance(data, str):
            return data.encode()
        raise TypeError


class StringSerializer:
    """str as UTF-8."""

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:  # noqa: ARG002
        if not isinstance(data, str):
            raise TypeError
        return data.encode()


class _Number:
    """One of :mod:`struct`'s big-endian formats."""

    _format = struct.Struct(">i")

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:  # noqa: ARG002
        if isinstance(data, bool):
            raise TypeError
        try:
            return self._format.pack(data)
        except (struct.error, OverflowError) as error:
            raise TypeError from error


class IntegerSerializer(_Number):
    """int as 4 bytes."""

    _format = struct.Struct(">i")


class LongSerializer(_Number):
    """int as 8 bytes."""

    _format = struct.Struct(">q")


class FloatSerializer(_Number):
    """float (or int) as IEEE 754, 4 bytes."""

    _format = struct.Struct(">f")


class DoubleSerializer(_Number):
    """float (or int) as IEEE 754, 8 bytes."""

    _format = struct.Struct(">d")


_JAVA_PACKAGE = "org.apache.kafka.common.serialization."

_BUILT_IN: dict[str, Callable[[], Serializer]] = {
    "bytes": BytesSerializer,
    "str": StringSerializer,
    "string": StringSerializer,
    "int": IntegerSerializer,
    "long": LongSerializer,
    "float": FloatSerializer,
    "double": DoubleSerializer,
    "ByteArraySerializer": BytesSerializer,
    "BytesSerializer": BytesSerializer,
    "ByteBufferSerializer": BytesSerializer,
    "StringSerializer": StringSerializer,
    "IntegerSerializer": IntegerSerializer,
    "LongSerializer": LongSerializer,
    "FloatSerializer": FloatSerializer,
    "DoubleSerializer": DoubleSerializer,
}


def serializer(given: object, option: str) -> Serializer:
    """The serializer for ``given``: an instance, a class, a name, an import path.

    None is :class:`BytesSerializer`. Raises ConfigError, naming ``option``.
    """
    if given is None or given == "":
        return BytesSerializer()
    found = given
    if isinstance(given, str):
        made = _BUILT_IN.get(given.removeprefix(_JAVA_PACKAGE))
        if made is not None:
            return made()
        if given.startswith(_JAVA_PACKAGE) or not ("." in given or ":" in given):
            raise ConfigError(
                f"{option}: {safe_text(given)} is not known; known are {', '.join(_BUILT_IN)}",
                hint="or give an import path, package.module:Name",
            )
        found = import_paths.make(given, option)
    elif isinstance(given, type):
        found = given()
    if not isinstance(found, Serializer):
        raise ConfigError(
            f"{option}: {safe_text(str(given)) if isinstance(given, str) else type(found).__name__}"
            " has no method serialize(topic, data, headers)"
        )
    return found


def serialize(
    by: Serializer, option: str, topic: str, data: object, headers: Headers
) -> bytes | None:
    """``by``'s bytes of ``data``; SerializationError, which never shows ``data``."""
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
