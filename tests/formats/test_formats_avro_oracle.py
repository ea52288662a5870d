"""Columns as Avro, against fastavro, on schemas and rows that Hypothesis makes."""

from __future__ import annotations

import decimal
import io
import json

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.records.formats.avro_format import AvroFormat
from spark_kafka_sink.records.formats.binary.encoder import payloads_of
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from tests.formats.avro_cases import CASES, Case, as_read

PREFIX = b"\0\0\0\0\7"


def encoded(case: Case, values: list, *, slack: int = 0) -> list[bytes]:
    """Each value as a payload by itself; of a slice, when ``slack`` rows are around it."""
    around = [values[0]] * slack if values else []
    column = pa.array([*around, *values, *around], case.arrow).slice(len(around), len(values))
    plan = AvroFormat().plan(json.dumps(case.schema), PREFIX, case.column)
    payloads = payloads_of(plan, column, "c")
    assert not payloads.refusals
    return payloads.array.to_pylist()


def check(case: Case, values: list, slack: int) -> None:
    schema = fastavro.parse_schema(case.schema)
    for value, payload in zip(values, encoded(case, values, slack=slack), strict=True):
        if value is None:
            assert payload is None
            continue
        wanted = as_read(case.schema, value)
        assert payload[:5] == b"\0\0\0\0\7"
        data = io.BytesIO(payload[5:])
        assert fastavro.schemaless_reader(data, schema) == wanted
        assert data.read() == b""
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, wanted)
        assert payload[5:] == written.getvalue()


@st.composite
def examples(draw):
    case = draw(CASES)
    return case, draw(st.lists(case.values, max_size=6)), draw(st.integers(0, 2))


@given(examples())
@settings(max_examples=150)
def test_avro_has_the_bytes_that_fastavro_writes(example):
    check(*example)


@pytest.mark.long
@pytest.mark.timeout(3600)
@given(examples())
@settings(max_examples=10_000)
def test_avro_has_the_bytes_of_fastavro_in_10_000_cases(example):
    check(*example)


@pytest.mark.parametrize(
    ("unscaled", "written"), [(-128, "0280"), (-32768, "048000"), (128, "040080"), (-129, "04ff7f")]
)
def test_a_decimal_has_as_few_bytes_as_javas_big_integer(unscaled, written):
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 0}
    column = ColumnType(ColumnKind.DECIMAL, "decimal", False, precision=9, scale=0)
    case = Case(schema, column, pa.decimal128(9, 0), st.none())
    (payload,) = encoded(case, [decimal.Decimal(unscaled)], slack=0)
    assert payload[5:].hex() == written
    reader = fastavro.parse_schema(schema)
    assert fastavro.schemaless_reader(io.BytesIO(payload[5:]), reader) == unscaled


@st.composite
def two_decimals(draw):
    """Precision and scale of a column and of a schema, and values of the column."""
    sizes = []
    for _ in range(2):
        precision = draw(st.sampled_from([1, 2, 9, 18, 19, 20, 37, 38]))
        sizes += [precision, draw(st.sampled_from([0, 1, precision // 2, precision]))]
    most = 10 ** sizes[0] - 1
    ends = st.sampled_from([most, -most, 10 ** (sizes[0] - 1), 0])
    return sizes, draw(st.lists(ends | st.integers(-most, most), max_size=6)), draw(st.booleans())


@given(two_decimals())
@settings(max_examples=150)
def test_a_decimal_of_another_size_is_exact_or_refused(example):
    (p, s, precision, scale), unscaled, is_fixed = example
    context = decimal.Context(prec=80)
    values = [decimal.Decimal(one).scaleb(-s, context) for one in unscaled]
    kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    if is_fixed:
        kind |= {"type": "fixed", "name": "f", "size": (10**precision).bit_length() // 8 + 1}
    column = ColumnType(ColumnKind.DECIMAL, "decimal", False, precision=p, scale=s)
    plan = AvroFormat().plan(json.dumps(kind), b"", column)
    made = payloads_of(plan, pa.array(values, pa.decimal128(p, s)), "c")
    refused = [any(one.rows[row] for one in made.refusals) for row in range(len(values))]
    reader = fastavro.parse_schema(kind)
    for value, payload, is_refused in zip(values, made.array.to_pylist(), refused, strict=True):
        shifted = value.scaleb(scale, context)
        whole = shifted.to_integral_value(context=context)
        fits = shifted == whole and whole.copy_abs() < 10**precision
        assert fits is not is_refused
        if fits:
            assert fastavro.schemaless_reader(io.BytesIO(payload), reader) == value
