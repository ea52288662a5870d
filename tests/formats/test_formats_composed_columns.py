"""Columns that are named for value, key and headers, on their way to RecordColumns."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import DataError
from spark_kafka_sink.config.named_columns import ColumnFormat, OnNullValue
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Reason
from spark_kafka_sink.records.column_plan import ColumnPlan, ComposedColumns, NamedColumn
from spark_kafka_sink.records.formats.avro_format import AvroFormat
from spark_kafka_sink.records.formats.column_type import ColumnKind as K
from spark_kafka_sink.records.formats.column_type import ColumnType
from spark_kafka_sink.records.formats.composed_columns import parts_of, with_composed
from spark_kafka_sink.records.formats.json_schema import JsonSchemaFormat
from spark_kafka_sink.records.formats.protobuf_format import ProtobufFormat
from spark_kafka_sink.records.record_columns import from_record_batch, rows_with_value

BATCH = pa.RecordBatch.from_pydict(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "name": pa.array(["a", None, "c"]),
        "trace": pa.array([b"t1", b"", None], pa.binary()),
    }
)
ID, NAME, TRACE = (NamedColumn(name, index) for index, name in enumerate(("id", "name", "trace")))


def composed(batch, plan):
    return from_record_batch(*with_composed(batch, plan), 0)


def columns(batch=BATCH, **plan):
    return composed(batch, ColumnPlan(topic="t", **plan))


def test_value_and_key_of_several_columns_are_json():
    made = columns(value=ComposedColumns((NAME, ID)), key=ComposedColumns((NamedColumn("Id", 0),)))
    assert made.value.to_pylist() == [b'{"name":"a","id":1}', b'{"id":2}', b'{"name":"c"}']
    assert made.key.to_pylist() == [b'{"Id":1}', b'{"Id":2}', b"{}"]
    assert made.headers is None


def test_value_and_key_of_one_column_may_be_its_text():
    string = ColumnFormat.STRING
    made = columns(value=ComposedColumns((TRACE,), string), key=ComposedColumns((ID,), string))
    assert made.value.to_pylist() == [b"t1", b"", None]
    assert made.key.to_pylist() == [b"1", b"2", None]


def header(key, value):
    return bytes([len(key) * 2]) + key + bytes([len(value) * 2]) + value


def test_headers_are_named_after_columns_and_a_null_is_left_out():
    made = columns(value_column=1, headers=(TRACE, NamedColumn("Name", 1)))
    trace, name = header(b"trace", b"t1"), header(b"Name", b"a")
    assert made.headers.to_pylist() == [
        b"\x04" + trace + name,
        b"\x02" + header(b"trace", b""),
        b"\x02" + header(b"Name", b"c"),
    ]


@pytest.mark.parametrize("rows", [0, 3])
def test_headers_of_nothing_but_nulls_are_none(rows):
    batch = pa.RecordBatch.from_pydict({"a": pa.nulls(rows), "b": pa.nulls(rows, pa.string())})
    made = columns(batch, value_column=0, headers=(NamedColumn("a", 0), NamedColumn("b", 1)))
    assert made.rows == rows
    assert made.headers is None or made.headers.to_pylist() == [b"\x00"] * rows


def test_a_batch_without_rows_is_composed():
    made = columns(BATCH.slice(0, 0), value=ComposedColumns((ID, NAME)), headers=(NAME,))
    assert made.rows == 0


VALUES = {
    "string": pa.array(["a", None, "c"]),
    "dictionary": pa.array(["a", None, "c"]).dictionary_encode(),
    "null in the dictionary": pa.DictionaryArray.from_arrays([0, 1, 2], pa.array(["a", None, "c"])),
    "view": pa.array(["a", None, "c"], pa.string_view()),
    "large": pa.array([b"a", None, b"c"], pa.large_binary()),
}


@pytest.mark.parametrize("name", VALUES)
def test_rows_without_a_value_are_left_out_or_are_errors(name):
    batch = pa.RecordBatch.from_arrays([VALUES[name]], names=["value"])
    plan = ColumnPlan(topic="t", value_column=0)
    assert columns(batch, value_column=0).value.to_pylist() == [b"a", None, b"c"], "tombstones"
    assert rows_with_value(batch, plan)[0].num_rows == 2
    string = ComposedColumns((NamedColumn("v", 0),), ColumnFormat.STRING)
    named = ColumnPlan(topic="t", value=string)
    assert rows_with_value(batch, named)[0].num_rows == 2
    for one in (plan, named):
        with pytest.raises(DataError, match=r"'value', row 1 of the Arrow batch \(topic t\)"):
            composed(batch, replace(one, on_null_value=OnNullValue.ERROR))


def test_a_batch_of_values_is_not_copied_one_of_nulls_is_empty():
    plan = ColumnPlan(topic="t", value_column=0)
    whole = pa.RecordBatch.from_pydict({"value": ["a", "b"]})
    assert rows_with_value(whole, plan)[0] is whole
    assert (
        rows_with_value(pa.RecordBatch.from_pydict({"value": pa.nulls(2)}), plan)[0].num_rows == 0
    )
    assert rows_with_value(whole.slice(0, 0), plan)[0].num_rows == 0


def test_a_null_key_is_an_error_where_keys_are_required():
    keyed = {"value_column": 1, "keys_required": True}
    with pytest.raises(DataError, match=r"column 'key', row 2 .* the topic is compacted"):
        columns(key=ComposedColumns((ID,), ColumnFormat.STRING), **keyed)
    with pytest.raises(DataError, match=r"column 'key', row 2 .* the topic is compacted"):
        columns(key=ComposedColumns((ID,), nulls_are_null=True), **keyed)
    assert columns(key=ComposedColumns((ID,)), **keyed).key is not None, "written as {}"
    assert columns(BATCH.slice(0, 2), key_column=2, **keyed).rows == 2


SPARSE = pa.RecordBatch.from_pydict(
    {
        "a": pa.array([1, None, None], pa.int64()),
        "b": pa.DictionaryArray.from_arrays([0, 0, 1], pa.array(["x", None])),
        "c": pa.nulls(3),
        "s": pa.array([{"n": 1}, {"n": None}, None], pa.struct([("n", pa.int32())])),
    }
)
A, B, C, S = (NamedColumn(name, index) for index, name in enumerate("abcs"))


@pytest.mark.parametrize(
    ("of", "keys"),
    [
        ((A,), [b'{"a":1}', None, None]),
        ((A, B, C), [b'{"a":1,"b":"x"}', b'{"b":"x"}', None]),
        ((C,), [None] * 3),
        ((S,), [b'{"s":{"n":1}}', b'{"s":{}}', None]),
    ],
)
def test_a_json_key_of_nothing_but_nulls_is_no_key(of, keys):
    key = ComposedColumns(of, nulls_are_null=True)
    made = columns(SPARSE, value_column=1, key=key).key
    assert (made.to_pylist() if made is not None else [None] * 3) == keys
    written = columns(SPARSE, value_column=1, key=ComposedColumns(of)).key.to_pylist()
    assert written == [b"{}" if one is None else one for one in keys]


@pytest.mark.parametrize(
    "format_", [AvroFormat(), ProtobufFormat(None), JsonSchemaFormat()], ids=lambda f: f.schema_type
)
@pytest.mark.parametrize("nullable", [True, False])
def test_a_key_with_a_schema_of_nothing_but_nulls_is_no_key(format_, nullable):
    fields = (ColumnType(K.LONG, "bigint", nullable), ColumnType(K.STRING, "string", nullable))
    of = ColumnType(K.STRUCT, "struct", True, fields, ("a", "b"))
    encoding = format_.plan(format_.derive(of, "t"), b"id", of)
    key = ComposedColumns((A, B), encoding=encoding, nulls_are_null=True)
    last = SPARSE.slice(2)
    assert columns(last, value_column=1, key=key).key is None
    pair = pa.RecordBatch.from_arrays(
        [pa.array([7, None]), pa.array(["x", None])], names=["a", "b"]
    )
    first, second = columns(pair, value_column=1, key=key).key.to_pylist()
    assert first.startswith(b"id")
    assert second is None


def test_a_null_key_has_no_header_for_its_schema():
    of = ColumnType(K.STRUCT, "struct", True, (ColumnType(K.LONG, "bigint"),), ("a",))
    encoding = AvroFormat().plan(AvroFormat().derive(of, "t"), b"", of)
    key = ComposedColumns((A,), encoding=encoding, header=("id", b"1"), nulls_are_null=True)
    made = columns(SPARSE, value_column=1, key=key)
    assert made.headers.to_pylist() == [b"\x02" + header(b"id", b"1"), b"\x00", b"\x00"]


def by_topic(format_, **of):
    """A value of the column ``v``, with an encoder for each topic."""
    made = []
    for topic, (prefix, kind) in of.items():
        column = ColumnType(K.STRUCT, "struct", False, (ColumnType(kind, kind.name),), ("v",))
        encoding = format_.plan(format_.derive(column, topic), prefix, column)
        made.append((topic, ComposedColumns((V,), encoding=encoding, header=("id", prefix))))
    return ComposedColumns((V,), by_topic=tuple(made))


V = NamedColumn("v", 1)
TOPICS = {
    "plain": pa.array(["a", "b", "a", "c", None, "b"]),
    "dictionary": pa.array(["a", "b", "a", "c", None, "b"]).dictionary_encode(),
    "large": pa.array(["a", "b", "a", "c", None, "b"], pa.large_string()),
}


@pytest.mark.parametrize("name", TOPICS)
def test_rows_are_written_with_the_schema_of_their_topic(name):
    batch = pa.RecordBatch.from_arrays([TOPICS[name], pa.array([1, 2, 3, 4, 5, None])], ["t", "v"])
    part = by_topic(AvroFormat(), a=(b"A", K.LONG), b=(b"B", K.LONG), unused=(b"U", K.LONG))
    plan, bad = ColumnPlan(topic_column=0, value=part), BadRows(6)
    made = from_record_batch(*with_composed(batch, plan, bad), 0, bad)
    value = made.value.to_pylist()
    letters = [b'{"v":4}', b'{"v":5}']
    assert value == [b"A\2\2", b"B\2\4", b"A\2\6", *letters, b"B\0"]
    assert [bad.found[which - 1].reason if which else None for which in bad.which] == [
        None, None, None, Reason.VALUE_REFUSED, Reason.NULL_TOPIC, None,
    ]  # fmt: skip
    of = [one and one[-1:] for one in made.headers.to_pylist()]
    assert [of[row] for row in (0, 1, 2, 5)] == [b"A", b"B", b"A", b"B"]
    with pytest.raises(DataError, match="column topic: it is not in schemaTopics, so the row has"):
        with_composed(batch, plan)


def test_a_letter_of_a_row_without_a_topic_has_its_key():
    """As JSON, because no schema is known; and a key of nulls alone is none there, too."""
    batch = pa.RecordBatch.from_arrays([pa.array([None, "a", None]), pa.array([1, 2, None])], "tv")
    key = replace(by_topic(AvroFormat(), a=(b"A", K.LONG)), nulls_are_null=True)
    plan, bad = ColumnPlan(topic_column=0, value_column=1, key=key), BadRows(3)
    made, plan = with_composed(batch, plan, bad)
    assert made.column(plan.key_column).to_pylist() == [b'{"v":1}', b"A\2\4", None]


def test_refused_values_of_one_topic_keep_their_rows():
    schema = '{"type": "record", "name": "r", "fields": [{"name": "v", "type": "int"}]}'
    column = ColumnType(K.STRUCT, "struct", False, (ColumnType(K.LONG, "bigint"),), ("v",))
    part = ComposedColumns((V,), encoding=AvroFormat().plan(schema, b"", column))
    wide = by_topic(AvroFormat(), a=(b"A", K.LONG)).by_topic
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["b", "a", "b"]), pa.array([2**40, 2**40, 1])], ["t", "v"]
    )
    bad = BadRows(3)
    plan = ColumnPlan(topic_column=0, value=ComposedColumns((V,), by_topic=(*wide, ("b", part))))
    with_composed(batch, plan, bad)
    assert bad.which.tolist() == [1, 0, 0]


def test_a_large_batch_is_composed_in_parts_and_a_huge_row_alone():
    texts = [letter * 5_000_000 for letter in "xyz"]
    batch = pa.RecordBatch.from_pydict({"a": texts})
    parts = list(parts_of(batch))
    assert [part.num_rows for part in parts] == [1, 1, 1]
    plan = ColumnPlan(topic="t", value=ComposedColumns((NamedColumn("a", 0),)))
    told = [json.loads(composed(part, plan).value[0].as_py())["a"] for part in parts]
    assert told == texts
    assert [part.num_rows for part in parts_of(BATCH)] == [3]
    assert list(parts_of(BATCH.slice(0, 0))) == []


def with_schema(column, name="__value_schema_id"):
    encoding = AvroFormat().plan('["null", "long"]', b"", ColumnType(K.LONG, "long"))
    return ComposedColumns(
        (column,), ColumnFormat.AVRO, encoding=encoding, is_bare=True, header=(name, b"\x01id")
    )


def test_a_key_of_nulls_alone_is_a_null():
    """Of Spark's type void, as of ``SELECT null AS key``."""
    kind = ColumnType(K.NULL, "void")
    encoding = AvroFormat().plan(AvroFormat().derive(kind, "k"), b"prefix", kind)
    batch = pa.RecordBatch.from_pydict({"id": pa.nulls(2)})
    made = columns(
        batch, key=ComposedColumns((ID,), encoding=encoding, is_bare=True), value_column=0
    )
    assert made.key is None


