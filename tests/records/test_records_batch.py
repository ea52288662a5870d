"""Batches: golden bytes, what is refused, splitting, and an independent reader."""

import contextlib
import struct

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from spark_kafka_sink.base.errors import CorruptRecordError, IllegalStateError, InvalidRecordError
from spark_kafka_sink.records.compression import Codec, CompressionType
from spark_kafka_sink.records.encoded_slice import OpenPosition
from spark_kafka_sink.records.record_batch import HEADER_SIZE, split_records, write_header
from spark_kafka_sink.records.record_columns import ColumnPlan, RecordColumns, from_record_batch
from spark_kafka_sink.records.record_encoder import encode_groups, group_rows
from spark_kafka_sink.records.varint import varint
from tests.fakes.record_reader import parse_batch, parse_records

BASE = 1_700_000_000_000
CODECS = [Codec.parse(t.name) for t in CompressionType]
NONE = CODECS[0]
# Its snappy needs a library that nothing here needs; real consumers read ours in the broker tests.
READ_BY_KAFKA_PYTHON = [c for c in CODECS if c.type is not CompressionType.SNAPPY]
STRUCT = pa.struct([("key", pa.string()), ("value", pa.binary())])


def encoded(columns):
    """One slice with all rows."""
    groups = group_rows(columns, np.zeros(columns.rows, np.int32))
    (piece,) = encode_groups(
        columns, groups, [OpenPosition(0, 0, 0, 0)], 2**31 - 1, BASE, max_request_size=2**31 - 1
    )
    return piece


def batch_of(piece, codec=NONE, **producer):
    payload = codec.compress([piece.data])
    header, _ = write_header(
        [payload],
        codec=codec,
        record_count=piece.record_count,
        base_timestamp=piece.base_timestamp,
        max_timestamp=piece.max_timestamp,
        **producer,
    )
    return header + payload


def golden_columns():
    headers = [None, [{"key": "h", "value": None}, {"key": "e", "value": b""}], None]
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k", None, b"k"]),
            "value": pa.array([b"v", b"v2", None]),
            "timestamp": pa.array([BASE, BASE - 5, BASE + 1000], pa.int64()),
            "headers": pa.array(headers, pa.list_(STRUCT)),
        }
    )
    plan = ColumnPlan("t", value_column=1, key_column=0, timestamp_column=2, headers_column=3)
    return from_record_batch(batch, plan, BASE)


GOLDEN = (
    "000000000000000000000052ffffffff02ccad2a7f0010000000020000018bcfe568000000018bcfe56be8"
    "00000000000003e80003000000070000000310000000026b0276001c00090201047632040268010265001000"
    "d00f04026b0100"
)


def test_columns_encode_to_the_golden_batch():
    """Known bytes."""
    piece = encoded(golden_columns())
    batch = batch_of(piece, producer_id=1000, producer_epoch=3, base_sequence=7, transactional=True)
    assert batch.hex() == GOLDEN


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"Some String", 608512271),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(6)), 1091142932),
    ],
)
def test_the_checksum_is_crc32c_over_any_cut(data, value):
    """Crc32CTest#testValue."""
    assert crc32c(data) == value
    for chunks in ([data], [data[:3], memoryview(data)[3:]], [data[:2], data[2:]]):
        header, checksum = write_header(
            chunks, codec=Codec(), record_count=1, base_timestamp=0, max_timestamp=0
        )
        assert header[17:21] == crc32c(header[21:] + data).to_bytes(4, "big")
        assert checksum == int.from_bytes(header[17:21])


ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=20)),
        st.one_of(st.none(), st.binary(max_size=200)),
        st.integers(0, 2**42),
    ),
    min_size=1,
    max_size=30,
)


def columns_of(rows):
    key, value, time = zip(*rows, strict=True)
    return RecordColumns(
        len(rows),
        "t",
        key=pa.array(key, pa.binary()),
        value=pa.array(value, pa.binary()),
        timestamp=np.array(time, np.int64),
    )


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from(READ_BY_KAFKA_PYTHON))
def test_an_independent_reader_reads_what_we_write(rows, codec):
    batch = batch_of(
        encoded(columns_of(rows)), codec, producer_id=5, producer_epoch=1, base_sequence=9
    )
    read = DefaultRecordBatch(batch)
    assert read.validate_crc()
    assert (read.producer_id, read.base_sequence) == (5, 9)
    assert read.max_timestamp == max(t for _, _, t in rows)
    assert [(r.key, r.value, r.timestamp) for r in read] == rows


def test_an_independent_reader_reads_headers():
    """DefaultRecordTest#testNullHeaderKey."""
    read = DefaultRecordBatch(batch_of(encoded(golden_columns())))
    assert [list(r.headers) for r in read] == [[], [("h", None), ("e", b"")], []]


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from(CODECS))
def test_our_reader_reads_what_we_write(rows, codec):
    batch = parse_batch(batch_of(encoded(columns_of(rows)), codec))
    assert [(r.key, r.value, r.timestamp) for r in batch.records] == rows
    assert [r.offset for r in batch.records] == list(range(len(rows)))
    assert batch.header.codec is codec.type


# ---- what is refused ---------------------------------------------------------------------------


