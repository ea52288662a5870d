"""Options of JSON: nulls that are kept, plain decimals, patterns of timestamps."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.config.named_columns import JsonOptions
from spark_kafka_sink.config.timestamp_pattern import pattern_parts
from spark_kafka_sink.records.json.json_numbers import plain_decimals
from spark_kafka_sink.records.json.json_text import json_objects, json_value
from spark_kafka_sink.records.json.json_times import json_timestamps

KEPT = JsonOptions(ignore_null_fields=False)
#: 2020-07-01 12:34:56.123456
INSTANT = 1_593_606_896_123_456


def objects(how, **columns):
    rows = len(next(iter(columns.values())))
    made = json_objects(list(columns), list(columns.values()), rows, how)
    return [one.decode() for one in made.to_pylist()]


def test_nulls_that_are_kept_are_null_at_each_depth():
    """As to_json with ignoreNullFields=false writes them."""
    inner = pa.struct({"b": pa.int32(), "c": pa.string()})
    columns = {
        "a": pa.array([None, "x"]),
        "s": pa.array([None, {"b": None, "c": "y"}], inner),
        "l": pa.array([[None, {"b": 1, "c": None}], None], pa.list_(inner)),
        "m": pa.array([[("k", None)], None], pa.map_(pa.string(), inner)),
        "n": pa.nulls(2),
    }
    assert objects(KEPT, **columns) == [
        '{"a":null,"s":null,"l":[null,{"b":1,"c":null}],"m":{"k":null},"n":null}',
        '{"a":"x","s":{"b":null,"c":"y"},"l":null,"m":null,"n":null}',
    ]
    assert json_value(columns["s"], KEPT).to_pylist() == [None, b'{"b":null,"c":"y"}']


def test_a_row_of_nulls_keeps_its_fields():
    assert objects(KEPT, a=pa.nulls(1, pa.int64()), b=pa.array([None], pa.string())) == [
        '{"a":null,"b":null}'
    ]


@given(
    st.lists(st.none() | st.integers(-(10**20), 10**20), min_size=1),
    st.integers(0, 18),
    st.integers(0, 3),
)
def test_a_plain_decimal_has_all_digits_of_its_scale(numbers, scale, start):
    cells = [None if one is None else Decimal(one).scaleb(-scale) for one in numbers]
    column = pa.array(cells, pa.decimal128(38, scale)).slice(start)
    wanted = [None if one is None else f"{one:.{scale}f}" for one in cells[start:]]
    assert [text and text.replace("-0.", "0.") for text in plain_decimals(column).to_pylist()] == [
        text and text.replace("-0.", "0.") for text in wanted
    ]


def test_decimals_have_no_exponent_when_they_are_plain():
    column = pa.array([Decimal(0), Decimal("1E-18"), Decimal("-12.5"), None], pa.decimal128(38, 18))
    assert objects(JsonOptions(plain_decimals=True), a=column) == [
        '{"a":0.000000000000000000}', '{"a":0.000000000000000001}',
        '{"a":-12.500000000000000000}', "{}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "zone", "text"),
    [
        ("yyyy-MM-dd HH:mm:ss.SSSSSS", "UTC", "2020-07-01 12:34:56.123456"),
        ("yyyy/MM/dd", "UTC", "2020/07/01"),
        ("uuuu-MM-dd'T'HH:mm:ssXXX", "America/New_York", "2020-07-01T08:34:56-04:00"),
        ("yyyy-MM-dd HH:mm:ss.SSSSSSSSSxxx", "+05:30", "2020-07-01 18:04:56.123456000+05:30"),
        ("d.M.yyyy H:m:s", "Pacific/Auckland", "2.7.2020 0:34:56"),
        ("'it''s' HH 'o''clock' X", "Asia/Kolkata", "it's 18 o'clock +0530"),
        ("HHX", "Europe/Berlin", "14+02"), ("HHXX", "Europe/Berlin", "14+0200"),
        ("HHX", "UTC", "12Z"), ("HHx", "UTC", "12+00"), ("HHxx", "UTC", "12+0000"),
        ("HHxxx", "UTC", "12+00:00"), ("XXX", "UTC", "Z"),
        ("yyyyMMddHHmmssSSS", "UTC", "20200701123456123"),
    ],
)  # fmt: skip
def test_a_pattern_writes_what_java_writes(pattern, zone, text):
    column = pa.array([INSTANT, None, INSTANT], pa.int64()).view(pa.timestamp("us", zone))
    assert json_timestamps(column, pattern).to_pylist() == [text, None, text]
    how = JsonOptions(timestamp_format=pattern)
    assert objects(how, a=column) == [f'{{"a":"{text}"}}', "{}", f'{{"a":"{text}"}}']
    assert objects(how, a=column.view(pa.timestamp("us")))[0] == '{"a":"2020-07-01T12:34:56.123"}'


def test_a_pattern_holds_for_each_year_and_season():
    micros = [2**63 - 1, -(2**63), -1, 253402300800000000]
    column = pa.array(micros, pa.int64()).view(pa.timestamp("us", "Europe/Berlin"))
    assert json_timestamps(column, "yyyy-MM-dd HH:mm:ss.SSSXXX").to_pylist() == [
        "+294247-01-10 05:00:54.775+01:00", "-290308-12-21 20:52:33.224+00:53",
        "1970-01-01 00:59:59.999+01:00", "+10000-01-01 01:00:00.000+01:00",
    ]  # fmt: skip


def test_timestamps_without_a_zone_have_a_pattern_of_their_own():
    column = pa.array([INSTANT], pa.int64()).view(pa.timestamp("us"))
    how = JsonOptions(timestamp_ntz_format="HH:mm", timestamp_format="yyyy")
    assert objects(how, a=column) == ['{"a":"12:34"}']


@pytest.mark.parametrize(
    "pattern",
    ["", "text", "'T'", "MMM", "yy", "yyy", "EEE", "a", "HH:mm '", "[HH]", "ssZ", "XXXX", 'HH"',
     "HH\\", "SSSSSSSSSS", "YYYY", "DD"],
)  # fmt: skip
def test_a_pattern_with_other_letters_is_refused(pattern):
    with pytest.raises(ValueError, match=r"supported|meaning|No part"):
        pattern_parts(pattern)


def test_a_pattern_of_local_times_has_no_offset():
    with pytest.raises(ValueError, match="X is not supported"):
        pattern_parts("HH X", has_zone=False)
