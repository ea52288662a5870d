"""Frames out of a stream that is cut anywhere, and their limits.

That memory grows with what came: ``test_hostile_broker.py``.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import RemoteProtocolError, WrongListenerError
from spark_kafka_sink.network.frame_reader import FIRST_BUFFER_SIZE, FrameReader
from tests.network.loopback import Pieces


def framed(*payloads: bytes) -> bytes:
    return b"".join(len(p).to_bytes(4, "big") + p for p in payloads)


def read_all(pieces: Pieces, reader: FrameReader | None = None) -> list[bytes]:
    reader = reader or FrameReader()
    frames = []
    while True:
        frame = reader.read_from(pieces)
        if frame is not None:
            frames.append(bytes(frame))
        elif pieces.over:
            return frames


@given(
    st.lists(st.binary(min_size=4, max_size=300), min_size=1, max_size=5),
    st.data(),
    st.booleans(),
)
def test_frames_arrive_whole_wherever_the_stream_is_cut(
    payloads: list[bytes], data: st.DataObject, pauses: bool
) -> None:
    stream = framed(*payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges) if a < b]
    assert read_all(Pieces(pieces, pauses=pauses)) == payloads


@pytest.mark.parametrize("size", [FIRST_BUFFER_SIZE, FIRST_BUFFER_SIZE + 1, 5_000_003])
def test_a_large_frame_arrives_whole(size: int) -> None:
    payload = bytes(i * 31 % 251 for i in range(1009)) * (size // 1009 + 1)
    payload = payload[:size]
    reader = FrameReader()
    pieces = Pieces([framed(b"first", payload)])
    assert read_all(pieces, reader) == [b"first", payload]


def test_the_first_frame_of_a_connection_has_a_smaller_limit() -> None:
    reader = FrameReader(first_limit=10, limit=20)
    assert read_all(Pieces([framed(b"x" * 10, b"y" * 20)]), reader) == [b"x" * 10, b"y" * 20]
    with pytest.raises(RemoteProtocolError, match="11 bytes"):
        read_all(Pieces([framed(b"x" * 11)]), FrameReader(first_limit=10, limit=20))
    with pytest.raises(RemoteProtocolError, match="21 bytes"):
        read_all(Pieces([framed(b"x" * 21)]), reader)


def test_tls_bytes_are_fatal_first_and_garbage_later() -> None:
    alert = b"\x15\x03\x03\x00\x02\x02\x46"
    with pytest.raises(WrongListenerError, match="answered with TLS"):
        read_all(Pieces([alert]))
    with pytest.raises(RemoteProtocolError) as later:
        read_all(Pieces([framed(b"answer") + alert]))
    assert not isinstance(later.value, WrongListenerError)


def test_a_frame_can_be_kept_while_the_next_is_read() -> None:
    reader = FrameReader()
    pieces = Pieces([framed(b"first", b"other")])
    first = reader.read_from(pieces)
    second = reader.read_from(pieces)
    assert first is not None
    assert second is not None
    assert (bytes(first), bytes(second)) == (b"first", b"other")
    assert first.readonly
