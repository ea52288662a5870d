"""partitioner.class as an import path: asked by columns, checked, and named when it is wrong."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import ConfigError, DataError
from spark_kafka_sink.records.partitioning.own_partitioner import check
from spark_kafka_sink.records.partitioning.partitioners import partitioner
from spark_kafka_sink.records.partitioning.topic_view import TopicView
from spark_kafka_sink.records.record_columns import RecordColumns

HERE = __name__
VIEWS = {"t": TopicView(4, (0, 1, 3), 1000), "u": TopicView(2, (0, 1), 1000)}


class ByLength:
    """The length of the key; remembers what it was asked."""

    asked: ClassVar[list[tuple[object, ...]]] = []

    def partition(self, topic, keys, values, partition_count, available):
        ByLength.asked.append((topic, keys, values, partition_count, available))
        lengths = [0 if k is None else len(k) for k in keys.to_pylist()]
        return pa.array([n % partition_count for n in lengths])


class Zero:
    def partition(self, topic, keys, values, partition_count, available):
        return np.zeros(len(values), np.int64)


class Wrong:
    answer: object = None

    def partition(self, topic, keys, values, partition_count, available):
        if isinstance(Wrong.answer, Exception):
            raise Wrong.answer
        return Wrong.answer


class NoPartitioner:
    pass


def columns(**more: object) -> RecordColumns:
    keys = pa.array([b"a", b"bb", None, b"ccc"], pa.binary())
    values = pa.array([b"1", b"2", b"3", b"4"], pa.binary())
    return RecordColumns(4, **({"topic": "t", "key": keys, "value": values} | more))


def test_it_gets_columns_and_what_it_answers_is_where_rows_go():
    ByLength.asked.clear()
    own = partitioner(f"{HERE}:ByLength")
    assert own.assign(columns(), VIEWS, lambda tp: None).tolist() == [1, 2, 0, 3]
    ((topic, keys, values, count, available),) = ByLength.asked
    assert (topic, count, available) == ("t", 4, (0, 1, 3))
    assert keys.to_pylist() == [b"a", b"bb", None, b"ccc"]
    assert values.to_pylist() == [b"1", b"2", b"3", b"4"]


def test_an_explicit_partition_wins_and_other_rows_are_asked_for():
    ByLength.asked.clear()
    own = partitioner(f"{HERE}.ByLength")
    given = columns(partition=np.array([-1, 3, -1, 0], np.int32))
    assert own.assign(given, VIEWS, lambda tp: None).tolist() == [1, 3, 0, 0]
    assert ByLength.asked[0][1].to_pylist() == [b"a", None]
    all_given = columns(partition=np.array([0, 1, 2, 3], np.int32))
    assert own.assign(all_given, VIEWS, lambda tp: None).tolist() == [0, 1, 2, 3]
    assert len(ByLength.asked) == 1


def test_each_topic_is_asked_for_by_itself():
    ByLength.asked.clear()
    own = partitioner(f"{HERE}:ByLength")
    mixed = columns(topic=pa.array(["t", "u", "t", "u"]).dictionary_encode())
    assert own.assign(mixed, VIEWS, lambda tp: None).tolist() == [1, 0, 0, 1]
    assert [(asked[0], asked[3]) for asked in ByLength.asked] == [("t", 4), ("u", 2)]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ([0, 1, 2, 4], "returned partition 4 for topic t, which has 4"),
        ([0, -1, 2, 3], "returned partition -1 for topic t"),
        ([0, 1], r"of shape \(2,\) for 4 rows of topic t"),
        ([0.0, 1.0, 2.0, 3.0], "returned float64"),
        (None, "returned object"),
        (
            ValueError("key b'secret'"),
            r"raised ValueError in partition \(\w+\.py:\d+\) for topic t",
        ),
    ],
)
def test_a_wrong_answer_is_named_with_the_class_and_the_topic(answer, text):
    Wrong.answer = answer
    with pytest.raises(DataError, match=text) as raised:
        partitioner(f"{HERE}:Wrong").assign(columns(), VIEWS, lambda tp: None)
    assert f"{HERE}:Wrong" in raised.value.message
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("nowhere.to_be:Found", "can't be imported"),
        (f"{HERE}:Absent", "can't be imported"),
        (f"{HERE}:NoPartitioner", "has no method partition"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path, text):
    with pytest.raises(ConfigError, match=text) as raised:
        check(path)
    assert "partitioner.class" in raised.value.message


def test_it_gets_plain_columns_where_rows_were_left_out():
    """The values of others are views then, and Arrow takes no rows of views."""
    ByLength.asked.clear()
    own = partitioner(f"{HERE}:ByLength")
    left = columns(partition=np.array([-1, -1, 0, -1], np.int32)).filter(np.array([0, 1, 1, 1]) > 0)
    assert own.assign(left, VIEWS, lambda tp: None).tolist() == [2, 0, 3]
    ((_, keys, values, _, _),) = ByLength.asked
    assert (keys.to_pylist(), values.to_pylist()) == ([b"bb", b"ccc"], [b"2", b"4"])
    assert pa.types.is_large_binary(values.type)
