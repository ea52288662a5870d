"""Reading a log back: whole batches, markers, what is committed, and logs that lie."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from spark_kafka_sink.errors import (
    CorruptRecordError,
    ErrorCode,
    IllegalStateError,
    InvalidRecordError,
)
from spark_kafka_sink.protocol.fetch_messages import (
    FetchedPartition,
    IsolationLevel,
)
from spark_kafka_sink.records.compression import CompressionType
from spark_kafka_sink.records.log_records import (
    ControlType,
    LogRecord,
    committed_records,
    log_batches,
)
from tests.records.log_bytes import BASE, CODECS, COMMITTED, batch, data, fetched, marker


def values(found: tuple[list[LogRecord], int]) -> tuple[list[bytes | None], int]:
    return [r.value for r in found[0]], found[1]


# --- batches


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_read_whatever_their_codec(codec: CompressionType) -> None:
    log = data(5, b"a", b"b", codec=codec) + batch(7, [(0, None, None)], codec=codec)
    first, second = log_batches(log)
    assert first.records() == (LogRecord(5, BASE, b"k", b"a"), LogRecord(6, BASE + 1, b"k", b"b"))
    assert second.records() == (LogRecord(7, BASE, None, None),)
    assert (first.last_offset, second.next_offset) == (6, 8)
    assert first.marker is None


def test_an_independent_reader_sees_the_same_batch() -> None:
    log = batch(5, [(0, b"k", b"a"), (3, None, b"b")], last=9, producer=4711, transactional=True)
    theirs = DefaultRecordBatch(log)
    assert theirs.validate_crc()
    (ours,) = log_batches(log)
    assert ours.records() == tuple(LogRecord(r.offset, r.timestamp, r.key, r.value) for r in theirs)
    assert theirs.next_offset == ours.next_offset == 15


def test_the_brokers_timestamp_counts_where_it_writes_one() -> None:
    (found,) = log_batches(data(0, b"a", b"b", appended=True))
    assert [r.timestamp for r in found.records()] == [BASE + 1000, BASE + 1000]


def test_a_last_batch_that_is_cut_off_is_left_out_wherever_it_is_cut() -> None:
    whole, cut = data(0, b"a"), data(1, b"b")
    for size in range(len(cut)):
        assert len(list(log_batches(whole + cut[:size]))) == 1
        assert values(committed_records(fetched(whole + cut[:size]))) == ([b"a"], 1)


@pytest.mark.parametrize("kind", ControlType)
def test_a_marker_is_recognised(kind: ControlType) -> None:
    (found,) = log_batches(marker(0, 4711, kind))
    assert (found.marker, found.header.producer_id) == (kind, 4711)


def test_a_control_record_of_another_kind_is_no_marker() -> None:
    (found,) = log_batches(marker(0, 4711, 2))
    assert found.marker is None
    assert values(committed_records(fetched(marker(0, 4711, 2)))) == ([], 1)


@pytest.mark.parametrize("key", [b"", b"\0\0\0"])
def test_a_marker_without_its_type_is_refused(key: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        committed_records(fetched(marker(0, 4711, 0, key)))


# --- what is committed


def test_aborted_transactions_are_left_out_and_the_next_of_the_producer_is_not() -> None:
    log = (
        data(0, b"aborted", b"aborted", producer=1)
        + data(2, b"plain")
        + data(3, b"other", producer=2)
        + marker(4, 1, 0)
        + data(5, b"again", producer=1)
        + marker(6, 2, 1)
        + marker(7, 1, 1)
    )
    found = values(committed_records(fetched(log, aborted=[(1, 0)])))
    assert found == ([b"plain", b"other", b"again"], 8)


def test_an_idempotent_batch_of_a_producer_that_aborts_counts() -> None:
    log = data(0, b"in", producer=1) + batch(1, [(0, None, b"beside")], producer=1)
    assert values(committed_records(fetched(log, aborted=[(1, 0)]))) == ([b"beside"], 2)


def test_a_transaction_aborted_twice_is_left_out_twice() -> None:
    log = b"".join(
        piece
        for base in (0, 4)
        for piece in (
            data(base, b"no", producer=1),
            marker(base + 1, 1, 0),
            data(base + 2, b"yes", producer=1),
            marker(base + 3, 1, 1),
        )
    )
    # The broker's list has no order of ours.
    found = values(committed_records(fetched(log, aborted=[(1, 4), (1, 0)])))
    assert found == ([b"yes", b"yes"], 8)


def test_records_before_the_fetch_offset_are_left_out() -> None:
    log = data(0, b"a", b"b", b"c") + data(3, b"d")
    assert values(committed_records(fetched(log, 2))) == ([b"c", b"d"], 4)
    assert values(committed_records(fetched(log, 3))) == ([b"d"], 4)


def test_no_bytes_leave_the_offset_where_it_is() -> None:
    assert committed_records(fetched(b"", 42)) == ([], 42)


def test_the_next_offset_steps_over_a_marker_at_the_end() -> None:
    data_only = data(0, b"a", producer=1)
    assert committed_records(fetched(data_only))[1] == 1  # the marker was not in this fetch
    assert values(committed_records(fetched(marker(1, 1, 1), 1))) == ([], 2)


def test_the_next_offset_steps_over_what_compaction_took() -> None:
    log = batch(0, [(1, b"k", b"a")], last=4) + batch(9, [], last=3, count=0)
    assert values(committed_records(fetched(log))) == ([b"a"], 13)
    assert values(committed_records(fetched(batch(9, [], last=3), 5))) == ([], 13)


def test_a_fetch_that_can_not_tell_is_refused() -> None:
    log = memoryview(data(0, b"a"))
    uncommitted = FetchedPartition(ErrorCode.NONE, 0, IsolationLevel.READ_UNCOMMITTED, records=log)
    failed = FetchedPartition(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, COMMITTED)
    for useless in (uncommitted, failed):
        with pytest.raises(IllegalStateError):
            committed_records(useless)


# --- how much memory


def test_what_unpacks_to_too_much_is_left_for_the_next_fetch() -> None:
    log = b"".join(data(i, bytes(10_000), codec=CompressionType.ZSTD) for i in range(9))
    offset, calls, seen = 0, 0, 0
    while offset < 9:
        records, offset = committed_records(fetched(log, offset), limit=25_000)
        assert 0 < len(records) <= 3
        seen, calls = seen + len(records), calls + 1
        assert calls < 9
    assert seen == 9


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_batch_that_unpacks_beyond_the_limit_is_refused(codec: CompressionType) -> None:
    log = data(0, bytes(100_000), codec=codec)
    with pytest.raises(CorruptRecordError):
        committed_records(fetched(log), limit=50_000)
    (found,) = log_batches(log)
    with pytest.raises(CorruptRecordError):
        found.records(50_000)


def test_an_aborted_batch_is_not_even_unpacked() -> None:
    log = data(0, bytes(100_000), producer=1, codec=CompressionType.ZSTD)
    assert committed_records(fetched(log, aborted=[(1, 0)]), limit=1) == ([], 1)


# --- liars


@pytest.mark.parametrize(
    "log",
    [
        data(0, b"a", b"b") + data(1, b"c"),
        data(5, b"a") + data(0, b"c"),
        batch(0, [(0, None, b"a")], last=-1),
        batch(-1, [(0, None, b"a")]),
        data(0, b"a")[:16] + b"\1" + data(0, b"a")[17:],
        data(0, b"a")[:-1] + b"\xff",
        struct.pack(">qi", 0, 3) + bytes(100),
        struct.pack(">qi", 0, -5) + bytes(100),
        struct.pack(">qi", 0, -12 - 60) + bytes(140),
        data(0, b"a")[:-1],
        b"\0",
    ],
    ids=[
        "overlap",
        "backwards",
        "ends before it begins",
        "negative",
        "magic",
        "checksum",
        "short",
        "negative length",
        "negative size",
        "only a cut one",
        "one byte",
    ],
)
def test_bytes_that_are_no_log_are_refused(log: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        committed_records(fetched(log))


@pytest.mark.parametrize(
    "records", [[(1, None, b"a"), (0, None, b"b")], [(0, None, b"a"), (0, None, b"b")]]
)
def test_records_that_do_not_ascend_are_refused(
    records: list[tuple[int, bytes | None, bytes | None]],
) -> None:
    with pytest.raises(InvalidRecordError):
        committed_records(fetched(batch(0, records, last=5)))


def test_a_record_behind_its_batchs_last_offset_is_refused() -> None:
    with pytest.raises(InvalidRecordError):
        committed_records(fetched(batch(0, [(3, None, b"a")], last=2)))


def test_a_count_larger_than_the_batch_is_refused() -> None:
    with pytest.raises(InvalidRecordError):
        committed_records(fetched(batch(0, [(0, None, b"a")], count=2**31 - 1)))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_changed_bytes_are_read_or_refused(draw: st.DataObject) -> None:
    log = bytearray(
        data(0, b"a", b"b", producer=1, codec=draw.draw(st.sampled_from(CODECS)))
        + marker(2, 1, 0)
        + data(3, b"c")
    )
    at = draw.draw(st.integers(0, len(log) - 1))
    log[at] = draw.draw(st.integers(0, 255))
    if draw.draw(st.booleans()):  # so that the checksum is not all that refuses it
        end = 12 + int(struct.unpack_from(">i", log, 8)[0])
        if 61 <= end <= len(log):
            log[17:21] = crc32c(bytes(log[21:end])).to_bytes(4, "big")
    try:
        _, next_offset = committed_records(fetched(bytes(log), aborted=[(1, 0)]))
    except (CorruptRecordError, InvalidRecordError):
        return
    assert next_offset >= 0


# --- a log made at random, read piece by piece


@dataclass
class Log:
    """A partition as a broker keeps it; what should be read is kept beside the bytes."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  # first, last, bytes
    undecided: dict[int, list[LogRecord]] = field(default_factory=dict)
    first_offsets: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first, marker
    counted: list[LogRecord] = field(default_factory=list)
    end: int = 0

    def append(self, producer: int, kept: list[bool], codec: CompressionType) -> None:
        """``kept``: which records are left after compaction."""
        records = [(i, b"k", b"%d" % (self.end + i)) for i, keep in enumerate(kept) if keep]
        made = batch(
            self.end,
            records,
            last=len(kept) - 1,
            producer=producer,
            transactional=producer >= 0,
            codec=codec if records else CompressionType.NONE,
        )
        read = [LogRecord(self.end + i, BASE + i, key, value) for i, key, value in records]
        if producer < 0:
            self.counted += read
        else:
            self.undecided.setdefault(producer, []).extend(read)
            self.first_offsets.setdefault(producer, self.end)
        self._write(len(kept), made)

    def finish(self, producer: int, *, commit: bool) -> None:
        read = self.undecided.pop(producer, [])
        first = self.first_offsets.pop(producer, None)
        if commit:
            self.counted += read
        elif first is not None:
            self.aborted.append((producer, first, self.end))
        self._write(1, marker(self.end, producer, int(commit)))

    def _write(self, offsets: int, made: bytes) -> None:
        self.batches.append((self.end, self.end + offsets - 1, made))
        self.end += offsets

    @property
    def last_stable_offset(self) -> int:
        return min(self.first_offsets.values(), default=self.end)

    def fetch(self, offset: int, max_bytes: int) -> FetchedPartition:
        """As a broker: the first batch whole, the last one cut."""
        pieces = [b for _, last, b in self.batches if offset <= last < self.last_stable_offset]
        size = max(max_bytes, len(pieces[0])) if pieces else 0
        aborted = [(p, first) for p, first, last in self.aborted if last >= offset]
        return fetched(b"".join(pieces)[:size], offset, aborted)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.integers(-1, 2),
            st.lists(st.booleans(), min_size=1, max_size=4),
            st.sampled_from(CODECS),
        ),
        st.tuples(st.integers(0, 2), st.booleans()),
    ),
    max_size=25,
)


@given(STEPS, st.integers(1, 400), st.integers(1, 60))
@settings(max_examples=150, deadline=None)
def test_a_log_read_in_pieces_gives_each_committed_record_once(
    steps: list[tuple[int, list[bool], CompressionType] | tuple[int, bool]],
    max_bytes: int,
    limit: int,
) -> None:
    log = Log()
    for step in steps:
        if len(step) == 3:
            log.append(*step)
        else:
            log.finish(step[0], commit=step[1])
    found: list[LogRecord] = []
    offset = 0
    while offset < log.last_stable_offset:
        records, after = committed_records(log.fetch(offset, max_bytes), max(limit, 40))
        assert after > offset
        found, offset = found + records, after
    assert offset == log.last_stable_offset
    expected = sorted(log.counted, key=lambda r: r.offset)
    assert found == [r for r in expected if r.offset < offset]
