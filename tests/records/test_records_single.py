"""One record to bytes: the same bytes as by columns, and what a reader gets back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import RemoteProtocolError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.encoded_slice import OpenPosition
from spark_kafka_sink.records.record_columns import RecordColumns
from spark_kafka_sink.records.record_encoder import Groups, encode_groups
from spark_kafka_sink.records.single_record import (
    headers_section,
    read_bytes,
    read_headers,
    record_bytes,
    size_upper_bound,
)
from tests.fakes.record_reader import parse_records

HEADERS = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=100)), max_size=5)
MAYBE_BYTES = st.none() | st.binary(max_size=300) | st.just(bytes(range(250)) * 36)
TIMES = st.integers(0, 2**62)


@given(st.lists(st.tuples(MAYBE_BYTES, MAYBE_BYTES, TIMES), min_size=1, max_size=20))
def test_records_are_the_bytes_that_columns_give(
    rows: list[tuple[bytes | None, bytes | None, int]],
):
    keys, values, times = zip(*rows, strict=True)
    base = times[0]
    single = b"".join(
        record_bytes(n, time - base, key, value) for n, (key, value, time) in enumerate(rows)
    )
    columns = RecordColumns(
        rows=len(rows),
        topic="t",
        key=pa.array(keys, pa.binary()),
        value=pa.array(values, pa.binary()),
        timestamp=np.array(times, np.int64),
    )
    groups = Groups((TopicPartition("t", 0),), np.array([0, len(rows)]), None)
    slices = encode_groups(
        columns, groups, [OpenPosition(0, 0, 0, 0)], 2**30, 0, max_request_size=2**31 - 1
    )
    assert b"".join(bytes(piece.data) for piece in slices) == single


@given(
    MAYBE_BYTES,
    MAYBE_BYTES,
    HEADERS,
    st.integers(0, 2**31 - 1),
    st.integers(-(2**40), 2**40),
)
def test_a_record_reads_back_and_its_bound_holds(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    offset: int,
    delta: int,
):
    section = headers_section(headers)
    data = record_bytes(offset, delta, key, value, section)
    (record,) = parse_records(data, 1, 2**41, first_offset_delta=offset)
    assert (record.key, record.value, record.headers) == (key, value, tuple(headers))
    assert (record.offset, record.timestamp) == (offset, 2**41 + delta)
    assert 61 + len(data) <= size_upper_bound(key, value, section)


def test_the_bound_is_javas():
    """61 for the batch, 21 for the record, key, value and headers with their lengths."""
    assert size_upper_bound(b"k", b"vv") == 61 + 21 + 2 + 3 + 1
    assert size_upper_bound(None, None) == 61 + 21 + 1 + 1 + 1


@given(HEADERS)
def test_headers_read_back_and_a_cut_is_an_error(headers: list[tuple[str, bytes | None]]):
    section = headers_section(headers)
    assert read_headers(section) == [(key.encode(), value) for key, value in headers]
    for wrong in (*(section[:end] for end in range(len(section))), section + b"\0", b"\1"):
        with pytest.raises(RemoteProtocolError):
            read_headers(wrong)


def test_a_string_that_is_cut_is_an_error():
    assert read_bytes(b"\4ab", 0) == (b"ab", 3)
    assert read_bytes(b"\1ab", 0) == (None, 1)
    with pytest.raises(RemoteProtocolError, match="2 bytes at byte 1 runs past the end"):
        read_bytes(b"\4a", 0)
