"""upserts: the last change of each key, as Spark's expressions."""

from __future__ import annotations

from random import Random

import pytest
from change_feeds import Change, changes_of, debezium_rows, delta_rows, flink_rows

from spark_kafka_sink import upserts
from spark_kafka_sink.base.errors import ConfigError, SchemaError
from spark_kafka_sink.config.changelog import KEYS_OF_UPSERTS
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.write.schema import plan_columns

DELTA = "id long, text string, _change_type string, _commit_version long"
FLINK = "id long, text string, rowkind string, seq long"
ENVELOPE = (
    "op string, before struct<id long, text string>, after struct<id long, text string>,"
    " source struct<lsn long>, ts_ms long"
)
OPTIONS = {"kafka.bootstrap.servers": "b:1", "topic": "t", "changelog": "delta-cdf"}
SCHEMAS = {"delta-cdf": DELTA, "flink": FLINK, "debezium": ENVELOPE}
ROWS = {"delta-cdf": delta_rows, "flink": flink_rows, "debezium": debezium_rows}
ORDERS = {"flink": ["seq"]}
WITHOUT_DELETE = {
    "column": "_change_type",
    "insert": "insert",
    "update": "update_postimage",
    "before": "update_preimage",
}


def last_changes(spark, rows, feed="delta-cdf", keys=("id",), order_by=None, partitions=3):
    """Rows in any order, and over several partitions."""
    shuffled = [dict(row) for row in rows]
    Random(len(rows)).shuffle(shuffled)
    frame = spark.createDataFrame(shuffled, SCHEMAS[feed]).repartition(partitions)
    order = ORDERS.get(feed, []) if order_by is None else order_by
    return upserts(frame, list(keys), feed, order)


def delta(*changes):
    names = ("_change_type", "id", "text", "_commit_version")
    return [dict(zip(names, one, strict=True)) for one in changes]


def as_table(rows, feed):
    """The rows that are there after the changes; each key may come once."""
    table, keys = {}, []
    for row in rows:
        type_ = row["op"] if feed == "debezium" else row[3 if feed != "flink" else 2]
        of = row["before" if type_ == "d" else "after"] if feed == "debezium" else row
        keys.append(of["id"])
        if type_ not in ("d", "delete", "-D"):
            table[of["id"]] = {"id": of["id"], "text": of["text"]}
    assert len(keys) == len(set(keys)), "a key twice"
    return table


@pytest.mark.parametrize("feed", SCHEMAS)
@pytest.mark.parametrize("seed", range(2))
def test_one_row_for_each_key_is_the_table(spark, feed, seed):
    changes, table = changes_of(Random(seed), 120, 15)
    frame = last_changes(spark, ROWS[feed](changes), feed)
    rows = frame.selectExpr(*(["id", "text", "_commit_version", "_change_type"]
                              if feed == "delta-cdf" else ["*"])).collect()  # fmt: skip
    assert as_table(rows, feed) == table


def test_the_plan_has_one_shuffle_and_no_python(spark):
    frame = spark.createDataFrame(delta(("insert", 1, "a", 1)), DELTA)
    plan = upserts(frame, ["id"])._jdf.queryExecution().sparkPlan().toString()
    executed = upserts(frame, ["id"])._jdf.queryExecution().executedPlan().toString()
    assert executed.count("Exchange ") == 1
    assert "WindowGroupLimit" in plan
    assert "Python" not in executed


def types_of(frame):
    return sorted((row["id"], row["_change_type"]) for row in frame.collect())


def test_rows_without_a_key_type_or_place_all_stay(spark):
    """Next to them a good change of the same key is the last one."""
    rows = delta(
        ("insert", None, "a", 1),
        ("insert", None, "b", 2),
        ("delete", None, "c", 3),
        (None, 1, "a", 9),
        ("truncate", 1, "a", 9),
        ("insert", 1, "b", None),
        ("insert", 1, "c", 2),
    )
    found = [(row["id"], row["_change_type"], row["text"]) for row in
             last_changes(spark, rows).collect()]  # fmt: skip
    assert sorted(found, key=repr) == sorted(
        [
            (None, "insert", "a"),
            (None, "insert", "b"),
            (None, "delete", "c"),
            (1, None, "a"),
            (1, "truncate", "a"),
            (1, "kprod:no-order", "b"),
            (1, "insert", "c"),
        ],
        key=repr,
    )


def test_equal_last_changes_are_one_and_others_are_marked(spark):
    rows = delta(
        ("insert", 1, "same", 1),
        ("insert", 1, "same", 1),
        ("insert", 2, "one", 1),
        ("update_postimage", 2, "other", 1),
        ("delete", 3, "x", 1),
        ("delete", 3, "y", 1),
        ("insert", 4, "a", 1),
        ("insert", 4, "b", 1),
        ("insert", 4, "c", 2),
    )
    tied = "kprod:several-last-changes"
    assert types_of(last_changes(spark, rows)) == [
        (1, "insert"), (2, tied), (2, tied), (3, "delete"), (4, "insert"),
    ]  # fmt: skip


