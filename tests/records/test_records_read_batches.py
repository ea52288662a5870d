"""Looking for some keys in a log that others write to: what is theirs does no other harm."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import replace

import lz4.frame
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import ErrorCode, IllegalStateError
from spark_kafka_sink.protocol.log_requests import FetchedPartition
from spark_kafka_sink.records import log_records
from spark_kafka_sink.records.compression import Codec, CompressionType
from spark_kafka_sink.records.log_records import (
    ControlType,
    LogRecord,
    ReadBatch,
    Unreadable,
    read_batches,
)
from spark_kafka_sink.records.single_record import record_bytes
from spark_kafka_sink.records.varint import varint
from tests.protocol.hostile import peak
from tests.records.log_bytes import BASE, CODECS, batch, data, fetched, marker, raw_batch

MIB = 1024 * 1024


def read(
    log: bytes, key: bytes = b"k", offset: int = 0, max_kept: int = 16 * MIB
) -> list[ReadBatch]:
    return list(read_batches(fetched(log, offset), lambda k: k == key, key, max_kept))


def record(delta: int, key: bytes, value: bytes, headers: bytes = b"\0") -> bytes:
    return record_bytes(delta, 0, key, value, headers)


def section(
    codec: CompressionType, content: bytes, count: int, *, base: int = 0, control: bool = False
) -> bytes:
    """A batch of records as they are given, however little they are records."""
    packed = Codec(codec).compress([content]) if codec else content
    return raw_batch(int(codec), packed, count, base=base, control=control)


# --- what is read


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_wanted_keys_are_read_whatever_the_codec(codec: CompressionType) -> None:
    log = batch(
        5,
        [(0, b"k", b"a"), (1, b"other", b"x"), (2, None, b"y"), (4, b"k", None), (5, b"k", b"")],
        last=6,
        producer=4711,
        codec=codec,
    )
    (found,) = read(log)
    assert found == ReadBatch(
        5,
        11,
        4711,
        0,
        transactional=True,
        records=(
            LogRecord(5, BASE, b"k", b"a"),
            LogRecord(9, BASE + 4, b"k", None),
            LogRecord(10, BASE + 5, b"k", b""),
        ),
    )
    assert found.next_offset == 12


def test_everything_is_read_when_every_key_is_wanted() -> None:
    log = data(0, b"a", b"b") + batch(2, [(0, b"j", b"c")])
    found = list(read_batches(fetched(log), lambda _: True))
    assert [[r.value for r in b.records] for b in found] == [[b"a", b"b"], [b"c"]]


@pytest.mark.parametrize("kind", ControlType)
def test_a_marker_names_its_transaction_and_how_it_ended(kind: ControlType) -> None:
    (found,) = read(marker(3, 4711, kind))
    assert (found.control, found.marker, found.producer_id) == (True, kind, 4711)
    assert (found.base_offset, found.next_offset, found.unreadable) == (3, 4, None)


def test_a_control_record_of_another_kind_is_no_marker() -> None:
    (found,) = read(marker(3, 4711, 2))
    assert (found.control, found.marker, found.unreadable) == (True, None, None)


def test_batches_before_the_fetch_offset_are_left_out() -> None:
    log = data(0, b"a", b"b") + data(2, b"c", b"d")
    (found,) = read(log, offset=3)
    assert [(r.offset, r.value) for r in found.records] == [(3, b"d")]


def test_the_brokers_timestamp_counts_where_it_writes_one() -> None:
    (found,) = read(data(0, b"a", b"b", appended=True))
    assert [r.timestamp for r in found.records] == [BASE + 1000, BASE + 1000]


def test_a_truncated_last_batch_is_left_out_wherever_it_is_cut() -> None:
    whole, cut = data(0, b"a"), data(1, b"b")
    for size in range(len(cut)):
        assert [b.next_offset for b in read(whole + cut[:size])] == [1]


def test_a_batch_that_compaction_emptied_still_has_its_offsets() -> None:
    (found,) = read(batch(9, [], last=3, count=0))
    assert (found.records, found.next_offset, found.unreadable) == ((), 13, None)


def test_a_fetch_that_failed_is_no_log() -> None:
    failed = FetchedPartition(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    with pytest.raises(IllegalStateError):
        list(read_batches(failed, lambda _: True))


# --- another's batch harms only the keys that it names


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_of_another_key_is_skipped_however_large(codec: CompressionType) -> None:
    poison = section(codec, record(0, b"theirs", bytes(17 * MIB)), 1)
    log = poison + data(1, b"mine")
    skipped, mine = read(log)
    assert (skipped.records, skipped.unreadable, skipped.next_offset) == ((), None, 1)
    assert [r.value for r in mine.records] == [b"mine"]
    (named, _) = read(log, b"theirs")
    assert named.records == ()
    assert named.unreadable == Unreadable(
        0, f"a record of {17 * MIB} bytes is more than is read of one batch"
    )


def test_a_large_value_that_mentions_a_key_is_skipped_for_it() -> None:
    poison = section(CompressionType.ZSTD, record(0, b"theirs", b"k" * (40 * MIB)), 1)
    (found,) = read(poison)
    assert (found.records, found.unreadable) == ((), None)


def test_a_wanted_record_behind_a_large_one_is_read() -> None:
    both = record(0, b"theirs", b"k" * (7 * MIB)) + record(1, b"k", b"mine")
    (found,) = read(section(CompressionType.ZSTD, both, 2))
    assert [(r.offset, r.value) for r in found.records] == [(1, b"mine")]


def test_a_key_that_begins_as_the_wanted_one_is_another() -> None:
    poison = section(CompressionType.ZSTD, record(0, b"key", bytes(17 * MIB)), 1)
    (found,) = read(poison)
    assert (found.records, found.unreadable) == ((), None)


def test_malformed_records_affect_only_the_keys_they_mention() -> None:
    junk = section(CompressionType.NONE, b"\x7fkkkkk", 1, base=4)
    (found,) = read(junk, b"j")
    assert found.unreadable is None
    (found,) = read(junk)
    assert found.unreadable is not None
    assert found.unreadable.offset == 4
    assert found.next_offset == 5


def test_records_in_front_of_one_that_is_none_are_read() -> None:
    content = record(0, b"k", b"a") + b"\x7f"
    (found,) = read(section(CompressionType.GZIP, content, 2, base=4))
    assert [r.value for r in found.records] == [b"a"]
    assert found.unreadable is not None
    assert found.unreadable.offset == 5


def test_a_stream_that_can_not_be_unpacked_may_hold_every_key() -> None:
    whole = Codec(CompressionType.ZSTD).compress([record(0, b"j", bytes(1000))])
    (found,) = read(raw_batch(4, whole[:-4], 1, base=4))
    assert found.unreadable is not None
    assert "zstd" in found.unreadable.reason
    assert (found.unreadable.offset, found.transactional, found.producer_id) == (4, True, 7)


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.ZSTD])
def test_streams_one_behind_another_are_read_as_java_reads_them(codec: CompressionType) -> None:
    content = record(0, b"k", b"a") + record(1, b"k", b"b")
    packed = [Codec(codec).compress([part]) for part in (content[:5], content[5:])]
    (found,) = read(raw_batch(int(codec), b"".join(packed), 2))
    assert [r.value for r in found.records] == [b"a", b"b"]


@pytest.mark.parametrize(
    "log",
    [
        data(5, b"a") + data(0, b"c"),
        data(0, b"a", b"b") + data(1, b"c"),
        batch(0, [(0, None, b"a")], last=-1),
        batch(-1, [(0, None, b"a")]),
        data(0, b"a")[:16] + b"\1" + data(0, b"a")[17:],
        data(0, b"a")[:-1] + b"\xff",
        struct.pack(">qi", 0, 3) + bytes(100),
        struct.pack(">qi", 0, -5) + bytes(100),
        struct.pack(">qi", 0, -(2**31)) + bytes(140),
        data(0, b"a")[:-1],
        b"\0",
        marker(0, 4711, 0, b""),
        marker(0, 4711, 0, b"\0\0\0"),
    ],
)
def test_what_is_not_a_batch_is_reported_and_never_raised(log: bytes) -> None:
    assert read(log)[-1].unreadable is not None


def test_what_lies_behind_a_wrong_checksum_is_read() -> None:
    broken, mine = read(data(0, b"a")[:-1] + b"\xff" + data(1, b"b"))
    assert broken.unreadable == Unreadable(0, "a batch's checksum does not match its bytes")
    assert [r.value for r in mine.records] == [b"b"]


# --- memory and time


def test_of_a_batch_without_a_transaction_the_header_is_read() -> None:
    """It is another client's, and its records may be any number, or none: ``k`` is mentioned."""
    compared: list[bytes] = []
    for packed in (record(0, b"k", b"theirs"), b"\x7fkkkkk"):
        log = raw_batch(0, packed, 1, base=4, transactional=False)
        (found,) = read_batches(fetched(log), lambda key: not compared.append(key), b"k")
        assert found == ReadBatch(4, 4)
    assert compared == []


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.SNAPPY])
def test_a_stream_of_very_many_pieces_is_read_to_a_thousand(codec: CompressionType) -> None:
    """Of gzip they may even be empty: a second of work for a MB that holds nothing."""
    if codec is CompressionType.GZIP:
        nothing = zlib.compressobj(9, wbits=31).flush()
        pieces = [Codec(codec).compress([record(0, b"k", b"mine")]), *[nothing] * 50_000]
        packed = b"".join(pieces)
    else:
        blocks = [record(0, b"k", b"mine"), *[b"x"] * 50_000]
        raw = [bytes(pa.Codec("snappy").compress(block, asbytes=True)) for block in blocks]
        packed = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
        packed += b"".join(struct.pack(">i", len(block)) + block for block in raw)
    whole = raw_batch(codec, packed, 1)
    (found,) = read(whole)
    assert [r.value for r in found.records] == [b"mine"]
    assert read(raw_batch(codec, packed, 1), b"y") == [replace(found, records=(), unreadable=None)]


