"""The reader's primitives, against Kafka's vectors."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import RemoteProtocolError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.protocol.wire import WireReader, decoding


def read(data: bytes, parse: object, *, flexible: bool = True) -> object:
    return decoding(ApiKey.METADATA, 12, data, lambda reader, _: parse(reader), flexible=flexible)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", 0),
        ("3f", 63),
        ("40", 64),
        ("ff3f", 8191),
        ("8040", 8192),
        ("ffffffff07", 2**31 - 1),
        ("ffffffff0f", 2**32 - 1),
        ("8000", 0),
    ],
)
def test_unsigned_varints_are_kafkas(data: str, value: int) -> None:
    assert read(bytes.fromhex(data), WireReader.unsigned_varint) == value


@pytest.mark.parametrize("data", ["", "80", "ffffffff", "ffffffffff01", "ffffffff1f", "ff" * 10])
def test_varints_too_long_or_cut_are_refused(data: str) -> None:
    with pytest.raises(RemoteProtocolError):
        read(bytes.fromhex(data), WireReader.unsigned_varint)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xfe", "a string's length is negative"),
        (b"\x00\x02\xc3", "a field is longer than the answer"),
        (b"\x00\x02\xff\xfe", "a string is not UTF-8"),
        (b"\xff\xff", "a string that must be there is null"),
        (b"\x00", "it ends too early"),
    ],
)
def test_a_broken_string_is_refused_without_showing_its_bytes(data: bytes, why: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(data, WireReader.string, flexible=False)
    message = caught.value.message
    assert message == f"METADATA v12: the broker's answer is malformed: {why}"


@pytest.mark.parametrize(
    "data",
    [
        b"\x01\x05\x04ab",  # longer than the answer
        b"\x02\x05\x00\x05\x00",  # twice
        b"\x02\x05\x00\x04\x00",  # not ascending
        b"\xff\xff\xff\xff\x0f",  # four billion of them
        b"\x01\x05",
    ],
)
def test_tagged_fields_that_break_the_rules_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read(data, WireReader.skip_tagged_fields)


@pytest.mark.parametrize("size", [3, 5])
def test_a_known_tagged_field_must_fill_its_size(size: int) -> None:
    def parse(reader: WireReader) -> None:
        for _ in reader.tagged_fields():
            reader.int32()

    with pytest.raises(RemoteProtocolError):
        read(b"\x01\x00" + bytes([size]) + b"12345"[:size] + b"\x00" * 4, parse)
