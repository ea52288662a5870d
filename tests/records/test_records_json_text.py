"""Columns as JSON, beside Python's own json where the two agree, and Spark's texts where not."""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.records import gather, row_pieces
from spark_kafka_sink.records.json.base64_text import base64_column
from spark_kafka_sink.records.json.json_text import json_objects, json_value, text_of
from spark_kafka_sink.records.json.plain_text import map_key_text
from spark_kafka_sink.records.json.variant_text import variant_column


def objects(**columns):
    rows = len(next(iter(columns.values())))
    return [
        one.decode()
        for one in json_objects(list(columns), list(columns.values()), rows).to_pylist()
    ]


def value(array):
    """The JSON of each value of one column."""
    return [one.removeprefix('{"a":').removesuffix("}") for one in objects(a=array)]


def dumped(cell):
    return json.dumps(cell, ensure_ascii=False, separators=(",", ":"))


TEXT = st.text('ab"\\\n\x00\u00e9\U0001f600', max_size=6)
INNER = pa.struct({"n": pa.int32(), 'odd "name': pa.string()})
INNERS = st.fixed_dictionaries({"n": st.integers(-(2**31), 2**31 - 1), 'odd "name': TEXT})
ROWS = st.fixed_dictionaries(
    {
        "text": st.none() | TEXT,
        "long": st.none() | st.integers(-(2**63), 2**63 - 1),
        "flag": st.none() | st.booleans(),
        "list": st.none() | st.lists(st.none() | TEXT, max_size=3),
        "struct": st.none() | INNERS,
        "structs": st.none() | st.lists(INNERS, max_size=3),
        "map": st.none() | st.dictionaries(TEXT, st.none() | st.integers(-9, 9), max_size=3),
    }
)
TYPES = {
    "text": pa.string(),
    "long": pa.int64(),
    "flag": pa.bool_(),
    "list": pa.list_(pa.string()),
    "struct": INNER,
    "structs": pa.list_(INNER),
    "map": pa.map_(pa.string(), pa.int32()),
}


def columns_of(rows):
    return {
        name: pa.array(
            [list(row[name].items()) if isinstance(row[name], dict) and name == "map" else row[name]
             for row in rows],
            kind,
        )
        for name, kind in TYPES.items()
    }  # fmt: skip


@given(st.lists(ROWS, max_size=8), st.integers(0, 8))
def test_rows_read_as_python_wrote_them_with_nulls_and_slices(rows, start):
    columns = columns_of(rows)
    cut = [column.slice(start) for column in columns.values()]
    told = json_objects(list(columns), cut, len(rows[start:])).to_pylist()
    for text, row in zip(told, rows[start:], strict=True):
        wanted = {name: row[name] for name in TYPES if row[name] is not None}
        assert json.loads(text) == wanted
        assert list(json.loads(text)) == list(wanted), "in the order of the columns"


@given(st.lists(st.text()))
def test_text_is_written_as_python_writes_it(cells):
    """But for control characters: Python's hexadecimal digits are small."""
    cells = [
        "".join(c for c in cell if c >= " " and not "\ud800" <= c < "\ue000") for cell in cells
    ]
    assert value(pa.array(cells, pa.string())) == list(map(dumped, cells))


def test_control_characters_are_jacksons():
    array = pa.array(["\x00\x01\x1f\x7f\u2028", '\b\t\n\f\r"\\/', "\\n"])
    assert value(array) == [
        '"\\u0000\\u0001\\u001F\x7f\u2028"',
        r'"\b\t\n\f\r\"\\/"',
        r'"\\n"',
    ]


def test_what_is_not_utf_8_becomes_what_java_reads():
    array = pa.array([b"\xffa", b"\xed\xa0\x80", b"\xc3(", b"\xe4\xbd", None]).view(pa.string())
    assert objects(a=array) == [
        '{"a":"\ufffda"}', '{"a":"\ufffd"}', '{"a":"\ufffd("}', '{"a":"\ufffd"}', "{}",
    ]  # fmt: skip


