"""Options of formats with a schema: what they become, and which go together."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.named_columns import ColumnFormat, OnNullValue, SubjectStrategy
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.config.schema_options import SchemaOptions
from spark_kafka_sink.config.sink_config import SinkConfig

BROKER = {"kafka.bootstrap.servers": "b:9092", "topic": "t"}
AVRO = BROKER | {
    "valueColumns": "*", "valueFormat": "avro", "schema.registry.url": "https://r:8081",
}  # fmt: skip


OAUTH = {"bearer.auth.client.id": "me", "bearer.auth.client.secret": "it"}


def parsed(**options) -> SinkConfig:
    return parse_sink_config(AVRO | options)


def test_the_defaults_look_a_schema_up_and_register_none():
    found = parsed().schemas
    assert isinstance(found, SchemaOptions)
    assert (found.auto_register, found.use_latest) == (False, False)
    (value,) = found.payloads
    assert (value.part, value.format) == ("value", ColumnFormat.AVRO)
    assert value.strategy is SubjectStrategy.TOPIC


def test_strategies_have_short_names_and_those_of_java_s_classes():
    name = "io.confluent.kafka.serializers.subject.RecordNameStrategy"
    options = {"value.subject.name.strategy": name, "keyColumns": "id", "keyFormat": "json-schema",
               "key.subject.name.strategy": "TopicRecordNameStrategy"}  # fmt: skip
    value, key = parsed(**options).schemas.payloads
    assert (value.strategy, key.strategy) == (SubjectStrategy.RECORD, SubjectStrategy.TOPIC_RECORD)


def test_an_id_is_the_values_or_else_the_keys():
    both = parsed(**{"use.schema.id": "7", "keyColumns": "id", "keyFormat": "avro"})
    assert [one.use_id for one in both.schemas.payloads] == [7, None]
    keys = parsed(**{"use.schema.id": "7", "keyColumns": "id", "keyFormat": "avro",
                     "valueFormat": "json"})  # fmt: skip
    assert [one.use_id for one in keys.schemas.payloads] == [7]


@pytest.mark.parametrize(
    "options",
    [
        {"valueSchema": '"string"'},
        {"use.schema.id": "7", "valueColumns": "a"},
        {"use.latest.version": "true", "valueFormat": "json-schema", "valueColumns": "a"},
        {"valueColumns": "a.*"},
    ],
)
def test_a_null_value_is_possible_with_a_schema_of_one_value(options):
    found = parsed(onNullValue="skip", **options).named_columns
    assert found.on_null_value is OnNullValue.SKIP


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"valueColumns": "a"},
        {"valueColumns": "a", "valueFormat": "json-schema"},
        {"valueColumns": "a", "auto.register.schemas": "true"},
        {"valueColumns": "a,b", "valueSchema": '"string"'},
        {"valueColumns": "a", "valueFormat": "protobuf", "valueSchema": "message A {}"},
        {"valueColumns": "a", "keyColumns": "k", "keyFormat": "avro", "keySchema": '"string"'},
    ],
)
def test_a_record_of_columns_is_never_null_and_needs_no_rule(options):
    with pytest.raises(ConfigError, match="onNullValue would have no effect") as raised:
        parsed(onNullValue="skip", **options)
    assert raised.value.kind is Kind.NO_EFFECT


def test_a_null_value_is_possible_of_a_struct():
    struct = parse_sink_config(
        BROKER | {"valueColumns": "`pay,load`.*", "onNullValue": "error"}
    ).named_columns
    assert (struct.value, struct.value_is_struct) == (("pay,load",), True)


def test_topics_of_a_column_are_listed_where_they_name_subjects():
    of_column = {name: value for name, value in BROKER.items() if name != "topic"}
    given = of_column | {
        "valueColumns": "*", "valueFormat": "avro", "schema.registry.url": "https://r",
        "schemaTopics": "a, b-1",
    }  # fmt: skip
    assert parse_sink_config(given).schemas.topics == ("a", "b-1")
    record = {"value.subject.name.strategy": "RecordNameStrategy"}
    for more, says in (
        ({"topic": "t"}, "the option topic is set"),
        ({"use.schema.id": "7"}, "no subject is named after a topic"),
        (record, "no subject is named after a topic"),
        ({"schemaTopics": "a b"}, "schemaTopics: "),
    ):
        with pytest.raises(ConfigError, match=says):
            parse_sink_config(given | more)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"schema.registry.url": "mock://test"}, "is not a URL of https"),
        ({"schema.registry.url": "r:8081"}, "is not a URL of https"),
        ({"schema.registry.url": "https://me:it@r"}, "must not hold a name or password"),
        ({"schema.registry.url": "https://r?x=1"}, "is no registry's address"),
        ({"schema.registry.url": "https://r,ftp://r"}, "is not a URL of https"),
        ({"schema.registry.url": "https://r,s:8081"}, "does not begin with https:// and a host"),
        ({"schema.registry.url": "https://"}, "does not begin with https:// and a host"),
        ({"schema.registry.url": "https://r:port"}, "its port, or a character"),
        ({"schema.registry.url": "https://r :8081"}, "its port, or a character"),
        ({"valueFormat": "json"}, "would have no effect"),
        ({"keySchema": '"string"'}, "keySchema would have no effect"),
        ({"use.schema.id": "7", "valueSchema": "x"}, "only one of them would count"),
        ({"use.schema.id": "7", "use.latest.version": "true"}, "only one of them would count"),
        ({"valueSchema": "x", "use.latest.version": "true"}, "only one of them would count"),
        ({"basic.auth.user.info": "me:it"}, "given inline, and Spark would show it"),
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "must be one of: USER_INFO"),
        (
            {"basic.auth.user.info": "${env:A}", "bearer.auth.token": "t"},
            "only one of them would count",
        ),
        ({"bearer.auth.credentials.source": "STATIC_TOKEN"}, "bearer.auth.token is not set"),
        ({"bearer.auth.client.id": "me"}, "bearer.auth.issuer.endpoint.url"),
        (
            OAUTH | {"bearer.auth.issuer.endpoint.url": "http://idp/token"},
            "would be sent in the clear to idp",
        ),
        (OAUTH | {"bearer.auth.issuer.endpoint.url": "idp/token"}, "is not a URL of https"),
        (
            OAUTH | {"bearer.auth.issuer.endpoint.url": "https://me:it@r/token"},
            "must not hold a name or password",
        ),
        (
            {"schema.registry.url": "http://r:8081", "bearer.auth.token": "t"},
            "bearer.auth.token would be sent in the clear to r",
        ),
        (
            {"schema.registry.ssl.truststore.password": "it"},
            "SSL trust store is not specified, but trust store password is specified",
        ),
        ({"value.subject.name.strategy": "MyStrategy"}, "must be one of"),
        ({"use.schema.id": "0"}, "at least 1"),
        ({"schema.registry.nothing": "x"}, "no option of this one"),
    ],
)
def test_options_that_can_t_be_meant_are_errors(options, says):
    with pytest.raises(ConfigError, match=says) as raised:
        parsed(**options)
    assert "it@r" not in str(raised.value)


def test_a_registry_without_its_address_is_an_error():
    with pytest.raises(ConfigError, match=r"schema\.registry\.url is not set"):
        parse_sink_config(BROKER | {"valueColumns": "*", "valueFormat": "protobuf"})


def test_secrets_of_the_registry_in_a_client_file_stay_there(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=b:9092\nschema.registry.url=https://r\n"
        "basic.auth.user.info=me:c4nary\nauto.register.schemas=true\n"
    )
    options = {"configFile": str(file), "topic": "t", "valueColumns": "*", "valueFormat": "avro"}
    found = parse_sink_config(options).schemas
    assert found.auto_register
    login = dict(found.registry)["basic.auth.user.info"]
    assert login.value == f"${{file:{file}:basic.auth.user.info}}"
    # Without a schema these lines are another client's.
    other = parse_sink_config(options | {"valueFormat": "json"})
    assert other.schemas is None
    (warning,) = other.warnings
    assert "auto.register.schemas, basic.auth.user.info, schema.registry.url" in warning


def test_a_schema_is_named_in_front_unless_an_option_is_set():
    java = "io.confluent.kafka.serializers.schema.id.HeaderSchemaIdSerializer"
    options = {"value.schema.id.serializer": java, "keyColumns": "id", "keyFormat": "avro"}
    value, key = parsed(**options).schemas.payloads
    assert (value.in_header, key.in_header) == (True, False)
