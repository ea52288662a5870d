"""Which columns a change feed has, and what is refused before any task."""

from __future__ import annotations

import json
from functools import partial

import pytest
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_kafka_sink.base.errors import ConfigError, SchemaError
from spark_kafka_sink.config.changelog import KEYS_OF_UPSERTS, changelog_of
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.write.change_columns import not_compacted
from spark_kafka_sink.datasource.write.schema import plan_columns
from spark_kafka_sink.records.bad_rows.topic_limits import TopicLimits

TEXT, LONG = StringType(), LongType()
ROW = StructType().add("id", LONG).add("text", TEXT)
NAMED = {"keyColumns": "id", "valueColumns": "*"}


def delta(**more):
    made = StructType().add("id", LONG).add("text", TEXT)
    for name, data_type in more.items():
        made.add(name, data_type)
    made.add("_change_type", TEXT).add("_commit_version", LONG)
    return made.add("_commit_timestamp", TimestampType())


def renamed(column):
    """The feed with this column in capitals."""
    made = delta()
    made[column].name = column.upper()
    return StructType(made.fields)


def upserted(*keys):
    """The feed as ``upserts`` gives it."""
    made = delta()
    for name in (*keys, "_change_type"):
        made[name].metadata = {KEYS_OF_UPSERTS: list(keys)}
    return made


def debezium(keys):
    made = StructType().add("op", TEXT, metadata={KEYS_OF_UPSERTS: keys}).add("before", ROW)
    return made.add("after", ROW, metadata={KEYS_OF_UPSERTS: keys})


def parsed(**options):
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", **options}
    return parse_sink_config(given)


def planned(schema, changelog="delta-cdf", **options):
    config = parsed(changelog=changelog, **NAMED | options)
    return plan_columns(schema, config.topic, config.named_columns, changes=config.changes)


def names_of(part, schema):
    return [column.name for column in part.columns]


def test_all_columns_are_those_of_the_table():
    plan = planned(delta())
    assert names_of(plan.value, delta()) == ["id", "text"]
    assert plan.keys_required


def test_a_column_of_the_feed_may_be_named():
    plan = planned(delta(), valueColumns="id, _commit_version")
    assert names_of(plan.value, delta()) == ["id", "_commit_version"]


def test_columns_of_debezium_are_fields_of_its_rows():
    """A field with a name of the sink, such as timestamp, is a field like others."""
    row = StructType().add("id", LONG).add("timestamp", TEXT)
    schema = StructType().add("op", TEXT).add("before", row).add("after", row)
    plan = planned(schema, "debezium")
    assert names_of(plan.value, schema) == ["id", "timestamp"]
    assert plan.timestamp_column is None
    assert [column.index for column in plan.value.columns] == [3, 4]


def test_the_position_of_a_known_connector_orders_its_events():
    source = StructType().add("row", IntegerType()).add("file", TEXT).add("pos", LONG)
    schema = StructType().add("op", TEXT).add("before", ROW).add("after", ROW)
    plan = planned(schema.add("source", source), "debezium")
    assert [one.path for one in plan.changes.order] == [("file",), ("pos",), ("row",)]


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        (StructType().add("id", LONG), {}, "needs a column _change_type"),
        (StructType().add("id", LONG).add("_change_type", LONG), {}, "is of type bigint"),
        (delta(), {"keyColumns": "text, x"}, "a column x"),
        (delta(d=DoubleType()), {"keyColumns": "d"}, "column d holds a double"),
        (delta(a=ArrayType(DoubleType())), {"keyColumns": "a"}, "column a holds a double"),
        (delta(m=MapType(TEXT, TEXT)), {"keyColumns": "m"}, "column m holds a map"),
        (delta(c=StringType("UTF8_LCASE")), {"keyColumns": "c"}, "a collated string"),
        (delta(at=TimestampType()), {"keyColumns": "at"}, "holds a timestamp, which JSON cuts"),
        (delta(at=TimestampNTZType()), {"keyColumns": "at"}, "holds a timestamp_ntz"),
        (renamed("_commit_version"), {}, "has the column _commit_version, and .* _COMMIT_VERSION"),
        (renamed("_change_type"), {}, "has the column _change_type, and .* _CHANGE_TYPE"),
        (upserted("text"), {}, "keyColumns names id, and upserts .* each text"),
        (upserted("id", "text"), {}, "keyColumns names id, and upserts .* each id, text"),
        (upserted("id"), {"keyColumns": "id, text"}, "names id, text, and upserts .* each id:"),
        (
            debezium(["text"]),
            {"changelog": "debezium"},
            "keyColumns names id, and upserts .* each text",
        ),
        (StructType().add("op", TEXT), {"changelog": "debezium"}, "a column before"),
        (
            StructType().add("op", TEXT).add("before", TEXT).add("after", ROW),
            {"changelog": "debezium"},
            "the row of a change is a struct",
        ),
        (
            StructType().add("op", TEXT).add("before", StructType()).add("after", ROW),
            {"changelog": "debezium"},
            "differ in their types",
        ),
    ],
)
def test_a_feed_that_can_not_be_written_is_refused(schema, options, said):
    with pytest.raises(SchemaError, match=said):
        planned(schema, **options)


