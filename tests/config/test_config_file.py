"""configFile and Java's properties format."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.config import SinkConfig
from spark_kafka_sink.config_file import with_config_file
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.java_properties import parse_properties
from spark_kafka_sink.secret_references import resolve
from spark_kafka_sink.secrets import Password


def file_of(tmp_path, text):
    path = tmp_path / "client.properties"
    path.write_text(text)
    return str(path)


def parse(path, **more):
    options = {"configFile": path, "topic": "t"}
    options |= {name.replace("__", "."): value for name, value in more.items()}
    given = with_config_file(options)
    return SinkConfig.parse(given.options), given.warnings


def test_lines_become_options_with_and_without_the_prefix(tmp_path):
    path = file_of(tmp_path, "bootstrap.servers=b:9092\nkafka.linger.ms = 7\nACKS: 1\n")
    config, warnings = parse(path)
    assert config.producer.bootstrap_servers == (("b", 9092),)
    assert (config.producer.linger_ms, config.producer.acks) == (7, 1)
    assert warnings == ()


def test_what_is_given_wins(tmp_path):
    path = file_of(tmp_path, "bootstrap.servers=b:9092\nlinger.ms=7\n")
    config, _ = parse(path, Kafka__Linger__ms="9")
    assert config.producer.linger_ms == 9


def test_a_secret_in_the_file_travels_as_a_reference_to_its_line(tmp_path):
    path = file_of(
        tmp_path,
        "bootstrap.servers=b:9092\nsecurity.protocol=SSL\nssl.truststore.location=/ca.pem\n"
        "ssl.key.password=c4nary\nkafka.ssl.keystore.key=-----BEGIN c4nary\n"
        "ssl.keystore.certificate.chain=-----BEGIN\n"
        "ssl.keystore.password=${env:STORE_PASSWORD}\n",
    )
    config, _ = parse(path)
    assert b"c4nary" not in pickle.dumps(config)
    security = dict(config.producer.security)
    assert security["ssl.truststore.location"] == "/ca.pem"
    assert security["ssl.keystore.password"] == Password("${env:STORE_PASSWORD}")
    del security["ssl.keystore.password"]
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
    config, warnings = parse(path)
    (warning,) = warnings
    assert warning.endswith("group.id, key.serializer, schema.registry.url, session.timeout.ms")
    assert "c4nary" not in warning + "".join(config.warnings)


def test_a_wrong_value_in_the_file_is_an_error_like_any_other(tmp_path):
    path = file_of(tmp_path, "bootstrap.servers=b:9092\nlinger.ms=soon\n")
    with pytest.raises(ConfigError, match=r"Invalid value soon for configuration linger\.ms"):
        parse(path)


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("/nowhere/client.properties", "No such file or directory"),
        ("s3://bucket/client.properties", "no local path"),
        ("dbfs:/client.properties", "no local path"),
        ("/dev/zero", "larger than"),
        ("/", "Is a directory"),
    ],
)
def test_a_file_that_can_not_be_read_is_named(location, problem):
    with pytest.raises(ConfigError, match="configFile") as raised:
        parse(location)
    assert location in str(raised.value)
    assert problem in str(raised.value)


def test_a_file_url_is_a_path(tmp_path):
    config, _ = parse("file://" + file_of(tmp_path, "bootstrap.servers=b:9092\n"))
    assert config.producer.bootstrap_servers == (("b", 9092),)


def test_without_config_file_nothing_is_changed():
    given = with_config_file({"topic": "t"})
    assert (given.options, given.warnings) == ({"topic": "t"}, ())


# --- Java's format --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1\nb:2\nc 3\nd = 4 \n", {"a": "1", "b": "2", "c": "3", "d": "4 "}),
        ("# no\n ! no\n\na=1", {"a": "1"}),
        ("a=one \\\n    two\\\n\tthree\n", {"a": "one twothree"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("a=\\u00fc\\t\\n\\q", {"a": "ü\t\nq"}),
        ("a=1\ra=2\r\nb", {"a": "2", "b": ""}),
        ("a==1", {"a": "=1"}),
        ("a=\\", {"a": ""}),
        ("a=1\x85b=2", {"a": "1\x85b=2"}),
        # a line that goes on is never a comment
        ('j=M required \\\n  user="u" \\\n  # too\\\n ;', {"j": 'M required user="u" # too;'}),
    ],
)  # fmt: skip
def test_lines_are_read_as_java_reads_them(text, pairs):
    assert parse_properties(text) == pairs


@given(st.text())
def test_no_text_makes_the_reader_fail(text):
    for name, value in parse_properties(text).items():
        assert isinstance(name, str)
        assert isinstance(value, str)


def test_a_file_that_is_not_utf_8_is_read_as_java_does(tmp_path):
    path = tmp_path / "latin"
    path.write_bytes("bootstrap.servers=b:9092\nclient.id=ü\n".encode("latin-1"))
    assert parse(str(path))[0].producer.client_id == "ü"
