"""Arrow columns as Avro's binary encoding, one pass for each column.

Owns: :func:`encode`, which follows the nodes of ``avro_nodes``. Never: a schema, a row by itself
(but one that is not UTF-8).

A row's bytes are pieces (``RowPieces``). What is nested becomes the pieces of its parent:
fields of a struct directly, items of a list as the slice of their joined bytes.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.records.formats.arrow_values import (
    binary_of,
    children,
    fixed_width,
    list_items,
    not_utf8,
    validity,
)
from spark_kafka_sink.records.formats.avro.avro_nodes import (
    Array,
    Constant,
    Decimal,
    Fixed,
    Map,
    Node,
    Number,
    Record,
    Scalar,
    Symbols,
    Value,
)
from spark_kafka_sink.records.formats.row_pieces import Mask, RowPieces
from spark_kafka_sink.records.gather import ends_of, lengths_of
from spark_kafka_sink.records.json.json_text import plain_binary
from spark_kafka_sink.records.varint import Packed, highest

_END = b"\x00"
_INT32 = np.iinfo(np.int32)
_1, _3, _64 = np.uint64(1), np.uint64(3), np.uint64(64)


def encode(value: Value, column: pa.Array, out: RowPieces, path: str) -> None:
    """Adds each row of ``column`` to ``out``; ``path`` names it for refusals."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    valid = validity(column)
    if valid is None:
        out.add_bytes(value.branch)
        _encode(value.node, column, None, out, path)
        return
    if value.null is None:
        out.refuse(~valid, path, "is null, and the schema requires a value")
        out.add_bytes(value.branch, valid)
    elif len(value.branch) == len(value.null) == 1:
        branch = np.where(valid, np.uint64(value.branch[0]), np.uint64(value.null[0]))
        out.add_packed([Packed(branch, np.uint64(1), 1)])
    else:
        out.add_bytes(value.null, ~valid)
        out.add_bytes(value.branch, valid)
    _encode(value.node, column, valid, out, path)


def encode_record(record: Record, columns: Sequence[pa.Array], out: RowPieces, path: str) -> None:
    """Adds the fields of each row."""
    for field in record.fields:
        if isinstance(field.value, Constant):
            out.add_bytes(field.value.data)
        else:
            below = f"{path}.{field.name}" if path else field.name
            encode(field.value, columns[field.index], out, below)


def _encode(node: Node, column: pa.Array, valid: Mask | None, out: RowPieces, path: str) -> None:
    """The values where ``valid`` (None: all)."""
    if len(column) == 0 or (valid is not None and not valid.any()):
        return
    match node:
        case Scalar():
            _scalar(node, column, valid, out, path)
        case Number():
            _number(node, column, valid, out, path)
        case Decimal():
            _decimal(node, column, valid, out, path)
        case Fixed():
            data = plain_binary(column)
            wrong = lengths_of(data) != node.size
            out.refuse(
                _where(wrong, valid), path, f"is not {node.size} bytes long, as the fixed is"
            )
            out.add_column(data)
        case Symbols():
            _symbol(node, column, valid, out, path)
        case Record():
            _struct(node, column, valid, out, path)
        case Array() | Map():
            _list(node, column, valid, out, path)


def _where(flags: Mask, valid: Mask | None) -> Mask:
    return flags if valid is None else flags & valid


def _scalar(node: Scalar, column: pa.Array, valid: Mask | None, out: RowPieces, path: str) -> None:
    if node in (Scalar.STRING, Scalar.BYTES):
        data = plain_binary(column)
        if node is Scalar.STRING:
            out.refuse(not_utf8(data), path, "is not UTF-8")
        out.add_numbers(lengths_of(data), valid)
        out.add_column(data)
    elif node is Scalar.BOOLEAN:
        bits = column.fill_null(False) if valid is not None else column  # noqa: FBT003
        flags = bits.to_numpy(zero_copy_only=False).astype(np.uint64)
        out.add_packed([Packed(flags, np.uint64(1), 1)], valid)
    elif node is Scalar.FLOAT:
        words = fixed_width(column, np.dtype(np.uint32), valid).astype(np.uint64)
        out.add_packed([Packed(words, np.uint64(4), 4)], valid)
    elif node is Scalar.DOUBLE:
        if pa.types.is_float32(column.type):
            column = column.cast(pa.float64())
        double = fixed_width(column, np.dtype(np.uint64), valid).view(np.uint64)
        out.add_packed([Packed(double, np.uint64(8), 8)], valid)


def _number(node: Number, column: pa.Array, valid: Mask | None, out: RowPieces, path: str) -> None:
    dtype = np.dtype(f"i{column.type.bit_width // 8}")
    values = fixed_width(column, dtype, valid)
    if node.divisor != 1:
        values = values // node.divisor
    if node.is_int and values.dtype.itemsize > 4:
        wrong = (values < _INT32.min) | (values > _INT32.max)
        out.refuse(wrong, path, "is a number of more than 32 bits, and the schema has an int")
    # Doubling one of fewer bits would be out of its type's bounds.
    out.add_numbers(values.astype(np.int32) if values.dtype.itemsize < 4 else values, valid)


