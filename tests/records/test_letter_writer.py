"""Letters by columns: their headers, what of a row they keep, and masks compared with errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import DataError, RecordTooLargeError
from spark_kafka_sink.config.named_columns import OnNullValue
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Reason
from spark_kafka_sink.records.bad_rows.topic_limits import TopicLimits
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.records.letters.letter_fields import letter_fields
from spark_kafka_sink.records.letters.letter_writer import LetterWriter
from spark_kafka_sink.records.letters.row_limits import RowLimits
from spark_kafka_sink.records.record_columns import RecordColumns, from_record_batch
from spark_kafka_sink.records.single_record import headers_section, read_headers
from tests.fakes.dead_letter_options import dead_letters, letter_options

NOW = 1_700_000_000_000
NAMES = ["topic", "key", "value", "partition", "timestamp", "headers"]
SCHEMA = pa.schema(
    [
        *(("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary())),
        *(("partition", pa.int32()), ("timestamp", pa.int64())),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
PLAN = ColumnPlan(
    topic_column=0, key_column=1, value_column=2, partition_column=3, timestamp_column=4,
    headers_column=5, keys_required=True, on_null_value=OnNullValue.ERROR,
)  # fmt: skip


def config(**options):
    return parse_producer_config({"bootstrap.servers": "b:1", **options})


def writer(limits=None, context=True, most=65_536, **options):
    limits = RowLimits(config(**options), limits or TopicLimits())
    wanted = replace(letter_options("dlq"), context_headers=context, max_value_bytes=most)
    return LetterWriter(wanted, limits, "orders", 7, 3)


def records_of(part):
    found = []
    for row in range(part.rows):
        key, value = (None if c is None else c[row].as_py() for c in (part.key, part.value))
        found.append((key, value, read_headers(part.headers[row].as_py())))
    return found


def part_of(columns, bad, made, first=0):
    rows = bad.rows
    which = bad.which.take(rows) - 1
    return made.letters(columns.take(rows), which, bad.found, first + rows, NOW)


def letters_of(columns, bad, made=None, first=0):
    return records_of(part_of(columns, bad, made or writer(), first)) if bad.found else []


def all_bad(columns, reason=Reason.TIMESTAMP):
    bad = BadRows(columns.rows)
    bad.refuse(np.ones(columns.rows, np.bool_), reason, "a sentence")
    return bad


def columns_of(values, **more):
    return RecordColumns(len(values), "t", value=pa.array(values, pa.binary()), **more)


def test_the_headers_of_a_letter_are_these():
    """Those that ``DeadLetterQueueReporter.populateContextHeaders`` of connect-runtime 4.3.1 adds,
    in its order and without its stack trace; then ours.
    """
    ((_, _, headers),) = letters_of(columns_of([b"v"]), all_bad(columns_of([b"v"])), first=41)
    assert headers == [
        (b"__connect.errors.topic", b"t"),
        (b"__connect.errors.partition", b"-1"),
        (b"__connect.errors.offset", b"-1"),
        (b"__connect.errors.connector.name", b"orders"),
        (b"__connect.errors.task.id", b"7"),
        (b"__connect.errors.stage", b"KAFKA_PRODUCE"),
        (b"__connect.errors.class.name", b"spark_kafka_sink.records.record_columns"),
        (
            b"__connect.errors.exception.class.name",
            b"org.apache.kafka.common.errors.InvalidTimestampException",
        ),
        (b"__connect.errors.exception.message", b"a sentence"),
        (b"__kprod.errors.code", b"KP0231"),
        (b"__kprod.errors.topic", b"t"),
        (b"__kprod.errors.batch.id", b"3"),
        (b"__kprod.errors.row", b"41"),
        (b"__kprod.errors.value.size", b"1"),
        (b"__kprod.errors.value.truncated", b"false"),
    ]


def test_without_context_ours_stay_and_are_read():
    columns = columns_of([b"v"])
    ((_, _, headers),) = letters_of(columns, all_bad(columns), writer(context=False))
    assert all(name.startswith(b"__kprod.errors.") for name, _ in headers)
    fields = letter_fields([(name.decode(), value) for name, value in headers])
    assert fields == {
        "code": "KP0231", "reason": "invalid timestamp", "topic": "t", "batch": 3, "row": 0,
        "message": None,
    }  # fmt: skip


def test_a_value_is_cut_to_the_option_and_says_so():
    columns = columns_of([b"abcdef", b"", None, b"ab"])
    letters = letters_of(columns, all_bad(columns), writer(most=3))
    assert [value for _, value, _ in letters] == [b"abc", b"", None, b"ab"]
    told = [dict(headers) for _, _, headers in letters]
    assert [one[b"__kprod.errors.value.size"] for one in told] == [b"6", b"0", b"-1", b"2"]
    cut = [one[b"__kprod.errors.value.truncated"] for one in told]
    assert cut == [b"true", b"false", b"false", b"false"]


@pytest.mark.parametrize("most", [0, 1])
def test_a_value_that_is_cut_is_no_tombstone(most):
    columns = columns_of([b"abcdef"])
    ((_, value, _),) = letters_of(columns, all_bad(columns), writer(most=most))
    assert value == b"abcdef"[:most]


@pytest.mark.parametrize(
    ("options", "limits", "most"),
    [({"max.request.size": 3000}, None, 3000), ({}, TopicLimits(max_bytes=3000), 3000)],
)
def test_a_letter_fits_the_producer_and_its_topic(options, limits, most):
    key = pa.array([b"k" * 500], pa.binary())
    columns = columns_of([b"v" * 10_000], key=key)
    made = writer(limits, **options)
    part = part_of(columns, all_bad(columns), made)
    size = int(part.input_bytes()[0])
    assert most - 250 < size < most
    assert dict(read_headers(part.headers[0].as_py()))[b"__kprod.errors.value.size"] == b"10000"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (({"max.request.size": 3000}, None), ({"max.request.size": 6000}, None)),
        (({}, TopicLimits(max_bytes=3000)), ({}, TopicLimits(max_bytes=6000))),
    ],
)
def test_a_limit_that_is_raised_lets_the_letter_go(before, after):
    columns = columns_of([b"v"], key=pa.array([b"k" * 5000], pa.binary()))
    with pytest.raises(RecordTooLargeError) as raised:
        letters_of(columns, all_bad(columns), writer(before[1], **before[0]))
    assert raised.value.hint == (
        "raise kafka.max.request.size, and max.message.bytes of that topic"
    )
    ((key, value, _),) = letters_of(columns, all_bad(columns), writer(after[1], **after[0]))
    assert (key, value) == (b"k" * 5000, b"v")


def test_a_letter_whose_key_does_not_fit_is_an_error_of_both():
    held = dead_letters("dlq", config(**{"max.request.size": 3000}))
    batch = batch_of([("t", b"k" * 5000, b"v", -7, None, None)])
    bad = BadRows(1)
    columns = from_record_batch(batch, PLAN, NOW, bad)
    held.note(batch, columns, bad, np.arange(1))
    with pytest.raises(RecordTooLargeError, match=r"key and headers of row 0") as caught:
        list(held.letters(columns_again, NOW, last=True))
    both = held.not_sent(caught.value).message
    assert "for the dead letter queue dlq: 1 partition does not exist (KP0212" in both
    assert "their dead letters can't be sent either: key and headers" in both


def test_a_timestamp_that_the_topic_refuses_is_the_time_of_sending():
    times = np.array([-5, NOW + 10_000, NOW - 10_000, NOW - 5, 2**63 - 1])
    columns = columns_of([b"v"] * 5, timestamp=times)
    made = writer(TopicLimits(before_ms=9_000, after_ms=9_000))
    part = part_of(columns, all_bad(columns), made)
    assert part.timestamp.tolist() == [NOW, NOW, NOW, NOW - 5, NOW]


@pytest.mark.parametrize("text", [b"9" * 19, b"-" + b"9" * 30, b"9" * 5000, b"x", b"", b"\xff"])
def test_a_number_that_another_client_wrote_harms_no_reader(text):
    """A DataFrame has 64 bits for it."""
    fields = letter_fields([("__kprod.errors.row", text), ("__kprod.errors.batch.id", text)])
    assert (fields["row"], fields["batch"]) == (None, None)


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 1_700_000_000_000_000_000])
def test_a_number_of_64_bits_is_read(number):
    assert letter_fields([("__kprod.errors.batch.id", b"%d" % number)])["batch"] == number


def test_of_two_headers_of_a_name_the_last_one_counts():
    """As Connect, which adds its own behind those of a letter that is sent again."""
    before = [("__connect.errors.topic", b"first"), ("a", b"1"), ("__kprod.errors.code", b"KP0")]
    columns = columns_of([b"v"], headers=pa.array([headers_section(before)], pa.large_binary()))
    ((_, _, headers),) = letters_of(columns, all_bad(columns))
    assert [(name.decode(), value) for name, value in headers[:3]] == before
    assert len(headers) == 18
    fields = letter_fields([(name.decode(), value) for name, value in headers])
    assert (fields["code"], fields["topic"]) == ("KP0231", "t")


@pytest.mark.parametrize("others", [0, 1])
def test_of_a_topic_of_any_length_a_letter_says_the_beginning(others):
    """Else the text of one row could make its letter too large to be sent."""
    rows = [("x" * 5000, b"k", b"v", None, None, None), (None, b"k", b"v", None, None, None)]
    bad = BadRows(1 + others)
    columns = from_record_batch(batch_of(rows[: 1 + others]), PLAN, NOW, bad)
    (_, _, headers), *_ = letters_of(columns, bad)
    assert dict(headers)[b"__kprod.errors.topic"] == b"x" * 1000


def test_many_headers_of_a_row_stay_in_front():
    own = [(f"h{n}", b"%d" % n) for n in range(200)]
    columns = columns_of([b"v"], headers=pa.array([headers_section(own)], pa.large_binary()))
    ((_, _, headers),) = letters_of(columns, all_bad(columns))
    assert [(name.decode(), value) for name, value in headers[:200]] == own
    assert len(headers) == 215


TEXTS = st.none() | st.sampled_from(["t", "u", "", "a b", "x" * 250, "..", "__consumer_offsets"])
HEADERS = st.none() | st.lists(
    st.none() | st.tuples(st.none() | st.text(max_size=3), st.none() | st.binary(max_size=3)),
    max_size=3,
)
ROWS = st.lists(
    st.tuples(
        TEXTS,
        st.none() | st.binary(max_size=4),
        st.none() | st.binary(max_size=40),
        st.none() | st.integers(-2, 3),
        st.none() | st.integers(-2, 3),
        HEADERS,
    ),
    min_size=1,
    max_size=12,
)


def batch_of(rows):
    data = [
        [None if h is None else {"key": h[0], "value": h[1]} for h in row[5]]
        if row[5] is not None
        else None
        for row in rows
    ]
    columns = [[row[i] for row in rows] for i in range(5)]
    arrays = [
        pa.array(values, field.type) for values, field in zip([*columns, data], SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def error_of(row):
    """What a batch of only this row raises without tolerance."""
    try:
        from_record_batch(batch_of([row]), PLAN, NOW)
    except DataError as error:
        return error.kind.kp_code
    return None


@given(ROWS, st.integers(0, 3))
@settings(max_examples=300, deadline=None)
def test_masks_are_the_errors_of_single_rows(rows, cut):
    """A row is bad if and only if it alone is an error, and for a reason that it has."""
    batch = batch_of(rows)
    if cut and cut < len(rows):
        batch, rows = batch.slice(cut), rows[cut:]  # offsets of slices
    bad = BadRows(len(rows))
    columns = from_record_batch(batch, PLAN, NOW, bad)
    alone = [error_of(row) for row in rows]
    assert [which > 0 for which in bad.which.tolist()] == [code is not None for code in alone]
    codes = [bad.found[which - 1].reason.kind.kp_code for which in bad.which.tolist() if which]
    assert codes == [code for code in alone if code is not None]
    good = columns.filter(bad.which == 0)
    wanted = [row for row, code in zip(rows, alone, strict=True) if code is None]
    assert good.rows == len(wanted)
    if wanted:
        same = from_record_batch(batch_of(wanted), PLAN, NOW)
        assert sorted(good.topics()) == sorted(same.topics())
        for name, none in (("key", None), ("value", None), ("headers", b"\0")):
            left, right = (
                [none] * len(wanted) if column is None else column.to_pylist()
                for column in (getattr(good, name), getattr(same, name))
            )
            assert left == right
    for (key, value, headers), row in zip(
        letters_of(columns, bad),
        [row for row, code in zip(rows, alone, strict=True) if code is not None],
        strict=True,
    ):
        assert (key, value) == (row[1], row[2])
        told = dict(headers)
        assert told[b"__connect.errors.topic"] == (row[0] or "").encode()
        asked = -1 if row[3] is None else row[3]
        assert told[b"__connect.errors.partition"] == b"%d" % asked
        own = [h for h in row[5] or [] if h is not None and h[0] is not None]
        assert [(n.decode(), v) for n, v in headers[: len(own)]] == own


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_row_that_compresses_below_the_limit_is_good(compression):
    """max.message.bytes counts batches as they are sent."""
    columns = columns_of([b"x" * 5000, np.random.default_rng(1).bytes(5000), b"y"])
    limits = RowLimits(config(**{"compression.type": compression}), TopicLimits(max_bytes=2000))
    bad = BadRows(3)
    limits.check(columns, NOW, bad)
    assert (bad.which > 0).tolist() == [compression == "none", True, False]


@given(st.integers(0, 300), st.integers(60, 400))
@settings(max_examples=200, deadline=None)
def test_the_size_of_a_batch_of_one_is_exact(size, most):
    from spark_kafka_sink.records.record_batch import HEADER_SIZE
    from spark_kafka_sink.records.single_record import record_bytes

    value = b"v" * size
    bad = BadRows(1)
    RowLimits(config(), TopicLimits(max_bytes=most)).check(columns_of([value]), NOW, bad)
    exact = HEADER_SIZE + len(record_bytes(0, 0, None, value))
    assert bool(bad.which[0]) == (exact > most)


def columns_again(batch):
    return from_record_batch(batch, PLAN, NOW, BadRows(batch.num_rows))


def records_made(letters):
    parts = letters.letters(columns_again, NOW, last=True)
    return [one for part in parts for one in records_of(part)]


@given(st.lists(ROWS, min_size=2, max_size=4))
@settings(max_examples=60, deadline=None)
def test_letters_that_are_held_are_as_those_of_each_batch(batches):
    """Few letters of a batch wait for more: what they say is the same."""
    held, alone, first = dead_letters("dlq", config()), [], 0
    for rows in batches:
        bad = BadRows(len(rows))
        batch = batch_of(rows)
        columns = from_record_batch(batch, PLAN, NOW, bad)
        numbers = first + bad.rows
        first += len(rows)
        if bad.found:
            held.note(batch, columns, bad, numbers)
            assert list(held.letters(columns_again, NOW, last=False)) == []
            made = dead_letters("dlq", config())
            made.note(batch, columns, bad, numbers)
            alone += records_made(made)
    assert records_made(held) == alone
    assert held.rows == len(alone)


@pytest.mark.parametrize("topic", ["t", None])
def test_letters_of_many_held_rows_are_theirs_in_order(topic):
    """They are made in parts, which are slices of the held rows."""
    held, count = dead_letters("dlq", config()), 5_000
    for first in range(0, 4 * count, count):
        rows = [
            (topic, b"k%d" % n, b"v" * (n % 7), None, -1, [(f"h{n}", b"%d" % n)] * (n % 2))
            for n in range(first, first + count)
        ]
        bad = BadRows(count)
        batch = batch_of(rows)
        held.note(batch, from_record_batch(batch, PLAN, NOW, bad), bad, first + np.arange(count))
    parts = list(held.letters(columns_again, NOW, last=True))
    assert [part.rows for part in parts][:2] == [8192, 8192]
    for number, (key, value, headers) in enumerate(
        one for part in parts for one in records_of(part)
    ):
        assert (key, value) == (b"k%d" % number, b"v" * (number % 7))
        assert dict(headers)[b"__kprod.errors.row"] == b"%d" % number
        assert headers[: number % 2] == [(b"h%d" % number, b"%d" % number)] * (number % 2)
    assert number == 4 * count - 1
    assert list(held.letters(columns_again, NOW, last=True)) == []