DESCRIBED = '{"column": "text", "insert": "a"}'


@pytest.mark.parametrize(
    ("schema", "options", "said", "ways"),
    [
        (
            StructType().add("id", LONG),
            {},
            "read the whole feed, or describe it in JSON",
            [(delta(), {}), (delta(), {"changelog": DESCRIBED})],
        ),
        (
            StructType().add("id", LONG).add("text", TEXT).add("rowkind", LONG),
            {"changelog": "flink"},
            "cast it, or name another column",
            [
                (StructType().add("id", LONG).add("rowkind", TEXT), {"changelog": "flink"}),
                (delta(), {"changelog": DESCRIBED}),
            ],
        ),
        (
            delta(),
            {"keyColumns": ""},
            "name the table's primary key in keyColumns",
            [(delta(), {})],
        ),
        (
            upserted("text"),
            {},
            "give keyColumns and the keys of upserts the same columns",
            [(upserted("text"), {"keyColumns": "text"}), (upserted("id"), {})],
        ),
        (renamed("_commit_version"), {}, "rename it to _commit_version", [(delta(), {})]),
        (
            delta(d=DoubleType()),
            {"keyColumns": "d"},
            "name other columns, or cast it to decimal",
            [(delta(d=DoubleType()), {}), (delta(d=DecimalType(9, 2)), {"keyColumns": "d"})],
        ),
        (
            delta(at=TimestampType()),
            {"keyColumns": "at"},
            "set jsonTimestampFormat=yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
            [
                (
                    delta(at=TimestampType()),
                    {"keyColumns": "at", "jsonTimestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"},
                ),
            ],
        ),
        (
            delta(at=TimestampNTZType()),
            {"keyColumns": "at"},
            "set jsonTimestampNtzFormat=yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
            [
                (
                    delta(at=TimestampNTZType()),
                    {"keyColumns": "at", "jsonTimestampNtzFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"},
                ),
            ],
        ),
    ],
)
def test_the_hint_of_a_refused_feed_leads_to_a_plan(schema, options, said, ways):
    if options.get("keyColumns") == "":
        options = {"valueColumns": "*"}
        planned_ = partial(planned_without_key, schema)
    else:
        planned_ = partial(planned, schema)
    with pytest.raises(SchemaError) as raised:
        planned_(**options)
    assert said in str(raised.value.hint)
    for other, more in ways:
        assert planned(other, **more).changes is not None


def test_keys_of_upserts_are_compared_in_any_order_and_name():
    """A key may be renamed after upserts; after a cast it is not known."""
    assert planned(upserted("id", "text"), keyColumns="text, id").key is not None
    moved = upserted("id")
    moved["id"].name = "number"
    moved = StructType(moved.fields)
    assert planned(moved, keyColumns="number").key is not None
    cast = upserted("id", "text")
    cast["text"].metadata = {}
    assert planned(cast).key is not None
    assert planned(debezium(["ID"]), changelog="debezium").key is not None


