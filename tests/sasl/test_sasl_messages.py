"""SaslHandshake and SaslAuthenticate: what an answer must say, and that no token is ever shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import ErrorCode, RemoteProtocolError
from spark_kafka_sink.protocol.answers import decode
from spark_kafka_sink.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from spark_kafka_sink.protocol.messages.sasl_handshake import SaslHandshakeRequest


def test_a_handshake_has_the_mechanisms_of_the_listener():
    assert SaslHandshakeRequest(mechanism="PLAIN").encode(1) == [b"\x00\x05PLAIN"]
    body = b"\x00\x21" + b"\x00\x00\x00\x02" + b"\x00\x05PLAIN\x00\x01x"
    found = decode(SaslHandshakeRequest(mechanism="X"), 1, memoryview(body))
    assert found.error_code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert tuple(found.mechanisms) == ("PLAIN", "x")


@pytest.mark.parametrize("null", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_an_answer_without_a_token_has_an_empty_one(null):
    found = decode(
        SaslAuthenticateRequest(auth_bytes=b""), 0, memoryview(b"\x00\x3a\x00\x02no" + null)
    )
    assert (found.error_code, found.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, "no")
    assert (found.auth_bytes, found.session_lifetime_ms) == (b"", 0)


def test_no_token_is_shown():
    asked = SaslAuthenticateRequest(auth_bytes=b"secret")
    body = asked.encode(0)[0]
    found = decode(asked, 1, memoryview(b"\x00\x00\xff\xff" + body + bytes(7) + b"\x05"))
    assert (found.auth_bytes, found.session_lifetime_ms) == (b"secret", 5)
    for value in (asked, found):
        assert "secret" not in repr(value)


@given(data=st.binary(max_size=300), version=st.integers(0, 2))
def test_any_bytes_are_read_or_break_the_protocol(data, version):
    for request, at in (
        (SaslHandshakeRequest(mechanism="X"), 1),
        (SaslAuthenticateRequest(auth_bytes=b""), version),
    ):
        try:
            decode(request, at, memoryview(data))
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
        decode(SaslAuthenticateRequest(auth_bytes=b""), version, memoryview(body))
    bomb = b"\x00\x00\x7f\xff\xff\xff\x00\x01x"
    with pytest.raises(RemoteProtocolError, match="more items than"):
        decode(SaslHandshakeRequest(mechanism="X"), 1, memoryview(bomb))
