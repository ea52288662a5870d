"""Columns that hold the same values in other layouts of Arrow's: the payloads are the same."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from spark_kafka_sink.records.formats.avro_format import AvroFormat
from spark_kafka_sink.records.formats.binary.encoder import payloads_of
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.json_schema import JsonSchemaFormat
from spark_kafka_sink.records.formats.protobuf_format import ProtobufFormat

K = ColumnKind
FORMATS = {"avro": AvroFormat(), "protobuf": ProtobufFormat(None), "json": JsonSchemaFormat()}
INT32, INT64 = 2**31, 2**63
#: The first and the last microsecond of years 1 to 9999.
YEARS = (-62135596800000000, 253402300799999999)


def of(kind, *children, names=(), precision=38, scale=10):
    return ColumnType(kind, kind.name, True, children, names, precision=precision, scale=scale)


def together(**columns):
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def payloads(format_, kind, column):
    record = ColumnType(K.STRUCT, "struct", False, (kind,), ("a",))
    schema = format_.derive(record, "r")
    made = payloads_of(format_.plan(schema, b"", record), together(a=column), "")
    assert not made.refusals
    return made.array.to_pylist()


TEXTS = ["a", None, "", "words that are longer than a view holds inline", "\u00e4\U0001f600"]
BYTES = [None if one is None else one.encode() for one in TEXTS]
STRUCT = pa.struct([("n", pa.int64()), ("t", pa.string())])
STRUCT_KIND = of(K.STRUCT, of(K.LONG), of(K.STRING), names=("n", "t"))
STRUCTS = [{"n": 1, "t": "x"}, None, {"n": None, "t": None}, {"n": -5, "t": ""}, None]
LISTS = [[1, -2], None, [], [INT64 - 1], [-INT64]]
MAPS = [[("k", 1)], None, [], [("l", -2), ("m", 3)], [("", 0)]]


def covering_nulls(values, kind):
    """A list or map whose nulls have items beneath them."""
    valid = pa.array([one is not None for one in values])
    whole = pa.array([one if one is not None else values[0] for one in values], kind)
    buffers = [valid.buffers()[1], *whole.buffers()[1:2]]
    return pa.Array.from_buffers(kind, len(values), buffers, children=[whole.values])


def structs_with_values_beneath_nulls():
    valid = pa.array([one is not None for one in STRUCTS])
    children = [
        pa.array([7 if one is None else one["n"] for one in STRUCTS], pa.int64()),
        pa.array(["beneath" if one is None else one["t"] for one in STRUCTS]),
    ]
    buffers = [valid.buffers()[1]]
    return pa.Array.from_buffers(STRUCT, len(STRUCTS), buffers, children=children)


#: The type of the column, its values as plain as they can be, and the same in other layouts.
LAYOUTS = {
    "text": (of(K.STRING), pa.array(TEXTS), [
        pa.array(TEXTS, pa.large_string()), pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int8()), pa.array(TEXTS)),
    ]),
    "bytes": (of(K.BINARY), pa.array(BYTES), [
        pa.array(BYTES, pa.large_binary()), pa.array(BYTES, pa.binary_view()),
        pa.array(BYTES).dictionary_encode(),
    ]),
    "bytes of one size": (of(K.BINARY), pa.array([b"ab", None, b"cd"]), [
        pa.array([b"ab", None, b"cd"], pa.binary(2)),
    ]),
    "numbers": (of(K.LONG), pa.array([1, None, INT64 - 1, -INT64, 0]), [
        pa.array([1, None, INT64 - 1, -INT64, 0]).dictionary_encode(),
    ]),
    "small numbers": (of(K.INT), pa.array([1, None, -128, 127], pa.int32()), [
        pa.array([1, None, -128, 127], pa.int8()), pa.array([1, None, -128, 127], pa.int16()),
    ]),
    "structs": (STRUCT_KIND, pa.array(STRUCTS, STRUCT), [structs_with_values_beneath_nulls()]),
    "lists": (of(K.ARRAY, of(K.LONG)), pa.array(LISTS, pa.list_(pa.int64())), [
        pa.array(LISTS, pa.large_list(pa.int64())),
        covering_nulls(LISTS, pa.list_(pa.int64())),
        covering_nulls(LISTS, pa.large_list(pa.int64())),
    ]),
    "maps": (of(K.MAP, of(K.STRING), of(K.LONG)), pa.array(MAPS, pa.map_(pa.string(), pa.int64())),
             [covering_nulls(MAPS, pa.map_(pa.string(), pa.int64()))]),
    "lists of structs": (of(K.ARRAY, STRUCT_KIND),
                         pa.array([STRUCTS[:1], None, STRUCTS[2:4]], pa.list_(STRUCT)), []),
    "structs of structs": (
        of(K.STRUCT, STRUCT_KIND, names=("s",)),
        pa.array([{"s": one} for one in STRUCTS] + [None], pa.struct([("s", STRUCT)])), []),
    "decimals": (of(K.DECIMAL), pa.array(
        [Decimal(f"{sign}{'9' * 28}.{'9' * 10}") for sign in ("", "-")]
        + [None, Decimal(0), Decimal("-0.0000000001"), Decimal(2**63).scaleb(-10)],
        pa.decimal128(38, 10)), []),
    "instants": (of(K.TIMESTAMP), pa.array(
        [0, -1, None, *YEARS], pa.timestamp("us", "UTC")), []),
    "far instants": (of(K.TIMESTAMP), pa.array(
        [0, INT64 - 1, None, -INT64], pa.timestamp("us", "UTC")), []),
    "local times": (of(K.TIMESTAMP_NTZ), pa.array(
        [0, -1, None, INT64 - 1, -INT64], pa.timestamp("us")), []),
    "days": (of(K.DATE), pa.array([0, -1, None, INT32 - 1, -INT32], pa.date32()), []),
    "flags": (of(K.BOOLEAN), pa.array([True, None, False, True]), []),
    "floats": (of(K.FLOAT), pa.array([0.5, None, -0.0, float("inf")], pa.float32()), []),
}  # fmt: skip
#: Types that Protobuf has no field for.
UNWRITABLE = {"protobuf": {"decimals", "local times", "days", "far instants"}}
CASES = [
    (format_, name)
    for format_ in FORMATS
    for name in LAYOUTS
    if name not in UNWRITABLE.get(format_, ())
]


@pytest.mark.parametrize(("format_", "name"), CASES)
def test_a_slice_has_the_payloads_of_its_rows(format_, name):
    """Offsets of the buffers, of nested ones, and of the bits of nulls count."""
    kind, plain, _ = LAYOUTS[name]
    alone = payloads(FORMATS[format_], kind, plain)
    many = pa.concat_arrays([plain, plain, plain])
    for start in range(len(plain) * 2):
        for length in (0, 1, 2, len(plain)):
            wanted = (alone * 3)[start : start + length]
            found = payloads(FORMATS[format_], kind, many.slice(start, length))
            assert found == wanted, (start, length)


@pytest.mark.parametrize(
    ("format_", "name"), [(format_, name) for format_, name in CASES if LAYOUTS[name][2]]
)
def test_other_layouts_of_the_same_values_have_the_same_payloads(format_, name):
    kind, plain, others = LAYOUTS[name]
    wanted = payloads(FORMATS[format_], kind, plain)
    for other in others:
        assert payloads(FORMATS[format_], kind, other) == wanted, other.type
        assert payloads(FORMATS[format_], kind, other.slice(1, 3)) == wanted[1:4], other.type


@pytest.mark.parametrize(("format_", "name"), CASES)
def test_a_batch_of_nulls_has_a_payload_for_each_row(format_, name):
    kind, plain, _ = LAYOUTS[name]
    nulls = payloads(FORMATS[format_], kind, pa.nulls(3, plain.type))
    empty = {"avro": b"\0", "protobuf": b"", "json": b"{}"}[format_]
    assert nulls == [empty] * 3
    assert payloads(FORMATS[format_], kind, pa.nulls(3)) == nulls  # of no type at all
    assert payloads(FORMATS[format_], kind, pa.nulls(0, plain.type)) == []
