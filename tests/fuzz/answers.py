"""Answers of a broker, for every request in every version.

The decoder itself says which field comes next (:class:`_Asked` answers it), so that what is changed
afterwards is nearly right, and gets deep into the decoder.
"""

from __future__ import annotations

import random
import tracemalloc
from array import array
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from spark_kafka_sink.admin.transaction_description import TransactionDescription
from spark_kafka_sink.base.errors import RemoteProtocolError
from spark_kafka_sink.datasource.checks.clock_difference import QUORUM, error_in, leader_time_ms
from spark_kafka_sink.network.frame_reader import FrameReader
from spark_kafka_sink.network.transport_layer import PlaintextTransportLayer
from spark_kafka_sink.protocol import wire
from spark_kafka_sink.protocol.answers import decode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.frames import parse_response_header
from spark_kafka_sink.protocol.log_requests import (
    FetchedPartition,
    describe_producers,
    described,
    fetch,
    list_offsets,
    listed_offset,
)
from spark_kafka_sink.protocol.messages.delete_topics import DeleteTopicsRequest
from spark_kafka_sink.protocol.messages.describe_transactions import DescribeTransactionsRequest
from spark_kafka_sink.protocol.produce import PartitionProduceData, ProduceRequest
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.protocol.topic_requests import NewTopic, create_topics
from spark_kafka_sink.transactions.driver_transactions import add_partition_call
from spark_kafka_sink.transactions.offset_commits import OffsetAndMetadata, txn_offset_commit
from spark_kafka_sink.transactions.operations.held_partitions import committed_offsets, offset_fetch
from tests.fakes import every_request
from tests.fakes.every_request import TPS
from tests.fuzz.mutate import mutated, pieces, refusal

#: Produce, and one of each other kind.
REQUESTS = [
    ProduceRequest(-1, 1, tuple(PartitionProduceData(tp, [b"x"], 1) for tp in TPS)),
    *every_request.REQUESTS.values(),
]
_TP, _X = TopicPartition("t", 0), PreparedTransaction("x", 1, 0, 1)
_ADD = add_partition_call(_X, _TP, "a right")
_FETCH = fetch(_TP, 0, read_committed=True)
#: About one thing, so that some answers are taken; and what their callers make of these.
OF_ONE: list[tuple[Any, Callable[[Any], object]]] = [
    (_ADD.request, _ADD.error_in),
    (_FETCH, lambda answer: FetchedPartition.of(_FETCH, answer)),
    (list_offsets(_TP), listed_offset),
    (describe_producers(_TP), described),
    (offset_fetch("x", (_TP,)), committed_offsets),
    (QUORUM, lambda answer: error_in(answer).value or leader_time_ms(answer)),
    (
        DescribeTransactionsRequest(transactional_ids=("x",)),
        lambda answer: [TransactionDescription.of(one) for one in answer.transaction_states],
    ),
    (create_topics([NewTopic("t", 1, 1)], 1), lambda answer: answer.topics[0].error_message),
    (DeleteTopicsRequest(topic_names=("t",), timeout_ms=1), lambda answer: answer.responses[0]),
    (txn_offset_commit(_X, "x", {_TP: OffsetAndMetadata(1)}), lambda answer: answer.topics[0]),
]
#: Decoded in one go when its answer is repeated to this size.
_LARGE = 100_000


