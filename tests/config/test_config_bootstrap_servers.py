"""``bootstrap.servers``: every form of address, and what is said of a wrong one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded
from spark_kafka_sink.config.parsing import parse_producer_config, parse_sink_config


def servers(text):
    return parse_producer_config({"bootstrap.servers": text}).bootstrap_servers


def refused(text):
    with pytest.raises(ConfigError) as caught:
        servers(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("broker-1.example.com:9092", (("broker-1.example.com", 9092),)),
        (" a:1 , b:2 ", (("a", 1), ("b", 2))),
        ("under_score:65535", (("under_score", 65535),)),
        ("[::1]:9092", (("::1", 9092),)),
        ("[fe80::1%eth0]:9092", (("fe80::1%eth0", 9092),)),
        ("PLAINTEXT://127.0.0.1:9092", (("127.0.0.1", 9092),)),
        ("INTERNAL://a:1", (("a", 1),)),
    ],
)
def test_an_address_is_read(text, found):
    assert servers(text) == found


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("a", "Invalid url in bootstrap.servers: a", "the port is missing: a:9092?"),
        ("a:1,b,c:3", "Invalid url in bootstrap.servers: b", "the port is missing: b:9092?"),
        ("127.0.0.1:x", "Invalid url in bootstrap.servers: 127.0.0.1:x", "host:port"),
        (":9092", "Invalid url in bootstrap.servers: :9092", "host:port"),
        ("a:0", "Invalid port in bootstrap.servers: a:0", "a port is 1 to 65535"),
        ("a:70000", "Invalid port in bootstrap.servers: a:70000", "a port is 1 to 65535"),
        ("a:99999999999", "Invalid port in bootstrap.servers: a:99999999999", "1 to 65535"),
        ("::1:9092", "Invalid url in bootstrap.servers: ::1:9092", "brackets, like [::1]:9092"),
        ("[nonsense]:9092", "Invalid url in bootstrap.servers: [nonsense]:9092", "IPv6"),
        ("a:1 b:2", "Invalid url in bootstrap.servers: a:1 b:2", "separated by commas"),
        ("a:1;b:2", "Invalid url in bootstrap.servers: a:1;b:2", "separated by commas"),
        ("", ("Configuration 'bootstrap.servers' must not be empty. Valid values include: any"
             " non-empty value"), "bootstrap.servers"),
        ("a:1,,b:2", "Configuration 'bootstrap.servers' values must not be empty.", "item 2 of 3"),
        ("a:1,", "Configuration 'bootstrap.servers' values must not be empty.", "item 2 of 2"),
    ],
)  # fmt: skip
def test_a_wrong_address_is_named(text, message, hint):
    error = refused(text)
    assert error.message == message
    assert hint in error.hint


def test_a_repeated_address_is_taken_once_with_javas_warning():
    config = parse_producer_config({"bootstrap.servers": "a:1,b:2,a:1"})
    assert config.bootstrap_servers == (("a", 1), ("b", 2))
    assert config.warnings == (
        coded(
            Kind.OTHER_VALUE,
            "Configuration key 'bootstrap.servers' contains duplicate values. Duplicates will be"
            " removed.",
        ),
    )


def test_a_missing_address_has_sparks_or_javas_message():
    with pytest.raises(ConfigError) as caught:
        parse_sink_config({"topic": "t"})
    assert caught.value.message == (
        "Kafka option bootstrap.servers is not set. Please make sure it is set and retry."
    )
    with pytest.raises(ConfigError) as caught:
        parse_producer_config({})
    assert caught.value.message == (
        'Missing required configuration "bootstrap.servers" which has no default value.'
    )


@given(st.lists(st.text(alphabet="a1:[],./% x-_", max_size=12), max_size=4).map(",".join))
def test_any_text_gives_addresses_with_a_port_or_a_config_error(text):
    try:
        found = servers(text)
    except ConfigError:
        return
    assert found
    for host, port in found:
        assert host
        assert 0 < port < 65536
