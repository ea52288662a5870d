"""SaslHandshake and SaslAuthenticate, which are written by hand, against kio, which is generated
from Kafka's own message files.
"""

from __future__ import annotations

import datetime as dt
import importlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import ErrorCode, RemoteProtocolError
from spark_kafka_sink.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

VERSIONS = st.integers(0, 2)


def kio(api, version, side):
    return importlib.import_module(f"kio.schema.{api}.v{version}.{side}")


def written(entity):
    from kio.serial import entity_writer

    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@settings(deadline=None)
@given(mechanism=st.text(max_size=50))
def test_a_handshake_is_written_as_kio_writes_it(mechanism):
    entity = kio("sasl_handshake", 1, "request").SaslHandshakeRequest(mechanism=mechanism)
    assert b"".join(SaslHandshakeRequest(mechanism).encode(1)) == written(entity)


@settings(deadline=None)
@given(token=st.binary(max_size=40_000), version=VERSIONS)
def test_a_token_is_written_as_kio_writes_it(token, version):
    entity = kio("sasl_authenticate", version, "request").SaslAuthenticateRequest(auth_bytes=token)
    assert b"".join(SaslAuthenticateRequest(token).encode(version)) == written(entity)


@settings(deadline=None)
@given(error=st.sampled_from([0, 33, 34]), mechanisms=st.lists(st.text(max_size=20), max_size=10))
def test_a_handshakes_answer_is_read_as_kio_wrote_it(error, mechanisms):
    from kio.schema.errors import ErrorCode as Code

    entity = kio("sasl_handshake", 1, "response").SaslHandshakeResponse(
        error_code=Code(error), mechanisms=tuple(mechanisms)
    )
    found = SaslHandshakeRequest("X").decode(1, memoryview(written(entity)))
    assert found == SaslHandshakeResponse(ErrorCode(error), tuple(mechanisms))


@settings(deadline=None)
@given(
    error=st.sampled_from([0, 58]),
    message=st.none() | st.text(max_size=200),
    token=st.binary(max_size=20_000),
    lifetime=st.integers(0, 10**12),
    version=VERSIONS,
)
def test_an_answer_with_a_token_is_read_as_kio_wrote_it(error, message, token, lifetime, version):
    from kio.schema.errors import ErrorCode as Code

    more = {"session_lifetime": dt.timedelta(milliseconds=lifetime)} if version else {}
    entity = kio("sasl_authenticate", version, "response").SaslAuthenticateResponse(
        error_code=Code(error), error_message=message, auth_bytes=token, **more
    )
    found = SaslAuthenticateRequest(b"").decode(version, memoryview(written(entity)))
    assert found == SaslAuthenticateResponse(
        ErrorCode(error), message, token, lifetime if version else 0
    )
    assert "token" not in repr(found)


@settings(deadline=None)
@given(data=st.binary(max_size=300), version=VERSIONS)
def test_any_bytes_are_read_or_break_the_protocol(data, version):
    for request, at in ((SaslHandshakeRequest("X"), 1), (SaslAuthenticateRequest(b""), version)):
        try:
            request.decode(at, memoryview(data))
        except RemoteProtocolError as error:
            assert request.api_key.name in error.message  # noqa: PT017


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, b"\x00\x00\xff\xff\x7f\xff\xff\xff"),
        (0, b"\x00\x00\xff\xff\x80\x00\x00\x00"),
        (1, b"\x00\x00\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"),
        (2, b"\x00\x00\x00\xff\xff\xff\xff\x0f"),
        (2, b"\x00\x00\x00\x01" + bytes(8) + b"\x01\x00\x05x"),
    ],
    ids=["2 GiB", "negative", "lifetime -1", "4 GiB", "cut tag"],
)
def test_lengths_that_lie_break_the_protocol(version, body):
    with pytest.raises(RemoteProtocolError, match="SASL_AUTHENTICATE"):
        SaslAuthenticateRequest(b"").decode(version, memoryview(body))
    bomb = b"\x00\x00\x7f\xff\xff\xff\x00\x01x"
    with pytest.raises(RemoteProtocolError, match="more items than"):
        SaslHandshakeRequest("X").decode(1, memoryview(bomb))
