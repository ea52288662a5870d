"""Hashes of keys by columns: MurmurHash3 against mmh3, CRC-32 against zlib, FNV-1a against a loop
over bytes, murmur2 against kafka-python.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_one_key

from spark_kafka_sink.records.partitioning.crc32 import crc32, crc32_of
from spark_kafka_sink.records.partitioning.fnv1a import fnv1a, fnv1a_of
from spark_kafka_sink.records.partitioning.murmur2 import murmur2, murmur2_of
from spark_kafka_sink.records.partitioning.murmur3 import (
    murmur3,
    murmur3_of,
    murmur3_of_integer,
    murmur3_of_integers,
)


def sarama(key: bytes) -> int:
    """FNV-1a as Go's hash/fnv has it, then the absolute value of the signed number."""
    h = 2166136261
    for byte in key:
        h = (h ^ byte) * 16777619 % 2**32
    return abs(h - 2**32 if h >= 2**31 else h)


ORACLES: dict[str, tuple[Callable[[pa.Array], np.ndarray], Callable[[bytes], int], object]] = {
    "murmur3": (murmur3, murmur3_of, lambda key: mmh3.hash(key, 0, signed=False)),
    "crc32": (crc32, crc32_of, zlib.crc32),
    "fnv1a": (fnv1a, fnv1a_of, sarama),
    "murmur2": (murmur2, murmur2_of, lambda key: murmur2_of_one_key(key) & 0xFFFFFFFF),
}
by_hash = pytest.mark.parametrize(("column", "one", "oracle"), ORACLES.values(), ids=ORACLES.keys())


@by_hash
@settings(max_examples=100, deadline=None)
@given(
    keys=st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=60),
    skipped=st.integers(0, 10),
    kind=st.sampled_from([pa.binary(), pa.large_binary()]),
)
def test_any_keys_hash_as_the_oracle_says_by_columns_and_alone(
    column, one, oracle, keys, skipped, kind
):
    array = pa.array(keys, kind).slice(min(skipped, len(keys)))
    expected = [oracle(key or b"") for key in keys[skipped:]]
    assert column(array).tolist() == expected
    assert [one(key or b"") for key in keys[skipped:]] == expected


@by_hash
@pytest.mark.parametrize("length", [4095 * 4, 4096 * 4, 4096 * 4 + 3, 100_003])
def test_long_keys_among_short_ones_hash_as_alone(column, one, oracle, length):
    rng = random.Random(length)
    keys = [rng.randbytes(n) for n in (3, length, 0, length + 1, 17)]
    assert column(pa.array(keys)).tolist() == [oracle(key) for key in keys]


@by_hash
def test_more_keys_than_a_block_of_all_lengths_hash_as_alone(column, one, oracle):
    rng = random.Random(7)
    keys = [rng.randbytes(rng.randrange(200)) for _ in range(20_000)]
    assert column(pa.array(keys)).tolist() == [one(key) for key in keys]


@by_hash
def test_bytes_under_a_null_count_as_no_key(column, one, oracle):
    offsets = pa.py_buffer(np.array([0, 2, 4], np.int32))
    array = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), offsets, pa.py_buffer(b"21ab")]
    )
    assert column(array).tolist() == [one(b""), one(b"ab")]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([4, 8]).flatmap(lambda n: st.binary(min_size=n, max_size=n))))
def test_an_integer_of_any_width_hashes_as_the_long_of_its_value(keys):
    longs = [int.from_bytes(key, "big", signed=True) for key in keys]
    expected = [mmh3.hash(n.to_bytes(8, "little", signed=True), 0, signed=False) for n in longs]
    assert murmur3_of_integers(pa.array(keys, pa.binary())).tolist() == expected
    assert [murmur3_of_integer(key) for key in keys] == expected


@by_hash
@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(0, 21),
    count=st.integers(1, 40),
    before=st.integers(0, 9),
    is_mixed=st.booleans(),
    kind=st.sampled_from([pa.binary(), pa.large_binary()]),
    seed=st.integers(0, 2**32),
)
def test_keys_of_one_length_hash_as_the_oracle_says(
    column, one, oracle, width, count, before, is_mixed, kind, seed
):
    """They are read as a table, which begins at any byte of the buffer."""
    rng = random.Random(seed)
    keys = [rng.randbytes(width) for _ in range(count)]
    if is_mixed:  # the first and the last have one length, one between them has another one
        keys.insert(rng.randrange(1, count + 1), rng.choice([None, rng.randbytes(width + 1)]))
        keys.append(rng.randbytes(width))
    first = [rng.randbytes(rng.randrange(9)) for _ in range(before)]
    array = pa.array([*first, *keys], kind).slice(before)
    assert column(array).tolist() == [oracle(key or b"") for key in keys]
