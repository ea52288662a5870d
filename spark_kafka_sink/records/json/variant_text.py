"""Encodes columns of VARIANT as Spark's ``to_json`` does.

A VARIANT has the binary form of Parquet's Variant Encoding. :func:`variant_column` converts this
form to JSON, as Spark's ``org.apache.spark.types.variant.Variant.toJson`` does.

Each row has its own structure, and so rows are encoded one by one. This is slower than Spark's
``to_json``. A job can call ``to_json`` itself before it writes.
"""

from __future__ import annotations

import base64
import re
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_kafka_sink.base.errors import DataError
from spark_kafka_sink.base.time_zones import time_zone
from spark_kafka_sink.records.json.escapes import ESCAPES
from spark_kafka_sink.records.json.json_numbers import java_digits
from spark_kafka_sink.records.json.zone_offsets import offsets_at

_MARK: Final = {b"variant": b"true"}
_ESCAPED: Final = re.compile(rb'["\\\x00-\x1f]')
_PRIMITIVE, _SHORT_TEXT, _OBJECT = range(3)
_DAY_US: Final = 86_400_000_000
_MOST_FOUR_DIGITS: Final = 9999
#: The most pieces of text for each byte of a VARIANT: brackets, a name or a comma, and a value.
_MOST_PIECES: Final = 4


def is_variant(kind: pa.DataType) -> bool:
    """True if this type is Spark's form of a VARIANT: a struct of two fields. The second field has
    the name ``metadata``, and has Spark's mark for a VARIANT in its Arrow metadata.
    """
    return bool(
        pa.types.is_struct(kind)
        and kind.num_fields == 2
        and kind.field(1).name == "metadata"
        and kind.field(1).metadata == _MARK
    )


def variant_column(column: pa.Array, zone: str) -> pa.Array:
    """Converts each VARIANT to JSON. Returns a large binary array. Nulls stay null.

    ``column`` is a struct array for which :func:`is_variant` is true. Timestamps are written in the
    time zone ``zone``. Raises DataError for bytes that are not a valid VARIANT.
    """
    values, metadata = (column.field(index).to_pylist() for index in (0, 1))
    there = column.is_valid().to_pylist()
    try:
        texts = [
            _text(value, names, zone) if valid else None
            for value, names, valid in zip(values, metadata, there, strict=True)
        ]
    except (IndexError, KeyError, struct.error, ValueError) as error:
        raise DataError(
            "a VARIANT holds bytes that are no variant, so it has no JSON",
            hint="the value is damaged where it was made: leave its row out, or set"
            " errors.tolerance=all with a topic for dead letters, which takes such rows",
        ) from error
    return pa.array(texts, pa.large_binary())


def _text(value: bytes, metadata: bytes, zone: str) -> bytes:
    names = _names(metadata)
    out: list[bytes] = []
    todo: list[bytes | int] = [0]
    # A list in place of recursion: a document may be deeper than Python's stack.
    while todo:
        item = todo.pop()
        if isinstance(item, bytes):
            out.append(item)
            continue
        # Each value has bytes of its own, unless offsets lead to one value again and again.
        if len(out) > _MOST_PIECES * len(value):
            raise ValueError("its values are within each other")
        kind, info = value[item] & 3, value[item] >> 2
        if kind == _PRIMITIVE:
            out.append(_primitive(value, item + 1, info, zone))
        elif kind == _SHORT_TEXT:
            out.append(_quoted(value[item + 1 : item + 1 + info]))
        elif kind == _OBJECT:
            todo += _object(value, item + 1, info, names)
        else:
            todo += _array(value, item + 1, info)
    return b"".join(out)


@lru_cache(maxsize=128)
def _names(metadata: bytes) -> tuple[bytes, ...]:
    """The field names in a VARIANT's metadata, in quotes."""
    size = (metadata[0] >> 6) + 1
    count, *offsets = _numbers(metadata, 1, size, 1 + _number(metadata, 1, size) + 1)
    start = 1 + (count + 2) * size
    return tuple(_quoted(metadata[start + begin : start + end]) for begin, end in pairwise(offsets))


def _object(value: bytes, at: int, info: int, names: tuple[bytes, ...]) -> list[bytes | int]:
    """The parts of a JSON object: texts, and the positions of the values that must still be
    encoded.

    The parts are in reverse order, so that the caller can push the parts on its stack.
    """
    wide, id_size, size = (4 if info & 16 else 1), (info >> 2 & 3) + 1, (info & 3) + 1
    count = _number(value, at, wide)
    ids = _numbers(value, at + wide, id_size, count)
    offsets = at + wide + count * id_size
    data = offsets + (count + 1) * size
    found: list[bytes | int] = [b"{"]
    for number, (name, offset) in enumerate(
        zip(ids, _numbers(value, offsets, size, count), strict=True)
    ):
        found += [b"," * (number > 0) + names[name] + b":", data + offset]
    return [*found, b"}"][::-1]


