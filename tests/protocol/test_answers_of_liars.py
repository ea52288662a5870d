"""Answers that are cut or changed at any byte parse, or are refused, and so is every version that
is not ours. (Random changes: ``tests/fuzz``.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import test_fetch_messages as fetching
import test_group_messages as groups
import test_produce_codec as producing
import test_transaction_admin_messages as admin
import test_transaction_messages as transactions
from hostile import parses_or_refuses, refused
from kio_oracle import decode

from spark_kafka_sink.base.errors import RemoteProtocolError, UnsupportedVersionError
from tests.protocol import control_answers as control

Answer = Callable[[], bytes]
#: Of each API, and of each version of it, a request and what makes an answer to it.
ANSWERS: list[tuple[Any, int, Answer]] = [
    (request, version, partial(room.answer, request, version))
    for room in (control, fetching, admin, transactions, groups)
    for request, version in room.ALL
]
ANSWERS += [(producing.THREE, v, partial(producing.rich_response, v)) for v in producing.VERSIONS]
EACH = pytest.mark.parametrize(
    ("request_", "version", "answer"),
    ANSWERS,
    ids=[f"{request.api_key.name}-v{version}" for request, version, _ in ANSWERS],
)


@EACH
def test_an_answer_cut_anywhere_or_too_long_is_refused(
    request_: Any, version: int, answer: Answer
) -> None:
    data = answer()
    assert not refused(lambda: decode(request_, version, data))
    for size in range(len(data)):
        assert refused(lambda size=size: decode(request_, version, data[:size]))
    with pytest.raises(RemoteProtocolError, match="left over") as caught:
        decode(request_, version, data + b"\x00")
    assert caught.value.message.startswith(f"{request_.api_key.name} v{version}: ")


@EACH
def test_a_version_outside_of_ours_is_refused(request_: Any, version: int, answer: Answer) -> None:
    for wrong in (request_.versions.min - 1, request_.versions.max + 1):
        with pytest.raises(UnsupportedVersionError):
            request_.encode(wrong)
        with pytest.raises(UnsupportedVersionError):
            decode(request_, wrong, answer())


@EACH
def test_a_bomb_at_any_byte_parses_or_is_refused(
    request_: Any, version: int, answer: Answer
) -> None:
    data = answer()
    for at in range(len(data)):
        for bomb in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\x80"):
            broken = data[:at] + bomb + data[at + len(bomb) :]
            parses_or_refuses(lambda broken=broken: decode(request_, version, broken))


def test_an_answer_in_another_version_parses_or_is_refused() -> None:
    answers = [(request, version, answer()) for request, version, answer in ANSWERS]
    for request, version, _ in answers:
        for other, _, told in answers:
            if other is request:
                parses_or_refuses(lambda r=request, v=version, told=told: decode(r, v, told))
