"""Batch writes into a real Kafka: the acceptance list of Spark's own sink, and what is ours."""

from __future__ import annotations

import datetime as dt
import time

import mmh3
from pyspark.sql.functions import lit

from tests.datasource.rows import ROWS, frame, values

# ---- topic: column, option, both, none (acceptance list 1-3, 10, 17) -----------------------------


def test_rows_go_to_the_topic_of_their_column(spark, kafka, write, consume):
    one, two = (kafka.unique_topic("column", partitions=2) for _ in range(2))
    rows = [(one if int(v) % 2 else two, v) for v in ROWS]
    write(frame(spark, rows, "topic string, value string"))
    assert values(consume(one)) == ["1", "3", "5"]
    assert values(consume(two)) == ["2", "4"]
    assert set(consume(one).keys) == {None}


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


def test_a_timestamp_column_becomes_the_records_create_time(spark, write, topic, consume):
    """Of type timestamp; bigint and timestamp_ntz: tests/records/test_records_columns.py."""
    now = int(time.time() * 1000) - 60_000
    instant = dt.datetime.fromtimestamp(now / 1000, dt.UTC)
    rows = frame(spark, [("0", instant), ("1", None)], "value string, timestamp timestamp")
    before = int(time.time() * 1000)
    write(rows.withColumn("partition", lit(0)), topic)
    given, none = consume(topic).timestamps
    assert given == now
    assert before <= none <= int(time.time() * 1000), "null: the time of sending"