def _array(value: bytes, at: int, info: int) -> list[bytes | int]:
    wide, size = (4 if info & 4 else 1), (info & 3) + 1
    count = _number(value, at, wide)
    data = at + wide + (count + 1) * size
    found: list[bytes | int] = [b"["]
    for number, offset in enumerate(_numbers(value, at + wide, size, count)):
        found += [b"," * (number > 0), data + offset]
    return [*found, b"]"][::-1]


def _number(data: bytes, at: int, size: int, *, signed: bool = False) -> int:
    if at + size > len(data):
        raise IndexError("it ends within a number")
    return int.from_bytes(data[at : at + size], "little", signed=signed)


def _numbers(data: bytes, at: int, size: int, count: int) -> list[int]:
    return [_number(data, at + index * size, size) for index in range(count)]


def _quoted(data: bytes) -> bytes:
    text = data.decode(errors="replace").encode()
    return b'"' + _ESCAPED.sub(lambda found: ESCAPES[found[0][0]], text) + b'"'


def _primitive(value: bytes, at: int, kind: int, zone: str) -> bytes:
    if kind in _INTEGERS:
        return b"%d" % _number(value, at, _INTEGERS[kind], signed=True)
    if kind in _DECIMALS:
        unscaled = _number(value, at + 1, _DECIMALS[kind], signed=True)
        return _decimal(unscaled, value[at])
    if kind in _TEXTS:
        size = _number(value, at, 4)
        return _TEXTS[kind](value[at + 4 : at + 4 + size])
    return _OTHERS[kind](value, at, zone)


def _decimal(unscaled: int, scale: int) -> bytes:
    text = f"{Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale)):f}"
    return (text.rstrip("0").rstrip(".") if scale else text).encode()


def _float(number: np.floating[Any] | float, text: str) -> bytes:
    """The text of a floating point number in Java's notation. ``text`` is the shortest decimal text
    of the number.
    """
    if number != number or number in (float("inf"), float("-inf")):
        return {"nan": b'"NaN"', "inf": b'"Infinity"', "-inf": b'"-Infinity"'}[str(number)]
    sign, digits, exponent = Decimal(java_digits(number, text)).normalize().as_tuple()
    assert isinstance(exponent, int), "it is finite"
    power = len(digits) + exponent - 1
    shown = "".join(map(str, digits))
    minus = "-" if sign else ""
    if number == 0:
        return f"{minus}0.0".encode()
    if -3 <= power < 7:
        plain = f"{Decimal((0, digits, exponent)):f}"
        return f"{minus}{plain if '.' in plain else plain + '.0'}".encode()
    return f"{minus}{shown[0]}.{shown[1:] or '0'}E{power}".encode()


def _timestamp(micros: int, zone: str | None) -> bytes:
    """The text of a timestamp, such as ``2020-07-01 12:34:56.5+02:00``. The text has no zone offset
    if ``zone`` is None.
    """
    offset = 0
    if zone is not None:
        at = np.array([micros // 1000], np.int64)
        offset = int(offsets_at(time_zone(zone), at).of_rows()[0])
    days, rest = divmod(micros + offset * 1_000_000, _DAY_US)
    seconds, fraction = divmod(rest, 1_000_000)
    text = f"{_date(days)} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    text += f".{fraction:06}".rstrip("0").rstrip(".")
    if zone is not None:
        minutes = abs(offset) // 60
        text += f"{'-' if offset < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
    return f'"{text}"'.encode()


def _date(days: int) -> str:
    text = str(np.datetime64(days, "D"))
    year, month_and_day = int(text[:-6]), text[-6:]
    sign = "-" if year < 0 else "+" * (year > _MOST_FOUR_DIGITS)
    return f"{sign}{abs(year):04}{month_and_day}"


_INTEGERS: Final = {3: 1, 4: 2, 5: 4, 6: 8}
_DECIMALS: Final = {8: 4, 9: 8, 10: 16}
_TEXTS: Final[dict[int, Callable[[bytes], bytes]]] = {
    15: lambda data: b'"' + base64.b64encode(data) + b'"',
    16: _quoted,
}


def _double(value: bytes, at: int, _: str) -> bytes:
    (number,) = struct.unpack_from("<d", value, at)
    return _float(number, repr(number))


def _single(value: bytes, at: int, _: str) -> bytes:
    number = np.frombuffer(value, "<f4", 1, at)[0]
    return _float(number, str(number))


#: The functions for all other types of primitives, by the number of the type.
_OTHERS: Final[dict[int, Callable[[bytes, int, str], bytes]]] = {
    0: lambda *_: b"null",
    1: lambda *_: b"true",
    2: lambda *_: b"false",
    7: _double,
    11: lambda value, at, _: f'"{_date(_number(value, at, 4, signed=True))}"'.encode(),
    12: lambda value, at, zone: _timestamp(_number(value, at, 8, signed=True), zone),
    13: lambda value, at, _: _timestamp(_number(value, at, 8, signed=True), None),
    14: _single,
    20: lambda value, at, _: f'"{uuid.UUID(bytes=value[at : at + 16])}"'.encode(),
}