def test_headers_are_stepped_over() -> None:
    """436 bytes that were 120 MiB of headers."""
    many = 2 * MIB
    headers = varint(many) + b"\0\1" * many
    content = record(0, b"k", b"mine", headers)
    log = section(CompressionType.ZSTD, content, 1)
    assert len(log) < 1000
    assert peak(lambda: read(log)) < 24 * MIB
    (found,) = read(log)
    assert [r.value for r in found.records] == [b"mine"]


def test_a_marker_is_read_without_the_rest_of_its_batch() -> None:
    """A hundred of them were 60 kB and seconds."""
    content = record(0, b"\0\0\0\1", bytes(16 * MIB))
    log = section(CompressionType.ZSTD, content, 1, control=True)
    assert peak(lambda: read(log)) < 4 * MIB
    assert read(log)[0].unreadable is not None


def test_many_empty_records_weigh_something() -> None:
    content = b"".join(record(i, b"k", b"") for i in range(100_000))
    log = section(CompressionType.ZSTD, content, 100_000)
    (found,) = read(log, max_kept=MIB)
    assert found.unreadable is not None
    assert 0 < len(found.records) <= MIB // 256


def test_walking_ends_where_no_batch_of_a_commit_log_reaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_records, "MOST_WALKED", 3 * MIB)
    first = record(0, b"k", b"mine") + record(1, b"j", bytes(8 * MIB)) + record(2, b"k", b"not")
    (found,) = read(section(CompressionType.ZSTD, first, 3))
    assert [r.value for r in found.records] == [b"mine"]
    assert found.unreadable is None
    (found,) = read(section(CompressionType.ZSTD, record(0, b"j", bytes(8 * MIB) + b"k"), 1))
    assert (found.records, found.unreadable) == ((), None)


