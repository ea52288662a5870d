"""Arrow columns as Protobuf's wire format, one pass for each column.

Owns: :func:`encode_message`, which follows the nodes of ``proto_nodes``. Never: a schema, a row by
itself. A null is a field that is left out; a row's bytes are pieces (``RowPieces``).
"""

from __future__ import annotations

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
from spark_kafka_sink.records.formats.protobuf.proto_nodes import (
    Field,
    Map,
    Message,
    Repeated,
    Scalar,
    Symbols,
    Value,
    Wire,
    tag,
)
from spark_kafka_sink.records.formats.row_pieces import Mask, RowPieces
from spark_kafka_sink.records.gather import ends_of, lengths_of
from spark_kafka_sink.records.json.json_text import plain_binary
from spark_kafka_sink.records.varint import Packed, pack, pack_unsigned

_PER_SECOND = 1_000_000


def encode_message(
    message: Message, columns: Sequence[pa.Array], out: RowPieces, path: str
) -> None:
    """Adds the fields of each row."""
    for field in message.fields:
        below = f"{path}.{field.name}" if path else field.name
        column = columns[field.index]
        if isinstance(column, pa.DictionaryArray):
            column = column.dictionary_decode()
        valid = validity(column)
        if valid is not None and field.required:
            out.refuse(~valid, below, "is null, and the schema requires a value")
        if len(column) == 0 or (valid is not None and not valid.any()):
            continue
        if isinstance(field.value, Repeated | Map):
            _repeated(field, column, valid, out, below)
        else:
            out.add_bytes(tag(field.number, field.value), valid)
            _value(field.value, column, valid, out, below)


def _value(value: Value, column: pa.Array, valid: Mask | None, out: RowPieces, path: str) -> None:
    """The values where ``valid`` (None: all), with their lengths."""
    if isinstance(value, Message):
        rows = np.arange(len(column)) if valid is None else valid.nonzero()[0]
        inner = RowPieces(len(rows))
        fields = children(column if valid is None else column.take(pa.array(rows)))
        encode_message(value, fields, inner, path)
        out.refuse_of(inner.refusals, rows)
        _add_lengths_and(inner, rows, out)
    elif isinstance(value, Symbols):
        text = plain_binary(column)
        symbols = pa.array([one.encode() for one in value.symbols], text.type)
        found = pc.index_in(text, symbols)
        unknown = ~found.is_valid().to_numpy(zero_copy_only=False)
        refused = unknown if valid is None else unknown & valid
        out.refuse(refused, path, "is not one of the enum's symbols")
        numbers = np.array(value.numbers, np.int64).take(found.fill_null(0).to_numpy())
        out.add_packed(pack_unsigned(numbers), valid)
    else:
        _scalar(value, column, valid, out, path)


def _scalar(value: Scalar, column: pa.Array, valid: Mask | None, out: RowPieces, path: str) -> None:
    wire = value.wire
    if wire in (Wire.STRING, Wire.BYTES):
        data = plain_binary(column)
        if wire is Wire.STRING:
            out.refuse(not_utf8(data), path, "is not UTF-8")
        out.add_packed(pack_unsigned(lengths_of(data)), valid)
        out.add_column(data)
    elif wire is Wire.BOOL:
        bits = column.fill_null(False) if valid is not None else column  # noqa: FBT003
        flags = bits.to_numpy(zero_copy_only=False).astype(np.uint64)
        out.add_packed([Packed(flags, np.uint64(1), 1)], valid)
    elif wire in (Wire.FLOAT, Wire.DOUBLE):
        wide = wire is Wire.DOUBLE
        numbers = column.cast(pa.float64()) if wide and pa.types.is_float32(column.type) else column
        words = fixed_width(numbers, np.dtype(np.uint64 if wide else np.uint32), valid)
        size = 8 if wide else 4
        out.add_packed([Packed(words.astype(np.uint64), np.uint64(size), size)], valid)
    elif wire is Wire.TIMESTAMP:
        micros = fixed_width(column, np.dtype(np.int64), valid).astype(np.int64)
        _timestamp(micros, valid, out)
    else:
        dtype = np.dtype(f"i{column.type.bit_width // 8}")
        _integers(value, fixed_width(column, dtype, valid).astype(np.int64), valid, out, path)


