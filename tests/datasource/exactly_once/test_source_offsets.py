"""Spark's offset log, as Spark 4.2.0 wrote it (``offset_logs/``), and as it never would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import DataError
from spark_kafka_sink.datasource.exactly_once.source_offsets import (
    divided_versions,
    file_sources,
    source_offsets,
)
from spark_kafka_sink.protocol.cluster import TopicPartition

LOGS = Path(__file__).with_name("offset_logs")
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def log(*lines: str, version: str = "v1") -> str:
    return "\n".join((version, METADATA, *lines))


def kafka(offsets: dict[TopicPartition, int]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for tp, offset in offsets.items():
        topics.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return json.dumps(topics, separators=(",", ":"))


@pytest.mark.parametrize(
    ("version", "line", "said"),
    [
        ("v1", '{"logOffset":"7"}', "not a number"),
        ("v1", '{"logOffset":-1}', "not a number"),
        ("v1", '{"logOffset":true}', "not a number"),
        ("v2", '../../secret:{"logOffset":7}', "its name none"),
    ],
)
def test_an_offset_of_files_that_is_none_is_refused(version: str, line: str, said: str) -> None:
    """It names a file of the checkpoint, which is read."""
    assert list(file_sources(log('{"logOffset":7}'))) == [("0", 7)]
    with pytest.raises(DataError, match=said):
        list(file_sources(log(line, version=version)))


@pytest.mark.parametrize(("name", "expected"), [("in-a-version", [6]), ("whole", [])])
def test_an_end_within_a_version_of_delta_is_known(name: str, expected: list[int]) -> None:
    """As Delta Lake 4.4.0 wrote them."""
    text = (LOGS / f"delta-{name}.txt").read_text()
    assert divided_versions(text) == expected
    assert source_offsets(text) == {}


@pytest.mark.parametrize(
    "changed",
    [
        {"isStartingVersion": True}, {"index": -1}, {"index": -100}, {"index": 2**63 - 101},
        {"index": True}, {"index": "0"}, {"reservoirVersion": "6"}, {"reservoirVersion": None},
    ],
)  # fmt: skip
def test_other_offsets_of_delta_are_between_versions(changed: dict[str, object]) -> None:
    offset = {"reservoirId": "a", "reservoirVersion": 6, "index": 0, "isStartingVersion": False}
    assert divided_versions(log(kafka({CLICKS: 4}), json.dumps(offset))) == [6]
    assert divided_versions(log(json.dumps(offset | changed), "[]", "-")) == []
    del offset["isStartingVersion"]
    assert divided_versions(log(json.dumps(offset))) == []


CLICKS = TopicPartition("click.stream_1-x", 0)
ORDERS = (TopicPartition("orders", 0), TopicPartition("orders", 1))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kafka-1", {CLICKS: 5, ORDERS[0]: 3, ORDERS[1]: 0}),
        # Kafka, files without any so far, Kafka.
        ("union-0", {ORDERS[0]: 3, ORDERS[1]: 0, CLICKS: 10}),
        # The rate source, Kafka.
        ("rate-1", {ORDERS[0]: 7, ORDERS[1]: 0}),
        # The same as union, with spark.sql.streaming.offsetLog.formatVersion=2.
        ("v2-1", {ORDERS[0]: 9, ORDERS[1]: 0}),
    ],
)
def test_what_spark_wrote_is_read(name: str, expected: dict[TopicPartition, int]) -> None:
    assert source_offsets((LOGS / f"{name}.txt").read_text()) == expected


def test_a_partition_of_two_sources_has_the_lower_offset() -> None:
    one, two = kafka({ORDERS[0]: 7, ORDERS[1]: 2}), kafka({ORDERS[0]: 5, ORDERS[1]: 3})
    assert source_offsets(log(one, two)) == {ORDERS[0]: 5, ORDERS[1]: 2}


@pytest.mark.parametrize(
    "other",
    [
        "17",
        '{"logOffset":0}',
        '{"sourceVersion":1,"reservoirId":"x","index":-1}',
        '{"topic":{"0":-1}}',
        '{"topic":{"0":true}}',
        '{"topic":{"0":9223372036854775808}}',
        '{"topic":{"01":1}}',
        '{"topic":{"2147483648":1}}',
        '{"not legal":{"0":1}}',
        '{"topic":{"0":1},"more":2}',
        "[]",
        "null",
        "{}",
        "-",
    ],
)
def test_a_source_that_is_not_kafka_is_left_out(other: str) -> None:
    assert source_offsets(log(other)) == {}
    assert source_offsets(log(other, kafka({CLICKS: 4}))) == {CLICKS: 4}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "its format is none"),
        ("v3\n{}\n0:-", "its format is v3"),
        ("{}", "v1 and v2 are supported"),
        ("v1", "not JSON"),
        ("v1\n[]", "not the batch's metadata"),
        ("v1\n-\n-", "not JSON"),
        (log('{"topic":{"0":'), "not JSON"),
        (log("[" * 100_000), "not JSON"),
        (log("9" * 5000), "not JSON"),
        (log('{"topic"}', version="v2"), "no ':'"),
    ],
)
def test_a_text_that_is_no_offset_log_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        source_offsets(text)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 200
    assert caught.value.__context__ is None, "which would carry the text"


legal = st.dictionaries(
    st.builds(
        TopicPartition,
        st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True),
        st.integers(0, 2**31 - 1),
    ),
    st.integers(0, 2**63 - 1),
    max_size=5,
)


@given(legal, st.sampled_from(["v1", "v2"]))
def test_every_offset_comes_back(offsets: dict[TopicPartition, int], version: str) -> None:
    line = kafka(offsets) if version == "v1" else f"a_source:{kafka(offsets)}"
    assert source_offsets(log(line, version=version)) == offsets
    assert source_offsets(log(line, version=version).replace("\n", "\r\n") + "\n") == offsets


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.text() | st.lists(st.text() | _values.map(json.dumps)).map(lambda ls: log(*ls)))
@example("v1\n{}\n\u2028")
def test_any_text_is_refused_or_has_offsets_a_broker_takes(text: str) -> None:
    try:
        found = source_offsets(text)
    except DataError:
        return
    for tp, offset in found.items():
        assert 0 <= tp.partition < 2**31
        assert 0 <= offset < 2**63
        assert 1 <= len(tp.topic) <= 249
