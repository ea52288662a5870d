"""Encodes Arrow columns in a format with a schema, such as Avro. The driver has converted the
schema to *nodes*, which describe the encoding of each type (``records/nodes.py``).

:func:`payloads_of` encodes each column in one pass for all rows. The bytes of a row are joined from
pieces, such as the bytes of a field (``row_pieces``).
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.records import nodes
from spark_kafka_sink.records.gather import (
    binary_of,
    bools,
    data_of,
    ends_of,
    lengths_of,
    list_items,
    offsets_of,
    valid_of,
)
from spark_kafka_sink.records.json.json_text import NULL_IS_WRITTEN, json_value, not_utf8
from spark_kafka_sink.records.json.plain_text import plain_binary
from spark_kafka_sink.records.nodes import Coding, Value
from spark_kafka_sink.records.row_pieces import Mask, Payloads, RowPieces
from spark_kafka_sink.records.varint import Packed, highest, pack, pack_unsigned, unsigned_sizes

#: The mask of the rows that are written. None means that all rows are written.
Valid = Mask | None

_1, _3, _8, _64 = map(np.uint64, (1, 3, 8, 64))
_PER_SECOND = 1_000_000
_UUID_LENGTH, _UUID_BYTES = 36, 16
_DASHES = [8, 13, 18, 23]
_DIGITS = [at for at in range(_UUID_LENGTH) if at not in _DASHES]
#: The value of each hexadecimal digit; 16 for a dash, 32 for other bytes.
_HEX = np.full(256, 32, np.uint8)
_HEX[list(b"0123456789abcdefABCDEF")] = [*range(16), *range(10, 16)]
_HEX[ord("-")] = 16
#: The kind of character (a value of _HEX by 16) at each place of a UUID: 0 a digit, 1 a dash.
_UUID_KINDS = np.isin(np.arange(_UUID_LENGTH), _DASHES).astype(np.uint8)
_YEAR_1, _YEAR_10000 = -62_135_596_800 * _PER_SECOND, 253_402_300_800 * _PER_SECOND


def payloads_of(value: Value, column: pa.Array, path: str) -> Payloads:
    """Encodes each row of ``column`` as ``value`` describes. If ``column`` is null in a row, the
    result is null in this row.

    The result also has the rows that can't be encoded, with the reasons. ``path`` is the name of
    the column in error messages.
    """
    out = RowPieces(len(column))
    _encode(value, column, out, path)
    return out.payloads(column)


def _encode(value: Value, column: pa.Array, out: RowPieces, path: str) -> None:
    """Encodes each row of ``column`` as ``value`` describes, and appends the bytes to the same row
    of ``out``. ``path`` is the name of the column in error messages.
    """
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    valid = valid_of(column)
    # Most columns have no mask, and a column without a mask is faster.
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
    """Appends the encoded fields of each row to ``out``. ``column`` is a struct column without
    nulls.
    """
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
    """The values of a column as integers. A floating point number becomes the integer that has the
    same bits. A null becomes 0.
    """
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


def _uuid(node: nodes.Uuid, column: pa.Array, valid: Valid, out: RowPieces, path: str) -> None:
    data = plain_binary(column)
    lengths = lengths_of(data)
    rows = (lengths == _UUID_LENGTH).nonzero()[0]
    starts = offsets_of(data)[:-1][rows]
    if len(rows) == len(data) > 0:  # without nulls they stand one after the other
        text = data_of(data)[starts[0] :][: len(data) * _UUID_LENGTH].reshape(-1, _UUID_LENGTH)
    else:
        text = data_of(data)[starts[:, None] + np.arange(_UUID_LENGTH, dtype=starts.dtype)]
    digits = _HEX[text]
    # Four characters together: the rest of a place is 0 if its character has the right kind.
    well = ~((digits >> 4) ^ _UUID_KINDS).view(np.uint32).any(1)
    refused = np.ones(len(data), np.bool_) if valid is None else valid.copy()
    refused[rows[well]] = False
    out.refuse(refused, path, "is not a UUID of 8-4-4-4-12 hexadecimal digits")
    if node.is_fixed:
        lengths[:] = 0
        lengths[rows] = _UUID_BYTES
        digits = digits[:, _DIGITS]
        joined = digits[:, ::2] << 4 | digits[:, 1::2]
        data = binary_of(ends_of(lengths), pa.py_buffer(np.ascontiguousarray(joined)))
    else:
        out.add_packed(_coded(lengths, Coding.ZIGZAG), valid)
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


def _decimals(
    node: nodes.Decimals, column: pa.Array, valid: Valid, out: RowPieces, path: str
) -> None:
    left = np.ones(len(column), np.bool_) if valid is None else valid
    for prefix, number in node.branches:
        large, _, lost = _rescaling(number, column)
        held = left & ~large & ~lost
        if held.any():
            out.add_bytes(prefix, held)
            _decimal(number, pc.if_else(bools(held), column, None), held, out, path)
        left = left & ~held
    out.refuse(left, path, "is a number that none of the schema's decimals can hold")


def _rescaled(node: nodes.Decimal, column: pa.Array, out: RowPieces, path: str) -> pa.Array:
    """Converts decimals to the schema's scale. If a decimal does not fit into the schema's type,
    notes in ``out`` that the decimal's row can't be encoded.
    """
    large, scaled, lost = _rescaling(node, column)
    out.refuse(large, path, f"has more digits than decimal({node.precision},{node.scale})")
    out.refuse(lost, path, f"has more than the schema's {node.scale} decimal places")
    return scaled


def _rescaling(node: nodes.Decimal, column: pa.Array) -> tuple[Mask, pa.Array, Mask]:
    """Converts decimals to the schema's scale. Returns three arrays:

    * the mask of the rows with too many digits before the decimal point
    * the converted column, which has 0 in these rows
    * the mask of the rows with too many digits after the decimal point
    """
    none, whole_digits = np.zeros(len(column), np.bool_), node.precision - node.scale
    large = none
    if column.type.precision - column.type.scale > whole_digits:
        most = pa.scalar(decimal.Decimal(10) ** whole_digits)
        large = _flags(pc.greater_equal(pc.abs(column), most))
        column = pc.if_else(bools(large), pa.scalar(0, column.type), column)
    if column.type.scale == node.scale:
        return large, column, none
    scaled = column.cast(pa.decimal128(38, node.scale), safe=False)
    if node.scale > column.type.scale:
        return large, scaled, none
    return large, scaled, _flags(pc.not_equal(scaled.cast(column.type), column))


def _signed_size(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The number of bytes that each number needs in two's complement, at least one."""
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
    """Appends google.protobuf.Timestamp messages. For a time before 1970, the seconds are rounded
    down, so that the nanoseconds are not negative.
    """
    micros = _integers(column, valid).astype(np.int64)
    outside = (micros < _YEAR_1) | (micros >= _YEAR_10000)
    out.refuse(outside, path, "is not in the years 1 to 9999, as google.protobuf.Timestamp is")
    inner = RowPieces(len(micros))
    # In a field without presence, zero is left out.
    parts = (b"\x08", micros // _PER_SECOND), (b"\x10", micros % _PER_SECOND * 1000)
    for start, numbers in parts:
        there = numbers != 0 if valid is None else (numbers != 0) & valid
        inner.add_bytes(start, there)
        inner.add_packed(pack_unsigned(numbers), there)
    _add_joined(inner, out, valid, length=True)


def _json_text(
    node: nodes.JsonText, column: pa.Array, _: Valid, out: RowPieces, _path: str
) -> None:
    if node.kept:
        column = column.view(_with_kept_nulls(column.type, node.kept))
    out.add_column(json_value(column))
    for way, name, reason in node.required:
        out.refuse(_nulls_at(column, way), name, reason)


def _with_kept_nulls(kind: pa.DataType, ways: Collection[tuple[int, ...]]) -> pa.DataType:
    """Adds metadata to some fields of the Arrow type ``kind``. ``ways`` are the paths of these
    fields. Because of the metadata, the JSON encoder writes the nulls of these fields.
    """
    if pa.types.is_struct(kind):
        fields = []
        for index, field in enumerate(kind):
            inner = {way[1:] for way in ways if way[:1] == (index,)}
            field = field.with_type(_with_kept_nulls(field.type, inner))  # noqa: PLW2901
            fields.append(field.with_metadata(NULL_IS_WRITTEN) if () in inner else field)
        return pa.struct(fields)
    inner = {way[1:] for way in ways if way[:1] == (nodes.ITEMS,)}
    if not inner:
        return kind
    if pa.types.is_map(kind):
        item = kind.item_field.with_type(_with_kept_nulls(kind.item_type, inner))
        return pa.map_(kind.key_field, item)
    item = kind.value_field.with_type(_with_kept_nulls(kind.value_type, inner))
    return pa.large_list(item) if pa.types.is_large_list(kind) else pa.list_(item)


def _nulls_at(column: pa.Array, way: Sequence[int]) -> Mask:
    """The mask of the rows that have a null at the path ``way``. A row is not in the mask if a
    parent of the value at this path is null.
    """
    rows, row_of = len(column), None
    for step in way:
        valid = valid_of(column)
        if valid is not None:
            kept = valid.nonzero()[0]
            row_of = kept if row_of is None else row_of[kept]
            column = column.take(pa.array(kept))
        if step != nodes.ITEMS:
            column = column.field(step)
            continue
        is_map = pa.types.is_map(column.type)
        items, offsets = list_items(column)
        row_of = np.repeat(np.arange(len(column)) if row_of is None else row_of, np.diff(offsets))
        column = items.field(1) if is_map else items
    nulls: Mask = column.is_null().to_numpy(zero_copy_only=False)
    if row_of is None:
        return nulls
    found = np.zeros(rows, np.bool_)
    found[row_of[nulls]] = True
    return found


def _add_joined(inner: RowPieces, out: RowPieces, valid: Valid, *, length: bool = False) -> None:
    """Joins the bytes of each row of ``inner`` into one piece, and appends the piece to a row of
    ``out``.

    ``inner`` has a row for each row of ``out``, or only for each row in the mask ``valid``. In the
    second case, the mask ``[False, True, True]`` means that row 0 of ``inner`` is appended to row 1
    of ``out``, and row 1 to row 2.

    If ``length`` is true, the size of the piece in bytes is written before the piece, in the rows
    of ``valid``.
    """
    offsets, data = inner.joined()
    lengths = np.diff(offsets)
    if valid is not None and inner.rows < out.rows:
        lengths = np.zeros(out.rows, np.int64)
        lengths[valid] = np.diff(offsets)
    if length:
        out.add_packed(pack_unsigned(lengths), valid)
    out.add_column(binary_of(ends_of(lengths), data))


def _struct(node: nodes.Record, column: pa.Array, valid: Valid, out: RowPieces, path: str) -> None:
    # If the length is written first, or the column has nulls, the whole record must be one piece.
    # In all other cases, each field is a piece.
    if valid is None and not node.length:
        _record(node, column, out, path)
        return
    there, inner = _nested(column, valid)
    _record(node, there, inner, path)
    _add_nested(inner, out, valid, length=node.length)


def _message(
    node: nodes.Message, column: pa.Array, valid: Valid, out: RowPieces, path: str
) -> None:
    there, inner = _nested(column, valid)
    _encode(node.field, there, inner, path)
    _add_nested(inner, out, valid, length=True)


def _nested(column: pa.Array, valid: Valid) -> tuple[pa.Array, RowPieces]:
    """Returns the rows of ``column`` in the mask ``valid``, and an empty ``RowPieces`` for their
    bytes. If ``valid`` is None, returns all rows.

    Null rows must not be in the mask. In Arrow, the children of a null row can have any values.
    """
    there = column if valid is None else column.take(pa.array(valid.nonzero()[0]))
    return there, RowPieces(len(there))


def _add_nested(inner: RowPieces, out: RowPieces, valid: Valid, *, length: bool) -> None:
    """Appends each row of ``inner`` to a row of ``out``, as :func:`_add_joined` does. If a row of
    ``inner`` can't be encoded, notes that this row of ``out`` can't be encoded either.
    """
    out.refuse_of(inner.refusals, np.arange(out.rows) if valid is None else valid.nonzero()[0])
    _add_joined(inner, out, valid, length=length)


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
    nodes.Uuid: _uuid, nodes.Decimals: _decimals, nodes.Symbols: _enum, nodes.Timestamp: _timestamp,
    nodes.Message: _message, nodes.Record: _struct, nodes.Items: _items, nodes.JsonText: _json_text,
}  # fmt: skip