def test_walking_ends_after_a_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_records, "MOST_RECORDS", 10)
    content = b"".join(record(i, b"k", b"%d" % i) for i in range(20))
    (found,) = read(section(CompressionType.NONE, content, 20))
    assert (len(found.records), found.unreadable) == (10, None)


def _claims_16_mib() -> bytes:
    return b"\x28\xb5\x2f\xfd" + bytes([0b10100000]) + struct.pack("<I", 16 * MIB) + b"\x01\0\0"


def _zstd_runs() -> bytes:
    run = (1 << 1 | 131072 << 3).to_bytes(3, "little") + b"A"
    last = (3 | 1 << 3).to_bytes(3, "little") + b"A"
    return b"\x28\xb5\x2f\xfd\0" + bytes([(17 - 10) << 3]) + run * 400 + last


def _gzip_bomb() -> bytes:
    stream = zlib.compressobj(9, wbits=31)
    return b"".join([*(stream.compress(bytes(MIB)) for _ in range(100)), stream.flush()])


def _lz4_bomb() -> bytes:
    packed: bytes = lz4.frame.compress(bytes(100 * MIB), block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    return packed


def _snappy_bomb() -> bytes:
    packed: bytes = pa.Codec("snappy").compress(bytes(60 * MIB), asbytes=True)
    return packed


@pytest.mark.parametrize(
    ("codec", "bomb", "most"),
    [
        (4, _claims_16_mib, 4 * MIB),
        (4, _zstd_runs, 8 * MIB),
        (2, lambda: b"\x80\x80\x80\x08\0", MIB),
        (2, _snappy_bomb, 200 * MIB),
        (3, _lz4_bomb, 8 * MIB),
        (1, _gzip_bomb, 8 * MIB),
    ],
    ids=["zstd claim", "zstd runs", "snappy claim", "snappy", "lz4", "gzip"],
)
def test_a_bomb_needs_the_memory_of_a_piece(
    codec: int, bomb: Callable[[], bytes], most: int
) -> None:
    log = raw_batch(codec, bomb(), 1)
    assert peak(lambda: read(log)) < most
    assert read(log)[0].next_offset == 1


# --- any log


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([b"k", b"j", b"kk", None]), st.none() | st.binary(max_size=40)
            ),
            max_size=6,
        ),
        max_size=5,
    ),
    st.sampled_from(CODECS),
)
@settings(max_examples=100, deadline=None)
def test_a_wanted_record_is_read_wherever_it_lies(
    batches: list[list[tuple[bytes | None, bytes | None]]], codec: CompressionType
) -> None:
    log, base = b"", 0
    written: list[tuple[int, bytes | None]] = []
    for records in batches:
        rows = [(i, key, value) for i, (key, value) in enumerate(records)]
        log += batch(base, rows, codec=codec)
        written += [(base + i, value) for i, key, value in rows if key == b"k"]
        base += max(1, len(rows))
    found = read(log)
    assert [(r.offset, r.value) for b in found for r in b.records] == written
    assert [b.unreadable for b in found] == [None] * len(batches)
    assert max([b.next_offset for b in found], default=0) == base
