"""SaslHandshake and SaslAuthenticate: the envelope of every SASL mechanism (KIP-43, KIP-152).

Owns: both requests and their answers, in all versions that a broker since 2.1 speaks. Never: what
the tokens inside mean (``network/sasl_*.py``). They are four fields in all and written here by
hand: kio, which writes the other requests, costs 50 ms to import, before the first byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol.frames import is_flexible
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange
from spark_kafka_sink.protocol.wire import INT64, MalformedError, WireReader, decoding, error_code

#: There are five, and own ones.
_MOST_MECHANISMS = 100


@dataclass(frozen=True, slots=True)
class SaslHandshakeResponse:
    """``mechanisms`` are those that the listener offers, also when it refuses ours."""

    error: ErrorCode
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SaslAuthenticateResponse:
    """``token`` is the mechanism's next message; ``session_lifetime_ms`` 0: without end.

    ``message`` is the broker's own text about ``error``, or None.
    """

    error: ErrorCode
    message: str | None
    token: bytes = field(repr=False)
    session_lifetime_ms: int = 0


@dataclass(frozen=True, slots=True)
class SaslHandshakeRequest:
    """Which mechanism is coming. Version 1: its tokens travel in SaslAuthenticate."""

    mechanism: str

    api_key = ApiKey.SASL_HANDSHAKE
    versions = VersionRange(1, 1)

    def encode(self, version: int) -> Buffers:
        del version
        name = self.mechanism.encode()
        return [len(name).to_bytes(2, "big") + name]

    def decode(self, version: int, body: memoryview) -> SaslHandshakeResponse:
        def parse(reader: WireReader) -> SaslHandshakeResponse:
            error = error_code(reader.int16())
            mechanisms = tuple(reader.string() for _ in range(_count_of_mechanisms(reader)))
            return SaslHandshakeResponse(error, mechanisms)

        return decoding(self.api_key, version, body, parse, flexible=False)


def _count_of_mechanisms(reader: WireReader) -> int:
    count = reader.count(2)
    if count > _MOST_MECHANISMS:
        raise MalformedError(f"it offers {count} mechanisms")
    return count


@dataclass(frozen=True, slots=True)
class SaslAuthenticateRequest:
    """One message of the mechanism. It is a secret, or as good as one."""

    token: bytes = field(repr=False)

    api_key = ApiKey.SASL_AUTHENTICATE
    versions = VersionRange(0, 2)

    def encode(self, version: int) -> Buffers:
        if is_flexible(self.api_key, version):
            return [_unsigned_varint(len(self.token) + 1) + self.token + b"\x00"]
        return [len(self.token).to_bytes(4, "big") + self.token]

    def decode(self, version: int, body: memoryview) -> SaslAuthenticateResponse:
        def parse(reader: WireReader) -> SaslAuthenticateResponse:
            error = error_code(reader.int16())
            message = reader.nullable_string()
            token = _bytes(reader)
            lifetime = reader.unpack(INT64)[0] if version >= 1 else 0
            reader.skip_tagged_fields()
            if lifetime < 0:
                raise MalformedError("the session's lifetime is negative")
            return SaslAuthenticateResponse(error, message, token, lifetime)

        flexible = is_flexible(self.api_key, version)
        return decoding(self.api_key, version, body, parse, flexible=flexible)


def _bytes(reader: WireReader) -> bytes:
    """A field of bytes; null, which some brokers send with an error, reads as empty."""
    size = reader.unsigned_varint() - 1 if reader.flexible else reader.int32()
    return b"" if size == -1 else reader.raw(size)


def _unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
