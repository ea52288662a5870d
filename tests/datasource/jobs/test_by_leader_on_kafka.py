"""by_leader from a real Spark into a real Kafka: one task for each partition, and its errors."""

from __future__ import annotations

from collections import defaultdict

import pytest
from pyspark.sql import functions as F

from spark_kafka_sink import by_leader
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, KafkaTimeoutError, SchemaError

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        "not hasattr(__import__('pyspark.sql').sql.DataFrame, 'repartitionById')",
        reason="Spark 4.0 has no repartitionById",
    ),
]


@pytest.fixture
def options(kafka):
    return {"kafka.bootstrap.servers": kafka.bootstrap,
            "topic": kafka.unique_topic("leaders", partitions=12)}  # fmt: skip


def test_a_partition_is_written_by_one_task_in_order(spark, kafka, consume, options):
    """The rows of a key are spread over the tasks before, and in any order."""
    options |= {"keyColumns": "customer", "valueColumns": "number"}
    rows = spark.range(0, 3000, 1, 3).selectExpr(
        "CAST(pmod(id * 7919, 3000) AS INT) AS number", "CAST(id % 50 AS STRING) AS customer"
    )
    led = by_leader(rows, tasks=4, **options).sortWithinPartitions("number")
    tasks = led.select("partition", F.spark_partition_id().alias("task")).distinct().collect()
    by_partition = defaultdict(set)
    for row in tasks:
        by_partition[row["partition"]].add(row["task"])
    assert {len(found) for found in by_partition.values()} == {1}
    assert len({row["task"] for row in tasks}) == 4
    led.write.format("kprod").options(**options).save()
    directly = kafka.unique_topic("directly", partitions=12)
    rows.write.format("kprod").options(**options | {"topic": directly}).save()
    found, plain = consume(options["topic"]), consume(directly)
    wanted = dict(zip(plain.values, plain.partitions, strict=True))
    assert dict(zip(found.values, found.partitions, strict=True)) == wanted
    of_key = defaultdict(list)
    for key, value in zip(found.keys, found.values, strict=True):
        of_key[key].append(int(value.removeprefix(b'{"number":').removesuffix(b"}")))
    assert sum(map(len, of_key.values())) == 3000
    assert all(numbers == sorted(numbers) for numbers in of_key.values())


def test_no_more_tasks_than_partitions(spark, options):
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    led = by_leader(rows, tasks=1000, **options)
    assert led.columns == ["key", "value", "partition"]
    assert led.select(F.spark_partition_id()).count() == 10
    assert len(led.select(F.expr("spark_partition_id() AS n")).groupBy("n").count().collect()) <= 12


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"topic": None}, "a column topic"),
        ({"kafka.partitioner.class": "some.module:Class"}, "the partitioner some.module:Class"),
        ({"kafka.acks": "7"}, "acks"),
    ],
)
def test_options_that_it_cannot_use_are_errors(spark, options, change, says):
    rows = spark.range(1).selectExpr("'t' AS topic", "'k' AS key", "'v' AS value")
    given = {name: value for name, value in (options | change).items() if value is not None}
    with pytest.raises(ConfigError) as raised:
        by_leader(rows, tasks=2, **given)
    assert says in raised.value.message


def test_columns_that_spark_cannot_hash_are_left_out_or_refused(spark, consume, options):
    rows = spark.range(100).selectExpr("id", "map('n', id) AS m")
    options |= {"valueColumns": "m"}
    with pytest.raises(ConfigError, match="a DataFrame of maps and variants alone") as raised:
        by_leader(rows.select("m"), tasks=2, **options)
    assert "add a column, such as the key" in raised.value.hint
    led = by_leader(rows, tasks=2, **options)
    led.write.format("kprod").options(**options).save()
    found = consume(options["topic"])
    assert sorted(found.values) == sorted(b'{"m":{"n":%d}}' % n for n in range(100))
    assert len(set(found.partitions)) > 6


def test_errors_of_planning_are_raised_as_they_are(spark, options):
    with pytest.raises(SchemaError, match="'value' not found"):
        by_leader(spark.range(1), tasks=2, **options)
    rows = spark.range(1).selectExpr("'v' AS value")
    with pytest.raises(KafkaTimeoutError):
        by_leader(rows, tasks=2, **options | {"topic": "not-there", "kafka.max.block.ms": "500"})
    with pytest.raises(ConfigError) as raised:
        by_leader(rows, tasks=0, **options)
    assert raised.value.kind is Kind.INVALID_VALUE
    stream = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    with pytest.raises(ConfigError, match="foreachBatch"):
        by_leader(stream, tasks=2, **options)
