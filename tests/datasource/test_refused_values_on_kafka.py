"""Rows that a schema refuses, with a real registry and a real Kafka: dead letters, counted."""

from __future__ import annotations

import json
import uuid

import pytest

from spark_kafka_sink import last_report, read_dead_letters

SCHEMAS = {
    "avro": json.dumps({
        "type": "record", "name": "r", "fields": [
            {"name": "id", "type": "int"},
            {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["A"]}},
        ],
    }),
    "protobuf": 'syntax = "proto3"; message r { int32 id = 1; K kind = 2; enum K { A = 0; } }',
}  # fmt: skip
#: The second id does not fit 32 bits, and the third kind is none of the schema's.
ROWS = [(1, "A"), (2**31 + 5, "A"), (3, "secret")]
DATA = b"org.apache.kafka.connect.errors.DataException"


@pytest.mark.parametrize(
    ("format_", "guarantee"), [("avro", "at-least-once"), ("protobuf", "exactly-once")]
)
def test_refused_values_are_letters_with_their_columns(
    spark, kafka, registry, consume, topic, format_, guarantee
):
    queue = f"dlq.{uuid.uuid4().hex}"
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "deliveryGuarantee": guarantee,
        "schema.registry.url": registry,
        "auto.register.schemas": "true",
        "valueColumns": "id, kind",
        "valueFormat": format_,
        "valueSchema": SCHEMAS[format_],
        "keyColumns": "id",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": queue,
    }
    frame = spark.createDataFrame(ROWS, "id long, kind string").coalesce(1)
    frame.write.format("kprod").options(**options).save()
    assert len(consume(topic, isolation="read_committed")) == 1
    letters = consume(queue, isolation="read_committed")
    values = [json.loads(value) for value in letters.values]
    assert values == [{"id": id_, "kind": kind} for id_, kind in ROWS[1:]]
    for headers in map(dict, letters.headers):
        assert headers["__kprod.errors.code"] == b"KP0216"
        assert headers["__connect.errors.exception.class.name"] == DATA
        assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"
        assert b"secret" not in headers["__connect.errors.exception.message"]
        assert b"2147483653" not in headers["__connect.errors.exception.message"]
    report = last_report(spark)
    assert (report.rows, report.rows_in, report.dead_letters.total) == (1, 3, 2)
    assert [(one.code, one.rows) for one in report.dead_letters.by_reason] == [("KP0216", 2)]
    again = read_dead_letters(spark, queue, **{"kafka.bootstrap.servers": kafka.bootstrap})
    assert {row.reason for row in again.collect()} == {"refused by the schema"}
