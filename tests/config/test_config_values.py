"""One option at a time: Java's types, bounds and sentences."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.config.logins.security_rules import is_security_option
from spark_kafka_sink.config.option import INT_MAX, LONG_MAX, OptionType, Status
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS
from spark_kafka_sink.config.parsing import parse_producer_config

SERVERS = {"bootstrap.servers": "127.0.0.1:9092"}


def parse(**options):
    """The configuration of ``options``, written with ``__`` for the dots of Java's names."""
    return parse_producer_config(SERVERS | {k.replace("__", "."): v for k, v in options.items()})


def refused(name, value):
    with pytest.raises(ConfigError) as caught:
        parse_producer_config(SERVERS | {name: value})
    return caught.value.message


# Every row was seen on kafka-clients 4.3.1.
JAVA_SENTENCES = [
    ("batch.size", "-1", "Value must be at least 0"),
    ("batch.size", "abc", "Not a number of type INT"),
    ("batch.size", "3000000000", "Not a number of type INT"),
    ("batch.size", "1.5", "Not a number of type INT"),
    ("batch.size", "1_0", "Not a number of type INT"),
    ("batch.size", "", "Not a number of type INT"),
    ("linger.ms", "abc", "Not a number of type LONG"),
    ("linger.ms", "-1", "Value must be at least 0"),
    ("linger.ms", "99999999999999999999", "Not a number of type LONG"),
    ("request.timeout.ms", "2147483648", "Not a number of type INT"),
    ("delivery.timeout.ms", "2147483648", "Not a number of type INT"),
    ("retries", "-1", "Value must be at least 0"),
    ("acks", "2", "String must be one of: all, -1, 0, 1"),
    ("acks", "ALL", "String must be one of: all, -1, 0, 1"),
    ("acks", "", "String must be one of: all, -1, 0, 1"),
    ("enable.idempotence", "yes", "Expected value to be either true or false"),
    ("enable.idempotence", "", "Expected value to be either true or false"),
    ("compression.type", "zip", "String must be one of: none, gzip, snappy, lz4, zstd"),
    ("compression.type", "GZIP", "String must be one of: none, gzip, snappy, lz4, zstd"),
    ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
    ("compression.gzip.level", "10", "Value must be between 1 and 9 or equal to -1"),
    ("compression.lz4.level", "0", "Value must be at least 1"),
    ("compression.lz4.level", "18", "Value must be no more than 17"),
    ("compression.zstd.level", "23", "Value must be no more than 22"),
    ("compression.zstd.level", "-131073", "Value must be at least -131072"),
    ("metadata.max.idle.ms", "4999", "Value must be at least 5000"),
    ("max.in.flight.requests.per.connection", "0", "Value must be at least 1"),
    ("transactional.id", "", "String must be non-empty"),
    (
        "security.protocol",
        "foo",
        "String must be one of (case insensitive): SASL_SSL, PLAINTEXT, SSL, SASL_PLAINTEXT",
    ),
    (
        "client.dns.lookup",
        "default",
        "String must be one of: use_all_dns_ips, resolve_canonical_bootstrap_servers_only",
    ),
    (
        "metadata.recovery.strategy",
        "x",
        "String must be one of (case insensitive): REBOOTSTRAP, NONE",
    ),
    ("metrics.recording.level", "info", "String must be one of: INFO, DEBUG, TRACE"),
    ("socket.connection.setup.timeout.ms", "-5", "Value must be at least 0"),
    ("send.buffer.bytes", "-2", "Value must be at least -1"),
    ("receive.buffer.bytes", "-2", "Value must be at least -1"),
    ("buffer.memory", "-1", "Value must be at least 0"),
]


@pytest.mark.parametrize(("name", "value", "rule"), JAVA_SENTENCES)
def test_a_wrong_value_gets_javas_sentence(name, value, rule):
    assert refused(name, value) == f"Invalid value {value} for configuration {name}: {rule}"


def test_the_hint_names_the_option_as_written_and_its_values():
    with pytest.raises(ConfigError) as caught:
        parse(batch__size="x")
    assert caught.value.hint == "batch.size takes int, at least 0; the default is 524288"


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("batch.size", " 7 ", 7),
        ("batch.size", "\x007\t", 7),
        ("batch.size", "+7", 7),
        ("batch.size", 7, 7),
        ("batch.size", "0", 1),
        ("acks", " all ", -1),
        ("acks", "-1", -1),
        ("acks", "0", 0),
        ("acks", "1", 1),
        ("partitioner.ignore.keys", "true", True),
        ("partitioner.ignore.keys", "TRUE", True),
        ("partitioner.ignore.keys", " False ", False),
        ("enable.idempotence", False, False),
        ("metadata.recovery.strategy", "None", "none"),
        ("security.protocol", "plaintext", "PLAINTEXT"),
        ("connections.max.idle.ms", "-1", LONG_MAX),
        ("linger.ms", "99999999999", INT_MAX),
        ("bootstrap.servers", ["a:1", "b:2"], (("a", 1), ("b", 2))),
    ],
)
def test_a_value_is_read_as_java_reads_it(name, given, value):
    config = parse_producer_config(SERVERS | {name: given})
    assert getattr(config, PRODUCER_OPTIONS[name].attribute) == value


