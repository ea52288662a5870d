"""Changes of a table from Spark into a real Kafka: the topic, as another client reads it."""

from __future__ import annotations

import json
import logging
from collections import Counter
from random import Random

import pytest
from change_feeds import (
    as_json,
    changes_of,
    compacted,
    debezium_rows,
    delta_rows,
    flink_rows,
)
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StringType, StructType
from test_upserts import DELTA, ORDERS, ROWS, SCHEMAS

from spark_kafka_sink import foreach_batch, upserts
from spark_kafka_sink.datasource.source import KprodDataSource

NAMED = {"keyColumns": "id", "keyFormat": "string", "valueColumns": "id, text"}
COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture
def topic(kafka):
    return kafka.unique_topic("changes", partitions=3, configs=COMPACTED)


def records(found):
    return list(zip(found.keys, found.values, strict=True))


def parts(random, rows, count):
    """Cuts between versions, as Delta's stream makes them."""
    version = "_commit_version" if "_commit_version" in rows[0] else "seq"
    versions = sorted({row[version] for row in rows})
    cuts = sorted(random.sample(versions, count - 1))
    bounds = [0, *cuts, versions[-1] + 1]
    for start, end in zip(bounds, bounds[1:], strict=False):
        part = [row for row in rows if start <= row[version] < end]
        random.shuffle(part)
        yield part


@pytest.mark.parametrize("feed", ["delta-cdf", pytest.param("flink", marks=pytest.mark.long)])
def test_the_compacted_topic_is_the_table_exactly_once(spark, write, topic, consume, feed):
    random = Random(feed)
    changes, table = changes_of(random, 150, 20)
    for number, rows in enumerate(parts(random, ROWS[feed](changes), 2)):
        frame = spark.createDataFrame(rows, SCHEMAS[feed]).repartition(3)
        options = {"deliveryGuarantee": "exactly-once", "txnAppId": topic, "txnVersion": number}
        last = upserts(frame, ["id"], feed, ORDERS.get(feed, []))
        write(last, topic, changelog=feed, **NAMED | options)
    assert compacted(records(consume(topic))) == as_json(table.values())


@pytest.mark.long
def test_envelopes_of_debezium_become_the_table(spark, write, topic, consume):
    changes, table = changes_of(Random(5), 100, 12)
    rows = debezium_rows(changes)
    Random(6).shuffle(rows)
    frame = spark.createDataFrame(rows, SCHEMAS["debezium"]).repartition(3)
    write(upserts(frame, ["id"], "debezium"), topic, changelog="debezium", **NAMED)
    assert compacted(records(consume(topic))) == as_json(table.values())


def test_a_feed_in_order_needs_no_shuffle(spark, write, topic, consume):
    """And a tombstone follows the envelope of a delete, in its partition."""
    changes, table = changes_of(Random(7), 60, 9)
    frame = spark.createDataFrame(flink_rows(changes), SCHEMAS["flink"]).coalesce(1)
    write(frame, topic, changelog="flink", **NAMED | {"changelog.mode": "debezium"})
    found = records(consume(topic))
    last = {key: value if value is None else json.loads(value) for key, value in found}
    there = {key: one["after"] for key, one in last.items() if one is not None}
    assert there == {str(key).encode(): row for key, row in table.items()}
    by_key: dict[bytes, list[str | None]] = {}
    for key, value in found:
        by_key.setdefault(key, []).append(None if value is None else json.loads(value)["op"])
    for ops in by_key.values():
        text = "".join(op or "-" for op in ops)
        assert text.replace("d-", "").count("d") == text.replace("d-", "").count("-") == 0


