"""Serializers: the bytes of Kafka's own, and what they refuse."""

from __future__ import annotations

import struct
import traceback
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import ConfigError, SerializationError
from spark_kafka_sink.producer.producer_record import Headers
from spark_kafka_sink.producer.send.serialization import serialize, serializer


def bytes_of(name: str | None, data: object) -> bytes | None:
    return serialize(serializer(name, "value.serializer"), "value.serializer", "t", data, Headers())


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        (None, b"\x00\xff", b"\x00\xff"),
        (None, bytearray(b"ab"), b"ab"),
        (None, memoryview(b"ab"), b"ab"),
        (None, "é", b"\xc3\xa9"),
        ("str", "é", b"\xc3\xa9"),
        ("int", -2, b"\xff\xff\xff\xfe"),
        ("long", 1, b"\0\0\0\0\0\0\0\x01"),
        ("float", 1.5, b"\x3f\xc0\0\0"),
        ("double", 1, b"\x3f\xf0\0\0\0\0\0\0"),
        ("org.apache.kafka.common.serialization.IntegerSerializer", 258, b"\0\0\x01\x02"),
        ("StringSerializer", "", b""),
        ("int", None, None),
        ("short", -2, b"\xff\xfe"),
        ("boolean", True, b"\x01"),
        ("boolean", False, b"\0"),
        ("uuid", UUID(int=10), b"00000000-0000-0000-0000-00000000000a"),
        ("void", None, None),
        ("list<short>", [1, None, 2], bytes.fromhex("00 00000001 00000001 00000003 0001 0002")),
        ("list<str>", ("é", None), bytes.fromhex("01 00000002 00000002 c3a9 ffffffff")),
        ("list<list<int>>", [[]], bytes.fromhex("01 00000001 00000009 00 00000000 00000000")),
        ("org.apache.kafka.common.serialization.BooleanSerializer", True, b"\x01"),
    ],
)
def test_bytes_are_those_of_kafkas_serializers(
    name: str | None, data: object, expected: bytes | None
):
    assert bytes_of(name, data) == expected


@given(st.integers(-(2**63), 2**63 - 1), st.floats(width=64, allow_nan=False))
def test_numbers_are_big_endian(number: int, real: float):
    assert bytes_of("long", number) == struct.pack(">q", number)
    assert bytes_of("double", real) == struct.pack(">d", real)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (None, 1),
        ("str", b"x"),
        ("int", 2**31),
        ("int", "1"),
        ("int", True),
        ("short", 2**15),
        ("boolean", 1),
        ("uuid", "00000000-0000-0000-0000-00000000000a"),
        ("void", b""),
        ("list<int>", b"ab"),
        ("list<int>", [1, "2"]),
        ("long", 2**63),
        ("float", "1"),
        ("float", 1e300),
        (None, "no text: \udcff"),
        ("str", "no text: \udcff"),
    ],
)
def test_what_does_not_fit_is_refused_without_showing_it(name: str | None, data: object):
    with pytest.raises(SerializationError, match=r"Can't convert value of class ") as caught:
        bytes_of(name, data)
    assert type(data).__name__ in caught.value.message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_serializers_type_error_is_located_and_not_shown():
    class Chatty:
        def serialize(self, topic, data, headers):
            raise TypeError(f"no serializer takes {data!r}")

    with pytest.raises(SerializationError) as caught:
        serialize(
            serializer(Chatty(), "value.serializer"), "value.serializer", "t", {"a": "s3cr3t"}, None
        )
    assert (
        "of class dict to class Chatty specified in value.serializer: TypeError in serialize ("
        in (caught.value.message)
    )
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))


def test_an_error_of_ones_own_serializer_comes_out_as_it_is():
    class Broken:
        def serialize(self, topic: str, data: object, headers: Headers) -> bytes:
            raise LookupError("no schema")

    with pytest.raises(LookupError, match="no schema"):
        serialize(serializer(Broken(), "key.serializer"), "key.serializer", "t", 1, Headers())


@pytest.mark.parametrize(
    ("given_", "text"),
    [
        ("nope", "nope is not known; known are bytes, str"),
        ("org.apache.kafka.common.serialization.ListSerializer", "list<NAME> for Java's"),
        ("list<nope>", "nope is not known"),
        ("no.such.Module", "can't be imported"),
        ("os.path:join", "has no method serialize"),
        (17, "has no method serialize"),
    ],
)
def test_a_wrong_serializer_is_named(given_: object, text: str):
    with pytest.raises(ConfigError, match=r"\] key\.serializer: ") as caught:
        serializer(given_, "key.serializer")
    assert text in caught.value.message