def patched(batch, at, new):
    """The batch with some bytes replaced and its checksum made right again."""
    data = bytearray(batch)
    data[at : at + len(new)] = new
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def test_a_wrong_checksum_is_refused():
    """DefaultRecordBatchTest#testInvalidCrc."""
    data = bytearray(bytes.fromhex(GOLDEN))
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum"):
        parse_batch(bytes(data))


@pytest.mark.parametrize("size", [0, 11, 60])
def test_a_batch_shorter_than_its_header_is_refused(size):
    """DefaultRecordBatchTest#testInvalidCrc."""
    with pytest.raises(CorruptRecordError, match="shorter"):
        parse_batch(bytes.fromhex(GOLDEN)[:size])


@pytest.mark.parametrize("codec", CODECS, ids=lambda c: c.name)
@pytest.mark.parametrize("count", [0, 2, 4, -1])
def test_a_record_count_that_is_wrong_is_refused(codec, count):
    """DefaultRecordBatchTest#testInvalidCrc."""
    batch = batch_of(encoded(golden_columns()), codec)
    with pytest.raises((InvalidRecordError, CorruptRecordError)):
        parse_batch(patched(batch, HEADER_SIZE - 4, struct.pack(">i", count)))


def record(body):
    return varint(len(body)) + body


HEAD = b"\x00\x00\x00\x01\x01"  # attributes, deltas 0, null key, null value


@pytest.mark.parametrize(
    "section",
    [
        record(HEAD + varint(1) + varint(-1) + varint(0)),  # null header key
        record(HEAD + varint(-1)),  # negative count of headers
        record(HEAD + varint(3)),  # more headers than bytes
        record(HEAD + varint(1) + varint(5) + b"abc"),  # key past the end
        record(HEAD + varint(1) + varint(1) + b"a" + varint(9)),  # value past the end
        record(HEAD + varint(0) + b"?"),  # bytes behind the headers
        varint(50) + HEAD,  # record past the end
        varint(-3),
        record(b"\x00\x00\x02\x01\x01\x00"),  # offset delta 1 comes first
        record(b"\x00\x00\x00\x05\x01\x00"),  # key length -3
        b"\xff",
    ],
)
def test_a_record_that_is_not_whole_is_refused(section):
    """DefaultRecordTest#testNullHeaderKey, DefaultRecordTest#testInvalidHeaderKey,
    DefaultRecordTest#testInvalidHeaderValue.
    """
    with pytest.raises(InvalidRecordError):
        parse_records(section, 1, 0)


@given(st.binary(max_size=60), st.integers(0, 3))
def test_any_bytes_are_read_or_refused(section, count):
    with contextlib.suppress(InvalidRecordError):
        assert len(parse_records(section, count, 0)) == count


@pytest.mark.parametrize(
    ("producer", "what"),
    [
        ({"transactional": True}, "producer id"),
        ({"producer_id": 1, "base_sequence": 0}, "epoch"),
        ({"producer_id": 1, "producer_epoch": 0}, "sequence"),
    ],
)
def test_producer_fields_that_contradict_each_other_are_refused(producer, what):
    """MemoryRecordsBuilderTest#testWriteTransactionalWithInvalidPID."""
    with pytest.raises(IllegalStateError, match=what):
        batch_of(encoded(golden_columns()), **producer)


# ---- split -------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(ROWS.filter(lambda rows: len(rows) > 1), st.data())
def test_the_halves_of_a_split_are_the_whole(rows, data):
    piece = encoded(columns_of(rows))
    at = data.draw(st.one_of(st.none(), st.integers(1, len(rows) - 1)))
    halves = split_records(bytes(piece.data), len(rows), piece.base_timestamp, at)
    read = []
    for half in halves:
        records = parse_records(half.data, half.record_count, half.base_timestamp)
        assert half.max_timestamp == max(r.timestamp for r in records)
        assert half.base_timestamp == records[0].timestamp
        read += [(r.key, r.value, r.timestamp) for r in records]
    assert read == rows
    assert at is None or halves[0].record_count == at


def test_a_split_keeps_headers_and_cuts_near_half_of_the_bytes():
    values = [b"x" * 1000] + [b"y"] * 9
    piece = encoded(RecordColumns(10, "t", value=pa.array(values)))
    first, second = split_records(bytes(piece.data), 10, piece.base_timestamp)
    assert (first.record_count, second.record_count) == (1, 9)
    golden = encoded(golden_columns())
    _, rest = split_records(bytes(golden.data), 3, golden.base_timestamp, 1)
    (kept, _) = parse_records(rest.data, 2, rest.base_timestamp)
    assert kept.headers == (("h", None), ("e", b""))


@pytest.mark.parametrize(("count", "at"), [(1, None), (3, 0), (3, 3)])
def test_a_split_with_an_empty_half_is_refused(count, at):
    piece = encoded(golden_columns())
    with pytest.raises(IllegalStateError):
        split_records(bytes(piece.data), count, BASE, at)


def test_a_split_of_a_damaged_section_is_refused():
    piece = encoded(golden_columns())
    with pytest.raises(InvalidRecordError):
        split_records(bytes(piece.data) + b"?", 3, BASE)
    with pytest.raises(InvalidRecordError):
        split_records(bytes(piece.data)[:-1], 3, BASE)
