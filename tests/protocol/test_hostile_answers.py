"""Answers of a hostile or broken broker (facts of reliability, section 8): each one is refused, or
means what it says, at a price that its own size bounds.

Memory: four times the answer's bytes and 64 KiB, and 512 bytes for each item of the question. Time:
by the functions that are called, since a clock says nothing on a busy machine.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from functools import partial
from typing import Any

import control_answers as control
import metadata_bytes as m
import pytest
import test_fetch_messages as fetching
import test_produce_codec as producing
import test_transaction_admin_messages as admin
import test_transaction_messages as transactions
from hostile import allocated, peak, refused, work

from spark_kafka_sink.base.errors import ErrorCode, RemoteProtocolError
from spark_kafka_sink.protocol.answers import decode
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.group_requests import OffsetAndMetadata, txn_offset_commit
from spark_kafka_sink.protocol.messages.describe_transactions import DescribeTransactionsRequest
from spark_kafka_sink.protocol.messages.sasl_handshake import SaslHandshakeRequest
from spark_kafka_sink.protocol.metadata import MOST_BROKERS, MetadataRequest
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.protocol.topic_requests import (
    ConfigResourceType,
    NewTopic,
    create_topics,
    describe_configs,
)
from spark_kafka_sink.protocol.transaction_requests import (
    add_partitions_to_txn,
    find_coordinator,
    list_transactions,
)
from tests.fakes.kafka_messages import (
    API_VERSIONS,
    end_request,
    fetch_request,
    init_request,
    producers_request,
)

METADATA = MetadataRequest(("t",))
#: As long as a string may be, and four bytes for each character once it is decoded.
WIDE = "\U0001f600" * 8191
#: One of each layout: classic, with epochs, flexible, with topic ids, with an error of its own.
VERSIONS = (4, 8, 13)


def memory_allowed(data: bytes, asked: int = 1) -> int:
    return 4 * len(data) + 64 * 1024 + 512 * asked


def work_allowed(data: bytes, asked: int = 1) -> int:
    return 4 * len(data) + 500 + 20 * asked


@dataclass(frozen=True)
class Case:
    """``why`` None: it is taken; else words of the refusal."""

    name: str
    request: Any
    version: int
    data: bytes
    why: str | None = None
    asked: int = 1

    def __repr__(self) -> str:
        return f"{self.name} v{self.version}"

    def decode(self) -> Any:
        return decode(self.request, self.version, memoryview(self.data))


def of_metadata(v: int) -> list[Case]:
    cases = []

    def case(name: str, data: bytes, why: str | None = None) -> None:
        cases.append(Case(name, METADATA, v, data, why))

    one = [m.broker(v, 1)]

    def topic(*partitions: bytes) -> list[bytes]:
        return [m.topic(v, b"t", partitions)]

    def answer(*partitions: bytes) -> bytes:
        return m.answer(v, one, topic(*partitions))

    numbers = list(range(6_000))
    shuffled = random.Random(1).sample(numbers, len(numbers))
    ids = range(MOST_BROKERS)
    claim = m.int32(0) + m.count(v, 2**31 - 2)
    case("2^31 brokers and 10 bytes", claim + bytes(10), "more items than")
    case("brokers without end", m.answer(v, [m.broker(v, 7)] * 60_000), "names 60000 bro")
    case("as many brokers as may be", m.answer(v, [m.broker(v, i) for i in ids]))
    case(
        "these in disorder",
        m.answer(v, [m.broker(v, i) for i in random.Random(1).sample(ids, len(ids))]),
    )
    case("one of them twice", m.answer(v, [m.broker(v, i % 4999) for i in ids]), "comes twice")
    case("a broker twice", m.answer(v, one * 2))
    case("a broker at two ports", m.answer(v, [*one, m.broker(v, 1, port=7)]), "broker 1 comes tw")
    case("a negative broker", m.answer(v, [m.broker(v, -1)]), "negative id")
    for port in (0, -1, 65_536):
        case(f"port {port}", m.answer(v, [m.broker(v, 1, port=port)]), f"the port {port}")
    hosts = (b"", b"a\0b", b"a\nb", b"a b", "a\u202eb".encode(), b"a" * 256, b"a" * 32_767)
    for host in hosts:
        named = f"the host {host[:9]!r}, {len(host)} bytes"
        case(named, m.answer(v, [m.broker(v, 1, host)]), "can't be one")
    wide = WIDE.encode()
    case("a wide host", m.answer(v, [m.broker(v, 1, wide)]), "can't be one")
    case("a wide rack", m.answer(v, [m.broker(v, 1, rack=wide)]))
    case("a leader that is no broker", answer(m.partition(v, 0, leader=99)))
    case("a leader -2", answer(m.partition(v, 0, leader=-2)), "negative")
    case("the smallest partitions", answer(*(m.partition(v, i) for i in numbers)))
    case("these in disorder", answer(*(m.partition(v, i) for i in shuffled)))
    gaps = [m.partition(v, i + i // 3) for i in shuffled]
    case("these with gaps", answer(*gaps))
    for far in (900, 2**31 - 9, 2**31 - 1):
        case(f"a partition far beyond: {far}", answer(m.partition(v, far)), "far beyond")
    case("a negative partition", answer(m.partition(v, -1)), "negative")
    case("a partition twice", answer(*[m.partition(v, 0)] * 6_000), "comes twice")
    case("replicas that are all others", answer(*(m.partition(v, i, (i,)) for i in numbers)))
    case("32767 replicas", answer(m.partition(v, 0, range(32_767))))
    case("an endless list of replicas", answer(m.partition(v, 0, range(500_000))))
    case("a negative replica", answer(m.partition(v, 0, (1, -2))), "negative id")
    case("errors without a name", answer(*(m.partition(v, i, error=999) for i in numbers)))
    case("error -1", answer(*(m.partition(v, i, error=-1) for i in numbers)))
    case("a topic twice", m.answer(v, one, topic() * 2), "a topic comes twice")
    strangers = [m.topic(v, b"%05x" % i) for i in range(10_000)]
    case("topics that nobody asked for", m.answer(v, one, strangers))
    case("one of them", m.answer(v, one, strangers[:1]))
    case("a throttle time without end", m.answer(v, one, throttle_ms=2**31 - 1))
    names = tuple(f"{i:05x}" for i in range(3000))
    many = [m.topic(v, name.encode(), [m.partition(v, 0)]) for name in names]
    asked = MetadataRequest(names)
    cases.append(Case("topics asked for", asked, v, m.answer(v, one, many), None, len(names)))
    if v >= 9:
        case("a bomb of tags", m.answer(v, one)[:-1] + m.varint(2**32 - 1), "too early")
        case("a string of 32768 bytes", m.answer(v, [m.broker(v, 1, b"a" * 32_768)]), "long")
        case("endless varint", m.int32(0) + b"\xff" * 10, "longer than five")
        empty = b"".join(m.varint(i) + b"\0" for i in range(10_000))
        case("10 000 tags", m.answer(v, one)[:-1] + m.varint(10_000) + empty)
    else:
        negative = m.int32(0) + m.int32(1) + bytes(4) + b"\xff\xfe" + bytes(16)
        case("a string of -2 bytes", negative, "length is negative")
    case("bytes behind it", m.answer(v, one) + bytes(300_000), "left over")
    return cases


def of_the_others() -> list[Case]:
    api = API_VERSIONS
    plain_init = init_request(None, 1000)
    raising = init_request("x", 1000, 4711, 5)
    ending = end_request("x", 4711, 5, True, 2)
    produce = producing.request(producing.batch("t", 0, b"a"))
    tp, tps = TopicPartition("a", 0), tuple(TopicPartition("a", i) for i in range(2000))
    none = ErrorCode.NONE
    of_version_1, of_version_2 = (PreparedTransaction("x", 1, 0, v) for v in (1, 2))
    one_offset, many_offsets = {tp: OffsetAndMetadata(1)}, dict.fromkeys(tps, OffsetAndMetadata(1))

    def api_answer(count: int) -> bytes:
        return struct.pack(">hi", 0, count) + b"".join(
            struct.pack(">hhh", 1000 + i % 30_000, 0, 1) for i in range(count)
        )

    def produced(version: int, *partitions: dict[str, Any], **more: Any) -> bytes:
        return producing.kio_response(version, {"t": list(partitions)}, **more)

    def again(epoch: int) -> bytes:
        return control.init_answer(5, producer_epoch=epoch)

    errors = producing.record_errors(*((i, None) for i in range(6_000)))
    told = producing.record_errors(*((i, "a") for i in range(5_000)))
    nodes = tuple(Node(i, "a", 1) for i in range(5_000))
    fetch = fetch_request((tp, 0))
    aborted = b"".join(struct.pack(">qq", 2**40 + i, 2**40 + i) for i in range(6_000))
    fetched = (
        m.int32(0) + m.int32(1) + b"\0\1a" + m.int32(1) + struct.pack(">ihqq", 0, 0, 9, 9)
        + m.int32(6_000) + aborted + m.int32(0)
    )  # fmt: skip
    describe = DescribeTransactionsRequest(transactional_ids=("q",))
    topics = tuple((f"{i:x}", ()) for i in range(5_000))
    numbers = (("a", tuple(range(6_000))),)
    handshake = SaslHandshakeRequest(mechanism="PLAIN")
    configs = describe_configs(ConfigResourceType.BROKER, ["1"])
    setting = b"".join(b"\0\4%04x\xff\xff\0\0\0" % i + bytes(4) for i in range(2_000))
    return [
        Case("no API", api, 0, api_answer(0), "offers no API"),
        Case("APIs that nobody knows", api, 0, api_answer(6_000), "offers no API"),
        Case("2^31 APIs", api, 0, b"\0\0\x7f\xff\xff\xff0123456789", "more items"),
        Case("min > max", api, 4, control.api_versions(4, keys=[(0, 5, 4), (3, 0, 9)])),
        Case("max < 0", api, 4, control.api_versions(4, keys=[(22, 0, -1), (3, 0, 9)])),
        Case("no API with a version", api, 4, control.api_versions(4, keys=[(0, 5, 4)]), "no API"),
        Case("an API twice", api, 4, control.api_versions(4, keys=[(0, 0, 4)] * 2)),
        Case("two ranges", api, 4, control.api_versions(4, keys=[(0, 0, 4), (0, 0, 5)]), "twice"),
        Case("a feature twice", api, 4, control.api_versions(4, features=[("a", 1)] * 2)),
        Case(
            "two levels", api, 4,
            control.api_versions(4, features=[("a", 1), ("a", 2)]), "feature comes twice",
        ),
        Case(
            "256 features", api, 4,
            control.api_versions(4, features=[(f"{i:02x}", 1) for i in range(256)]),
        ),
        Case(
            "5000 features", api, 4,
            control.api_versions(4, features=[(f"{i:x}", 1) for i in range(5000)]), "5000 features",
        ),
        Case("no id", plain_init, 5, control.init_answer(5, producer_id=-1), "negative"),
        Case("no epoch", plain_init, 5, control.init_answer(5, producer_epoch=-1), "negative"),
        Case("the same epoch", raising, 5, again(5), "epoch 5"),
        Case("epoch going back", raising, 5, again(4), "epoch 4"),
        Case(
            "another id at epoch 0", raising, 5,
            control.init_answer(5, producer_id=4712, producer_epoch=0),
        ),
        Case("the end's epoch going back", ending, 5, transactions.end_txn(5), "epoch 4 to a"),
        Case("no next epoch", ending, 5, transactions.end_txn(5, producer_epoch=-1), "without"),
        Case("no next id", ending, 5, transactions.end_txn(5, producer_id=-1), "without"),
        Case("2^31 topics", produce, 8, b"\x7f\xff\xff\xff0123456789", "more items"),
        Case("2^31 topics", produce, 12, b"\xff\xff\xff\xff\x07" + bytes(10), "more items"),
        Case("a partition is missing", produce, 8, produced(8), "missing"),
        Case("one too many", produce, 8, produced(8, {"index": 0}, {"index": 1})),
        Case("acknowledged twice", produce, 12, produced(12, *[{"index": 0}] * 5000), "twice"),
        Case("offset -2", produce, 12, produced(12, {"index": 0, "base_offset": -2}), "negative"),
        Case("all records refused", produce, 8, produced(8, {"index": 0, "record_errors": errors})),
        Case("each with a word", produce, 12, produced(12, {"index": 0, "record_errors": told})),
        Case("wide words", produce, 12, produced(12, {"index": 0, "error_message": WIDE})),
        Case(
            "leaders without end", produce, 12, produced(12, {"index": 0}, endpoints=nodes),
            "more leaders than partitions",
        ),
        Case(
            "coordinators without end", find_coordinator(["a"]), 4,
            transactions.found_coordinator(
                find_coordinator(["a"]), 4, keys=tuple(f"{i:x}" for i in range(9000))
            ),
        ),
        Case(
            "partitions that nobody added",
            add_partitions_to_txn("x", ProducerIdAndEpoch(1, 0), [tp]), 3,
            transactions.added_partitions(3, [("a", [(i, none) for i in range(9000)])]),
        ),
        Case(
            "offsets that nobody committed",
            txn_offset_commit(of_version_2, "g", one_offset), 5,
            transactions.committed_offsets(5, [("a", [(i, none) for i in range(9000)])]),
        ),
        Case(
            "offsets committed twice", txn_offset_commit(of_version_1, "g", one_offset), 0,
            transactions.committed_offsets(0, [("a", [(0, none)] * 9000)]), "comes twice",
        ),
        Case(
            "offsets asked for", txn_offset_commit(of_version_2, "g", many_offsets), 5,
            transactions.committed_offsets(5, [("a", [(i, none) for i in range(2000)])]),
            None, 2000,
        ),
        Case(
            "topics that nobody made", create_topics([NewTopic("a")], 1), 7,
            control.created_topics(7, tuple(f"{i:x}" for i in range(2000))),
        ),
        Case("aborted transactions", fetch, 4, fetched),
        Case("open topics", describe, 0, admin.describe_transactions(("q",), topics=topics)),
        Case("open partitions", describe, 0, admin.describe_transactions(("q",), topics=numbers)),
        Case(
            "ids that nobody asked for", describe, 0,
            admin.describe_transactions(tuple(f"{i:x}" for i in range(500))), "is missing",
        ),
        Case(
            "transactions without end", list_transactions(), 1,
            admin.listed_transactions(1, tuple((f"{i:x}", 2**40 + i, "") for i in range(9000))),
        ),
        Case(
            "unknown states", list_transactions(), 1,
            admin.listed_transactions(1, (), unknown=tuple(f"{i:x}" for i in range(9000))),
        ),
        Case(
            "producers", producers_request(tps), 0,
            admin.described_producers([("a", list(range(2000)))]), None, 2000,
        ),
        Case(
            "offsets", fetching.OFFSETS, 6, fetching.answer(fetching.OFFSETS, 6), None, 3,
        ),
        Case("settings without end", configs, 1, b"\0" * 4 + m.int32(1) + b"\0\0\xff\xff\4\0\0011"
             + m.int32(2_000) + setting, "2000 settings"),
        Case(
            "mechanisms without end", handshake, 1, b"\0\0" + m.int32(9000) + b"\0\1a" * 9000,
            "9000 mechanisms",
        ),
    ]  # fmt: skip


#: They are many bytes: made by the test that looks at them.
FAMILIES = {f"metadata v{version}": partial(of_metadata, version) for version in VERSIONS}
FAMILIES["the others"] = of_the_others


@pytest.mark.parametrize("family", FAMILIES)
def test_a_hostile_answer_is_refused_or_taken_at_a_bounded_price(family: str) -> None:
    for case in FAMILIES[family]():
        print(case)  # the last one that is shown is the one that failed
        if case.why is None:
            assert not refused(case.decode)
        else:
            with pytest.raises(RemoteProtocolError, match=case.why):
                case.decode()
        again = partial(refused, case.decode)  # what the first one imports is not its doing
        assert peak(again) <= memory_allowed(case.data, case.asked)
        assert work(again) <= work_allowed(case.data, case.asked)


def real(version: int) -> bytes:
    """A broker's own answer, of 300 partitions."""
    brokers = [m.broker(version, n, b"broker-%d.example" % n, 9092, b"r1") for n in range(1, 4)]
    partitions = [m.partition(version, n, (1, 2, 3), leader=1 + n % 3) for n in range(300)]
    return m.answer(version, brokers, [m.topic(version, b"t", partitions)])


