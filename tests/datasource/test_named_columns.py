"""Which columns of a DataFrame options may name, and what is refused before any task."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from spark_kafka_sink.base.errors import ConfigError, SchemaError
from spark_kafka_sink.config.named_columns import ColumnFormat, JsonOptions, NamedColumns
from spark_kafka_sink.datasource.write.schema import near_names, plan_columns, with_keys_required
from spark_kafka_sink.records.column_plan import ColumnPlan, ComposedColumns, NamedColumn

TEXT, LONG = StringType(), LongType()
STRING = ColumnFormat.STRING


def schema(*columns):
    return StructType([StructField(name, data_type) for name, data_type in columns])


def plan(columns, **named):
    return plan_columns(columns, "t", NamedColumns(**named))


def test_named_columns_take_the_place_of_value_key_and_headers():
    columns = schema(("id", LONG), ("name", TEXT), ("trace", BinaryType()))
    made = plan(columns, value=("name", "id"), key=("id",), key_format=STRING, headers=("trace",))
    assert made == ColumnPlan(
        topic="t",
        value=ComposedColumns((NamedColumn("name", 1), NamedColumn("id", 0))),
        key=ComposedColumns((NamedColumn("id", 0),), STRING, nulls_are_null=True),
        headers=(NamedColumn("trace", 2),),
    )


def test_a_star_is_every_column_also_the_sinks_own_names():
    columns = schema(("key", TEXT), ("value", DoubleType()), ("x", LONG))
    made = plan(columns, value=("*",))
    assert [column.name for column in made.value.columns] == ["key", "value", "x"]
    assert (made.value_column, made.key_column) == (None, 0)
    made = plan(columns, value=("key", "value"), key=("key",))
    assert [column.index for column in made.value.columns] == [0, 1]


def test_names_match_in_any_case_and_are_written_as_given():
    """As Spark: ``to_json(struct(ID))`` of a column ``id`` has the field ``ID``."""
    made = plan(schema(("id", LONG)), value=("ID",))
    assert made.value.columns == (NamedColumn("ID", 0),)
    assert plan(schema(("ID", LONG), ("id", LONG)), value=("id",)).value.columns[0].index == 1


def refused(columns, **named):
    with pytest.raises(SchemaError) as raised:
        plan(columns, **named)
    return raised.value


def test_a_name_that_fits_several_columns_is_refused():
    error = refused(schema(("ID", LONG), ("Id", LONG)), value=("id",))
    assert error.message == "valueColumns names a column id, and the DataFrame has several: ID, Id"


def test_an_unknown_name_is_refused_with_the_nearest():
    error = refused(schema(("customer", LONG), ("value", TEXT)), key=("custmer",))
    assert error.message == ("keyColumns names a column custmer, which the DataFrame does not have")
    assert error.hint == "did you mean customer?"
    assert error.kind.kp_code == "KP0206"
    error = refused(schema(("id", LONG), ("n", TEXT)), value=("zz",))
    assert error.hint == "the DataFrame has id, n"


def test_a_field_of_a_struct_is_no_column():
    error = refused(schema(("a", schema(("b", LONG)))), value=("a.b",))
    assert error.hint == "a field of a is no column: select it as one, with a name"
    assert plan(schema(("a.b", LONG)), value=("a.b",)).value.columns[0].index == 0


@pytest.mark.parametrize(
    ("part", "option"),
    [("value", "valueColumns"), ("key", "keyColumns"), ("headers", "headersColumns")],
)
def test_a_column_that_would_be_dropped_silently_is_refused(part, option):
    columns = schema(("value", TEXT), (part, TEXT)) if part != "value" else schema(("value", TEXT))
    columns.add("x", TEXT)
    error = refused(columns, **{part: ("x",)})
    assert f"{option} is set, and there is a column {part} that it does not name" in error.message
    assert error.kind.kp_code == "KP0207"


@pytest.mark.parametrize(
    "data_type",
    [
        TEXT, CharType(3), BinaryType(), BooleanType(), ShortType(), IntegerType(), LONG,
        FloatType(), DoubleType(), DecimalType(38, 18), DateType(), TimestampType(),
        TimestampNTZType(), NullType(), ArrayType(ArrayType(LONG)), MapType(LONG, TEXT),
        VariantType(), DayTimeIntervalType(), MapType(DateType(), ArrayType(VariantType())),
        MapType(schema(("a", ArrayType(BinaryType()))), DoubleType()),
        schema(("a", schema(("b", MapType(TEXT, ArrayType(TimestampType())))))),
    ],
    ids=lambda one: one.simpleString(),
)  # fmt: skip
def test_a_type_that_json_has(data_type):
    assert plan(schema(("a", data_type)), value=("a",)).value is not None


@pytest.mark.parametrize(
    ("data_type", "says"),
    [
        (YearMonthIntervalType(), "column a is of type interval year to month"),
        (ArrayType(YearMonthIntervalType(1)), "column a[] is of type interval month"),
        (schema(("b", ArrayType(schema(("c", YearMonthIntervalType()))))), "column a.b[].c is of"),
        (MapType(VariantType(), LONG), "column a (a key of the map) is of type variant"),
        (MapType(schema(("b", VariantType())), LONG), "column a (a key of the map).b is of type"),
        (MapType(TEXT, YearMonthIntervalType()), "column a[] is of type interval year to month"),
    ],
)
def test_an_unsupported_type_is_refused_with_what_to_do(data_type, says):
    """The hint is followed in test_json_of_types.py."""
    error = refused(schema(("a", data_type)), value=("a",))
    assert f"valueColumns: {says}" in error.message
    assert "can't write as json" in error.message
    assert "(column" in error.hint
    assert error.kind.kp_code == "KP0203"


def test_intervals_have_the_units_of_their_type():
    """Arrow has one type for all of them."""
    hours, both = DayTimeIntervalType(1, 1), DayTimeIntervalType(0, 3)
    columns = schema(
        ("a", hours), ("b", MapType(TEXT, ArrayType(both))),
        ("c", schema(("d", LONG), ("e", hours))), ("f", ArrayType(LONG)),
    )  # fmt: skip
    units = [column.units for column in plan(columns, value=("*",)).value.columns]
    assert units == ["HOUR", (None, ("DAY TO SECOND",)), (None, "HOUR"), None]


def test_an_unknown_zone_is_refused_where_a_time_becomes_json():
    json = JsonOptions(time_zone="SystemV/EST5")
    for kind in (TimestampType(), ArrayType(schema(("b", VariantType())))):
        with pytest.raises(ConfigError, match="time zone 'SystemV/EST5'"):
            plan(schema(("a", kind)), value=("a",), json=json)
    columns = schema(("a", TimestampNTZType()), ("key", TEXT), ("at", TimestampType()))
    assert plan(columns, value=("a",), json=json).value.json == json


@pytest.mark.parametrize("data_type", [DoubleType(), TimestampType(), DecimalType(10, 7)])
def test_a_type_with_several_texts_is_refused(data_type):
    error = refused(schema(("a", data_type)), key=("a",), value=("a",), key_format=STRING)
    assert "can't write as string" in error.message
    for one in (TEXT, BinaryType(), BooleanType(), ShortType(), DateType(), DecimalType(10, 6)):
        assert plan(schema(("a", one)), value=("a",), value_format=STRING).value is not None


def test_a_header_is_text_or_bytes():
    error = refused(schema(("a", LONG), ("value", TEXT)), headers=("a",))
    assert "headersColumns: column a is of type bigint, which kprod can't write as a header" in (
        error.message
    )


def test_a_compacted_topic_needs_a_column_for_the_key():
    keyed = plan(schema(("key", TEXT), ("value", TEXT)))
    assert with_keys_required(keyed).keys_required
    assert with_keys_required(plan(schema(("a", TEXT), ("value", TEXT)), key=("a",))).keys_required
    with pytest.raises(SchemaError, match="topic t is compacted") as raised:
        with_keys_required(plan(schema(("value", TEXT))))
    assert raised.value.kind.kp_code == "KP0215"
    assert "preflight=off" in raised.value.hint


def test_a_column_that_is_named_is_not_said_to_be_ignored():
    columns = schema(("Value", TEXT), ("Key", TEXT))
    made = plan(columns, value=("Value",))
    assert [line for line in near_names(columns, made) if "Value" in line] == []
    assert len(near_names(columns, made)) == 1
