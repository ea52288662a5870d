"""Which schema a write takes, asked of a real registry."""

from __future__ import annotations

import json
import socket
import time
import uuid

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyspark.sql.types import _parse_datatype_string
from typer.testing import CliRunner

from spark_kafka_sink.base.errors import (
    ConfigError,
    SchemaError,
    SchemaRegistryError,
)
from spark_kafka_sink.cli.app import app
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.checks.check_steps import step_of
from spark_kafka_sink.datasource.checks.cluster_checks import _registry
from spark_kafka_sink.datasource.schemas import payload_schemas
from spark_kafka_sink.datasource.schemas.payload_schemas import with_encoders
from spark_kafka_sink.datasource.write.schema import plan_columns
from tests.network.fake_registry import FakeRegistry, same

COLUMNS = "id bigint NOT NULL, name string, amount decimal(10,2), parts array<struct<n:int>>"
FIELDS = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]


def record(*fields, name="order"):
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


def config_of(url, **options):
    """The configuration of a write that asks the registry there; None takes an option away."""
    given = {
        "kafka.bootstrap.servers": "h:9", "topic": "orders", "valueColumns": "*",
        "valueFormat": "avro", "schema.registry.url": url,
    } | options  # fmt: skip
    return parse_sink_config({name: value for name, value in given.items() if value is not None})


@pytest.fixture
def topic():
    payload_schemas._kept.clear()
    return f"orders.{uuid.uuid4().hex}"


@pytest.fixture
def theirs(registry):
    with SchemaRegistryClient({"url": registry}) as client:
        yield client


@pytest.fixture
def planned(registry, topic, spark):  # Spark parses the columns
    def plan(columns=COLUMNS, **options):
        config = config_of(registry, **{"topic": topic} | options)
        schema = _parse_datatype_string(columns)
        return with_encoders(
            plan_columns(schema, config.topic, config.named_columns), schema, config
        )

    return plan


AUTO = {"auto.register.schemas": "true"}


def id_of(encoding):
    return int.from_bytes(encoding.branch[1:5], "big")


def test_the_schema_of_columns_must_be_there_or_is_registered(planned, theirs, topic):
    with pytest.raises(SchemaError, match=f"subject {topic}-value at .* does not have") as raised:
        planned()
    for way in ("register the schema", "use.latest.version=true", "auto.register.schemas=true"):
        assert way in raised.value.hint
    first = planned(**AUTO)
    there = theirs.get_latest_version(f"{topic}-value")
    assert id_of(first.value.encoding) == there.schema_id
    assert json.loads(there.schema.schema_str)["name"] == topic.replace(".", "_")
    assert planned() == first  # now it is there


@pytest.mark.parametrize("format_", ["avro", "protobuf", "json-schema"])
def test_each_format_is_registered_and_found_again(planned, theirs, topic, format_):
    columns = "id bigint NOT NULL, name string, parts array<struct<n:int>>"
    options = {"valueFormat": format_, "valueColumns": "*"}
    first = planned(columns, **options, **AUTO)
    payload_schemas._kept.clear()
    assert planned(columns, **options) == first
    kind = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}[format_]
    assert theirs.get_latest_version(f"{topic}-value").schema.schema_type == kind


def test_one_key_column_is_a_bare_key_and_several_are_a_record(planned, theirs, topic):
    options = AUTO | {"keyFormat": "avro"}
    planned(keyColumns="name", **options)
    assert theirs.get_latest_version(f"{topic}-key").schema.schema_str == '"string"'
    theirs.set_compatibility(f"{topic}-key", "NONE")
    planned(keyColumns="id, name", **options)
    name = json.loads(theirs.get_version(f"{topic}-key", 2).schema.schema_str)["name"]
    assert name == topic.replace(".", "_") + "_key"