def _decimal(
    node: Decimal, column: pa.Array, valid: Mask | None, out: RowPieces, path: str
) -> None:
    if node.checked:
        column = _rescaled(node, column, out, path)
    words = np.frombuffer(column.buffers()[1], np.int64, 2 * len(column), 16 * column.offset)
    low, high = words[::2], words[1::2]
    if valid is not None:
        low, high = low * valid, high * valid
    small = not (high != low >> 63).any()
    if small and (node.size is None or node.size <= 8):
        size = _signed_size(low) if node.size is None else np.full(1, node.size, np.uint64)
        most = int(highest(size))
        if node.size is None:
            out.add_packed([Packed(size << _1, _1, 1)], valid)
        # The number's own bytes to the top of the word, and from there to the front.
        shifted = low.view(np.uint64) << (_64 - (size << _3))
        out.add_packed([Packed(shifted.byteswap(), size, most)], valid)
        return
    size = np.where(high == low >> 63, _signed_size(low), np.uint64(8) + _signed_size(high))
    width = 16 if node.size is None else node.size
    kept = size if node.size is None else np.full(len(size), np.uint64(width))
    sign = np.repeat((high >> 63).astype(np.uint8)[:, None], max(width - 16, 0), axis=1)
    number = np.stack([high, low], axis=1).astype(">i8").view(np.uint8).reshape(-1, 16)
    everything = np.concatenate([sign, number], axis=1)
    taken = np.arange(everything.shape[1]) >= everything.shape[1] - kept[:, None].astype(np.int64)
    if node.size is None:
        out.add_packed([Packed(size << _1, _1, 1)], valid)
    if valid is not None:
        taken &= valid[:, None]
    out.add_column(binary_of(ends_of(taken.sum(axis=1)), pa.py_buffer(everything[taken])))


def _rescaled(node: Decimal, column: pa.Array, out: RowPieces, path: str) -> pa.Array:
    """With the schema's scale; rows that it can't hold are refused, and 0."""
    whole_digits = node.precision - node.scale
    if column.type.precision - column.type.scale > whole_digits:
        limit = pa.scalar(decimal.Decimal(10) ** whole_digits)
        size = pc.abs(column)
        large = pc.fill_null(pc.greater_equal(size, limit), False)  # noqa: FBT003
        out.refuse(
            _flags(large), path, f"has more digits than decimal({node.precision},{node.scale})"
        )
        column = pc.if_else(large, pa.scalar(0, column.type), column)
    if column.type.scale == node.scale:
        return column
    scaled = column.cast(pa.decimal128(38, node.scale), safe=False)
    if node.scale < column.type.scale:
        back = scaled.cast(column.type)
        lost = pc.fill_null(pc.not_equal(back, column), False)  # noqa: FBT003
        out.refuse(_flags(lost), path, f"has more than the schema's {node.scale} decimal places")
    return scaled


def _flags(array: pa.Array) -> Mask:
    flags: Mask = array.to_numpy(zero_copy_only=False)
    return flags


def _signed_size(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The bytes of each in two's complement, at least one."""
    magnitude = values ^ (values >> 63)
    size = np.ones(len(values), np.uint64)
    largest = int(highest(magnitude, initial=0))
    for bits in range(7, 63, 8):
        if largest >> bits:
            size += magnitude >= 1 << bits
    return size


def _symbol(node: Symbols, column: pa.Array, valid: Mask | None, out: RowPieces, path: str) -> None:
    text = plain_binary(column)
    symbols = pa.array([one.encode() for one in node.symbols], text.type)
    found = pc.index_in(text, symbols)
    unknown = _where(~found.is_valid().to_numpy(zero_copy_only=False), valid)
    out.refuse(unknown, path, "is not one of the enum's symbols")
    out.add_numbers(found.fill_null(0).to_numpy(), valid)


def _struct(node: Record, column: pa.Array, valid: Mask | None, out: RowPieces, path: str) -> None:
    if valid is None:
        encode_record(node, children(column), out, path)
        return
    # The fields of a null may hold anything: only the others are encoded.
    rows = valid.nonzero()[0]
    inner = RowPieces(len(rows))
    encode_record(node, children(column.take(pa.array(rows))), inner, path)
    out.refuse_of(inner.refusals, rows)
    offsets, data = inner.joined()
    lengths = np.zeros(len(column), np.int64)
    lengths[rows] = np.diff(offsets)
    out.add_column(binary_of(ends_of(lengths), data))


def _list(
    node: Array | Map, column: pa.Array, valid: Mask | None, out: RowPieces, path: str
) -> None:
    """One block of items, if there are any, and the end."""
    items, offsets = list_items(column, valid)
    counts = np.diff(offsets)
    inner = RowPieces(len(items))
    below = f"{path}[]"
    if isinstance(node, Array):
        encode(node.item, items, inner, below)
    else:
        encode(_KEY, items.field(0), inner, f"{path} (a key)")
        encode(node.value, items.field(1), inner, below)
    out.refuse_of(inner.refusals, np.repeat(np.arange(len(column)), counts))
    out.add_numbers(counts, counts > 0)
    if len(items):
        ends, data = inner.joined()
        out.add_column(binary_of(ends[offsets], data))
    out.add_bytes(_END, valid)


_KEY = Value(Scalar.STRING)
