"""The Produce codec: against kio for every version, and against brokers that lie."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hostile import allocated, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from kio_oracle import response

from spark_kafka_sink.base.errors import (
    ErrorCode,
    IllegalStateError,
    RemoteProtocolError,
)
from spark_kafka_sink.protocol import answers
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.produce import PartitionProduceData, ProduceRequest, RecordError
from tests.fakes.fake_cluster.codec import Answer, write

VERSIONS = range(3, 13)


def batch(topic: str, partition: int, *parts: bytes) -> PartitionProduceData:
    buffers = [memoryview(part) for part in parts]
    return PartitionProduceData(
        TopicPartition(topic, partition), buffers, sum(len(part) for part in parts)
    )


def request(*data: PartitionProduceData, **fields: Any) -> ProduceRequest:
    return ProduceRequest(acks=-1, timeout_ms=30_000, data=data, **fields)


THREE = request(
    batch("orders", 3, b"h" * 61, b"r" * 100),
    batch("clicks", 0, b"x" * 20_000),
    batch("orders", 1, b"y"),
)


def kio_request(version: int, of: ProduceRequest) -> bytes:
    topics: dict[str, list[dict[str, Any]]] = {}
    for item in of.data:
        piece = {"index": item.tp.partition, "records": b"".join(item.buffers)}
        topics.setdefault(item.tp.topic, []).append(piece)
    kio = Answer("produce", version, "request")
    return write(
        kio(
            transactional_id=of.transactional_id,
            acks=of.acks,
            timeout=of.timeout_ms,
            topic_data=[{"name": name, "partition_data": found} for name, found in topics.items()],
        )
    )


def kio_response(
    version: int,
    topics: dict[str, list[dict[str, Any]]],
    *,
    throttle_ms: int = 0,
    endpoints: tuple[Node, ...] = (),
) -> bytes:
    plain: dict[str, Any] = {
        "error_code": 0,
        "base_offset": 0,
        "log_append_time": None,
        "log_start_offset": -1,
        "record_errors": [],
        "error_message": None,
    }
    nodes = [{"node_id": n.id, "host": n.host, "port": n.port, "rack": n.rack} for n in endpoints]
    return response(
        "produce",
        version,
        responses=[
            {"name": name, "partition_responses": [plain | given for given in partitions]}
            for name, partitions in topics.items()
        ],
        throttle_time=throttle_ms,
        node_endpoints=nodes,
    )


def record_errors(*errors: tuple[int, str | None]) -> list[dict[str, Any]]:
    return [{"batch_index": i, "batch_index_error_message": words} for i, words in errors]


def rich_response(version: int) -> bytes:
    """An answer to THREE with all that a version can say."""
    return kio_response(
        version,
        {
            "orders": [
                {
                    "index": 3,
                    "base_offset": 2**40,
                    "log_start_offset": 7,
                    "log_append_time": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
                },
                {
                    "index": 1,
                    "base_offset": -1,
                    "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    "current_leader": {"leader_id": 5, "leader_epoch": 17},
                },
            ],
            "clicks": [
                {
                    "index": 0,
                    "base_offset": -1,
                    "error_code": ErrorCode.INVALID_RECORD,
                    "record_errors": record_errors((0, "no key"), (4, None)),
                    "error_message": "two records are bad: é",
                }
            ],
        },
        throttle_ms=250,
        endpoints=(Node(5, "broker5.example", 9095, "r1"), Node(6, "10.0.0.6", 1, None)),
    )


def decode(version: int, data: bytes, of: ProduceRequest = THREE) -> Any:
    return answers.decode(of, version, memoryview(data))


# --- requests


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "", "job-7"])
def test_a_request_is_byte_for_byte_what_kio_writes(
    version: int, transactional_id: str | None
) -> None:
    sent = request(*THREE.data, transactional_id=transactional_id)
    assert b"".join(sent.encode(version)) == kio_request(version, sent)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@given(
    sizes=st.lists(
        st.sampled_from([0, 1, 126, 127, 128, 16382, 16383, 16384, 2097150, 2097151, 2097152]),
        min_size=1,
        max_size=3,
    ),
    partition=st.integers(0, 2**31 - 4),
    topic=st.text(st.characters(codec="utf-8"), min_size=1, max_size=60),
)
@settings(max_examples=25, deadline=None)
def test_every_batch_size_and_topic_name_is_written_as_by_kio(
    version: int, sizes: list[int], partition: int, topic: str
) -> None:
    sent = request(*(batch(topic, partition + i, bytes(size)) for i, size in enumerate(sizes)))
    assert b"".join(sent.encode(version)) == kio_request(version, sent)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_without_batches_is_still_whole(version: int) -> None:
    assert b"".join(request().encode(version)) == kio_request(version, request())


@pytest.mark.parametrize("version", [8, 12])
def test_a_batch_is_passed_on_in_place_with_one_small_buffer(version: int) -> None:
    buffers = THREE.encode(version)
    batches = [
        part for item in (THREE.data[0], THREE.data[2], THREE.data[1]) for part in item.buffers
    ]
    small = [buffer for buffer in buffers if isinstance(buffer, bytes)]
    assert [id(b) for b in buffers if isinstance(b, memoryview)] == [id(b) for b in batches]
    assert len(small) == (4 if version == 12 else 3)


def test_two_batches_for_one_partition_are_refused() -> None:
    sent = request(batch("t", 1, b"a"), batch("u", 1, b"b"), batch("t", 1, b"c"))
    with pytest.raises(IllegalStateError, match="two batches for one partition of t"):
        sent.encode(12)


def test_a_size_that_differs_from_the_buffers_is_refused() -> None:
    wrong = PartitionProduceData(TopicPartition("t", 0), [b"abc"], 4)
    with pytest.raises(IllegalStateError, match="4 bytes hold 3 bytes"):
        request(wrong).encode(12)


# --- answers


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_by_kio_is_read_with_all_that_its_version_has(version: int) -> None:
    response = decode(version, rich_response(version))
    orders3, orders1, clicks0 = response.partitions
    assert [str(p.tp) for p in response.partitions] == ["orders-3", "orders-1", "clicks-0"]
    assert orders3.error is ErrorCode.NONE
    assert orders3.base_offset == 2**40
    assert orders3.log_append_time_ms == 1767323045000
    assert orders3.log_start_offset == (7 if version >= 5 else -1)
    assert orders1.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert orders1.leader == ((5, 17) if version >= 10 else None)
    assert clicks0.error is ErrorCode.INVALID_RECORD
    if version >= 8:
        assert clicks0.record_errors == (RecordError(0, "no key"), RecordError(4, None))
        assert clicks0.error_message == "two records are bad: é"
    else:
        assert clicks0.record_errors == ()
        assert clicks0.error_message is None
    assert response.throttle_time_ms == 250
    assert [str(n) for n in response.node_endpoints] == (
        ["broker5.example:9095 (id 5)", "10.0.0.6:1 (id 6)"] if version >= 10 else []
    )


def test_a_partition_is_the_very_object_that_was_asked_for() -> None:
    response = decode(12, rich_response(12))
    assert response.partitions[0].tp is THREE.data[0].tp


def test_a_new_error_code_is_an_unknown_server_error() -> None:
    one = request(batch("t", 0, b"a"))
    data = bytearray(kio_response(8, {"t": [{"index": 0}]}))
    at = data.index(b"\x00\x01t") + 3 + 4 + 4
    data[at : at + 2] = (999).to_bytes(2, "big")
    assert decode(8, bytes(data), one).partitions[0].error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_half_a_hint_of_the_leader_is_no_hint() -> None:
    one = request(batch("t", 0, b"a"))
    data = kio_response(
        10, {"t": [{"index": 0, "current_leader": {"leader_id": 5, "leader_epoch": -1}}]}
    )
    assert decode(10, data, one).partitions[0].leader is None


def test_unknown_tagged_fields_are_skipped_at_every_level() -> None:
    one = request(batch("t", 0, b"a"))
    data = kio_response(12, {"t": [{"index": 0, "base_offset": 9}]})
    assert data.endswith(b"\x01\x00\x00" + b"\x00" + b"\x00\x00\x00\x00" + b"\x00")
    tags = b"\x02\x07\x03abc\x09\x00"  # two fields: 7 with three bytes, 9 with none
    data = data[:-7] + tags + tags + b"\x00\x00\x00\x05" + tags
    assert decode(12, data, one).partitions[0].base_offset == 9
    assert decode(12, data, one).throttle_time_ms == 5


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("topics", "why"),
    [
        ({}, "missing"),
        ({"t": [{"index": 0}]}, "missing"),
        ({"t": [{"index": 0}, {"index": 2}]}, "missing"),
        ({"t": [{"index": 0}, {"index": 0}, {"index": 1}]}, "twice"),
        ({"t": [{"index": 0}], "u": [{"index": 1}]}, "missing"),
        ({"t": [{"index": 0}, {"index": 1, "base_offset": -2}]}, "negative"),
    ],
)
def test_an_answer_that_does_not_fit_the_request_is_refused(
    version: int, topics: dict[str, list[dict[str, Any]]], why: str
) -> None:
    two = request(batch("t", 0, b"a"), batch("t", 1, b"b"))
    with pytest.raises(RemoteProtocolError, match=why) as caught:
        decode(version, kio_response(version, topics), two)
    assert caught.value.message.startswith(f"PRODUCE v{version}: ")


@pytest.mark.parametrize("host", ["", "a\x00b", "a\nb", "a b", "x" * 256])
def test_a_leader_at_a_host_that_is_none_is_refused(host: str) -> None:
    one = request(batch("t", 0, b"a"))
    data = kio_response(10, {"t": [{"index": 0}]}, endpoints=(Node(1, host, 9092),))
    assert refused(lambda: decode(10, data, one))


def test_memory_stays_within_what_arrived_and_what_was_asked() -> None:
    many = request(*(batch("t", i, b"a") for i in range(2000)))
    data = kio_response(
        12,
        {"t": [{"index": i, "base_offset": 2**40 + i, "log_start_offset": i} for i in range(2000)]},
    )
    asked = allocated(lambda: decode(12, b"\x01", many))  # the table of what was asked
    assert allocated(lambda: decode(12, data, many)) - asked <= 6 * len(data) + 64 * 1024