def test_the_latest_version_gives_order_aliases_and_defaults(planned, theirs, topic):
    fields = [
        {"name": "total", "aliases": ["amount"], "type": {
            "type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "origin", "type": "string", "default": "web"}, *FIELDS,
    ]  # fmt: skip
    theirs.register_schema(f"{topic}-value", Schema(record(*fields), "AVRO"))
    columns = "id int, name string, amount decimal(10,2)"
    plan = planned(columns, **{"use.latest.version": "true"})
    names = [field.name for field in plan.value.encoding.node.fields]
    assert names == ["total", "origin", "id", "name"]
    with pytest.raises(SchemaError, match="no field for more"):
        planned(f"{columns}, more int", **{"use.latest.version": "true"})
    with pytest.raises(SchemaError, match="field id has no default"):
        planned("name string, amount decimal(10,2)", **{"use.latest.version": "true"})


def test_a_subject_without_a_version_has_no_latest_one(planned):
    with pytest.raises(SchemaError, match="is not there"):
        planned(**{"use.latest.version": "true"})


def test_an_id_is_taken_as_it_is_and_must_be_of_the_format(planned, theirs, topic):
    number = theirs.register_schema(f"{topic}-x", Schema(record(*FIELDS), "AVRO"))
    assert id_of(planned("id bigint, name string", **{"use.schema.id": number}).value.encoding) == (
        number
    )
    with pytest.raises(SchemaError, match="is AVRO, and valueFormat is json-schema"):
        planned(**{"use.schema.id": number, "valueFormat": "json-schema"})
    with pytest.raises(SchemaRegistryError, match="answered 404"):
        planned(**{"use.schema.id": 2_000_000})


def test_a_given_schema_may_be_a_file_under_its_records_name(planned, theirs, topic, tmp_path):
    name = f"o{topic.partition('.')[2]}"
    file = tmp_path / "order.avsc"
    file.write_text(record(*FIELDS, name=f"shop.{name}"))
    options = AUTO | {
        "valueSchema": str(file), "value.subject.name.strategy": "RecordNameStrategy",
    }  # fmt: skip
    planned("id bigint, name string", **options)
    assert theirs.get_latest_version(f"shop.{name}")
    # A column topic has no subject of its own, but the record has.
    assert planned("id bigint, name string, topic string", topic=None, **options | {
        "valueColumns": "id, name"}).value.encoding  # fmt: skip
    both = options | {"value.subject.name.strategy": "TopicRecordNameStrategy"}
    planned("id bigint, name string", **both)
    assert theirs.get_latest_version(f"{topic}-shop.{name}")


@pytest.mark.parametrize("comment", ["// of orders\n", "/* of orders */ "])
def test_a_given_schema_may_begin_with_a_comment(planned, comment):
    text = f'{comment}syntax = "proto3"; message M {{ int64 id = 1; }}'
    assert planned("id bigint", valueFormat="protobuf", valueSchema=text, **AUTO).value.encoding


@pytest.mark.parametrize("format_", ["avro", "json-schema"])
@pytest.mark.parametrize("kind", ["struct<a:int>", "map<string,int>"])
def test_a_key_column_with_fields_is_a_field_of_a_record(planned, theirs, topic, format_, kind):
    options = AUTO | {"keyColumns": "k", "keyFormat": format_, "valueColumns": "id"}
    key = planned(f"id bigint, k {kind}", **options).key
    schema = json.loads(theirs.get_latest_version(f"{topic}-key").schema.schema_str)
    is_bare = schema["type"] == "map"
    assert key.is_bare is is_bare
    assert is_bare or '"k"' in json.dumps(schema)


def test_a_column_topic_with_the_topic_s_name_is_refused(planned):
    with pytest.raises(ConfigError, match="the topic is a column"):
        planned(COLUMNS + ", topic string", topic=None, valueColumns="id")


def test_each_topic_of_a_column_has_a_subject_of_its_own(planned, theirs, topic):
    topics, columns = [f"{topic}-{n}" for n in range(2)], f"{COLUMNS}, topic string"
    given = {"topic": None, "valueColumns": "id, name", "schemaTopics": ", ".join(topics)}
    first = planned(columns, **given, **AUTO).value
    assert [name for name, _ in first.by_topic] == topics
    ids = [theirs.get_latest_version(f"{one}-value").schema_id for one in topics]
    assert [id_of(one.encoding) for _, one in first.by_topic] == ids
    payload_schemas._kept.clear()
    assert planned(columns, **given).value == first
    with pytest.raises(SchemaError, match=f"subject {topic}-2-value at .* does not have"):
        planned(columns, **given | {"schemaTopics": f"{topics[0]},{topic}-2"})
    # An id needs no subject.
    plan = planned(columns, **given | {"schemaTopics": None, "use.schema.id": ids[0]})
    assert id_of(plan.value.encoding) == ids[0]


def test_kprod_check_looks_at_the_subject_of_each_topic(registry, theirs, topic):
    number = theirs.register_schema(f"{topic}-value", Schema(record(*FIELDS), "AVRO"))
    listed = {"topic": None, "schemaTopics": f"{topic},other", "auto.register.schemas": True}
    said = _registry(config_of(registry, **listed), 10_000).said
    assert f"{topic}-value has the schema of id {number}" in said
    assert "other-value is not there" in said


def test_a_primitive_schema_takes_one_column(planned, topic):
    plan = planned("id bigint", valueSchema='"long"', valueColumns="id", **AUTO)
    assert plan.value.is_bare
    with pytest.raises(SchemaError, match="several columns are a record"):
        planned("id bigint, n int", valueSchema='"long"', **AUTO)


def test_a_rule_for_null_values_needs_a_schema_that_has_them(planned, topic):
    rule = AUTO | {"onNullValue": "skip"}
    plan = planned("id bigint", valueSchema='"long"', valueColumns="id", **rule)
    assert plan.value.is_bare
    with pytest.raises(ConfigError, match="onNullValue would have no effect") as raised:
        planned("id bigint", valueSchema=record(FIELDS[0]), **rule)
    assert "remove onNullValue" in raised.value.hint
    other = f"{topic}.other"
    of_topics = {"topic": None, "schemaTopics": f"{topic},{other}"}
    with pytest.raises(ConfigError, match="onNullValue would have no effect"):
        planned(
            "topic string, id bigint",
            valueSchema=record(FIELDS[0]),
            **rule | of_topics | {"valueColumns": "id"},
        )


def test_a_rule_for_null_keys_needs_a_key_of_a_record(planned, theirs, topic):
    rule = AUTO | {"keyFormat": "avro", "keyColumns": "name", "onNullKey": "write"}
    with pytest.raises(ConfigError, match="onNullKey would have no effect") as raised:
        planned(**rule)
    assert "remove onNullKey" in raised.value.hint
    theirs.set_compatibility(f"{topic}-key", "NONE")
    assert not planned(**rule | {"keySchema": record(FIELDS[1])}).key.is_bare
    assert planned(**rule | {"onNullKey": "no-key"}).key.is_bare


def test_a_schema_evolves_as_its_subject_allows(planned, theirs, topic):
    subject = f"{topic}-value"
    theirs.register_schema(subject, Schema(record(*FIELDS), "AVRO"))
    theirs.set_compatibility(subject, "BACKWARD")
    more, must = ({"name": name, "type": "string"} for name in ("more", "must"))
    changed = {"valueSchema": record(*FIELDS, more | {"default": ""})} | AUTO
    assert planned("id bigint, name string, more string", **changed)
    assert theirs.get_version(subject, 2)
    changed = {"valueSchema": record(*FIELDS, must)} | AUTO
    with pytest.raises(SchemaRegistryError, match=r"answered 409: .*must"):
        planned("id bigint, name string, must string", **changed)


@pytest.mark.parametrize(
    ("column", "says"),
    [("v variant", "of type variant"), ("i interval day", "of type interval day"),
     ("m map<int,string>", "keys are strings"), ("`a b` int", "a name that Avro does not allow")],
)  # fmt: skip
def test_what_has_no_schema_is_an_error_at_planning(planned, column, says):
    with pytest.raises(SchemaError, match=says):
        planned(column, **AUTO)


def test_a_map_s_keys_in_json_are_those_of_the_format_json(planned):
    options = AUTO | {"valueFormat": "json-schema"}
    assert planned("s struct<m:map<double,int>>", **options).value.encoding


def test_a_registry_that_gives_another_schema_is_not_believed(planned):
    answer = {"id": 7, "schema": '{"type": "record", "name": "other", "fields": []}'}
    with (
        FakeRegistry(same(200, answer)) as liar,
        pytest.raises(SchemaRegistryError, match="has another schema under this id"),
    ):
        planned(**{"schema.registry.url": liar.url})


def test_a_schema_with_rules_is_refused(planned):
    answer = {"schema": record(*FIELDS), "ruleSet": {"domainRules": [{"name": "encrypt"}]}}
    with (
        FakeRegistry(same(200, answer)) as keeper,
        pytest.raises(SchemaError, match="written unencrypted"),
    ):
        planned("id bigint", **{"schema.registry.url": keeper.url, "use.schema.id": 5})


def test_answers_are_kept_and_outlive_a_registry_that_is_gone(planned, monkeypatch, caplog):
    options = {"use.schema.id": 5, "kafka.max.block.ms": 2000}
    with FakeRegistry(same(200, {"schema": record(*FIELDS)})) as keeper:
        options["schema.registry.url"] = keeper.url
        first = planned("id bigint, name string", **options)
        assert planned("id bigint, name string", **options) == first
        assert len(keeper.requests) == 1
    assert planned("id bigint, name string", **options) == first
    monkeypatch.setattr(payload_schemas, "KEPT_MS", -1)
    payload_schemas._kept.update({key: (0, one) for key, (_, one) in payload_schemas._kept.items()})
    assert planned("id bigint, name string", **options) == first
    assert "continuing with schema id 5" in caplog.text


def test_the_step_of_kprod_check_says_what_the_registry_has(registry, theirs, topic):
    config = config_of(registry, topic=topic)
    (step,) = step_of("schema registry", lambda: _registry(config, 10_000))
    assert (step.state, f"{topic}-value is not there" in step.said) == ("failed", True)
    number = theirs.register_schema(f"{topic}-value", Schema(record(*FIELDS), "AVRO"))
    assert _registry(config, 10_000).said == f"value: {topic}-value has the schema of id {number}"
    header = {"value.schema.id.serializer": "HeaderSchemaIdSerializer"}
    with pytest.raises(SchemaError, match=f"id {number} has no GUID"):
        _registry(config_of(registry, topic=topic, **header), 10_000)
    assert _registry(parse_sink_config({"kafka.bootstrap.servers": "h:9"}), 1).state == "skipped"


@pytest.mark.parametrize(
    ("answer", "code", "said", "change"),
    [
        (same(401, {"message": "Unauthorized"}), "KP0221", "answered 401: Unauth", "basic.auth."),
        (same(403, {"message": "denied"}), "KP0221", "answered 403: denied", "the principal needs"),
        (same(404, {"error_code": 40401}), "KP0222", "-value is not there", "register the schema"),
        (same(404, b"<html>"), "KP0221", "answered 404", "schema.registry.url right, with its"),
        (same(500, {"message": "boom"}), "KP0221", "it answered 500: boom", "kafka.max.block.ms"),
        (same(200, b"<html>"), "KP0221", "answered 200", "is schema.registry.url right?"),
        (same(302, {}, Location="http://127.0.0.1:1/"), "KP0221", "302", "the final address"),
        (same(200, {"id": 5, "version": 2, "schema": record(*FIELDS), "schemaType": "PROTOBUF"}),
         "KP0223", "id 5 is PROTOBUF, and valueFormat is avro", "another schema"),
        (None, "KP0221", "(Connection refused)", "schema.registry.request.timeout.ms"),
    ],
)  # fmt: skip
def test_the_step_of_a_registry_that_fails_has_its_own_row(answer, code, said, change):
    with FakeRegistry(answer or same(200, {})) as keeper:
        config = config_of(keeper.url, **{"use.latest.version": True})
        steps = step_of("schema registry", lambda: _registry(config, 3000))
        found = list(steps) if answer else []
    (step,) = found or steps
    assert (step.state, step.code) == ("failed", code)
    assert said in step.said
    assert change in step.change


@pytest.mark.parametrize(
    ("options", "state", "code", "told"),
    [
        ({}, "failed", "KP0222", "orders-value is not there"),
        ({"auto.register.schemas": True}, "ok", None, "orders-value is not there"),
        ({"auto.register.schemas": True, "use.latest.version": True}, "failed", "KP0222", "is not"),
        ({"use.schema.id": 7}, "failed", "KP0221", "is use.schema.id right?"),
    ],
)
def test_the_row_of_a_schema_that_is_not_there_depends_on_options(options, state, code, told):
    with FakeRegistry(same(404, {"error_code": 40401, "message": "not found"})) as keeper:
        (step,) = step_of(
            "schema registry", lambda: _registry(config_of(keeper.url, **options), 3000)
        )
    assert (step.state, step.code) == (state, code)
    assert told in f"{step.said} {step.change}"


@pytest.mark.parametrize(
    ("answer", "limit_s", "exit_code", "code"),
    [
        (same(200, {"id": 5, "version": 2, "schema": record(*FIELDS)}), 60, 0, None),
        (None, 3, 1, "KP0221"),
    ],
    ids=["right", "hangs"],
)
def test_kprod_check_ends_in_time_with_the_registrys_row(kafka, answer, limit_s, exit_code, code):
    """The one that hangs accepts connections, and says nothing."""
    topic = kafka.unique_topic("registry")
    with (
        FakeRegistry(answer or same(200, {})) as keeper,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        url = keeper.url if answer else f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = {"valueColumns": "*", "valueFormat": "avro", "schema.registry.url": url}
        begun = time.monotonic()
        run = CliRunner().invoke(
            app,
            ["check", "-b", kafka.bootstrap, "-t", topic, "--json", "--timeout", f"{limit_s}"]
            + [text for name, value in options.items() for text in ("-o", f"{name}={value}")],
        )
    assert time.monotonic() - begun < 30
    (step,) = (s for s in json.loads(run.stdout)["steps"] if s["name"] == "schema registry")
    assert (run.exit_code, step["code"]) == (exit_code, code), run.output


HEADER = {"value.schema.id.serializer": "HeaderSchemaIdSerializer", "use.schema.id": 5}


@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_a_schema_in_a_header_needs_its_guid(planned, format_):
    guid = uuid.uuid4()
    text = (
        record(*FIELDS)
        if format_ == "avro"
        else ('syntax = "proto3"; message M { optional int64 id = 1; optional string name = 2; }')
    )
    answer = {"schema": text, "schemaType": format_.upper()}
    with FakeRegistry(same(200, answer | {"guid": str(guid)})) as keeper:
        options = HEADER | {"schema.registry.url": keeper.url, "valueFormat": format_}
        value = planned("id bigint, name string", **options).value
    assert value.encoding.branch == b""
    indexes = b"\0" if format_ == "protobuf" else b""
    assert value.header == ("__value_schema_id", b"\x01" + guid.bytes + indexes)
    payload_schemas._kept.clear()
    for none in ({}, {"guid": "no guid"}, {"guid": 7}):
        with (
            FakeRegistry(same(200, answer | none)) as keeper,
            pytest.raises(SchemaError, match="id 5 has no GUID"),
        ):
            planned("id bigint, name string", **options | {"schema.registry.url": keeper.url})
