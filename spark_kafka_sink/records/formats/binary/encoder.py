"""Arrow columns in a binary format, one pass for each column.

Owns: :func:`payloads_of`, which follows the nodes of ``nodes``. Never: a schema, a row by itself
(but one that is not UTF-8).

A row's bytes are pieces (``RowPieces``). What is nested becomes the pieces of its parent: fields of
a record directly when it is never null, else and for lists the slices of their joined bytes.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.records import nodes
from spark_kafka_sink.records.gather import binary_of, ends_of, lengths_of, list_items, valid_of
from spark_kafka_sink.records.json.json_text import json_value, not_utf8, plain_binary
from spark_kafka_sink.records.nodes import Coding, Value
from spark_kafka_sink.records.row_pieces import Mask, Payloads, RowPieces
from spark_kafka_sink.records.varint import Packed, highest, pack, pack_unsigned, unsigned_sizes

#: True for the rows that are written; None: all are.
Valid = Mask | None

_1, _3, _8, _64 = map(np.uint64, (1, 3, 8, 64))
_PER_SECOND = 1_000_000
_YEAR_1, _YEAR_10000 = -62_135_596_800 * _PER_SECOND, 253_402_300_800 * _PER_SECOND


def payloads_of(value: Value, column: pa.Array, path: str) -> Payloads:
    """One for each row, null where ``column`` is; ``path`` names it for refusals."""
    out = RowPieces(len(column))
    _encode(value, column, out, path)
    return out.payloads(column)


def _encode(value: Value, column: pa.Array, out: RowPieces, path: str) -> None:
    """Adds each row of ``column`` to ``out``; ``path`` names it for refusals."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    valid = valid_of(column)
    # Most columns have none, and what has no mask is faster.
    if value.zeros and not (there := ~_zeros(value, column)).all():
        valid = there if valid is None else there & valid
    if valid is None or value.null == value.branch:
        out.add_bytes(value.branch)
    elif value.null is None:
        out.refuse(~valid, path, "is null, and the schema requires a value")
        out.add_bytes(value.branch, valid)
    elif len(value.branch) == len(value.null) == 1:
        branch = np.where(valid, np.uint64(value.branch[0]), np.uint64(value.null[0]))
        out.add_packed([Packed(branch, _1, 1)])
    else:
        out.add_bytes(value.null, ~valid)
        out.add_bytes(value.branch, valid)
    if len(column) and (valid is None or valid.any()):
        _WRITERS[type(value.node)](value.node, column, valid, out, path)


def _record(record: nodes.Record, column: pa.Array, out: RowPieces, path: str) -> None:
    """Adds the fields of each row of a struct, whatever they hold where it is null."""
    for field in record.fields:
        if isinstance(field.value, bytes):
            out.add_bytes(field.value)
        else:
            below = f"{path}.{field.name}" if path else field.name
            _encode(field.value, column.field(field.index), out, below)
    for choice in record.choices:
        there = [column.field(at).is_valid().to_numpy(zero_copy_only=False) for at in choice]
        several = np.sum(there, axis=0) > 1
        out.refuse(several, path or "of the payload", "has more than one field of a oneof")


def _zeros(value: Value, column: pa.Array) -> Mask:
    if pa.types.is_floating(column.type):
        # The bits, since -0.0 is written.
        column = column.view(f"int{column.type.bit_width}")
    elif isinstance(value.node, nodes.Bytes | nodes.Symbols):
        column = plain_binary(column)
    return _flags(pc.is_in(column, pa.array(value.zeros, column.type)))


def _flags(array: pa.Array) -> Mask:
    flags: Mask = pc.fill_null(array, False).to_numpy(zero_copy_only=False)  # noqa: FBT003
    return flags


def _coded(numbers: npt.NDArray[np.integer], coding: Coding) -> Sequence[Packed]:
    if coding is Coding.ZIGZAG:
        # Doubling a number of fewer bits would be out of its type's bounds.
        return pack(numbers.astype(np.int32) if numbers.dtype.itemsize < 4 else numbers)
    wide = numbers.astype(np.int64, copy=False)
    if coding is Coding.VARINT:
        return pack_unsigned(wide)
    words = wide.view(np.uint64)
    if coding is Coding.FIXED64:
        return [Packed(words, np.uint64(8), 8)]
    return [Packed(words & np.uint64(0xFFFFFFFF), np.uint64(4), 4)]


