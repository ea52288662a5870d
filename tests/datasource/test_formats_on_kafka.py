"""Rows with a schema from Spark into a real Kafka, read back by Confluent's deserializers."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format, message_factory

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.datasource.foreach_batch import transaction
from spark_kafka_sink.records.formats.protobuf_format import message_of
from tests.datasource.exactly_once.queries import run_with
from tests.network.fake_registry import FakeRegistry

ROWS = (
    "id", "concat('n', id) AS name", "CAST(id + 0.5 AS DECIMAL(10, 2)) AS amount",
    "IF(id = 1, NULL, named_struct('a', CAST(id AS INT), 'l', array(id, NULL))) AS inner",
    "map('k', id) AS counts", "TIMESTAMP'2026-01-01 00:00:00.123456' AS at",
    "TIMESTAMP_NTZ'2026-01-01 00:00:00.123456' AS local", "DATE'2026-01-31' AS day",
    "CAST(concat('b', id) AS BINARY) AS data",
)  # fmt: skip


@pytest.fixture
def options(kafka, registry):
    return {
        "kafka.bootstrap.servers": kafka.bootstrap, "schema.registry.url": registry,
        "auto.register.schemas": "true", "valueColumns": "*", "valueFormat": "avro",
    }  # fmt: skip


@pytest.fixture
def theirs(registry):
    with SchemaRegistryClient({"url": registry}) as client:
        yield client


def by(deserializer, topic, payloads, field=MessageField.VALUE):
    context = SerializationContext(topic, field)
    return [deserializer(payload, context) for payload in payloads]


def test_confluents_avro_deserializer_reads_what_spark_had(
    spark, kafka, consume, options, theirs, topic
):
    frame = spark.range(3).selectExpr(*ROWS).coalesce(1)
    more = {"topic": topic, "keyColumns": "id", "keyFormat": "avro"}
    frame.write.format("kprod").options(**options, **more).save()
    found = consume(topic)
    read = {one["id"]: one for one in by(AvroDeserializer(theirs), topic, found.values)}
    assert read[1] == {
        "id": 1, "name": "n1", "amount": decimal.Decimal("1.50"), "inner": None,
        "counts": {"k": 1}, "at": dt.datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=dt.UTC),
        "local": dt.datetime(2026, 1, 1, 0, 0, 0, 123456), "day": dt.date(2026, 1, 31),  # noqa: DTZ001
        "data": b"b1",
    }  # fmt: skip
    assert read[2]["inner"] == {"a": 2, "l": [2, None]}
    keys = by(AvroDeserializer(theirs), topic, found.keys, MessageField.KEY)
    assert sorted(keys) == [0, 1, 2]


def test_confluents_protobuf_deserializer_reads_what_spark_had(
    spark, consume, options, theirs, topic
):
    frame = spark.range(3).selectExpr("id", "concat('n', id) AS name", "array(id) AS ids")
    frame.write.format("kprod").options(**options | {"valueFormat": "protobuf"}, topic=topic).save()
    text = theirs.get_latest_version(f"{topic}-value").schema.schema_str
    message = message_factory.GetMessageClass(message_of(text, None)[0])
    reader = ProtobufDeserializer(message, {"use.deprecated.format": False})
    read = map(json_format.MessageToDict, by(reader, topic, consume(topic).values))
    rows = sorted(read, key=lambda one: one["name"])
    assert rows[2] == {"id": "2", "name": "n2", "ids": ["2"]}


def test_confluents_json_deserializer_reads_what_spark_had(spark, consume, options, theirs, topic):
    frame = spark.range(3).selectExpr("id", "IF(id = 1, NULL, concat('n', id)) AS name")
    json_schema = options | {"valueFormat": "json-schema"}
    frame.write.format("kprod").options(**json_schema, topic=topic).save()
    text = theirs.get_latest_version(f"{topic}-value").schema.schema_str
    read = by(JSONDeserializer(text), topic, consume(topic).values)
    assert sorted(read, key=lambda one: one["id"])[1:] == [{"id": 1}, {"id": 2, "name": "n2"}]


@pytest.mark.parametrize("format_", ["json", "avro"])
def test_a_null_struct_is_a_tombstone_with_a_schema_too(spark, consume, options, topic, format_):
    frame = spark.range(2).selectExpr(
        "CAST(id AS STRING) AS key", "IF(id = 0, NULL, named_struct('n', id)) AS payload"
    )
    given = options | {"valueColumns": "payload.*", "valueFormat": format_}
    if format_ == "json":
        given = {n: v for n, v in given.items() if "schema" not in n}
    frame.write.format("kprod").options(**given, topic=topic).save()
    found = consume(topic)
    values = dict(zip(found.keys, found.values, strict=True))
    assert values[b"0"] is None
    assert values[b"1"].startswith(b'{"n":1}' if format_ == "json" else b"\0")


def test_rows_go_to_the_topics_of_a_column_with_the_schema_of_each(
    spark, kafka, consume, options, theirs
):
    topics = [kafka.unique_topic(f"each{n}", partitions=1) for n in range(2)]
    frame = spark.range(6).selectExpr(
        "id", f"IF(id % 2 = 0, '{topics[0]}', '{topics[1]}') AS topic"
    )
    given = options | {"valueColumns": "id", "schemaTopics": ",".join(topics)}
    frame.coalesce(1).write.format("kprod").options(**given).save()
    for number, topic in enumerate(topics):
        values = consume(topic).values
        schema_id = theirs.get_latest_version(f"{topic}-value").schema_id
        assert {int.from_bytes(one[1:5], "big") for one in values} == {schema_id}
        read = by(AvroDeserializer(theirs), topic, values)
        assert sorted(one["id"] for one in read) == [number, number + 2, number + 4]
    with pytest.raises(Exception, match=r"KP0216.*column topic: it is not in schemaTopics"):
        frame.write.format("kprod").options(**given | {"schemaTopics": topics[0]}).save()


def test_a_refused_value_fails_the_job_and_names_the_row(spark, options, topic):
    schema = """{"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}"""
    frame = spark.range(2**31, 2**31 + 1)
    with pytest.raises(Exception, match=r"KP0216.*row 0 .* column id: it .* can't hold"):
        frame.write.format("kprod").options(**options, topic=topic, valueSchema=schema).save()


def test_streams_foreach_batch_and_blocks_write_with_a_schema(
    spark, kafka, consume, options, theirs, source, stream, tmp_path
):
    frame, add = source
    add(["a", "b"])
    topics = [kafka.unique_topic(name, partitions=1) for name in ("stream", "each", "block")]
    names = [f"kprod-{uuid.uuid4().hex}" for _ in topics]
    once = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": names[0]}
    stream(frame, topics[0], **options, **once).awaitTermination()
    run_with(frame, foreach_batch(names[1], **options, topic=topics[1]), tmp_path, "each")
    rows = spark.sql("SELECT 'a' AS value UNION ALL SELECT 'b'")
    with transaction(names[2], 0, **options) as block:
        block.write(rows, topic=topics[2])
    for topic in topics:
        read = by(AvroDeserializer(theirs), topic, consume(topic).values)
        assert sorted(one["value"] for one in read) == ["a", "b"]


def test_confluents_deserializer_finds_the_schema_in_a_header(spark, kafka, consume, topic):
    """Apicurio 2 has no GUIDs, so the registry is ours; its reader is Confluent's. The header of a
    key: tests/formats/test_formats_composed_columns.py.
    """
    text = """{"type": "record", "name": "r", "fields": [
        {"name": "id", "type": "long"}, {"name": "text", "type": "string"}]}"""
    known = {"schema": text, "guid": str(uuid.uuid4())}
    missing = {"error_code": 404, "message": "no such thing"}

    def answer(_, path, __):
        return (200, {}, known) if path.startswith("/api/schemas/") else (404, {}, missing)

    with FakeRegistry(answer) as keeper, SchemaRegistryClient({"url": keeper.url}) as theirs:
        given = {
            "kafka.bootstrap.servers": kafka.bootstrap, "schema.registry.url": keeper.url,
            "use.schema.id": 7, "valueColumns": "id, text", "valueFormat": "avro", "topic": topic,
            "value.schema.id.serializer": "HeaderSchemaIdSerializer", "headersColumns": "trace",
        }  # fmt: skip
        # Their deserializer takes no payload of less than six bytes, wherever its schema is.
        rows = spark.range(3).selectExpr("id", "'a text' AS text", "IF(id = 1, NULL, 't') AS trace")
        rows.write.format("kprod").options(**given).save()
        found = consume(topic)
        read = AvroDeserializer(theirs)
        ids = [
            read(payload, SerializationContext(topic, MessageField.VALUE, headers))["id"]
            for payload, headers in zip(found.values, found.headers, strict=True)
        ]
    assert sorted(ids) == [0, 1, 2]
    named = {name for headers in found.headers for name, _ in headers}
    assert named == {"trace", "__value_schema_id"}