@given(st.lists(st.none() | st.binary(max_size=40), max_size=20), st.integers(0, 5))
def test_bytes_are_base64(cells, start):
    column = base64_column(pa.array(cells, pa.binary()).slice(start))
    wanted = [None if cell is None else base64.b64encode(cell) for cell in cells[start:]]
    assert column.to_pylist() == wanted


@given(st.lists(st.floats(), min_size=1))
def test_a_float_reads_as_the_same_number(cells):
    for text, cell in zip(value(pa.array(cells, pa.float64())), cells, strict=True):
        read = float(text.strip('"').replace("Infinity", "inf").lower())
        assert read == cell or np.isnan([read, cell]).all()
        assert text.startswith('"') == (not np.isfinite(cell))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (-100.5, "-100.5"), (0.001, "0.001"),
        (0.0001, "1.0E-4"), (-0.00015, "-1.5E-4"), (9999999.5, "9999999.5"), (1e7, "1.0E7"),
        (123456789.0, "1.23456789E8"), (1e15, "1.0E15"), (1.5e300, "1.5E300"), (1e-7, "1.0E-7"),
        (float("nan"), '"NaN"'), (float("inf"), '"Infinity"'), (float("-inf"), '"-Infinity"'),
        (100000000.0, "1.0E8"), (1020000000.0, "1.02E9"),
    ],
)  # fmt: skip
def test_a_double_is_written_as_java_writes_it(number, text):
    assert value(pa.array([number, 0.5])) == [text, "0.5"]
    assert objects(a=pa.array([None, number], pa.float64())) == ["{}", f'{{"a":{text}}}']


def test_a_float_has_the_digits_of_a_float():
    assert value(pa.array([0.1, 1e10, 16777216], pa.float32())) == ["0.1", "1.0E10", "1.6777216E7"]


#: Texts of Java 25, by the bits: where one digit gives a number back, two are closer to it.
TINY_DOUBLES = {
    1: "4.9E-324", 2: "9.9E-324", 3: "1.5E-323", 4: "2.0E-323", 10: "4.9E-323", 12: "5.9E-323",
    20: "9.9E-323", 21: "1.04E-322", 40: "2.0E-322", 202: "1.0E-321", 1000: "4.94E-321",
}  # fmt: skip
TINY_FLOATS = {
    1: "1.4E-45", 2: "2.8E-45", 3: "4.2E-45", 7: "9.8E-45", 12: "1.7E-44", 21: "2.9E-44",
    71: "9.9E-44", 80: "1.12E-43", 202: "2.83E-43", 1000: "1.401E-42",
}  # fmt: skip


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize(
    ("texts", "bits", "floats", "code", "kind"),
    [
        (TINY_DOUBLES, np.int64, np.float64, "<d", 7),
        (TINY_FLOATS, np.int32, np.float32, "<f", 14),
    ],
)
def test_the_least_numbers_have_two_digits_as_in_java(texts, bits, floats, code, kind, sign):
    numbers = np.array(list(texts), bits).view(floats) * floats(f"{sign}1")
    wanted = [sign + text for text in texts.values()]
    assert value(pa.array(numbers)) == wanted
    assert value(pa.array([None, *numbers, 0.5], pa.from_numpy_dtype(floats)))[1:-1] == wanted
    cells = [bytes([kind << 2]) + struct.pack(code, one) for one in numbers]
    variant = pa.StructArray.from_arrays(
        [pa.array(cells), pa.array([b"\x01\x00\x00"] * len(cells))], ["value", "metadata"]
    )
    assert variant_column(variant, "UTC").to_pylist() == [text.encode() for text in wanted]


def test_decimals_keep_their_scale_as_big_decimals_text():
    cells = [Decimal(0), Decimal("1E-18"), Decimal("-12.5")]
    assert value(pa.array(cells, pa.decimal128(38, 18))) == [
        "0E-18", "1E-18", "-12.500000000000000000",
    ]  # fmt: skip