def _integers(column: pa.Array, valid: Valid) -> npt.NDArray[np.integer]:
    """The numbers, or the bits of those with a fraction; 0 for nulls."""
    dtype = np.dtype(f"i{column.type.bit_width // 8}")
    found = np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)
    return found if valid is None else np.where(valid, found, dtype.type(0))


def _boolean(_: nodes.Boolean, column: pa.Array, valid: Valid, out: RowPieces, _path: str) -> None:
    out.add_packed([Packed(_flags(column).astype(np.uint64), _1, 1)], valid)


def _number(node: nodes.Number, column: pa.Array, valid: Valid, out: RowPieces, path: str) -> None:
    if pa.types.is_float32(column.type) and node.coding is Coding.FIXED64:
        column = column.cast(pa.float64())
    values = _integers(column, valid)
    if node.divisor != 1:
        values = values // node.divisor
    has, said = np.iinfo(values.dtype), "is a number that the schema's type can't hold"
    if node.least > has.min:
        out.refuse(values < node.least, path, said)
    if node.most < has.max:
        out.refuse(values > node.most, path, said)
    out.add_packed(_coded(values, node.coding), valid)


def _bytes(node: nodes.Bytes, column: pa.Array, valid: Valid, out: RowPieces, path: str) -> None:
    data = plain_binary(column)
    if node.is_text:
        out.refuse(not_utf8(data), path, "is not UTF-8")
    lengths = lengths_of(data)
    if isinstance(node.length, Coding):
        out.add_packed(_coded(lengths, node.length), valid)
    else:
        wrong = (lengths != node.length) & (True if valid is None else valid)
        out.refuse(wrong, path, f"is not {node.length} bytes long, as the fixed is")
    out.add_column(data)