def fuzz(rng: random.Random) -> str:
    """Only RemoteProtocolError leaves, on one line, without the bytes; in whatever pieces."""
    request, use = (rng.choice(REQUESTS), repr) if rng.random() < 0.5 else rng.choice(OF_ONE)
    version = rng.randint(request.versions.min, request.versions.max)
    base = _answer(rng, request, version)
    taken = 0
    for _ in range(8):
        data = mutated(rng, base)
        taken += _decode(request, version, data, use)
        _frame(rng, data)
    parse = rng.choice(list(ApiKey)), rng.randrange(13), rng.randbytes(rng.randrange(12))
    key, number, header = parse
    refusal(lambda: parse_response_header(key, number, memoryview(header)), RemoteProtocolError)
    if base and rng.randrange(40) == 0:
        _weigh(request, version, (base * (_LARGE // len(base) + 1))[:_LARGE])
    return f"{type(request).__name__} taken" if taken else "refused"


def _decode(request: Any, version: int, data: bytes, use: Callable[[Any], object]) -> bool:
    answers: list[Any] = []
    error = refusal(
        lambda: answers.append(decode(request, version, memoryview(data))), RemoteProtocolError
    )
    for answer in answers:
        assert repr(answer)
        use(answer)
    if error is not None:
        assert error.__context__ is None
        assert "\n" not in error.message
        assert len(error.message) < 600
    return error is None


def _weigh(request: Any, version: int, data: bytes) -> None:
    tracemalloc.start()
    try:
        refusal(lambda: decode(request, version, memoryview(data)), RemoteProtocolError)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 4 * len(data) + 64 * 1024, f"{peak} bytes for {len(data)}"


class _Stream(PlaintextTransportLayer):
    def __init__(self, parts: list[bytes]) -> None:
        self._parts = parts

    def read_into(self, target: memoryview) -> int:
        if not self._parts:
            return 0
        part = self._parts[0]
        count = min(len(part), len(target))
        target[:count] = part[:count]
        self._parts[0] = part[count:]
        if not self._parts[0]:
            del self._parts[0]
        return count


def _frame(rng: random.Random, data: bytes) -> None:
    """A frame is the same however it is cut; a length that is a lie is refused or waited for."""
    reader, frame = FrameReader(), None
    size = len(data) if rng.random() < 0.9 else rng.choice((-1, 0, 2**31 - 1, 0x48545450))
    stream = _Stream(pieces(rng, size.to_bytes(4, "big", signed=True) + data))
    try:
        for _ in range(10):
            frame = frame or reader.read_from(stream)
    except RemoteProtocolError:
        return
    if size == len(data):
        assert frame is not None
        assert bytes(frame) == data


# --- answers that are nearly right


class _Asked(wire.WireReader):
    """Makes up what it is asked for, and keeps it: :attr:`data` is an answer that is whole."""

    __slots__ = ("_budget", "_likely", "_rng")

    def __init__(self, rng: random.Random, *, flexible: bool) -> None:
        super().__init__(b"", flexible=flexible)
        self._end = 1 << 40
        self._rng = rng
        #: Mostly one item of each array, and numbers that are 0.
        self._likely = 0.8 if rng.random() < 0.5 else 0.0
        self._budget = 2000

    def _put(self, data: bytes) -> None:
        self._budget -= 1
        if self._budget < 0:
            raise wire.MalformedError("enough")
        self.data = bytes(self.data) + data  # some parts are still being looked at

    def _read(self, data: bytes) -> None:
        self._put(data)
        self.position = len(self.data)

    def _size(self, size: int) -> bytes:
        if not self.flexible:
            return size.to_bytes(4, "big")
        return bytes([size + 1]) if size < 127 else bytes([size + 1 & 127 | 128, size + 1 >> 7])

    def unpack(self, layout: Any) -> tuple[int, ...]:
        rng, out = self._rng, b""
        for letter in layout.format.lstrip(">"):
            width = {"b": 1, "h": 2, "i": 4, "q": 8}[letter]
            value = rng.choice((0, 0, 0, 0, 1, 1, 2, 3, -1, 5, 100))
            if rng.random() < self._likely:
                value = 0
            elif rng.random() < 0.05:
                value = rng.getrandbits(8 * width - 1)
            out += value.to_bytes(width, "big", signed=True)
        self._put(out)
        return super().unpack(layout)

    def skip(self, size: int) -> None:
        rng, data = self._rng, bytearray(max(0, min(size, 1000)))
        if data and rng.random() < 0.5:
            data[rng.randrange(len(data))] = rng.choice((1, 1, 2, 3, 255))
        self._read(bytes(data))

    def uuid(self) -> bytes:
        self._put(bytes(16))
        return self.data[-16:]

    def unsigned_varint(self) -> int:
        self._put(bytes([self._rng.choice((0, 1, 1, 1, 2, 2, 3, 4, 9))]))
        return super().unsigned_varint()

    def nullable_string(self) -> str:
        texts = ("t", "u", "x", "y", "localhost", "t", "u", "", "a" * 255, "\u00e9")
        text = self._rng.choice(("t", "x") if self._rng.random() < self._likely else texts)
        data = text.encode()
        self._put(self._size(len(data)) if self.flexible else len(data).to_bytes(2, "big"))
        self._read(data)
        return text

    def string(self) -> str:
        return self.nullable_string()

    def count(self, smallest_item: int) -> int:
        likely = self._rng.random() < self._likely
        count = 1 if likely else self._rng.choice((0, 1, 1, 1, 2, 2, 3))
        self._read(self._size(count))
        return count

    def skip_string(self) -> None:
        self.nullable_string()

    def _skip_bytes(self) -> int:
        size = self.count(1)
        start = self.position
        self.skip(size)
        return start

    def structs(self, *given: Any) -> Any:
        items = super().structs(*given)
        items._data = self.data  # with what was made up for them
        return items

    def int32_array(self) -> array[int]:
        count = self.count(4)
        self._read(bytes(4 * count))
        return array("i", [0] * count)

    def skip_int32s(self) -> None:
        self.int32_array()

    def tagged_fields(self) -> Iterator[int]:
        if not self.flexible:
            return
        rng = self._rng
        tags = [] if rng.random() < 0.8 else sorted(rng.sample(range(6), rng.randrange(1, 4)))
        self._read(bytes([len(tags)]))
        for tag in tags:
            self._read(bytes([tag, 0]))
            start = self.position
            yield tag
            size = bytes([min(127, self.position - start)])
            self.data = bytes(self.data[: start - 1]) + size + bytes(self.data[start:])

    def skip_tagged_fields(self) -> None:
        for _ in self.tagged_fields():
            pass

    def finish(self) -> None:
        """Nothing is left over."""


def _answer(rng: random.Random, request: Any, version: int) -> bytes:
    made: list[_Asked] = []

    def reader(data: bytes, *, real: Any = wire.WireReader, **given: Any) -> Any:
        """The first one is asked by the decoder; the others look again at what it made up."""
        if made:
            return real(data, **given)
        made.append(_Asked(rng, **given))
        return made[0]

    with mock.patch.object(wire, "WireReader", reader):
        # What was made up until it is refused is an answer, too.
        refusal(lambda: decode(request, version, memoryview(b"")), RemoteProtocolError)
    return bytes(made[0].data) if made else b""
