"""Answers that a broker must not give, each to a whole producer, at once and byte by byte: what it
says of them, and that it says it within its own time-outs.

Which lies there are and what they may cost is in ``tests/protocol/test_hostile_answers.py``, what a
producer does about a connection that it ends in ``test_hostile_broker.py``.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.protocol.request import ApiKey
from tests.network.liar import TOPIC, Liar, Lie, framed, identity, produced
from tests.network.simulated import api_versions_body
from tests.protocol import metadata_bytes as m
from tests.waiting import PATIENCE, wait_for, with_patience

_LOG = logging.getLogger("spark_kafka_sink")
#: At once; each takes its time-out, and next to no work.
_AT_ONCE = 25
_TIME_OUTS = with_patience(
    {"max.block.ms": 3_000, "delivery.timeout.ms": 3_000, "request.timeout.ms": 2_500}
)


def raw(data: bytes) -> Lie:
    return lambda _honest, _id: data


def instead(body: bytes) -> Lie:
    return lambda _honest, number: framed(number, body)


def metadata(*brokers: bytes, topics: list[bytes] | None = None, throttle_ms: int = 0) -> Lie:
    topic = [m.topic(8, TOPIC, [m.partition(8, 0, (1,), leader=1)])]
    found = topic if topics is None else topics
    return instead(
        m.answer(8, brokers or [m.broker(8, 1, b"127.0.0.1")], found, throttle_ms=throttle_ms)
    )


def topics(*partitions: bytes, name: bytes = TOPIC) -> list[bytes]:
    return [m.topic(8, name, partitions)]


@dataclass(frozen=True)
class Case:
    """``words`` of what the producer says; None: it takes it."""

    api_key: ApiKey
    name: str
    lie: Lie
    words: str | None

    def __repr__(self) -> str:
        return f"{self.api_key.name}: {self.name}"


_FIRST = ApiKey.API_VERSIONS
_SPOKEN = {0: (3, 8), 3: (4, 8), 18: (0, 4), 22: (0, 1)}
CASES = [
    Case(_FIRST, "length -1", raw(b"\xff" * 4), "a frame of -1 bytes was announced"),
    Case(
        _FIRST,
        "length 2^31-1",
        raw(b"\x7f\xff\xff\xff" + bytes(1000)),
        "a frame of 2147483647 bytes",
    ),
    Case(
        _FIRST, "512 KiB and one byte", raw(struct.pack(">i", 2**19 + 1)), "a frame of 524289 bytes"
    ),
    Case(_FIRST, "HTTP", raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "a web server answers there"),
    Case(_FIRST, "a TLS alert", raw(b"\x15\x03\x03\0\2\2\x28"), "the broker answered with TLS"),
    Case(_FIRST, "SSH", raw(b"SSH-2.0-OpenSSH_9.6\r\n"), "that is text"),
    Case(_FIRST, "another id", lambda body, n: framed(n + 1, body), "correlation id"),
    Case(_FIRST, "a negative id", lambda body, _n: framed(-1, body), "correlation id -1 where"),
    Case(_FIRST, "twice", lambda body, n: framed(n, body) * 2, "has correlation id"),
    Case(
        _FIRST,
        "a metadata answer",
        instead(m.answer(8, [m.broker(8, 1)])),
        "does not fit its value",
    ),
    Case(
        _FIRST,
        "a throttle of 24 days",
        lambda body, n: framed(n, body[:-5] + struct.pack(">i", 2**31 - 1) + b"\0"),
        "the broker throttles this client for 2147483647 ms",
    ),
    Case(
        _FIRST,
        "versions of tomorrow",
        instead(api_versions_body(4, _SPOKEN | {3: (99, 99)})),
        "the broker offers versions 99 to 99",
    ),
    Case(
        _FIRST, "bytes behind it", lambda body, n: framed(n, body + bytes(9)), "bytes are left over"
    ),
    Case(
        _FIRST,
        "error 999",
        instead(api_versions_body(4, {}, error=999)),
        "UNKNOWN_SERVER_ERROR",
    ),
    Case(
        ApiKey.METADATA,
        "no broker",
        instead(m.answer(8, [], topics(m.partition(8, 0)))),
        "not present in metadata",
    ),
    Case(
        ApiKey.METADATA,
        "a leader that is none",
        metadata(topics=topics(m.partition(8, 0, leader=9))),
        "its leader was broker 9",
    ),
    Case(
        ApiKey.METADATA,
        "throttled without end",
        metadata(throttle_ms=2**31 - 1),
        "it was never sent",
    ),
    Case(ApiKey.INIT_PRODUCER_ID, "no id", instead(identity(-1)), "malformed"),
    Case(
        ApiKey.INIT_PRODUCER_ID, "error 999", instead(identity(error=999)), "UNKNOWN_SERVER_ERROR"
    ),
    Case(
        ApiKey.PRODUCE,
        "a partition is missing",
        instead(produced(times=0)),
        "malformed",
    ),
    Case(ApiKey.PRODUCE, "error 999", instead(produced(error=999)), "UNKNOWN_SERVER_ERROR"),
    Case(
        ApiKey.PRODUCE, "never the leader", instead(produced(error=6)), "was NOT_LEADER_OR_FOLLOWER"
    ),
    Case(ApiKey.PRODUCE, "bytes behind it", instead(produced() + b"\0"), "malformed"),
    Case(ApiKey.PRODUCE, "as it should be", instead(produced()), None),
]


class _Lines(logging.Handler):
    """Warnings that name one address."""

    def __init__(self, address: str) -> None:
        super().__init__(logging.WARNING)
        self._address = address
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if self._address in (line := record.getMessage()):
            self.lines.append(line)


def write_to(case: Case, *, drips: bool) -> str:
    """What a producer says of it, and has logged; empty when it is content."""
    with Liar(case.api_key, case.lie, drips=drips) as liar:
        host, port = liar.address
        logged = _Lines(f"{host}:{port}")
        # Before the producer: its thread connects when it is made, and logs each reason once.
        _LOG.addHandler(logged)
        producer = KafkaProducer(
            {"bootstrap.servers": f"{host}:{port}", "linger.ms": "0", **_TIME_OUTS}
        )
        said = ""
        try:
            producer.send(ProducerRecord("t", b"a")).result(60)
        except KafkaError as error:
            said = f"{error.message} {error.hint}"
            # On a busy machine the time may be over while an answer is on its way: then that is the
            # reason of the error, and this one was logged before, or will be.
            wait_for(
                lambda: (case.words or "") in f"{said} {' '.join(logged.lines)}",
                timeout=30,
                what=f"{case.words!r} beside {said!r}",
            )
        finally:
            producer.close(1000)
            _LOG.removeHandler(logged)
        assert liar.lied
    return said and f"{said} {' '.join(logged.lines)}"


@pytest.fixture(scope="module")
def told() -> Iterator[dict[tuple[str, bool], Future[str]]]:
    """What each case ended with; all of them run beside each other, since all they do is wait."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {
            (repr(case), drips): pool.submit(write_to, case, drips=drips)
            for case in CASES
            for drips in (False, True)
        }


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_a_false_answer_is_reported_even_byte_by_byte(
    told: dict[tuple[str, bool], Future[str]], case: Case
) -> None:
    for drips in (False, True):
        said = told[repr(case), drips].result(100 * PATIENCE)
        if case.words is None:
            assert said == ""
        else:
            assert case.words in said
            assert said.isprintable()
