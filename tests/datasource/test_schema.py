"""Spark's sink contract: the schema half of the acceptance list, and our own columns."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    YearMonthIntervalType,
)

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.config.named_columns import NamedColumns, TimestampColumn
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.write.schema import near_names, plan_columns
from spark_kafka_sink.records.column_plan import ColumnPlan

TEXT = StringType()
HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)


def schema(**columns):
    return StructType([StructField(name, data_type) for name, data_type in columns.items()])


def test_every_column_gets_its_index():
    plan = plan_columns(
        schema(
            extra=DateType(),
            timestamp=TimestampType(),
            partition=IntegerType(),
            headers=HEADERS,
            topic=TEXT,
            key=BinaryType(),
            value=TEXT,
        ),
        None,
    )
    assert plan == ColumnPlan(
        topic=None,
        value_column=6,
        key_column=5,
        topic_column=4,
        headers_column=3,
        partition_column=2,
        timestamp_column=1,
    )
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_value_alone_is_enough_with_the_topic_option():
    """It is trimmed, and counts before a column, whatever that one's type."""
    assert plan_columns(schema(value=TEXT), "  t ") == ColumnPlan(topic="t", value_column=0)
    plan = plan_columns(schema(topic=IntegerType(), value=TEXT), "t")
    assert (plan.topic, plan.topic_column) == ("t", None)


def test_no_topic_anywhere():
    with pytest.raises(SchemaError) as raised:
        plan_columns(schema(key=TEXT), None)
    assert raised.value.message == (
        "topic option required when no 'topic' attribute is present. Use the topic option for "
        "setting a topic."
    )


def test_no_value():
    """The hint is what most mean: a DataFrame of named columns."""
    with pytest.raises(SchemaError, match="Required attribute 'value' not found") as raised:
        plan_columns(schema(topic=TEXT, id=LongType()), None)
    assert raised.value.hint.startswith("set valueColumns=* for all columns as JSON, or add")


@pytest.mark.parametrize(
    ("name", "data_type", "option"),
    [
        ("value", IntegerType(), "set valueColumns=value for JSON; or cast it"),
        ("value", schema(a=TEXT), "set valueColumns=value.* for JSON; or cast it"),
        ("key", schema(a=TEXT), "set keyColumns=key for JSON; or cast it"),
        ("timestamp", DateType(), "cast it, or drop or rename the column timestamp"),
    ],
)
def test_a_wrong_type_has_an_option_that_takes_it(name, data_type, option):
    with pytest.raises(SchemaError) as raised:
        plan_columns(schema(**{"value": TEXT, name: data_type}), "t")
    assert raised.value.hint.startswith(option)
    _, _, given = option.partition("set ")
    if given:
        named, _, columns = given.partition(" ")[0].partition("=")
        config = parse_sink_config({"kafka.bootstrap.servers": "h:1", "topic": "t", named: columns})
        plan_columns(schema(**{"value": TEXT, name: data_type}), "t", config.named_columns)


@pytest.mark.parametrize(
    ("column", "data_type", "text"),
    [
        ("topic", IntegerType(), "topic attribute unsupported type int. topic must be a(n) string"),
        ("topic", BinaryType(), "topic must be a(n) string"),
        (
            "value",
            IntegerType(),
            "value attribute unsupported type int. value must be a(n) string or binary",
        ),
        ("key", IntegerType(), "key must be a(n) string or binary"),
        (
            "partition",
            TEXT,
            "partition attribute unsupported type string",
        ),
        ("partition", LongType(), "partition must be a(n) int"),
        ("headers", TEXT, "headers must be a(n) array<struct<key:string,value:binary>>"),
        ("headers", ArrayType(TEXT), ", map<string,binary> or map<string,string>"),
        ("headers", MapType(TEXT, IntegerType()), "headers must be a(n)"),
        (
            "headers",
            ArrayType(StructType([StructField("k", TEXT), StructField("v", BinaryType())])),
            "headers must be a(n)",
        ),
        ("timestamp", DateType(), "timestamp must be a(n) timestamp, timestamp_ntz or bigint"),
        ("timestamp", IntegerType(), "timestamp must be a(n)"),
    ],
)
def test_a_wrong_type_gets_the_text_of_sparks_sink(column, data_type, text):
    columns = {"topic": TEXT, "value": TEXT} | {column: data_type}
    with pytest.raises(SchemaError) as raised:
        plan_columns(schema(**columns), None)
    assert text in raised.value.message
    assert "\n" not in raised.value.message