def test_a_schema_is_named_by_a_header_where_there_is_a_payload():
    key = with_schema(ID, "__key_schema_id")
    made = columns(value=with_schema(ID), key=key, headers=(TRACE,))
    assert made.value.to_pylist() == [b"\x02\x02", b"\x02\x04", None]
    ids = header(b"__value_schema_id", b"\x01id") + header(b"__key_schema_id", b"\x01id")
    assert made.headers.to_pylist() == [
        b"\x06" + header(b"trace", b"t1") + ids,
        b"\x06" + header(b"trace", b"") + ids,
        b"\x00",
    ]


HEADERS = pa.struct([("key", pa.string()), ("value", pa.binary())])
ENTRIES = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]


@pytest.mark.parametrize(
    ("lists", "slack"),
    [
        (pa.array([ENTRIES, None, []], pa.list_(HEADERS)), 0),
        (pa.array([ENTRIES[:1], ENTRIES, None, [], None], pa.large_list(HEADERS)), 1),
        (
            pa.array(
                [[("x", b"y")], [("a", b"1"), ("b", None)], None, [], []],
                pa.map_(pa.string(), pa.binary()),
            ),
            1,
        ),
    ],
)
def test_the_header_of_a_schema_is_behind_those_of_the_row(lists, slack):
    batch = pa.RecordBatch.from_pydict(
        {"id": pa.array([1, 2, None], pa.int64()), "headers": lists.slice(slack, 3)}
    )
    made = columns(batch, value=with_schema(ID), headers_column=1)
    ids = header(b"__value_schema_id", b"\x01id")
    first = header(b"a", b"1") + b"\x02b\x01"
    assert made.headers.to_pylist() == [b"\x06" + first + ids, b"\x02" + ids, b"\x00"]


def test_a_header_of_the_row_without_a_key_is_still_an_error():
    entries = [[{"key": None, "value": b"1"}], None, None]
    batch = pa.RecordBatch.from_pydict(
        {"id": pa.array([1, 2, 3]), "headers": pa.array(entries, pa.list_(HEADERS))}
    )
    with pytest.raises(DataError, match="null key"):
        columns(batch, value=with_schema(ID), headers_column=1)
