"""configFile and Java's properties format."""

from __future__ import annotations

import pickle

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.java_properties import parse_properties
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.base.security.secret_references import resolve
from spark_kafka_sink.config.names.given_options import given_options
from spark_kafka_sink.config.names.unknown_options import PREFIX
from spark_kafka_sink.config.parsing import parse_producer_config, parse_sink_config
from spark_kafka_sink.config.sink_config import DeliveryGuarantee


def file_of(tmp_path, text):
    path = tmp_path / "client.properties"
    path.write_text(text)
    return str(path)


def parse(path, **more):
    options = {"configFile": path}
    return parse_sink_config(options | {name.replace("__", "."): v for name, v in more.items()})


def refused(path, **more):
    with pytest.raises(ConfigError) as caught:
        parse(path, **more)
    return caught.value


def test_lines_become_options_with_and_without_the_prefix(tmp_path):
    path = file_of(tmp_path, "bootstrap.servers=b:9092\nkafka.linger.ms = 7\nACKS: 1\n")
    config = parse(path)
    assert config.producer.bootstrap_servers == (("b", 9092),)
    assert (config.producer.linger_ms, config.producer.acks) == (7, 1)
    assert len(config.warnings) == 1, "acks=1 is warned of, as it is as an option"


def test_what_is_given_wins(tmp_path):
    path = file_of(tmp_path, "bootstrap.servers=b:9092\nlinger.ms=7\n")
    config = parse(path, Kafka__Linger__ms="9")
    assert config.producer.linger_ms == 9


def test_a_secret_in_the_file_travels_as_a_reference_to_its_line(tmp_path):
    path = file_of(
        tmp_path,
        "bootstrap.servers=b:9092\nsecurity.protocol=SASL_SSL\nssl.truststore.location=/ca.pem\n"
        "sasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=${env:PASSWORD}\n"
        "ssl.key.password=c4nary\nkafka.ssl.keystore.key=-----BEGIN c4nary\n"
        "ssl.keystore.certificate.chain=-----BEGIN\n",
    )
    config = parse(path)
    assert b"c4nary" not in pickle.dumps(config)
    security = dict(config.producer.security)
    assert security["ssl.truststore.location"] == "/ca.pem"
    assert security.pop("sasl.password") == Password("${env:PASSWORD}")
    found = resolve(security)
    assert found["ssl.key.password"] == Password("c4nary")
    assert found["ssl.keystore.key"] == Password("-----BEGIN c4nary")


def test_lines_of_other_clients_are_left_out_with_one_warning(tmp_path):
    path = file_of(
        tmp_path,
        "bootstrap.servers=b:9092\ngroup.id=g\nschema.registry.url=https://u:c4nary@r\n"
        "key.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
        "session.timeout.ms=45000\nconfig.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n",
    )
    config = parse(path)
    (warning,) = [w for w in config.warnings if "are ignored: " in w]
    assert "ignored: group.id, key.serializer, schema.registry.url, session.timeout.ms (" in warning
    others = [w for w in config.warnings if w != warning]
    assert all("config.providers" in w and "has no effect" in w for w in others), others
    assert "c4nary" not in "".join(config.warnings)


def test_the_sinks_own_options_may_stand_in_the_file_and_count(tmp_path):
    path = file_of(
        tmp_path,
        "bootstrap.servers=b:9092\ntopic=t\ndeliveryGuarantee=exactly_once\n"
        "transactionalIdPrefix=p\ncommitLogTopic=log\npreflight=off\nreportPath=/r.json\n",
    )
    config = parse(path)
    assert (config.topic, config.delivery_guarantee) == ("t", DeliveryGuarantee.EXACTLY_ONCE)
    assert (config.transactional_id_prefix, config.commit_log_topic) == ("p", "log")
    assert (config.preflight, config.report_path) == ("off", "/r.json")
    assert config.warnings == ()
    assert parse(path, Topic="other").topic == "other", "an option beats the file"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("transactional.id=x", "is not supported by the sink: all tasks would share one id"),
        ("value.serializer=io.confluent.kafka.serializers.KafkaAvroSerializer", "not supported"),
        ("subscribe=t", "belongs to a Kafka source"),
        ("checkpointLocation=/c", "is Spark's, which does not read this file"),
        ("configFile=/other", "names another file"),
        ("kafka.bootstrap.servers=c:1", "are the same option"),
        ("sasl.jaas.config=nonsense", "would have no effect"),
        ("producer.acks=1", "Unknown option 'producer.acks'"),
    ],
)
def test_what_is_wrong_as_an_option_is_wrong_in_the_file(tmp_path, line, problem):
    error = refused(file_of(tmp_path, f"bootstrap.servers=b:9092\n{line}\n"))
    assert problem in error.message


def test_a_wrong_value_of_a_file_is_an_error_that_names_the_file(tmp_path):
    path = file_of(tmp_path, "bootstrap.servers=b:9092\nlinger.ms=soon\n")
    error = refused(path)
    assert (
        error.message == "Invalid value soon for configuration linger.ms: Not a number of type LONG"
    )
    assert error.hint.startswith(f"linger.ms (in {path}) takes long")