@pytest.mark.parametrize("digits", ["\u00a07", "\u0667"])
def test_neither_a_no_break_space_nor_a_foreign_digit_is_a_number(digits):
    """Java's trim leaves the one, and reads no number in the other."""
    assert "Not a number" in refused("batch.size", digits)


def test_none_is_not_a_value():
    assert refused("acks", None) == (
        "Invalid value null for configuration acks: Value must be non-null"
    )


def test_the_defaults_are_javas_but_for_the_named_ones():
    config = parse()
    java = {
        "acks": -1, "enable_idempotence": True, "retries": INT_MAX, "linger_ms": 5,
        "buffer_memory": 33554432, "max_block_ms": 60000, "max_request_size": 1048576,
        "max_in_flight_requests_per_connection": 5, "delivery_timeout_ms": 120000,
        "request_timeout_ms": 30000, "retry_backoff_ms": 100, "retry_backoff_max_ms": 1000,
        "reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 1000,
        "metadata_max_age_ms": 300000, "metadata_max_idle_ms": 300000,
        "metadata_recovery_strategy": "rebootstrap",
        "metadata_recovery_rebootstrap_trigger_ms": 300000, "connections_max_idle_ms": 540000,
        "socket_connection_setup_timeout_ms": 10000,
        "socket_connection_setup_timeout_max_ms": 30000, "send_buffer_bytes": 131072,
        "receive_buffer_bytes": 32768, "client_dns_lookup": "use_all_dns_ips", "client_id": "",
        "client_rack": "", "compression_type": "none", "compression_gzip_level": -1,
        "compression_lz4_level": 9, "compression_zstd_level": 3, "partitioner_class": None,
        "partitioner_ignore_keys": False, "partitioner_adaptive_partitioning_enable": False,
        "partitioner_availability_timeout_ms": 0, "partitioner_rack_aware": False,
        "transactional_id": None,
        "transaction_timeout_ms": 60000, "security_protocol": "PLAINTEXT",
        "metrics_sample_window_ms": 30000, "metrics_num_samples": 2,
        "key_serializer": None, "value_serializer": None, "interceptor_classes": (),
        "max_leaders_per_task": None,
    }  # fmt: skip
    ours = {"batch_size": 524288, "buffer_wait_ms": 120000}
    rest = {"bootstrap_servers": (("127.0.0.1", 9092),), "security": (), "warnings": ()}
    assert {f.name: getattr(config, f.name) for f in fields(config)} == java | ours | rest


def test_an_option_that_is_not_obeyed_has_a_reason():
    others = [o for o in PRODUCER_OPTIONS.values() if o.status is not Status.HONOURED]
    assert [option.name for option in others if not option.note] == []


def test_every_default_obeys_its_own_rule():
    for option in PRODUCER_OPTIONS.values():
        if option.rule is not None and option.default is not None:
            option.rule.checked(option.default)


def test_options_with_a_secret_are_typed_password():
    secret = {name for name, option in PRODUCER_OPTIONS.items() if option.secret}
    assert secret >= {
        "sasl.jaas.config",
        "sasl.password",
        "sasl.oauthbearer.client.credentials.client.secret",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
    config = parse(security__protocol="SSL", ssl__truststore__certificates="x")
    assert isinstance(config.security[0][1], Password)


def test_a_wrong_security_value_is_found_before_no_effect():
    assert refused("sasl.login.connect.timeout.ms", "x").endswith("Not a number of type INT")
    assert refused("sasl.login.refresh.window.factor", "x").endswith("Not a number of type DOUBLE")
    assert refused("sasl.login.refresh.buffer.seconds", "40000").endswith("of type SHORT")
    config = parse(
        security__protocol="SASL_SSL",
        sasl__mechanism="scram-sha-256",
        sasl__username="u",
        sasl__password="p",
        sasl__login__refresh__window__factor="0.8",
        ssl__cipher__suites="A , B",
    )
    security = dict(config.security)
    assert security["sasl.mechanism"] == "SCRAM-SHA-256"
    assert security["sasl.login.refresh.window.factor"] == 0.8
    assert security["ssl.cipher.suites"] == ("A", "B")


def test_a_value_in_a_message_is_one_short_line():
    message = refused("batch.size", "x\ny" * 5000)
    assert "\n" not in message
    assert len(message) < 600


@given(
    st.sampled_from([o for o in PRODUCER_OPTIONS.values() if o.type is OptionType.INT]),
    st.integers(min_value=-(2**40), max_value=2**40),
)
def test_an_int_is_read_back_or_refused_by_a_java_rule(option, number):
    value, refusal = None, ""
    try:
        value = option.read(str(number), option.name)
    except ConfigError as error:
        refusal = error.message
    if value is None:
        assert refusal.startswith(f"Invalid value {number} for configuration {option.name}: ")
    else:
        assert value == number
        assert -(2**31) <= number < 2**31


def test_every_honoured_option_is_read_by_the_code():
    package = Path(__file__).resolve().parents[2] / "spark_kafka_sink"
    tables = {"producer_config.py", "unknown_options.py", "option_table.py"}
    rooms = (path for path in package.rglob("*.py") if path.name not in tables)
    code = "\n".join(path.read_text() for path in rooms)
    for option in PRODUCER_OPTIONS.values():
        if option.status is Status.HONOURED:
            if is_security_option(option.name):
                name = rf'"{option.name}"'
            else:
                name = rf"config\.{option.attribute}\b"
            read = re.search(name, code)
            assert read, f"{option.name} is promised, and nothing reads it"
