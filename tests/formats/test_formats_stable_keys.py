"""A key is always the same bytes, whichever rows are around it, and two keys never are."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.records.column_plan import ComposedColumns, NamedColumn
from spark_kafka_sink.records.formats.avro_format import AvroFormat
from spark_kafka_sink.records.formats.binary.encoder import payloads_of
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.composed_columns import payloads_of_part
from spark_kafka_sink.records.formats.protobuf_format import ProtobufFormat

K = ColumnKind
FORMATS = {"avro": AvroFormat(), "protobuf": ProtobufFormat(None)}


def of(kind, *children, names=()):
    return ColumnType(kind, kind.name, True, children, names, precision=12, scale=2)


TEXT = st.one_of(st.none(), st.sampled_from(["", "a", "b", "longer than a view holds inline"]))
LONG = st.one_of(st.none(), st.integers(-2, 2), st.integers(-(2**63), 2**63 - 1))
#: Arrow's type, ours, values.
COLUMNS = {
    "n": (pa.int64(), of(K.LONG), LONG),
    "t": (pa.string(), of(K.STRING), TEXT),
    "d": (pa.decimal128(12, 2), of(K.DECIMAL), st.sampled_from([None, *map(Decimal, "01")])),
    "day": (pa.date32(), of(K.DATE), st.sampled_from([None, dt.date(2026, 1, 1)])),
    "l": (pa.list_(pa.string()), of(K.ARRAY, of(K.STRING)), st.lists(TEXT, max_size=2)),
    "s": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        of(K.STRUCT, of(K.LONG), of(K.STRING), names=("a", "b")),
        st.builds(lambda a, b: {"a": a, "b": b}, LONG, TEXT),
    ),
}
#: A null in a list; a decimal and a date have no single field.
NOT_IN_PROTOBUF = ("l", "d", "day")


@st.composite
def keys(draw, without=()):
    """Columns of a key, and two batches of rows that hold some keys often."""
    names = draw(st.lists(st.sampled_from([n for n in COLUMNS if n not in without]), min_size=1,
                          max_size=3, unique=True))  # fmt: skip
    some = draw(st.lists(st.tuples(*(COLUMNS[name][2] for name in names)), min_size=1, max_size=5))
    rows = st.lists(st.sampled_from(some), min_size=1, max_size=12)
    return names, (draw(rows), draw(rows))


def columns_of(names, rows, skipped):
    """With ``skipped`` other rows in front, as a slice of a batch has."""
    made = []
    for number, name in enumerate(names):
        values = [row[number] for row in rows]
        made.append(pa.array(values[:1] * skipped + values, COLUMNS[name][0])[skipped:])
    return made


def check(encode, names, batches, skipped):
    bytes_of: dict[str, bytes] = {}
    for rows, offset in zip(batches, (0, skipped), strict=True):
        for row, payload in zip(rows, encode(columns_of(names, rows, offset)), strict=True):
            assert bytes_of.setdefault(repr(row), payload) == payload
    assert len(set(bytes_of.values())) == len(bytes_of)


@pytest.mark.parametrize("format_", FORMATS)
@given(drawn=st.data(), skipped=st.integers(0, 9))
def test_the_same_key_is_the_same_bytes_with_a_schema(format_, drawn, skipped):
    names, batches = drawn.draw(keys(without=NOT_IN_PROTOBUF if format_ == "protobuf" else ()))
    kind = ColumnType(K.STRUCT, "struct", False, tuple(COLUMNS[n][1] for n in names), tuple(names))
    made = FORMATS[format_]
    plan = made.plan(made.derive(kind, "r"), b"\x00\x00\x00\x00\x01", kind)

    def encode(columns):
        payloads = payloads_of(plan, pa.StructArray.from_arrays(columns, names), "")
        assert not payloads.refusals
        return payloads.array.to_pylist()

    check(encode, names, batches, skipped)


@given(drawn=keys(without=("d",)), skipped=st.integers(0, 9))
def test_the_same_key_is_the_same_json(drawn, skipped):
    names, batches = drawn
    part = ComposedColumns(tuple(NamedColumn(name, i) for i, name in enumerate(names)))

    def encode(columns):
        batch = pa.RecordBatch.from_arrays(columns, names)
        return payloads_of_part(part, batch).array.to_pylist()

    check(encode, names, batches, skipped)
