"""Varints one by one against Java's vectors, and by columns against those."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import RemoteProtocolError
from spark_kafka_sink.records.varint import (
    Packed,
    pack,
    read_unsigned_varint,
    read_varint,
    unsigned_varint,
    varint,
    varint_size,
)

ZIGZAG = {  # ByteUtilsTest
    0: "00", -1: "01", 1: "02", 63: "7e", -64: "7f", 64: "8001", -65: "8101", 8191: "fe7f",
    -8192: "ff7f", 8192: "808001", 1048575: "feff7f", 134217728: "8080808001",
    2**31 - 1: "feffffff0f", -(2**31): "ffffffff0f",
    2**63 - 1: "fe" + "ff" * 8 + "01", -(2**63): "ff" * 9 + "01",
}  # fmt: skip
UNSIGNED = {
    63: "3f",
    64: "40",
    8191: "ff3f",
    8192: "8040",
    2**31 - 1: "ffffffff07",
    -1: "ffffffff0f",
}

INT64 = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 70).flatmap(
        lambda bits: st.integers(-(2 ** min(bits, 63)), 2 ** min(bits, 63) - 1)
    ),
)


@pytest.mark.parametrize(("value", "hexed"), ZIGZAG.items())
def test_signed_varints_are_javas(value, hexed):
    """ByteUtilsTest#testVarintSerde."""
    assert varint(value).hex() == hexed
    assert varint_size(value) == len(hexed) // 2
    assert read_varint(bytes.fromhex(hexed), 0, 10) == (value, len(hexed) // 2)


@pytest.mark.parametrize(("value", "hexed"), UNSIGNED.items())
def test_unsigned_varints_are_javas(value, hexed):
    """ByteUtilsTest#testUnsignedVarintSerde."""
    assert unsigned_varint(value).hex() == hexed
    assert read_unsigned_varint(bytes.fromhex(hexed), 0)[0] == value % 2**32


@pytest.mark.parametrize(
    ("data", "most"),
    [(b"\xff" * 5 + b"\x01", 5), (b"\xff" * 10 + b"\x01", 10), (b"\x80", 5), (b"", 5)],
)
def test_too_long_and_cut_varints_are_refused(data, most):
    """ByteUtilsTest#testVarintSerde."""
    with pytest.raises(RemoteProtocolError):
        read_varint(data, 0, most)


def joined(parts, rows):
    """The bytes of each row, from packed parts."""
    out = [b""] * rows
    for part in parts:
        words = np.broadcast_to(np.asarray(part.word, np.uint64), rows).tolist()
        sizes = np.broadcast_to(np.asarray(part.size, np.uint64), rows).tolist()
        assert max(sizes) <= part.most <= 8
        for i, (word, size) in enumerate(zip(words, sizes, strict=True)):
            assert word >> (8 * size) == 0
            out[i] += word.to_bytes(8, "little")[:size]
    return out


@given(st.lists(INT64, min_size=1, max_size=40))
def test_a_column_of_varints_is_each_of_them(values):
    assert joined(pack(np.array(values, np.int64)), len(values)) == [varint(v) for v in values]


@given(st.lists(st.integers(-1, 2**31 - 1), min_size=1, max_size=40))
def test_lengths_and_null_pack_into_one_part(values):
    parts = pack(np.array(values, np.int64))
    assert len(parts) == 1
    assert joined(parts, len(values)) == [varint(v) for v in values]


@given(st.lists(st.tuples(st.integers(0, 9000), st.integers(-70, 70)), min_size=1, max_size=20))
def test_packed_neighbours_join_to_their_bytes(pairs):
    first, second = (pack(np.array(side, np.int64))[0] for side in zip(*pairs, strict=True))
    constant = Packed(0x0105, 2, 2)
    both = constant + first + second
    expected = [b"\x05\x01" + varint(a) + varint(b) for a, b in pairs]
    assert joined([both], len(pairs)) == expected