@pytest.mark.parametrize("version", range(4, 14))
def test_an_answer_cut_anywhere_costs_no_more_than_what_came(version: int) -> None:
    data = real(version)
    for size in [*range(0, 100, 7), *range(100, len(data), 997), len(data) - 1]:
        case = Case("cut", METADATA, version, data[:size])
        assert refused(case.decode)
        again = partial(refused, case.decode)
        assert peak(again) <= memory_allowed(case.data)
        assert work(again) <= work_allowed(case.data)


def whole(case: Case) -> list[object]:
    """Everything that an answer says, item by item, as its users go through it."""
    response = case.decode()
    told: list[object] = []
    for topic in getattr(response, "topics", ()):
        told += [hash(info) for info in topic.partitions]
    brokers = getattr(response, "brokers", {})
    told += [len(node.host) for node in brokers.in_order()] if brokers else []
    return told


@pytest.mark.parametrize("name", ["the smallest partitions", "as many brokers as may be"])
def test_what_is_kept_weighs_no_more_when_it_is_looked_at(name: str) -> None:
    (case,) = [case for case in of_metadata(13) if case.name == name]
    mine = 64 * len(case.data) // 12  # the list of what was told is the test's own
    assert allocated(lambda: whole(case)) <= memory_allowed(case.data) + mine


@pytest.mark.parametrize("code", [-1, 999, 32_767, -32_768])
def test_an_unknown_error_code_is_an_unknown_server_error(code: int) -> None:
    data = m.answer(12, [m.broker(12, 1)], [m.topic(12, b"t", error=code)])
    (topic,) = decode(METADATA, 12, memoryview(data)).topics
    assert topic.error is ErrorCode.UNKNOWN_SERVER_ERROR