def test_dates_beyond_four_digits_have_a_sign():
    days = pa.array([0, 2_932_896, 2_932_897, -719_893], pa.int32()).cast(pa.date32())
    assert value(days) == ['"1970-01-01"', '"9999-12-31"', '"+10000-01-01"', '"-0001-01-01"']


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "2020-07-01T00:00:00.999Z"),
        ("America/New_York", "2020-06-30T20:00:00.999-04:00"),
        ("+05:30", "2020-07-01T05:30:00.999+05:30"),
        (None, "2020-07-01T00:00:00.999"),
    ],
)
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_timestamp_has_the_sessions_zone_and_milliseconds(zone, text, unit):
    instant = dt.datetime(2020, 7, 1, 0, 0, 0, 999_000 if unit == "ms" else 999_999, dt.UTC)
    array = pa.array([instant, None], pa.timestamp(unit, "UTC")).view(pa.timestamp(unit, zone))
    assert objects(a=array) == [f'{{"a":"{text}"}}', "{}"]


def test_summer_and_winter_before_and_after_and_local_mean_time():
    seconds = pa.array([0, -1, 1593561600, -2717650800 - 86400 * 365], pa.int64())
    zoned = seconds.view(pa.timestamp("s", "America/New_York"))
    assert value(zoned) == [
        '"1969-12-31T19:00:00.000-05:00"',
        '"1969-12-31T18:59:59.000-05:00"',
        '"2020-06-30T20:00:00.000-04:00"',
        '"1882-11-18T12:03:58.000-04:56:02"',
    ]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(), pa.large_string(), pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.large_string()),
    ],
    ids=str,
)  # fmt: skip
def test_any_of_arrows_strings_is_a_string(kind):
    plain = pa.array(["a", None, "\u00e9" * 20])
    array = (
        plain.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else plain.cast(kind)
    )
    assert objects(a=array) == ['{"a":"a"}', "{}", '{"a":"' + "\u00e9" * 20 + '"}']
    assert text_of(array).to_pylist() == [b"a", None, ("\u00e9" * 20).encode()]


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)], ids=str
)
def test_any_of_arrows_binaries_is_base64(kind):
    assert value(pa.array([b"abc", b"xyz"], kind)) == ['"YWJj"', '"eHl6"']


@pytest.mark.parametrize("kind", [*TYPES.values(), pa.null(), pa.float64(), pa.binary(),
                                  pa.date32(), pa.timestamp("us", "UTC"),
                                  pa.large_list(pa.int8())], ids=str)  # fmt: skip
def test_nothing_but_nulls_and_nothing_at_all(kind):
    assert objects(a=pa.nulls(2, kind), b=pa.array([1, 2])) == ['{"b":1}', '{"b":2}']
    assert objects(a=pa.nulls(2, kind)) == ["{}", "{}"]
    assert objects(a=pa.nulls(0, kind)) == []


def test_no_column_is_an_empty_object():
    assert json_objects([], [], 2).to_pylist() == [b"{}", b"{}"]


def test_nulls_are_omitted_in_structs_and_kept_in_lists_and_maps():
    inner = pa.struct({"x": pa.int8(), "y": pa.list_(pa.int8())})
    array = pa.array([{"x": None, "y": [1, None]}, {"x": None, "y": None}, None], inner)
    lists = pa.array([[{"x": None, "y": None}, None], [], None], pa.list_(inner))
    maps = pa.array(
        [[("k", None), ("l", {"x": 1, "y": None})], [], None], pa.map_(pa.string(), inner)
    )
    assert objects(s=array, l=lists, m=maps) == [
        '{"s":{"y":[1,null]},"l":[{},null],"m":{"k":null,"l":{"x":1}}}',
        '{"s":{},"l":[],"m":{}}',
        "{}",
    ]


def test_the_keys_of_a_map_are_names_whatever_their_type():
    for kind, keys in ((pa.int64(), [1, -2]), (pa.bool_(), [True, False]),
                       (pa.decimal128(4, 2), [Decimal("1.50"), Decimal("-0.10")])):  # fmt: skip
        maps = pa.array([[(keys[0], "x")], [(keys[1], "y")]], pa.map_(kind, pa.string()))
        names = [str(key).lower() for key in keys]
        assert value(maps) == [f'{{"{names[0]}":"x"}}', f'{{"{names[1]}":"y"}}']


