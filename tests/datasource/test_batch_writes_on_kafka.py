"""Batch writes into a real Kafka: the acceptance list of Spark's own sink, and what is ours."""

from __future__ import annotations

import datetime as dt
import time

import mmh3
import pytest
from pyspark.sql.functions import col, lit

from tests.datasource.rows import ROWS, frame, values

# ---- topic: column, option, both, none (acceptance list 1-3, 10, 17) -----------------------------


def test_rows_go_to_the_topic_of_their_column(spark, kafka, write, consume):
    one, two = (kafka.unique_topic("column", partitions=2) for _ in range(2))
    rows = [(one if int(v) % 2 else two, v) for v in ROWS]
    write(frame(spark, rows, "topic string, value string"))
    assert values(consume(one)) == ["1", "3", "5"]
    assert values(consume(two)) == ["2", "4"]
    assert set(consume(one).keys) == {None}


def test_the_topic_option_beats_the_column_and_is_trimmed(spark, write, topic, consume):
    rows = [("foo-does-not-exist", v) for v in ROWS]
    write(frame(spark, rows, "topic string, value string"), f"  {topic} ")
    assert values(consume(topic)) == ROWS


# ---- values, keys, headers, partitions, timestamps -----------------------------------------------


def test_values_and_keys_may_be_text_bytes_empty_or_null(spark, write, topic, consume):
    rows = [(b"k1", "ä"), (b"", ""), (None, None), (b"\x00\xff", "x")]
    write(frame(spark, rows, "key binary, value string"), topic)
    found = consume(topic)
    assert sorted(zip(found.keys, found.values, strict=True), key=str) == sorted(
        [(b"k1", "ä".encode()), (b"", b""), (None, None), (b"\x00\xff", b"x")], key=str
    )


def test_headers_keep_order_doubles_and_nulls(spark, write, topic, consume):
    lists = [
        [("a", b"b")],
        [("c", b"d"), ("e", b"f")],
        [("g", b"h"), ("g", b"i")],
        None,
        [("j", b"k"), ("j", None), ("m", b"")],
    ]
    rows = [(str(n), 0, headers) for n, headers in enumerate(lists)]
    schema = "value string, partition int, headers array<struct<key:string,value:binary>>"
    write(frame(spark, rows, schema), topic)
    found = consume(topic)
    assert found.values == [b"0", b"1", b"2", b"3", b"4"]
    assert found.headers == [headers or [] for headers in lists]


def test_headers_may_be_a_map(spark, write, topic, consume):
    rows = [("0", 0, {"a": b"1"}), ("1", 0, None), ("2", 0, {"b": None, "c": b""})]
    write(frame(spark, rows, "value string, partition int, headers map<string,binary>"), topic)
    found = consume(topic)
    assert [sorted(h) for h in found.headers] == [[("a", b"1")], [], [("b", None), ("c", b"")]]


def test_who_decides_about_the_partition(spark, kafka, write, consume):
    rows = [(str(n), str(n)) for n in range(5)]
    keyed = frame(spark, rows, "key string, value string")

    def partitions_of(df, **options):
        name = kafka.unique_topic("partitioner", partitions=4)
        write(df, name, **options)
        found = consume(name)
        assert len(found) == 5
        return dict(zip(found.values, found.partitions, strict=True))

    by_key = partitions_of(keyed)
    assert len(set(by_key.values())) > 1
    assert set(partitions_of(keyed.withColumn("partition", lit(2))).values()) == {2}
    nulls = keyed.withColumn("partition", lit(None).cast("int"))
    assert partitions_of(nulls) == by_key, "a null partition leaves the choice to the partitioner"


def test_a_users_partitioner_is_used_unless_a_partition_is_given(
    spark, kafka, write, consume, tmp_path
):
    (tmp_path / "always_zero.py").write_text(
        "class AlwaysZero:\n"
        "    def partition(self, topic, keys, values, partition_count, available):\n"
        "        return [0] * len(values)\n"
    )
    spark.sparkContext.addPyFile(str(tmp_path / "always_zero.py"))
    keyed = frame(spark, [(str(n), str(n)) for n in range(5)], "key string, value string")
    own = {"kafka.partitioner.class": "always_zero:AlwaysZero"}
    for df, expected in ((keyed, {0}), (keyed.withColumn("partition", lit(2)), {2})):
        name = kafka.unique_topic("own", partitions=4)
        write(df, name, **own)
        assert set(consume(name).partitions) == expected
    with pytest.raises(Exception, match="always_zero:Absent can't be imported"):
        write(keyed, kafka.unique_topic("own"), **{"kafka.partitioner.class": "always_zero:Absent"})


