"""The frame around each request and response: the length (an int32), and the header.

This module writes the request header (v1, v2), reads the response header (v0, v1), and limits the
size of a frame. A request gets its frame just before its bytes are passed to the selector. The
package ``network`` reads the frames of responses from a socket.
"""

from __future__ import annotations

import struct
from typing import Final

from spark_kafka_sink.base.errors import IllegalStateError, RemoteProtocolError, WrongListenerError
from spark_kafka_sink.protocol.messages.flexible_versions import FIRST_FLEXIBLE_VERSION
from spark_kafka_sink.protocol.request import ApiKey, Buffer, Request
from spark_kafka_sink.protocol.wire import WireReader, decoding

#: Largest response that is accepted, in bytes without the length prefix. Metadata of 200 000
#: partitions is about 10 MB.
MAX_RESPONSE_SIZE: Final = 64 * 1024 * 1024

#: The same until ApiVersions is done: until then the peer may not be a Kafka broker.
MAX_RESPONSE_SIZE_BEFORE_READY: Final = 512 * 1024

#: Correlation ids from here on are those of authentications, and those below are NetworkClient's:
#: while a connection authenticates again, answers to its last requests still arrive between them.
MIN_RESERVED_CORRELATION_ID: Final = 2**31 - 8

#: Bytes of the length prefix in front of every frame.
LENGTH_SIZE: Final = 4

_HEADER = struct.Struct(">ihhi")  # length, API key, version, correlation id
_INT32 = struct.Struct(">i")


def is_flexible(api_key: ApiKey, version: int) -> bool:
    """Returns True if ``version`` of an API is flexible: the version has compact strings and tagged
    fields (KIP-482).
    """
    first = FIRST_FLEXIBLE_VERSION.get(api_key)
    return first is not None and version >= first


def request_header_version(api_key: ApiKey, version: int) -> int:
    """The version of the request header: 2 for flexible versions, otherwise 1. (Brokers since 4.0
    no longer accept 0.)
    """
    return 2 if is_flexible(api_key, version) else 1


def response_header_version(api_key: ApiKey, version: int) -> int:
    """The version of the response header: 1 for flexible versions, otherwise 0.

    For ApiVersions the header version is always 0: the client must be able to read this response
    before the client knows the broker's versions (KIP-511).
    """
    if api_key is ApiKey.API_VERSIONS:
        return 0
    return 1 if is_flexible(api_key, version) else 0


def frame(
    request: Request[object], version: int, correlation_id: int, client_id: str | None
) -> tuple[list[Buffer], int]:
    """Builds the whole frame of ``request``, with the length at the beginning. Returns its buffers
    in order, and their total size in bytes.

    If the first buffer of the body is a ``bytes`` object, the header is joined with this buffer.
    The other buffers are not copied. Raises IllegalStateError if the client id or the frame is too
    long.
    """
    body = request.encode(version)
    name = None if client_id is None else client_id.encode()
    if name is not None and len(name) > 0x7FFF:
        raise IllegalStateError(
            f"client.id is {len(name)} bytes long; the protocol's limit is 32767"
        )
    # The client id has an int16 length even in header v2, because the broker reads the client id
    # before it knows the version of the header (RequestHeader.json).
    tail = b"\xff\xff" if name is None else len(name).to_bytes(2, "big") + name
    if request_header_version(request.api_key, version) == 2:
        tail += b"\x00"  # no tagged fields
    size = _HEADER.size + len(tail) + sum(map(len, body))
    if size - LENGTH_SIZE > 0x7FFFFFFF:
        raise IllegalStateError(f"{request.api_key.name} of {size} bytes does not fit a frame")
    head = _HEADER.pack(size - LENGTH_SIZE, int(request.api_key), version, correlation_id) + tail
    first = body[0] if body else b""
    if isinstance(first, bytes):
        return [head + first, *body[1:]], size
    return [head, *body], size


def frame_size(prefix: Buffer, limit: int, *, first: bool = False) -> int:
    """Reads the length of a frame from its first four bytes, and checks it before memory is
    allocated.

    Raises RemoteProtocolError if the length is above ``limit``, or if no broker sends such a
    length. The error's hint guesses which program listens on the port. ``first`` is true for the
    first frame of a connection. If this frame begins like TLS, raises WrongListenerError.
    """
    (size,) = _INT32.unpack_from(prefix)
    if LENGTH_SIZE <= size <= limit:
        return int(size)
    hint = None
    start = bytes(prefix[:4])
    if start[:2] in (b"\x15\x03", b"\x16\x03"):
        hint = (
            "the port speaks TLS and this client does not: "
            "set kafka.security.protocol to SSL or SASL_SSL"
        )
        if first:
            raise WrongListenerError("the broker answered with TLS", hint=hint)
    elif start in (b"HTTP", b"<htm", b"<!DO", b"<?xm"):
        hint = "a web server answers there: check host and port of kafka.bootstrap.servers"
    elif start.isascii() and start.decode("ascii").isprintable():
        hint = "that is text, so the port is probably not a Kafka listener"
    elif size > limit:
        hint = (
            "perhaps the port is no Kafka listener, or kafka.security.protocol is not the"
            " listener's protocol"
        )
    raise RemoteProtocolError(
        f"a frame of {size} bytes was announced; 4 to {limit} are accepted", hint=hint
    )


def parse_response_header(
    api_key: ApiKey, version: int, payload: memoryview
) -> tuple[int, memoryview]:
    """Reads the header of a response. Returns its correlation id, and its body.

    ``payload`` is the frame without its length. Raises RemoteProtocolError if the header is
    incomplete, or if its tagged fields are malformed.
    """
    correlation_id = peek_correlation_id(payload)
    if response_header_version(api_key, version) == 0:
        return correlation_id, payload[4:]
    if len(payload) > 4 and payload[4] == 0:  # no tagged fields: always, so far
        return correlation_id, payload[5:]

    def skip_tags(reader: WireReader, _version: int) -> int:
        reader.skip_tagged_fields()
        return reader.position

    used = decoding(api_key, version, payload[4:], skip_tags, flexible=True, whole=False)
    return correlation_id, payload[4 + used :]


def peek_correlation_id(payload: memoryview) -> int:
    """Reads the correlation id of a response. The version of the header is not needed, because the
    correlation id is the first field in every version.
    """
    if len(payload) < 4:
        raise RemoteProtocolError(
            f"an answer of {len(payload)} bytes is too short for its correlation id"
        )
    return int(_INT32.unpack_from(payload)[0])