def test_a_stream_calls_upserts_for_each_micro_batch(spark, kafka, topic, consume, tmp_path):
    changes, table = changes_of(Random(8), 90, 12)
    folder = tmp_path / "feed"
    folder.mkdir()
    for number, rows in enumerate(parts(Random(9), delta_rows(changes), 3)):
        (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic, "changelog": "delta-cdf"}
    write = foreach_batch(topic, **options, **NAMED)
    query = (
        spark.readStream.schema(DELTA)
        .json(str(folder))
        .writeStream.foreachBatch(lambda batch, number: write(upserts(batch, ["id"]), number))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert compacted(records(consume(topic))) == as_json(table.values())


def test_a_stream_takes_the_options_alone(spark, stream, topic, consume, tmp_path):
    folder = tmp_path / "feed"
    folder.mkdir()
    rows = [
        {"id": 1, "text": "a", "_change_type": "insert", "_commit_version": 1},
        {"id": 1, "text": "a", "_change_type": "update_preimage", "_commit_version": 2},
        {"id": 2, "text": "b", "_change_type": "update_postimage", "_commit_version": 2},
    ]
    (folder / "0.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    frame = spark.readStream.schema(DELTA).json(str(folder))
    stream(frame, topic, changelog="delta-cdf", **NAMED).awaitTermination()
    assert Counter(records(consume(topic))) == Counter(
        [(b"1", b'{"id":1,"text":"a"}'), (b"1", None), (b"2", b'{"id":2,"text":"b"}')]
    )


def test_what_can_not_be_is_a_dead_letter_in_the_transaction(spark, write, kafka, topic, consume):
    queue = kafka.unique_topic("dlq")
    rows = [
        (1, "a", "insert", 1), (2, "b", "insert", 1), (2, "b", "delete", 2),
        (None, "no key", "insert", 1), (3, "type", "merge", 1), (4, "no order", "insert", None),
        (5, "one", "insert", 1), (5, "other", "insert", 1),
    ]  # fmt: skip
    frame = upserts(spark.createDataFrame(rows, DELTA).repartition(2), ["id"])
    write(frame, topic, changelog="delta-cdf", **NAMED, **{
        "errors.tolerance": "all", "errors.deadletterqueue.topic.name": queue,
        "deliveryGuarantee": "exactly-once",
    })  # fmt: skip
    assert dict(records(consume(topic))) == {b"1": b'{"id":1,"text":"a"}', b"2": None}
    letters = consume(queue)
    codes = Counter(dict(headers)["__kprod.errors.code"] for headers in letters.headers)
    assert codes == {b"KP0215": 1, b"KP0217": 1, b"KP0219": 3}
    texts = {json.loads(value)["text"] for value in letters.values}
    assert texts == {"no key", "type", "no order", "one", "other"}


def test_a_row_without_a_key_is_one_error(spark, write, topic):
    frame = spark.createDataFrame([(None, "a", "insert", 1)], DELTA)
    with pytest.raises(Exception, match="KP0215") as raised:
        write(frame, topic, changelog="delta-cdf", **NAMED)
    assert "column 'key', row 0" in str(raised.value)


def test_other_keys_than_those_of_upserts_are_an_error(spark, write, topic):
    frame = upserts(spark.createDataFrame([(1, "a", "insert", 1)], DELTA), ["id"])
    with pytest.raises(Exception, match="KP0209"):
        write(frame, topic, changelog="delta-cdf", **NAMED | {"keyColumns": "text"})


def test_a_topic_that_keeps_old_rows_is_a_warning_at_planning(kafka, caplog):
    topics = [kafka.unique_topic("kept", configs={"cleanup.policy": "delete"})]
    topics.append(kafka.unique_topic("kept", configs=COMPACTED))
    schema = StructType().add("id", LongType()).add("text", StringType())
    schema.add("_change_type", StringType())
    with caplog.at_level(logging.WARNING):
        for topic in topics:
            options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic, **NAMED}
            given = CaseInsensitiveDict(options | {"changelog": "delta-cdf"})
            KprodDataSource(given).writer(schema, overwrite=False)
    told = [record.getMessage() for record in caplog.records if "KP0208" in record.getMessage()]
    assert [topic in line for topic in topics for line in told] == [True, False]


def test_sql_writes_a_feed_by_options(spark, kafka, topic, consume):
    spark.sql("SELECT 1 AS id, 'a' AS text, '+I' AS rowkind").createOrReplaceTempView("feed")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic, "changelog": "flink"}
    given = ", ".join(f"'{name}' = '{value}'" for name, value in (options | NAMED).items())
    columns = "id INT, text STRING, rowkind STRING"
    spark.sql(f"CREATE TABLE IF NOT EXISTS changes_by_sql ({columns}) USING kprod")
    try:
        spark.sql(f"INSERT INTO changes_by_sql WITH ({given}) SELECT * FROM feed")
    finally:
        spark.sql("DROP TABLE changes_by_sql")
    assert records(consume(topic)) == [(b"1", b'{"id":1,"text":"a"}')]


@pytest.mark.parametrize(
    "format_",
    ["avro", *(pytest.param(one, marks=pytest.mark.long) for one in ("protobuf", "json-schema"))],
)
def test_a_delete_needs_no_schema_in_any_format(spark, write, topic, consume, registry, format_):
    """The row of a delete has its key only, and the schema takes no null."""
    rows = [(1, "a", "insert", 1), (2, "b", "insert", 1), (1, None, "delete", 2)]
    frame = spark.createDataFrame(rows, DELTA).coalesce(1)
    write(frame, topic, changelog="delta-cdf", keyColumns="id", keyFormat=format_,
          valueColumns="*", valueFormat=format_,
          **{"schema.registry.url": registry, "auto.register.schemas": "true"})  # fmt: skip
    found = records(consume(topic))
    assert len(compacted(found)) == 1
    assert [value is None for _, value in found].count(True) == 1
    assert len({key for key, _ in found}) == 2


@pytest.mark.long
def test_a_schema_without_nulls_takes_a_delete(spark, write, topic, consume, registry):
    schema = {
        "type": "record", "name": "Row",
        "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}],
    }  # fmt: skip
    rows = [(1, "a", "insert", 1), (1, None, "delete", 2)]
    frame = spark.createDataFrame(rows, DELTA).coalesce(1)
    write(frame, topic, changelog="delta-cdf", keyColumns="id", keyFormat="string",
          valueColumns="*", valueFormat="avro", valueSchema=json.dumps(schema),
          **{"schema.registry.url": registry, "auto.register.schemas": "true"})  # fmt: skip
    (first, second) = records(consume(topic))
    assert second == (b"1", None)
    with SchemaRegistryClient({"url": registry}) as client:
        context = SerializationContext(topic, MessageField.VALUE)
        assert AvroDeserializer(client)(first[1], context) == {"id": 1, "text": "a"}


@pytest.mark.long
def test_an_envelope_in_avro_is_read_by_another_client(spark, write, topic, consume, registry):
    rows = [(1, "a", "insert", 1), (1, "a", "update_preimage", 2), (1, "b", "update_postimage", 2)]
    frame = spark.createDataFrame(rows, DELTA).coalesce(1)
    write(frame, topic, changelog="delta-cdf", valueFormat="avro", valueSchemaName="t.Envelope",
          **NAMED | {"changelog.mode": "debezium", "valueColumns": "*"},
          **{"schema.registry.url": registry, "auto.register.schemas": "true"})  # fmt: skip
    with SchemaRegistryClient({"url": registry}) as client:
        context = SerializationContext(topic, MessageField.VALUE)
        read = [AvroDeserializer(client)(value, context) for _, value in records(consume(topic))]
    old, new = {"id": 1, "text": "a"}, {"id": 1, "text": "b"}
    assert [(one["before"], one["after"], one["op"]) for one in read] == [
        (None, old, "c"), (old, new, "u"),
    ]  # fmt: skip