def test_a_name_is_escaped_as_a_value_is():
    assert objects(**{'a"\\\n\u00e9': pa.array([1])}) == ['{"a\\"\\\\\\n\u00e9":1}']


def test_a_huge_row_stands_beside_small_ones():
    huge = "\u00e9\n" * 3_000_000
    array = pa.array(["a", huge, None])
    told = objects(a=array, b=pa.array([1, 2, 3]))
    assert json.loads(told[1]) == {"a": huge, "b": 2}
    assert (told[0], told[2]) == ('{"a":"a","b":1}', '{"b":3}')


def test_an_older_arrow_that_casts_no_views_writes_the_same(monkeypatch):
    rows = [{"text": "x" * 30, "long": None, "flag": True, "list": ["a", None], "struct": None,
             "structs": [], "map": {"k": 1}}, dict.fromkeys(TYPES)]  # fmt: skip
    columns = columns_of(rows)
    new = json_objects(list(columns), list(columns.values()), 2)
    monkeypatch.setattr(row_pieces, "new_gather", gather.TakeGather)
    assert json_objects(list(columns), list(columns.values()), 2).equals(new)


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (pa.array([1, -2, None], pa.int16()), [b"1", b"-2", None]),
        (pa.array([True, None]), [b"true", None]),
        (pa.array([Decimal("0.000001"), Decimal(-1)], pa.decimal128(9, 6)),
         [b"0.000001", b"-1.000000"]),
        (pa.array([dt.date(2020, 1, 2), None]), [b"2020-01-02", None]),
        (pa.array([b"\xff", None]), [b"\xff", None]),
        (pa.nulls(1), [None]),
    ],
)  # fmt: skip
def test_a_single_column_as_text(array, texts):
    assert text_of(array).to_pylist() == texts


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (2**63 - 1, "+294247-01-10T04:00:54.775"),
        (-(2**63), "-290308-12-21T19:59:05.224"),
        (253402300799999999, "9999-12-31T23:59:59.999"),
        (253402300800000000, "+10000-01-01T00:00:00.000"),
    ],
)
def test_the_ends_of_time_are_text(micros, text):
    """Arrow has no text for years of more than 16 bits, and writes "<value out of range"."""
    for kind, end in ((pa.timestamp("us"), ""), (pa.timestamp("us", "UTC"), "Z")):
        values = json_value(pa.array([0, micros, None], kind)).to_pylist()
        assert values == [
            f'"1970-01-01T00:00:00.000{end}"'.encode(), f'"{text}{end}"'.encode(), None,
        ]  # fmt: skip


def test_the_last_days_are_text():
    days = json_value(pa.array([2**31 - 1, None, -(2**31)], pa.date32())).to_pylist()
    assert days == [b'"+5881580-07-11"', None, b'"-5877641-06-23"']


@pytest.mark.parametrize(
    ("keys", "texts"),
    [
        (["a", "b", "a"], ["a", "b", "a"]),
        ([dt.date(1970, 1, 3), dt.date(1969, 12, 31)], ["2", "-1"]),
    ],
)
def test_keys_of_a_map_in_a_dictionary_have_the_texts_of_plain_keys(keys, texts):
    offsets = pa.array([0, len(keys)], pa.int32())
    encoded = pa.MapArray.from_arrays(
        offsets, pa.array(keys).dictionary_encode(), pa.array(range(len(keys)))
    )
    plain = pa.MapArray.from_arrays(offsets, pa.array(keys), pa.array(range(len(keys))))
    wanted = "{" + ",".join(f'"{text}":{n}' for n, text in enumerate(texts)) + "}"
    assert value(encoded) == value(plain) == [wanted]


def test_a_key_of_a_type_that_spark_does_not_have_is_an_error():
    with pytest.raises(IllegalStateError, match="a key of Arrow's type month_day_nano_interval"):
        map_key_text(pa.nulls(1, pa.month_day_nano_interval()))