def test_a_repeated_event_of_debezium_is_one(spark):
    """Its time of processing differs."""
    rows = debezium_rows([Change(1, None, {"id": 1, "text": "a"})])
    again = [row | {"ts_ms": row["ts_ms"] + 5} for row in rows]
    assert last_changes(spark, rows + again, "debezium").count() == 1


def test_a_changed_key_is_a_delete_and_an_insert(spark):
    row, other = {"id": 1, "text": "a"}, {"id": 2, "text": "a"}
    changes = [Change(1, None, row), Change(2, row, other)]
    assert types_of(last_changes(spark, delta_rows(changes))) == [
        (1, "delete"), (2, "update_postimage"),
    ]  # fmt: skip
    found = last_changes(spark, debezium_rows(changes), "debezium").orderBy("op").collect()
    assert [(r["op"], r["before"], r["after"]) for r in found] == [
        ("c", None, (2, "a")), ("d", (1, "a"), None),
    ]  # fmt: skip


def test_keys_that_swap_their_rows_keep_the_later_ones(spark):
    one, two = {"id": 1, "text": "a"}, {"id": 2, "text": "b"}
    swapped = [Change(2, one, one | {"id": 2}), Change(2, two, two | {"id": 1})]
    changes = [Change(1, None, one), Change(1, None, two), *swapped]
    rows = last_changes(spark, delta_rows(changes)).collect()
    assert {row["id"]: row["text"] for row in rows} == {1: "b", 2: "a"}


def test_nested_and_null_parts_of_keys_are_keys(spark):
    schema = "k struct<a: long, l: array<string>>, n string, rowkind string, seq long"
    rows = [(((1, ["x"])), None, "+I", 1), (((1, ["x"])), None, "-D", 2), (None, "n", "+I", 1)]
    frame = spark.createDataFrame(rows, schema)
    found = upserts(frame, ["k", "n"], "flink", ["seq"]).collect()
    assert sorted((row["n"], row["rowkind"]) for row in found if row["n"]) == [("n", "+I")]
    assert [row["rowkind"] for row in found if not row["n"]] == ["-D"]


def test_columns_stay_as_they_were(spark):
    frame = spark.createDataFrame([(1, "x", "insert", 1, 2.5)], f"{DELTA}, `a.b` double")
    made = upserts(frame, ["id"])
    assert made.columns == frame.columns
    assert [f.dataType for f in made.schema] == [f.dataType for f in frame.schema]


def test_the_columns_of_keys_know_the_keys(spark):
    """The sink compares them with keyColumns; those of an earlier call don't count. The type of the
    change has them, too: a feed of a table that was written from these rows has another one.
    """
    frame = spark.createDataFrame([(1, "x", "insert", 1, 2)], f"{DELTA}, more int")
    made = upserts(upserts(frame, ["text", "more"]), ["ID", "more"])
    known = {field.name: field.metadata for field in made.schema if field.metadata}
    noted = {key: {"kprod.keys": ["ID", "more"]} for key in ("id", "more", "_change_type")}
    assert known == noted | {"text": {"kprod.keys": []}}


@pytest.mark.parametrize(
    ("keys", "changelog", "order_by", "kind", "said"),
    [
        ([], "delta-cdf", [], ConfigError, "at least one column"),
        ("id", "delta-cdf", [], ConfigError, "at least one column"),
        (["x"], "delta-cdf", [], SchemaError, "keys needs a column x"),
        (["d"], "delta-cdf", [], SchemaError, "holds a double"),
        (["id"], "flink", [], SchemaError, "needs a column rowkind"),
        (["id"], "delta", [], ConfigError, "changelog is invalid"),
        (["id"], {"column": "_change_type", "insert": "insert"}, [], ConfigError, "not known"),
        (["id"], WITHOUT_DELETE, ["_commit_version"], ConfigError, "and none for delete"),
    ],
)
def test_arguments_that_can_not_be_are_errors(spark, keys, changelog, order_by, kind, said):
    frame = spark.createDataFrame([], f"{DELTA}, d double")
    with pytest.raises(kind, match=said):
        upserts(frame, keys, changelog, order_by)


def test_the_hints_of_upserts_lead_to_its_rows(spark):
    frame = spark.createDataFrame([(1, "a", "insert", 1)], DELTA)
    with pytest.raises(SchemaError) as raised:
        upserts(frame, ["ID number"])
    assert raised.value.hint.startswith("there are id, text")
    with pytest.raises(ConfigError) as raised:
        upserts(frame, ["id"], "cdf")
    assert "changelog takes delta-cdf, debezium, flink, or a mapping" in raised.value.hint
    described = {"column": "_change_type", "insert": ["insert"], "order": ["_commit_version"]}
    for way in ("delta-cdf", described):
        assert upserts(frame, ["ID"], way).count() == 1