def test_a_files_login_module_is_checked_like_an_options(tmp_path):
    """What travels is the reference; what is checked is the line itself, and it is not shown."""
    path = file_of(
        tmp_path,
        "bootstrap.servers=b:9092\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=a.b.ScramLoginModule required username=u password=c4nary;\n",
    )
    error = refused(path)
    assert "has a ScramLoginModule, but sasl.mechanism is PLAIN" in error.message
    assert "c4nary" not in str(error) + repr(given_options({"configFile": path}, PREFIX))


@pytest.mark.parametrize(
    "content",
    [
        "c4nary-s3cr3t",
        "-----BEGIN PRIVATE KEY-----\nMIIEvc4naryQIBADANBgkqhkiG9w0BAQEFAAS=\n-----END PRIVATE KEY",
        "eyJhbGciOiJub25lc4nary.eyJzdWIiOiJhbGljZSc4naryJleHAiOjE3.c4naryc4naryc4naryc4naryc4nary",
        "root:x:0:0:c4nary:/root:/bin/bash",
        "sasl.jaas.config=c4nary required;\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN",
    ],
    ids=["password", "key", "token", "passwd", "login module"],
)
def test_a_file_that_is_no_clients_is_not_shown(tmp_path, content):
    """Two options mixed up: the file of a password where the client's file should be."""
    path = file_of(tmp_path, content)
    try:
        told = repr(parse(path, kafka__bootstrap__servers="b:1").warnings)
    except ConfigError as error:
        told = str(error)
        assert path in told
    assert "c4nary" not in told.lower()


def test_an_unknown_line_is_named_when_it_looks_like_an_option(tmp_path):
    path = file_of(tmp_path, "bootstrap.servers=b:1\nspring.profiles.active=x\n")
    assert refused(path).message == f"Unknown option 'spring.profiles.active' (in {path})"


def test_what_travels_means_the_same_without_the_file(tmp_path):
    path = file_of(
        tmp_path,
        "bootstrap.servers=b:9092\nkafka.linger.ms=7\ntopic=t\ngroup.id=g\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=c4\n",
    )
    config = parse(path, deliveryGuarantee="none")
    options = {"configFile": path, "deliveryguarantee": "none"}
    travels = given_options(options, PREFIX).as_options()
    assert parse_sink_config(travels) == config
    assert "c4" not in str(travels)


def test_a_producer_by_itself_takes_the_same_file(tmp_path):
    path = file_of(
        tmp_path,
        "bootstrap.servers=b:9092\nlinger.ms=7\nkafka.acks=1\ntopic=t\ngroup.id=g\n"
        "value.serializer=str\ntransactional.id=x\nenable.idempotence=true\n",
    )
    config = parse_producer_config({"configFile": path, "acks": "all", "linger.ms": 9})
    assert (config.linger_ms, config.acks, config.value_serializer) == (9, -1, "str")
    assert config.transactional_id == "x"
    sinks, others = config.warnings
    assert "options of the Spark sink are ignored: topic (see " in sinks
    assert "options of other clients are ignored: group.id (see " in others
    with pytest.raises(ConfigError, match=r"Unknown option 'lingr\.ms'"):
        parse_producer_config({"configFile": file_of(tmp_path, "lingr.ms=7")})


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("/nowhere/client.properties", "No such file or directory"),
        (" ", "String must be non-empty"),
    ],
)
def test_a_file_that_can_not_be_read_is_named(location, problem):
    """What is no local file, or no regular one: ``security/test_local_files.py``."""
    with pytest.raises(ConfigError, match="configFile") as raised:
        parse(location)
    assert location in str(raised.value)
    assert problem in str(raised.value)


def test_two_escapes_of_java_are_one_character():
    """``Properties.store`` writes an emoji, as in a password, as two escapes."""
    assert parse_properties("a=x\\ud83d\\ude42y\\u00fc") == {"a": "x🙂yü"}
    assert parse_properties("a=\\ude42\\ud83d") == {"a": "\ude42\ud83d"}


def test_a_file_url_is_a_path(tmp_path):
    config = parse("file://" + file_of(tmp_path, "bootstrap.servers=b:9092\n"))
    assert config.producer.bootstrap_servers == (("b", 9092),)


# --- Java's format --------------------------------------------------------------------------------


def test_a_file_that_is_not_utf_8_is_read_as_java_does(tmp_path):
    path = tmp_path / "latin"
    path.write_bytes("bootstrap.servers=b:9092\nclient.id=ü\n".encode("latin-1"))
    assert parse(str(path)).producer.client_id == "ü"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("linger.ms=1\nlinger.ms=2\n", "Option 'linger.ms' (in "),
        ("linger.ms=1\nlinger.ms=1\n", "is there twice"),
        ("linger.ms=1\nLINGER.ms=2\n", "'LINGER.ms'"),
        ("kafka.linger.ms=1\nlinger.ms=2\n", "Options 'kafka.linger.ms' and 'linger.ms'"),
        ("group.id=a\nKAFKA.group.id=b\n", "are the same option"),
        ("topic=a\nTopic=b\n", "are the same option"),
        ("security.protocol=SSL\nsecurity.proto\\\ncol=PLAINTEXT\n", "is there twice"),
    ],
)
def test_a_name_that_comes_twice_is_an_error(text, words, tmp_path):
    """In whatever spelling: which of them counts would be arbitrary, or a downgrade."""
    error = refused(file_of(tmp_path, "bootstrap.servers=b:1\n" + text))
    assert words in error.message
    assert error.hint == "remove one of them"
    assert "client.properties)" in error.message
