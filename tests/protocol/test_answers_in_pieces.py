"""A broker's bytes mean the same in whatever pieces they come: frames, headers, every decoder."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import control_answers as control
import pytest
import test_fetch_messages as fetching
import test_group_messages as groups
import test_produce_codec as producing
import test_quorum_messages as quorums
import test_transaction_admin_messages as admin
import test_transaction_messages as transactions
from hypothesis import given, settings
from hypothesis import strategies as st
from kio_oracle import response

from spark_kafka_sink import protocol
from spark_kafka_sink.base.errors import ErrorCode, RemoteProtocolError
from spark_kafka_sink.network.frame_reader import FrameReader
from spark_kafka_sink.protocol.answers import decode
from spark_kafka_sink.protocol.frames import parse_response_header, response_header_version
from spark_kafka_sink.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from spark_kafka_sink.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.network.loopback import Pieces


@dataclass(frozen=True)
class Answer:
    """What a request of a version got: the body, as kio writes it."""

    request: Any
    version: int
    body: bytes

    def __repr__(self) -> str:
        return f"{self.request.api_key.name}-v{self.version}"

    def frame(self, correlation_id: int) -> bytes:
        tags = b"\0" * response_header_version(self.request.api_key, self.version)
        payload = correlation_id.to_bytes(4, "big") + tags + self.body
        return len(payload).to_bytes(4, "big") + payload

    def decoded(self, payload: memoryview) -> tuple[int, object]:
        """As NetworkClient reads a frame."""
        correlation_id, body = parse_response_header(self.request.api_key, self.version, payload)
        return correlation_id, decode(self.request, self.version, body)


def handshake(version: int) -> bytes:
    refused = ErrorCode.UNSUPPORTED_SASL_MECHANISM
    mechanisms = ["PLAIN", "OAUTHBEARER"]
    return response("sasl_handshake", version, error_code=refused, mechanisms=mechanisms)


def authenticated(version: int) -> bytes:
    token = {"error_message": "no", "auth_bytes": b"v=" + bytes(range(150))}
    return response("sasl_authenticate", version, session_lifetime=3_600_000, **token)


SASL = [
    Answer(request, version, body(version))
    for request, body in (
        (SaslHandshakeRequest(mechanism="PLAIN"), handshake),
        (SaslAuthenticateRequest(auth_bytes=b"token"), authenticated),
    )
    for version in range(request.versions.min, request.versions.max + 1)
]

ANSWERS = (
    SASL
    + [
        Answer(request, version, module.answer(request, version))
        for module in (control, transactions, fetching, admin, groups)
        for request, version in module.ALL
    ]
    + [
        Answer(producing.THREE, version, producing.rich_response(version))
        for version in producing.VERSIONS
    ]
    + [Answer(groups.offset_fetch("mine", groups.TPS), 8, groups.offsets())]
    + [Answer(quorums.ASKED, 1, quorums.body(quorums.quorum(quorums.voter(2, quorums.NOW_MS))))]
)


def cut(stream: bytes, places: Sequence[int]) -> Iterator[bytes]:
    edges = [0, *sorted(places), len(stream)]
    return (stream[a:b] for a, b in itertools.pairwise(edges) if a < b)


def read(answers: Sequence[Answer], pieces: Iterator[bytes]) -> list[tuple[int, object]]:
    """What the answers, which come one after the other, say."""
    transport, reader = Pieces(pieces, pauses=True), FrameReader()
    found = []
    for answer in answers:
        frame = None
        while frame is None:
            frame = reader.read_from(transport)
        found.append(answer.decoded(frame))
    return found


def conversation(answers: Sequence[Answer]) -> tuple[bytes, list[tuple[int, object]]]:
    """The stream of the answers, and what they say when each is there as one object."""
    frames = [answer.frame(number) for number, answer in enumerate(answers, 7)]
    whole = [
        answer.decoded(memoryview(frame)[4:]) for answer, frame in zip(answers, frames, strict=True)
    ]
    return b"".join(frames), whole


def test_every_answer_that_the_client_reads_is_here():
    modules = (
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(protocol.__path__, f"{protocol.__name__}.")
    )
    there = {
        name
        for module in modules
        for name, made in vars(module).items()
        if name.endswith("Request") and dataclasses.is_dataclass(made) and hasattr(made, "api_key")
    }
    assert len(there) > 8
    assert there == {type(answer.request).__name__ for answer in ANSWERS}


@pytest.mark.parametrize("answer", ANSWERS, ids=repr)
def test_an_answer_means_the_same_however_it_is_cut(answer: Answer):
    stream, whole = conversation([answer])
    assert read([answer], iter([stream])) == whole
    assert read([answer], cut(stream, range(len(stream)))) == whole
    for place in range(1, len(stream)):
        assert read([answer], cut(stream, [place])) == whole


@settings(max_examples=200, deadline=None)
@given(answers=st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=6), data=st.data())
def test_consecutive_answers_mean_the_same_however_they_are_cut(
    answers: list[Answer], data: st.DataObject
):
    stream, whole = conversation(answers)
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=20))
    assert read(answers, cut(stream, places)) == whole


@settings(max_examples=200, deadline=None)
@given(answer=st.sampled_from(ANSWERS), data=st.data())
def test_a_broken_answer_is_refused_alike_wherever_it_is_cut(answer: Answer, data: st.DataObject):
    stream = bytearray(conversation([answer])[0])
    stream[data.draw(st.integers(4, len(stream) - 1))] ^= data.draw(st.integers(1, 255))
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))

    def outcome(pieces: Iterator[bytes]) -> object:
        try:
            return read([answer], pieces)
        except RemoteProtocolError as error:
            return error.message

    assert outcome(cut(bytes(stream), places)) == outcome(iter([bytes(stream)]))