def _decimal(
    node: nodes.Decimal, column: pa.Array, valid: Valid, out: RowPieces, path: str
) -> None:
    column = _rescaled(node, column, out, path)
    words = np.frombuffer(column.buffers()[1], np.int64, 2 * len(column), 16 * column.offset)
    low, high = words[::2], words[1::2]
    if valid is not None:
        low, high = low * valid, high * valid
    size: npt.NDArray[np.uint64] | np.uint64
    if node.size is None:
        size, wide = _signed_size(low), high != low >> 63
        if wide.any():
            size = np.where(wide, _8 + _signed_size(high), size)
        out.add_packed([Packed(size << _1, _1, 1)], valid)
        most = int(highest(size))
    else:
        size, most = np.uint64(node.size), node.size
    for at in range((most - 1) // 8, -1, -1):
        word, before = (low, high)[at] if at < 2 else high >> 63, np.uint64(8 * at)
        count = size if most <= 8 else np.clip(size, before, before + _8) - before
        # The number's own bytes to the top of the word, and from there to the front.
        shifted = word.view(np.uint64) << (_64 - (count << _3))
        out.add_packed([Packed(shifted.byteswap(), count, min(most - 8 * at, 8))], valid)


def _rescaled(node: nodes.Decimal, column: pa.Array, out: RowPieces, path: str) -> pa.Array:
    """With the schema's scale; rows that it can't hold are refused, and 0."""
    whole_digits = node.precision - node.scale
    if column.type.precision - column.type.scale > whole_digits:
        large = pc.greater_equal(pc.abs(column), pa.scalar(decimal.Decimal(10) ** whole_digits))
        digits = f"decimal({node.precision},{node.scale})"
        out.refuse(_flags(large), path, f"has more digits than {digits}")
        column = pc.if_else(large, pa.scalar(0, column.type), column)
    if column.type.scale == node.scale:
        return column
    scaled = column.cast(pa.decimal128(38, node.scale), safe=False)
    if node.scale < column.type.scale:
        lost = _flags(pc.not_equal(scaled.cast(column.type), column))
        out.refuse(lost, path, f"has more than the schema's {node.scale} decimal places")
    return scaled


def _signed_size(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The bytes of each in two's complement, at least one."""
    magnitude = values ^ (values >> 63)
    return unsigned_sizes(magnitude, int(highest(magnitude, initial=0)), 8).view(np.uint64)


def _enum(node: nodes.Symbols, column: pa.Array, valid: Valid, out: RowPieces, path: str) -> None:
    text = plain_binary(column)
    symbols = pa.array([one.encode() for one in node.symbols], text.type)
    found = pc.index_in(text, symbols)
    unknown = pc.and_(text.is_valid(), found.is_null())
    out.refuse(_flags(unknown), path, "is not one of the enum's symbols")
    numbers = np.array(node.numbers, np.int64).take(found.fill_null(0).to_numpy())
    out.add_packed(_coded(numbers, node.coding), valid)


def _timestamp(
    _: nodes.Timestamp, column: pa.Array, valid: Valid, out: RowPieces, path: str
) -> None:
    """Nanoseconds are never negative."""
    micros = _integers(column, valid).astype(np.int64)
    outside = (micros < _YEAR_1) | (micros >= _YEAR_10000)
    out.refuse(outside, path, "is not in the years 1 to 9999, as google.protobuf.Timestamp is")
    inner = RowPieces(len(micros))
    # Of a field without presence, zero is left out.
    parts = (b"\x08", micros // _PER_SECOND), (b"\x10", micros % _PER_SECOND * 1000)
    for start, numbers in parts:
        there = numbers != 0 if valid is None else (numbers != 0) & valid
        inner.add_bytes(start, there)
        inner.add_packed(pack_unsigned(numbers), there)
    _add_joined(inner, out, valid, length=True)


def _json_text(
    node: nodes.JsonText, column: pa.Array, _: Valid, out: RowPieces, _path: str
) -> None:
    out.add_column(json_value(column))
    for way, name in node.required:
        owner, field = (pc.struct_field(column, it) for it in (way[:-1], way))
        refused = pc.and_(owner.is_valid(), field.is_null()).to_numpy(zero_copy_only=False)
        out.refuse(refused, name, "is null, and the schema requires the field")


def _add_joined(inner: RowPieces, out: RowPieces, valid: Valid, *, length: bool = False) -> None:
    """The rows of ``inner``, those of ``out`` where ``valid``, maybe after their length."""
    offsets, data = inner.joined()
    lengths = np.diff(offsets)
    if valid is not None and inner.rows < out.rows:
        lengths = np.zeros(out.rows, np.int64)
        lengths[valid] = np.diff(offsets)
    if length:
        out.add_packed(pack_unsigned(lengths), valid)
    out.add_column(binary_of(ends_of(lengths), data))


def _struct(node: nodes.Record, column: pa.Array, valid: Valid, out: RowPieces, path: str) -> None:
    if valid is None and not node.length:
        _record(node, column, out, path)
        return
    # The fields of a null may hold anything: only the others are encoded.
    rows = np.arange(len(column)) if valid is None else valid.nonzero()[0]
    inner = RowPieces(len(rows))
    _record(node, column if valid is None else column.take(pa.array(rows)), inner, path)
    out.refuse_of(inner.refusals, rows)
    _add_joined(inner, out, valid, length=node.length)


def _items(node: nodes.Items, column: pa.Array, valid: Valid, out: RowPieces, path: str) -> None:
    items, offsets = list_items(column)
    counts = np.diff(offsets)
    there = counts > 0
    inner = RowPieces(len(items))
    _encode(node.item, items, inner, f"{path}[]")
    out.refuse_of(inner.refusals, np.repeat(np.arange(len(column)), counts))
    ends, data = inner.joined()
    ends = ends[offsets]
    if node.is_block:
        out.add_packed(pack(counts), there)
    elif node.packed:
        out.add_bytes(node.packed, there)
        out.add_packed(pack_unsigned(np.diff(ends)), there)
    out.add_column(binary_of(ends, data))
    if node.is_block:
        out.add_bytes(b"\x00", valid)


_WRITERS: Final[Mapping[type, Callable[[Any, pa.Array, Valid, RowPieces, str], None]]] = {
    nodes.Boolean: _boolean, nodes.Number: _number, nodes.Bytes: _bytes, nodes.Decimal: _decimal,
    nodes.Symbols: _enum, nodes.Timestamp: _timestamp, nodes.Record: _struct,
    nodes.Items: _items, nodes.JsonText: _json_text,
}  # fmt: skip
