"""keyColumns, valueColumns and headersColumns: what their texts say, and which go together."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.named_columns import (
    ColumnFormat,
    NamedColumns,
    OnNullValue,
    column_names,
)
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.write.schema import plan_columns

BROKER = {"kafka.bootstrap.servers": "b:9092", "topic": "t"}


def named(**options):
    return parse_sink_config(BROKER | options).named_columns


def test_options_come_in_lower_case_and_names_stay_as_they_are():
    told = named(
        valuecolumns="id, Name", valueformat="JSON", keycolumns="Id", keyformat="string",
        headerscolumns="trace",
    )  # fmt: skip
    assert told == NamedColumns(
        key=("Id",),
        key_format=ColumnFormat.STRING,
        value=("id", "Name"),
        value_format=ColumnFormat.JSON,
        headers=("trace",),
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ("a",)),
        (" a b , c.d ", ("a b", "c.d")),
        ("`a,b`,c", ("a,b", "c")),
        ("`a``b` , ` c `", ("a`b", " c ")),
        ("a\n,b", ("a", "b")),
        ("*", ("*",)),
    ],
)
def test_a_list_of_names_is_read_as_sql_writes_one(text, names):
    assert column_names(text) == names


@pytest.mark.parametrize(
    ("option", "text", "says"),
    [
        ("valueColumns", "", "A name of a column is missing"),
        ("valueColumns", "a,,b", "A name of a column is missing"),
        ("valueColumns", "a,", "A name of a column is missing"),
        ("keyColumns", "`a", "A name in backticks must end in one"),
        ("keyColumns", "`a`b", "A name in backticks must end in one"),
        ("headersColumns", "a,b,A", "Column A is named twice"),
        ("valueColumns", "*,a", "* can't be combined with names"),
        ("keyColumns", "*", "* is not the name of a column"),
        ("headersColumns", "a,*", "* is not the name of a column"),
    ],
)
def test_what_is_no_list_of_names_is_an_error(option, text, says):
    with pytest.raises(ConfigError) as raised:
        named(**{option: text})
    assert f"for configuration {option}: {says}" in raised.value.message


def test_a_string_is_of_one_column_and_not_of_all():
    """Other contradictions: ``bad_input/wrong_configurations.jsonl``."""
    with pytest.raises(ConfigError, match="valueFormat=string takes one column"):
        named(valueColumns="*", valueFormat="string")


def test_a_null_value_is_a_tombstone_by_default():
    assert named().on_null_value is OnNullValue.TOMBSTONE
    assert named(onNullValue="Skip").on_null_value is OnNullValue.SKIP
    string = named(onNullValue="error", valueColumns="a", valueFormat="string")
    assert string.on_null_value is OnNullValue.ERROR


def test_a_key_of_nulls_is_no_key_by_default():
    keyed = {"keyColumns": "a", "valueColumns": "b"}
    columns = StructType([StructField("a", StringType()), StructField("b", StringType())])
    for options, is_none in (({}, True), ({"onNullKey": "Write"}, False)):
        plan = plan_columns(columns, "t", named(**keyed, **options))
        assert plan.key.nulls_are_null is is_none
        assert not plan.value.nulls_are_null


def test_a_format_that_is_misspelt_names_the_nearest():
    with pytest.raises(ConfigError) as raised:
        named(valueColumns="a", valueFormat="jsn")
    assert "did you mean json?" in raised.value.hint
