"""Headers, lengths and limits, against kio's headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hostile import parses_or_refuses
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_reader

from spark_kafka_sink.base.errors import IllegalStateError, RemoteProtocolError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.frames import (
    FIRST_FLEXIBLE_VERSION,
    MAX_RESPONSE_SIZE,
    MAX_RESPONSE_SIZE_BEFORE_READY,
    frame,
    frame_size,
    is_flexible,
    parse_response_header,
    peek_correlation_id,
    request_header_version,
    response_header_version,
)
from spark_kafka_sink.protocol.metadata import MetadataRequest
from spark_kafka_sink.protocol.produce import PartitionProduceData, ProduceRequest
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange
from spark_kafka_sink.protocol.wire import WireReader
from tests.fakes.fake_cluster.codec import top_entity
from tests.fakes.kafka_messages import API_VERSIONS


@pytest.mark.parametrize("api_key", ApiKey)
def test_the_table_of_flexible_versions_is_kafkas(api_key: ApiKey) -> None:
    compared = 0
    for version in range(14):
        try:
            entity = top_entity(api_key.name.lower(), version, "request")
        except ModuleNotFoundError:
            continue
        answer = top_entity(api_key.name.lower(), version, "response")
        assert is_flexible(api_key, version) is entity.__flexible__
        assert request_header_version(api_key, version) == entity.__header_schema__.__version__
        assert response_header_version(api_key, version) == answer.__header_schema__.__version__
        compared += 1
    assert compared


def test_an_api_that_is_never_flexible_is_not_in_the_table() -> None:
    assert {key for key in ApiKey if key not in FIRST_FLEXIBLE_VERSION} == {ApiKey.SASL_HANDSHAKE}
    assert not is_flexible(ApiKey.SASL_HANDSHAKE, 1)


@pytest.mark.parametrize("client_id", [None, "", "spark-é-7"])
@pytest.mark.parametrize(("version", "header"), [(2, HeaderV1), (4, HeaderV2)])
def test_kio_reads_our_request_header(client_id: str | None, version: int, header: Any) -> None:
    request = API_VERSIONS
    buffers, size = frame(request, version, 0x01020304, client_id)
    data = b"".join(buffers)
    assert len(data) == size
    assert int.from_bytes(data[:4], "big") == size - 4
    read, used = entity_reader(header)(data[4:], 0)
    assert read.request_api_key == 18
    assert read.request_api_version == version
    assert read.correlation_id == 0x01020304
    assert read.client_id == client_id
    assert data[4 + used :] == b"".join(request.encode(version))


def test_a_frame_keeps_batches_in_place_and_joins_small_bytes() -> None:
    body = memoryview(b"b" * 1000)
    request = ProduceRequest(
        -1, 1000, (PartitionProduceData(TopicPartition("t", 0), [body], 1000),)
    )
    buffers, size = frame(request, 12, 1, "c")
    assert [type(buffer) for buffer in buffers] == [bytes, memoryview, bytes]
    assert buffers[1] is body
    assert size == sum(map(len, buffers))


@dataclass(frozen=True)
class Empty:
    body: Buffers
    api_key = ApiKey.SASL_HANDSHAKE
    versions = VersionRange(0, 1)

    def encode(self, version: int) -> Buffers:
        return self.body

    def read(self, reader: WireReader, version: int) -> object:
        raise NotImplementedError


@pytest.mark.parametrize("body", [[], [b""], [memoryview(b"ab")], [b"ab", b"cd"]])
def test_any_body_is_framed(body: Buffers) -> None:
    buffers, size = frame(Empty(body), 1, 7, None)
    assert b"".join(buffers)[14:] == b"".join(body)
    assert size == len(b"".join(buffers))


def test_a_client_id_that_no_header_can_carry_is_refused() -> None:
    with pytest.raises(IllegalStateError, match=r"client\.id"):
        frame(MetadataRequest(()), 12, 1, "x" * 40_000)


# --- answers


@pytest.mark.parametrize(
    ("api_key", "version", "header"),
    [
        (ApiKey.METADATA, 8, b""),
        (ApiKey.METADATA, 9, b"\x00"),
        (ApiKey.METADATA, 9, b"\x02\x00\x01z\x09\x00"),
        (ApiKey.API_VERSIONS, 4, b""),
        (ApiKey.PRODUCE, 12, b"\x00"),
    ],
)
def test_a_response_header_ends_where_the_body_begins(
    api_key: ApiKey, version: int, header: bytes
) -> None:
    payload = memoryview(b"\xff\xff\xff\xfe" + header + b"body")
    correlation_id, body = parse_response_header(api_key, version, payload)
    assert correlation_id == -2
    assert bytes(body) == b"body"


@pytest.mark.parametrize("payload", [b"", b"abc", b"abcd", b"abcd\x01", b"abcd\x01\x00\x05ab"])
def test_a_response_header_cut_short_is_refused(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_response_header(ApiKey.METADATA, 9, memoryview(payload))


@given(payload=st.binary(max_size=30), version=st.integers(4, 13))
def test_any_payload_has_a_header_or_is_refused(payload: bytes, version: int) -> None:
    view = memoryview(payload)
    parses_or_refuses(lambda: parse_response_header(ApiKey.METADATA, version, view))
    parses_or_refuses(lambda: peek_correlation_id(view))


@pytest.mark.parametrize("size", [4, 5, MAX_RESPONSE_SIZE_BEFORE_READY])
def test_a_size_up_to_the_limit_is_taken(size: int) -> None:
    assert frame_size(size.to_bytes(4, "big"), MAX_RESPONSE_SIZE_BEFORE_READY) == size


@pytest.mark.parametrize(
    ("prefix", "hint"),
    [
        (b"\xff\xff\xff\xff", None),
        (b"\x80\x00\x00\x00", None),
        (b"\x00\x00\x00\x00", None),
        (b"\x00\x00\x00\x03", None),
        (b"\x7f\xff\xff\xff", "perhaps the port is no Kafka listener"),
        (b"\x04\x00\x00\x01", "perhaps the port is no Kafka listener"),
        (b"\x15\x03\x03\x00", "SASL_SSL"),
        (b"\x16\x03\x01\x02", "SASL_SSL"),
        (b"HTTP", "web server"),
        (b"SSH-", "not a Kafka listener"),
        (b"220 ", "not a Kafka listener"),
    ],
)
def test_an_impossible_size_is_refused_with_its_likely_sender(
    prefix: bytes, hint: str | None
) -> None:
    with pytest.raises(RemoteProtocolError, match=f"4 to {MAX_RESPONSE_SIZE} are") as caught:
        frame_size(prefix, MAX_RESPONSE_SIZE)
    if hint is None:
        assert caught.value.hint is None
    else:
        assert hint in str(caught.value.hint)


@given(prefix=st.binary(min_size=4, max_size=4))
def test_any_four_bytes_are_a_size_or_refused(prefix: bytes) -> None:
    size = parses_or_refuses(lambda: frame_size(prefix, MAX_RESPONSE_SIZE))
    assert size is None or 4 <= size <= MAX_RESPONSE_SIZE