def test_a_delete_that_is_named_is_the_end_of_an_old_key(spark):
    rows = delta(("update_preimage", 1, "a", 1), ("update_postimage", 2, "a", 1))
    frame = spark.createDataFrame(rows, DELTA)
    with pytest.raises(ConfigError) as raised:
        upserts(frame, ["id"], WITHOUT_DELETE, ["_commit_version"])
    assert 'for example "delete": ["D"]' in raised.value.hint
    described = WITHOUT_DELETE | {"delete": ["D"]}
    found = upserts(frame, ["id"], described, ["_commit_version"])
    assert types_of(found) == [(1, "D"), (2, "update_postimage")]


def test_a_stream_is_refused_with_the_way_to_write_it(spark):
    frame = spark.readStream.format("rate").load()
    with pytest.raises(ConfigError, match="ranks no rows of a stream") as raised:
        upserts(frame, ["value"])
    assert "foreachBatch" in raised.value.hint


def events(spark, *rows, source="lsn long"):
    schema = ENVELOPE.replace("lsn long", source)
    names = ("op", "before", "after", "source", "ts_ms")
    return spark.createDataFrame([dict(zip(names, row, strict=True)) for row in rows], schema)


def test_a_snapshot_is_older_than_a_change_at_its_position(spark):
    feed = events(spark, ("r", None, (1, "a"), (5,), 1), ("d", (1, "a"), None, (5,), 1))
    assert [row["op"] for row in upserts(feed, ["id"], "debezium").collect()] == ["d"]


def test_an_insert_and_a_delete_at_one_time_are_a_tie(spark):
    feed = events(spark, ("c", None, (1, "a"), (5,), 1), ("d", (1, "a"), None, (6,), 1))
    found = upserts(feed, ["id"], "debezium", ["ts_ms"]).collect()
    assert {row["op"] for row in found} == {"kprod:several-last-changes"}


def test_change_numbers_of_oracle_are_no_texts(spark):
    source = "commit_scn string, scn string, rs_id string, ssn long"
    feed = events(
        spark,
        ("c", None, (1, "old"), ("999", "999", "r", 0), 1),
        ("u", None, (1, "new"), ("1000", "1000", "r", 0), 1),
        ("c", None, (2, "x"), (None, "1000", "r", 0), 1),
        source=source,
    )
    found = upserts(feed, ["id"], "debezium").collect()
    assert {(row["op"], row["after"]["text"]) for row in found} == {
        ("u", "new"),
        ("kprod:no-order", "x"),
    }


def test_rows_that_differ_in_microseconds_are_a_tie(spark):
    feed = spark.range(2).selectExpr(
        "1L AS id", "timestamp_micros(id) AS at", "'insert' AS _change_type", "1 AS _commit_version"
    )
    assert {row["_change_type"] for row in upserts(feed, ["id"]).collect()} == {
        "kprod:several-last-changes"
    }


def test_an_order_may_be_a_column_where_the_feed_has_its_own(spark):
    from pyspark.sql import functions as F

    rows = delta(("insert", 1, "old", 5), ("update_postimage", 1, "new", 6))
    found = last_changes(spark, rows, order_by=[F.col("_commit_version")]).collect()
    assert [(row["id"], row["text"]) for row in found] == [(1, "new")]


def test_a_table_that_upserts_has_written_has_a_feed_with_other_keys(spark, tmp_path):
    """The table keeps the metadata of its columns, and its feed has new change types."""
    first = upserts(spark.createDataFrame(delta(("insert", 1, "a", 1)), DELTA), ["id"])
    first.drop("_change_type", "_commit_version").write.parquet(str(tmp_path / "table"))
    table = spark.read.parquet(str(tmp_path / "table"))
    feed = table.selectExpr("*", "'insert' AS _change_type", "2L AS _commit_version")
    assert feed.schema["id"].metadata == {KEYS_OF_UPSERTS: ["id"]}
    for frame in (feed, upserts(feed, ["text"])):
        config = parse_sink_config(OPTIONS | {"keyColumns": "text", "valueColumns": "*"})
        plan = plan_columns(frame.schema, "t", config.named_columns, changes=config.changes)
        assert [column.name for column in plan.key.columns] == ["text"]
    config = parse_sink_config(OPTIONS | {"keyColumns": "id", "valueColumns": "*"})
    with pytest.raises(SchemaError, match="and upserts has kept the last change of each text"):
        plan_columns(frame.schema, "t", config.named_columns, changes=config.changes)