def test_the_feed_of_a_table_that_upserts_has_written_has_any_key():
    """The table keeps the metadata of its columns; the change types are new."""
    feed = upserted("id")
    feed["_change_type"].metadata = {}
    assert planned(feed, keyColumns="text").key is not None
    again = upserted("text")
    again["id"].metadata = {KEYS_OF_UPSERTS: ["id"]}
    assert planned(again, keyColumns="text").key is not None
    with pytest.raises(SchemaError, match="each text"):
        planned(again)


def planned_without_key(schema, **options):
    config = parsed(changelog="delta-cdf", **options)
    return plan_columns(schema, config.topic, config.named_columns, changes=config.changes)


def test_changes_need_a_key():
    schema = StructType().add("value", TEXT).add("rowkind", TEXT)
    config = parsed(changelog="flink")
    with pytest.raises(SchemaError, match="no column is the key"):
        plan_columns(schema, config.topic, config.named_columns, changes=config.changes)


def test_a_time_in_a_key_is_written_with_a_format():
    options = {"keyColumns": "at", "jsonTimestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS"}
    assert planned(delta(at=TimestampType()), **options).key is not None
    more = {"keyFormat": "avro", "schema.registry.url": "https://r:1"}
    assert planned(delta(at=TimestampType()), keyColumns="at", **more).key is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"changelog.mode": "debezium"}, "changelog is not set"),
        ({"changelog": "delta"}, "String must be one of delta-cdf"),
        ({"changelog": "{"}, "no valid JSON"),
        ({"changelog": "{}"}, "needs a name column"),
        ({"changelog": '{"column": "a", "inserts": []}'}, "a name 'inserts'"),
        ({"changelog": '{"column": "a"}'}, "no change type for insert or update"),
        ({"changelog": '{"column": "a", "insert": 1}'}, "a text or a list"),
        ({"changelog": '{"column": "a", "insert": "x", "delete": "x"}'}, "twice"),
        ({"changelog": '{"column": "a", "insert": "x", "before": "b"}'}, "none for update"),
        ({"changelog": "flink", "onNullValue": "skip"}, "contradict each other"),
        ({"changelog": "flink", "onNullValue": "error"}, "contradict each other"),
        ({"changelog": "flink", "onNullValue": "tombstone"}, "onNullValue would have no effect"),
        *(
            ({"changelog": "flink", **ignoring}, "in several partitions, without an order")
            for ignoring in (
                {"kafka.partitioner.ignore.keys": "true"},
                {"kafka.partitioner.class": "RoundRobinPartitioner"},
                {"kafka.partitioner.class": "random"},
                {"kafka.partitioner.class": "UniformStickyPartitioner"},
            )
        ),
        ({"changelog": "flink", "changelog.mode": "debezium"}, "valueColumns names none"),
        (
            {
                "changelog": "flink",
                "changelog.mode": "debezium",
                "valueColumns": "a",
                "valueFormat": "string",
            },
            "valueFormat is string",
        ),
        (
            {"changelog": "flink", "changelog.mode": "debezium", "valueColumns": "a.*"},
            "the fields of one",
        ),
    ],
)
def test_options_of_a_changelog_that_can_not_be_are_errors(options, said):
    with pytest.raises(ConfigError, match=said):
        parsed(**options)


def test_a_changelog_is_named_in_any_case():
    assert changelog_of(" Delta-CDF ") == changelog_of("delta-cdf")
    described = {"column": "k", "insert": ["I"], "metadata": "seq"}
    assert changelog_of(json.dumps(described)).metadata == ("seq",)


def test_a_topic_that_is_not_compacted_is_a_warning():
    limits = {"t": TopicLimits(), "c": TopicLimits(compacted=True)}
    (line,) = not_compacted("t", limits)
    assert line.startswith("KP0208") or "KP0208" in line
    assert "cleanup.policy=compact" in line
    assert [not_compacted(one, limits) for one in ("c", None, "unknown")] == [[], [], []]
