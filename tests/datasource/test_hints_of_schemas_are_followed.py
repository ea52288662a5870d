"""A hint of a schema works when it is followed, with a registry that keeps what it is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest
from pyspark.sql.types import (
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.schemas import payload_schemas
from spark_kafka_sink.datasource.schemas.payload_schemas import with_encoders
from spark_kafka_sink.datasource.write.schema import plan_columns
from tests.network.fake_registry import Answer, FakeRegistry

Options = dict[str, str | None]

RECORD: Final = "RecordNameStrategy"
TOPIC: Final = "TopicNameStrategy"
HEADER: Final = "io.confluent.kafka.serializers.schema.id.HeaderSchemaIdSerializer"
STRATEGY: Final = "value.subject.name.strategy"
AUTO: Final = {"auto.register.schemas": "true"}
MAYBE: Final = ["null", "string"]


def record(**fields: object) -> str:
    """Of the type of each field; one with a default is a dict."""
    types = [one if isinstance(one, dict) else {"type": one} for one in fields.values()]
    named = [{"name": name} | one for name, one in zip(fields, types, strict=True)]
    return json.dumps({"type": "record", "name": "order", "fields": named})


ORDER: Final = record(a=MAYBE)


def columns(**types: DataType) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in types.items()])


TEXT = columns(a=StringType())
#: A schema that the registry holds with a reference to another one.
PART: Final = json.dumps(
    {"type": "record", "name": "Part", "fields": [{"name": "n", "type": "int"}]}
)
ITEM: Final = record(a="Part")
ITEM_ID: Final = 2
OF_PARTS = columns(a=columns(n=IntegerType()))
OF_TOPICS = columns(topic=StringType(), a=StringType())

Row = tuple[StructType, Options, str, str, list[tuple[StructType, Options]]]

#: Columns and options that raise; the error's code; words of the hint; and what is given then, for
#: each way that the hint names. None is an option that is removed.
ROWS: list[Row] = [
    (TEXT, {}, "KP0222", "set use.latest.version=true to write with the subject's latest version",
     [(TEXT, dict(AUTO)), (TEXT, {"use.latest.version": "true"})]),
    (TEXT, {"topic": "new", "use.latest.version": "true"}, "KP0222",
     "(without use.latest.version, auto.register.schemas=true does)",
     [(TEXT, {"use.latest.version": None} | AUTO)]),
    (OF_TOPICS, {"topic": None} | AUTO, "KP0100",
     f"list the topics in schemaTopics, set the option topic, or {STRATEGY}={RECORD} with",
     [(OF_TOPICS, {"schemaTopics": "orders,returns"}),
      (OF_TOPICS, {"topic": "orders"}),
      (OF_TOPICS, {STRATEGY: RECORD, "valueSchema": ORDER})]),
    (OF_TOPICS, {"topic": None, STRATEGY: RECORD} | AUTO, "KP0100",
     "set valueSchema, or valueSchemaName",
     [(OF_TOPICS, {"valueSchema": ORDER}), (OF_TOPICS, {"valueSchemaName": "Order"})]),
    (TEXT, {"keyColumns": "a", "keyFormat": "avro", "key.subject.name.strategy": RECORD} | AUTO,
     "KP0100", f"set keySchema to the schema of a record, or key.subject.name.strategy={TOPIC}",
     [(TEXT, {"keySchema": ORDER}), (TEXT, {"key.subject.name.strategy": TOPIC})]),
    (TEXT, {"value.schema.id.serializer": HEADER} | AUTO, "KP0223",
     "remove value.schema.id.serializer", [(TEXT, {"value.schema.id.serializer": None})]),
    (columns(a=YearMonthIntervalType()), dict(AUTO), "KP0200",
     "select cast(column as string) in its place", [(TEXT, dict(AUTO))]),
    (columns(**{"a b": StringType()}), dict(AUTO), "KP0200",
     "rename it to letters, digits and underscores", [(columns(a_b=StringType()), dict(AUTO))]),
    (columns(b=StringType()), {"valueSchema": ORDER} | AUTO, "KP0224",
     "drop these, or write with a schema that has them",
     [(TEXT, {}), (columns(b=StringType()), {"valueSchema": record(b=MAYBE)})]),
    (TEXT, {"valueSchema": record(a=MAYBE, b="string")} | AUTO, "KP0224",
     "add a column of that name, or give the field a default in the schema",
     [(columns(a=StringType(), b=StringType(), topic=StringType()), {"valueColumns": "a,b"}),
      (TEXT, {"valueSchema": record(a=MAYBE, b={"type": "string", "default": ""})})]),
    (columns(a=IntegerType()), {"valueSchema": ORDER} | AUTO, "KP0224", "cast the column",
     [(TEXT, {})]),
    (OF_PARTS, {"topic": "items", "valueSchema": ITEM} | AUTO, "KP0223",
     "set use.latest.version=true or use.schema.id in place of valueSchema",
     [(OF_PARTS, {"valueSchema": None, "auto.register.schemas": None} | changes)
      for changes in ({"use.latest.version": "true"}, {"use.schema.id": str(ITEM_ID)})]),
]  # fmt: skip


@pytest.fixture
def url() -> Iterator[str]:
    """Of a registry without GUIDs, with schemas of the subjects orders-value and items-value."""
    payload_schemas._kept.clear()
    schemas: list[tuple[str, str]] = [
        ("orders-value", ORDER),
        ("items-value", ITEM),
        ("part", PART),
    ]
    reference = {"name": "Part", "subject": "part", "version": 1}

    def answer(method: str, path: str, body: object) -> Answer:
        parts = path.partition("?")[0].removeprefix("/api").split("/")[1:]
        if parts[0] == "schemas":
            return 200, {}, held(schemas[int(parts[2]) - 1][1])
        subject = parts[1]
        text = body["schema"] if isinstance(body, dict) else ""
        if method == "POST" and "versions" in parts and (subject, text) not in schemas:
            schemas.append((subject, text))
        known = [(at, one) for at, (of, one) in enumerate(schemas, 1) if of == subject]
        found = [(at, one) for at, one in known if method == "GET" or one == text]
        if not found:
            return 404, {}, {"error_code": 40403, "message": "not found"}
        number, text = found[-1]
        return 200, {}, held(text) | {"id": number, "subject": subject, "version": 1}

    def held(text: str) -> dict[str, object]:
        return {"schema": text} | ({"references": [reference]} if text == ITEM else {})

    with FakeRegistry(answer) as registry:
        yield registry.url


def plan(url: str, schema: StructType, options: Options) -> None:
    """As at the start of a write."""
    base = {
        "kafka.bootstrap.servers": "h:9", "topic": "orders", "valueColumns": "a",
        "valueFormat": "avro", "schema.registry.url": url,
    }  # fmt: skip
    named = next(name for name in reversed(schema.names))
    given = base | {"valueColumns": named} | options
    config = parse_sink_config({name: value for name, value in given.items() if value is not None})
    with_encoders(plan_columns(schema, config.topic, config.named_columns), schema, config)


@pytest.mark.parametrize(
    ("schema", "options", "code", "words", "ways"), ROWS, ids=[row[3][:40] for row in ROWS]
)
def test_the_hint_of_a_schema_leads_to_a_plan(
    url: str,
    schema: StructType,
    options: Options,
    code: str,
    words: str,
    ways: list[tuple[StructType, Options]],
) -> None:
    with pytest.raises(KafkaError) as raised:
        plan(url, schema, options)
    assert raised.value.kind.kp_code == code, raised.value
    assert words in str(raised.value.hint)
    for after, changes in ways:
        payload_schemas._kept.clear()
        plan(url, after, options | changes)