def test_keys_go_where_javas_partitioner_sends_them(spark, kafka, write, consume):
    from confluent_kafka import Producer

    theirs, ours = (kafka.unique_topic("murmur2", partitions=7) for _ in range(2))
    keys = [f"key-{n}" for n in range(50)]
    reference = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        reference.produce(theirs, key=key, value=key)
    assert reference.flush(30) == 0
    write(frame(spark, [(k, k) for k in keys], "key string, value string"), ours)
    where = [dict(zip(f.keys, f.partitions, strict=True)) for f in (consume(theirs), consume(ours))]
    assert where[0] == where[1]


def test_a_partition_holds_the_bucket_that_iceberg_computes(spark, kafka, write, consume):
    """The key as docs/options.md says how to make it of a number."""
    numbers = [34, -1, *range(-(2**63), 2**63, 2**58)]
    rows = frame(spark, [(n,) for n in numbers], "id bigint").selectExpr(
        "unhex(lpad(hex(id), 16, '0')) AS key", "CAST(id AS STRING) AS value"
    )
    name = kafka.unique_topic("buckets", partitions=16)
    write(rows, name, **{"kafka.partitioner.class": "iceberg_bucket_long"})
    found = consume(name)
    wanted = {
        str(n).encode(): (mmh3.hash(n.to_bytes(8, "little", signed=True)) & 0x7FFFFFFF) % 16
        for n in numbers
    }
    assert dict(zip(found.values, found.partitions, strict=True)) == wanted
    assert wanted[b"34"] == 2017239379 % 16  # the number in Iceberg's specification
    with pytest.raises(Exception, match="iceberg_bucket_long takes keys that are integers"):
        write(
            rows.selectExpr("value AS key", "value"),
            name,
            **{"kafka.partitioner.class": "iceberg_bucket_long"},
        )


def test_a_timestamp_column_becomes_the_records_create_time(spark, write, topic, consume):
    now = int(time.time() * 1000) - 60_000
    instant = dt.datetime.fromtimestamp(now / 1000, dt.UTC)
    rows = frame(spark, [("0", instant), ("1", None)], "value string, timestamp timestamp")
    before = int(time.time() * 1000)
    write(rows.withColumn("partition", lit(0)), topic)
    write(
        frame(spark, [("2", now + 7)], "value string, timestamp long").withColumn(
            "partition", lit(0)
        ),
        topic,
    )
    ntz = rows.where("value = '0'").withColumn("timestamp", col("timestamp").cast("timestamp_ntz"))
    write(ntz.withColumn("partition", lit(0)), topic)
    found = consume(topic)
    assert (found.timestamps[0], found.timestamps[2], found.timestamps[3]) == (now, now + 7, now)
    assert before <= found.timestamps[1] <= int(time.time() * 1000), "null: the time of sending"


def test_big_rows_pass_through_a_small_buffer(spark, kafka, write, consume):
    name = kafka.unique_topic("small-buffer", partitions=1)
    rows = spark.range(1000).selectExpr("repeat(cast(id % 10 AS string), 15000) AS value")
    options = {"kafka.buffer.memory": "16384", "kafka.block.on.buffer.full": "true"}
    write(rows.coalesce(1), name, **options)
    found = consume(name)
    assert len(found) == 1000
    assert {len(v) for v in found.values} == {15000}


def test_a_failed_job_says_what_stays_and_the_next_one_works(spark, write, topic, consume):
    rows = spark.range(0, 4, 1, 2).selectExpr(
        "cast(id AS string) AS value", "IF(id = 3, -5, 0) AS partition"
    )
    with pytest.raises(Exception) as raised:
        write(rows, topic)
    assert "DataError" in str(raised.value)
    assert "while sending rows 0 to 1 of partition 1 of the DataFrame" in str(raised.value)
    assert set(values(consume(topic))) <= {"0", "1"}, "nothing of the bad partition"
    write(rows.where("value < '3'"), topic)
    assert {"0", "1", "2"} <= set(values(consume(topic)))
