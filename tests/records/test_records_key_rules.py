"""What keys, empty keys and null keys mean to the partitioners that go by keys, by columns."""

from __future__ import annotations

import zlib
from collections import Counter

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import DataError
from spark_kafka_sink.config.option_table import KEY_PARTITIONERS, STICKY_PARTITIONERS
from spark_kafka_sink.records.partitioning.fnv1a import fnv1a_of
from spark_kafka_sink.records.partitioning.key_rules import KEY_RULES, Choice
from spark_kafka_sink.records.partitioning.murmur2 import murmur2_of
from spark_kafka_sink.records.partitioning.partitioners import partitioner
from spark_kafka_sink.records.partitioning.topic_view import TopicView
from spark_kafka_sink.records.record_columns import RecordColumns

#: One partition with a leader, so that what load decides is known.
LED = 5
VIEWS = {"t": TopicView(7, (LED,), 10_000)}

HASHES = {
    None: lambda key: murmur2_of(key) & 0x7FFFFFFF,
    "consistent": zlib.crc32,
    "consistent_random": zlib.crc32,
    "murmur2": lambda key: murmur2_of(key) & 0x7FFFFFFF,
    "murmur2_random": lambda key: murmur2_of(key) & 0x7FFFFFFF,
    "fnv1a": fnv1a_of,
    "fnv1a_random": fnv1a_of,
    "murmur3": lambda key: mmh3.hash(key, 0) & 0x7FFFFFFF,
    "iceberg_bucket": lambda key: mmh3.hash(key, 0) & 0x7FFFFFFF,
}
HASH_NULL = {"consistent", "murmur2", "fnv1a"}
LEAVE_EMPTY = {"consistent_random"}


def assigned(name, keys, views=VIEWS, **columns):
    array = None if keys is None else pa.array(keys, pa.binary())
    rows = len(columns["partition"]) if keys is None else len(keys)
    return partitioner(name).assign(
        RecordColumns(rows, **({"topic": "t", "key": array} | columns)), views, lambda tp: None
    )


@pytest.mark.parametrize("name", HASHES)
@settings(max_examples=30, deadline=None)
@given(
    keys=st.lists(st.one_of(st.none(), st.just(b""), st.binary(max_size=12)), min_size=1),
    explicit=st.booleans(),
)
def test_every_key_goes_where_its_partitioner_says(name, keys, explicit):
    given_ = [3 if explicit and i % 5 == 0 else -1 for i in range(len(keys))]
    got = assigned(name, keys, partition=np.array(given_, np.int32) if explicit else None)
    for key, asked, partition in zip(keys, given_, got.tolist(), strict=True):
        leave = (key is None and name not in HASH_NULL) or (not key and name in LEAVE_EMPTY)
        wanted = LED if leave else HASHES[name](key or b"") % 7
        assert partition == (wanted if asked < 0 else asked), (key, asked)
    assert got.dtype == np.int32


@pytest.mark.parametrize("name", sorted(HASH_NULL))
def test_a_column_of_nulls_goes_where_the_empty_key_goes(name):
    columns = RecordColumns(3, "t", value=pa.array([b"v"] * 3))
    got = partitioner(name).assign(columns, VIEWS, lambda tp: None)
    assert got.tolist() == [HASHES[name](b"") % 7] * 3


def test_every_topic_has_its_own_count():
    topic = pa.array(["t", "u", "t", "u"]).dictionary_encode()
    views = VIEWS | {"u": TopicView(3, (0, 1, 2), 10_000)}
    keys = [b"a", b"b", b"c", b"d"]
    got = assigned("consistent", keys, views, topic=topic)
    counts = [7, 3, 7, 3]
    assert got.tolist() == [zlib.crc32(k) % n for k, n in zip(keys, counts, strict=True)]


def test_numbers_with_the_highest_bit_are_not_negative():
    key = next(k for i in range(100) if zlib.crc32(k := b"%d" % i) >= 1 << 31)
    assert assigned("consistent", [key]).tolist() == [zlib.crc32(key) % 7]
    lowest = bytes.fromhex("618647f697")
    assert assigned("fnv1a", [lowest]).tolist() == [2**31 % 7]


def test_random_sends_keys_anywhere_and_keeps_null_keys_sticky():
    views = {"t": TopicView(7, (1, 4, 6), 10_000)}
    got = assigned("random", [b"same", b"", None] * 300, views).tolist()
    assert set(Counter(got[::3])) == set(Counter(got[1::3])) == {1, 4, 6}
    changes = sum(a != b for a, b in zip(got[2::3], got[5::3], strict=False))
    assert changes < 5
    led_by_none = assigned("random", [b"same"] * 300, {"t": TopicView(3, (), 10_000)}).tolist()
    assert set(led_by_none) == {0, 1, 2}


def test_an_integer_key_is_in_the_bucket_that_iceberg_puts_it_in():
    # 34 is 2017239379 in Iceberg's specification, whatever the width.
    keys = [(34).to_bytes(width, "big") for width in (4, 8)]
    assert assigned("iceberg_bucket_long", [*keys, None]).tolist() == [2017239379 % 7] * 2 + [LED]
    assert assigned("iceberg_bucket", [b"iceberg"]).tolist() == [1210000089 % 7]


def test_a_key_that_is_no_integer_is_named_by_its_row():
    keys = [b"1234", None, b"12345", b""]
    with pytest.raises(DataError, match=r"row 12 of the Arrow batch.*has 5") as raised:
        assigned("iceberg_bucket_long", keys, first_row=10)
    assert "12345" not in str(raised.value)
    given_ = np.array([-1, -1, 2, 0], np.int32)
    assert assigned("iceberg_bucket_long", keys, partition=given_).tolist()[2:] == [2, 0]
    with pytest.raises(DataError, match="has 0"):
        KEY_RULES["iceberg_bucket_long"].choice(b"")


def test_the_configured_names_are_the_existing_partitioners():
    assert set(KEY_PARTITIONERS) == set(KEY_RULES)


def test_the_sticky_names_are_those_whose_null_keys_are_sticky():
    sticky = {name for name, rule in KEY_RULES.items() if rule.null is Choice.STICKY}
    assert set(STICKY_PARTITIONERS) == {None, *sticky}