def test_the_order_of_the_checks_is_sparks():
    wrong = {
        "partition": TEXT,
        "headers": TEXT,
        "value": IntegerType(),
        "key": IntegerType(),
        "topic": IntegerType(),
    }
    for column in ("topic", "key", "value", "headers", "partition"):
        with pytest.raises(SchemaError, match=f" {column} attribute unsupported"):
            plan_columns(schema(**wrong), None)
        wrong[column] = {"headers": HEADERS, "partition": IntegerType()}.get(column, TEXT)
    plan_columns(schema(**wrong), None)


NOT_NULL = StructType([StructField("key", TEXT, False), StructField("value", BinaryType(), False)])


@pytest.mark.parametrize(
    ("name", "data_type"),
    [
        *(("key", one) for one in (TEXT, BinaryType(), CharType(9), VarcharType(9))),
        *((name, StringType("UTF8_LCASE")) for name in ("key", "topic")),
        *(("timestamp", one) for one in (TimestampType(), TimestampNTZType(), LongType())),
        ("headers", MapType(TEXT, TEXT)),
        ("headers", MapType(TEXT, BinaryType())),
        ("headers", ArrayType(NOT_NULL, False)),
    ],
)
def test_a_column_may_be_of_several_types(name, data_type):
    value = data_type if name == "key" else StringType("UNICODE")
    plan = plan_columns(schema(value=value, **{name: data_type}), None if name == "topic" else "t")
    assert (plan.value_column, getattr(plan, f"{name}_column")) == (0, 1)


def test_a_column_timestamp_may_be_one_like_others():
    columns = schema(timestamp=TEXT, other=TEXT)
    with pytest.raises(SchemaError, match="timestamp attribute unsupported") as raised:
        plan_columns(columns, "t", NamedColumns(value=("*",)))
    assert "timestampColumn=ignore" in raised.value.hint
    named = NamedColumns(value=("*",), timestamp_column=TimestampColumn.IGNORE)
    plan = plan_columns(columns, "t", named)
    assert plan.timestamp_column is None
    assert [one.name for one in plan.value.columns] == ["timestamp", "other"]


def test_a_missing_column_that_differs_by_case_gets_a_hint():
    with pytest.raises(SchemaError) as raised:
        plan_columns(schema(Value=TEXT), "t")
    assert raised.value.hint == "column names are case-sensitive here: rename Value to value"
    with pytest.raises(SchemaError) as raised:
        plan_columns(schema(TOPIC=TEXT, value=TEXT), None)
    assert "rename TOPIC to topic" in raised.value.hint


def test_an_optional_column_in_other_case_is_ignored_loudly():
    columns = schema(Key=IntegerType(), value=TEXT)
    assert plan_columns(columns, "t").key_column is None
    (warning,) = near_names(columns, plan_columns(columns, "t"))
    assert warning.startswith("[KP0204] column Key is ignored: ")
    columns = schema(Key=TEXT, key=TEXT, value=TEXT, other=TEXT)
    assert near_names(columns, plan_columns(columns, "t")) == []


def test_names_that_differ_by_case_are_different_columns():
    plan = plan_columns(schema(VALUE=IntegerType(), value=TEXT, Value=IntegerType()), "t")
    assert plan.value_column == 1


def test_a_column_that_occurs_twice_is_refused_before_any_task():
    twice = StructType([StructField("value", TEXT), StructField("x", TEXT), StructField("x", TEXT)])
    with pytest.raises(SchemaError, match="column x occurs twice"):
        plan_columns(twice, "t")


TWICE = StructType([StructField("a", TEXT), StructField("b", TEXT), StructField("a", LongType())])


@pytest.mark.parametrize(
    ("data_type", "path"),
    [
        (TWICE, "x.a"),
        (ArrayType(TWICE), "x[].a"),
        (MapType(TEXT, TWICE), "x[].a"),
        (MapType(TWICE, TEXT), "x (a key).a"),
        (StructType([StructField("s", ArrayType(TWICE))]), "x.s[].a"),
    ],
)
@pytest.mark.parametrize("named", [NamedColumns(), NamedColumns(value=("value",))])
def test_a_struct_with_two_fields_of_one_name_is_refused_unused(data_type, path, named):
    with pytest.raises(SchemaError) as raised:
        plan_columns(schema(value=TEXT, x=data_type), "t", named)
    assert raised.value.message.startswith(f"field {path} occurs twice in its struct")
    assert "drop the column x" in raised.value.hint


def test_fields_that_differ_by_case_are_two():
    fields = StructType([StructField("a", TEXT), StructField("A", TEXT)])
    plan_columns(schema(value=TEXT, x=fields), "t")


def test_a_column_that_spark_can_not_send_fails_before_tasks():
    with pytest.raises(SchemaError, match="column age is of type interval year to month"):
        plan_columns(schema(value=TEXT, age=YearMonthIntervalType()), "t")
