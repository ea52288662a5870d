"""SaslHandshake and SaslAuthenticate: what an answer must say, and that no token is ever shown."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.answers import decode
from spark_kafka_sink.protocol.messages.sasl_authenticate import SaslAuthenticateRequest


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


def test_a_lifetime_below_zero_is_none():
    """KIP-368: a session has a lifetime when the number is above zero; brokers differ below."""
    body = b"\x00\x00\xff\xff\x00\x00\x00\x00" + b"\xff" * 8
    found = decode(SaslAuthenticateRequest(auth_bytes=b""), 1, memoryview(body))
    assert found.session_lifetime_ms == -1