def _integers(
    value: Scalar, numbers: npt.NDArray[np.int64], valid: Mask | None, out: RowPieces, path: str
) -> None:
    for limit, wrong in ((value.least, np.less), (value.most, np.greater)):
        if limit is not None:
            out.refuse(wrong(numbers, limit), path, "is a number that the field can't hold")
    if value.wire is Wire.ZIGZAG:
        out.add_packed(pack(numbers), valid)
    elif value.wire is Wire.VARINT:
        out.add_packed(pack_unsigned(numbers), valid)
    else:
        size = 4 if value.wire is Wire.FIXED32 else 8
        words = numbers.view(np.uint64) & np.uint64((1 << 8 * size) - 1)
        out.add_packed([Packed(words, np.uint64(size), size)], valid)


def _timestamp(micros: npt.NDArray[np.int64], valid: Mask | None, out: RowPieces) -> None:
    """A message of seconds and nanoseconds; the latter are never negative."""
    seconds = micros // _PER_SECOND
    inner = RowPieces(len(micros))
    # Of a field without presence, zero is left out.
    for start, numbers in ((b"\x08", seconds), (b"\x10", micros % _PER_SECOND * 1000)):
        there = numbers != 0
        inner.add_bytes(start, there)
        inner.add_packed(pack_unsigned(numbers), there)
    rows = np.arange(len(micros))
    _add_lengths_and(inner, rows, out, valid)


def _add_lengths_and(
    inner: RowPieces, rows: npt.NDArray[np.integer], out: RowPieces, valid: Mask | None = None
) -> None:
    """The bytes of ``inner``, whose rows are ``rows`` of ``out``, each after its length."""
    offsets, data = inner.joined()
    lengths = np.zeros(out.rows, np.int64)
    lengths[rows] = np.diff(offsets)
    where = np.zeros(out.rows, np.bool_)
    where[rows] = True
    if valid is not None:
        where &= valid
    out.add_packed(pack_unsigned(lengths), where)
    column = binary_of(ends_of(lengths), data)
    out.add_column(column if valid is None else pc.if_else(pa.array(where), column, None))


def _repeated(
    field: Field, column: pa.Array, valid: Mask | None, out: RowPieces, path: str
) -> None:
    items, offsets = list_items(column, valid)
    counts = np.diff(offsets)
    inner = RowPieces(len(items))
    value, below = field.value, f"{path}[]"
    packed = isinstance(value, Repeated) and value.packed
    if isinstance(value, Map):
        entries = Message((Field("key", 1, 0, value.key), Field("value", 2, 1, value.value)))
        inner.add_bytes(tag(field.number, value))
        nulls = validity(items.field(1))
        if nulls is not None:
            inner.refuse(~nulls, below, "is null, and a map of Protobuf has no null")
        _value(entries, items, None, inner, below)
    else:
        assert isinstance(value, Repeated)
        nulls = validity(items)
        if nulls is not None:
            inner.refuse(~nulls, below, "is null, and a repeated field has no null")
        if not packed:
            inner.add_bytes(tag(field.number, value.item))
        if len(items) and (nulls is None or nulls.any()):
            _value(value.item, items, nulls, inner, below)
    out.refuse_of(inner.refusals, np.repeat(np.arange(len(column)), counts))
    if not len(items):
        return
    ends, data = inner.joined()
    ends = ends[offsets]
    if packed:
        there = counts > 0
        out.add_bytes(tag(field.number, value), there)
        out.add_packed(pack_unsigned(np.diff(ends)), there)
    out.add_column(binary_of(ends, data))
