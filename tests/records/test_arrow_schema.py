"""Which column of an Arrow batch is what, and which types are refused: as Spark's sink."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import DataError, SchemaError
from spark_kafka_sink.records.arrow_schema import ArrowBatchReader, plan_batch

NOW = 1_700_000_000_000
HEADER = [("key", pa.string()), ("value", pa.binary())]


def plan_of(topic="t", /, **columns):
    return plan_batch(pa.schema([("value", pa.string()), *columns.items()]), topic)


def test_each_column_has_its_index():
    plan = plan_of(
        None,
        other=pa.date32(),
        topic=pa.string(),
        key=pa.binary(),
        partition=pa.int32(),
        timestamp=pa.timestamp("us", "UTC"),
        headers=pa.list_(pa.struct(HEADER)),
    )
    assert (plan.topic, plan.topic_column) == (None, 2)
    assert (plan.value_column, plan.key_column, plan.partition_column) == (0, 3, 4)
    assert (plan.timestamp_column, plan.headers_column) == (5, 6)


def test_a_topic_that_is_given_beats_the_column():
    plan = plan_of(" t ", topic=pa.string())
    assert (plan.topic, plan.topic_column) == ("t", None)


def test_a_batch_without_a_topic_is_refused():
    with pytest.raises(SchemaError, match="no 'topic' attribute") as caught:
        plan_of(None)
    assert caught.value.hint == "give the argument topic, or a column topic"


@pytest.mark.parametrize(
    "kind",
    [
        pa.null(),
        pa.list_(pa.struct(HEADER)),
        pa.large_list(pa.struct(HEADER)),
        pa.map_(pa.string(), pa.binary()),
        pa.map_(pa.string(), pa.string()),
    ],
    ids=str,
)
def test_headers_may_be_a_list_or_a_map(kind):
    assert plan_of(headers=kind).headers_column == 1


@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        ("headers", pa.string(), "list<struct<key:string,value:binary>> or map"),
        ("headers", pa.list_(pa.string()), "list<struct<key:string,value:binary>> or map"),
        ("headers", pa.list_(pa.struct(HEADER[::-1])), "list<struct<key:string,value:binary>>"),
        ("headers", pa.map_(pa.int32(), pa.binary()), "map<string,binary or string>"),
        ("headers", pa.map_(pa.string(), pa.int32()), "map<string,binary or string>"),
        ("key", pa.int64(), "string or binary"),
        ("partition", pa.string(), "int"),
        ("timestamp", pa.int32(), "timestamp or int64"),
    ],
    ids=str,
)
def test_a_column_of_another_type_is_refused(name, kind, wanted):
    with pytest.raises(SchemaError) as caught:
        plan_of(**{name: kind})
    assert caught.value.message.startswith(f"{name} attribute unsupported type {kind}.")
    assert wanted in caught.value.message
    assert caught.value.hint == f"cast it, or drop or rename the column {name}"


def test_headers_of_a_map_are_its_entries():
    entries = [[("a", b"1"), ("b", b"2")], []]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(["v", "w"]), pa.array(entries, pa.map_(pa.string(), pa.binary()))],
        names=["value", "headers"],
    )
    columns = ArrowBatchReader().columns(rows, "t", NOW)
    assert columns.headers is not None
    assert columns.rows == 2


def test_what_is_no_batch_is_refused():
    table = pa.table({"value": ["v"]})
    with pytest.raises(DataError, match=r"takes a pyarrow\.RecordBatch, not Table") as caught:
        ArrowBatchReader().columns(table, "t", NOW)
    assert caught.value.hint == "a table's are in table.to_batches()"
    (batch,) = table.to_batches()
    assert ArrowBatchReader().columns(batch, "t", NOW).rows == 1
