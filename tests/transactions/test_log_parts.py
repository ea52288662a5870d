"""A state and the parts of its block, cut into records and put together again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import CommitLogError
from spark_kafka_sink.transactions.commit_log.log_parts import (
    changes,
    cut,
    documents,
    join,
    key_of,
    parts_in,
)

KEY = b"orders~app"
#: A document is JSON: it does not begin like a piece.
DOCUMENTS = st.binary(max_size=60).filter(lambda state: not state.startswith(b'{"part":'))
STATES = st.none() | DOCUMENTS
#: Each with the size of a record, which another version may have chosen otherwise.
WRITES = st.lists(
    st.tuples(STATES, st.lists(DOCUMENTS, max_size=4), st.integers(1, 20)), max_size=8
)


@given(WRITES)
def test_what_was_written_last_is_what_is_read(
    writes: list[tuple[bytes | None, list[bytes], int]],
) -> None:
    """Long and short states, parts and tombstones by turns; nothing is left over in between."""
    there: dict[bytes, bytes] = {}
    for revision, (state, parts, limit) in enumerate(writes):
        wanted = documents(KEY, state, parts)
        for record_key, value in changes(there, wanted, revision, limit).items():
            assert key_of(record_key) == KEY
            if value is None:
                assert record_key in there
                del there[record_key]
            else:
                there[record_key] = value
        assert join(KEY, there) == state
        assert parts_in(KEY, there) == parts
        assert changes(there, wanted, revision + 1, limit) == {}


@pytest.mark.parametrize("limit", [5, 500])
def test_a_part_is_written_without_those_before_it(limit: int) -> None:
    """Else the log would grow with the square of a block's writes."""
    there = {
        k: v for k, v in changes({}, documents(KEY, b"a state", [b"a part"]), 1, limit).items() if v
    }
    more = changes(there, documents(KEY, b"a state", [b"a part", b"another"]), 2, limit)
    assert {key.partition(b"#w")[2][:1] for key in more} == {b"1"}


def test_a_state_that_looks_like_a_piece_is_none() -> None:
    state = b'{"part":0,"of":1,"revision":1}'
    assert join(KEY, cut(KEY, state, 5)) == state


def test_a_state_of_one_record_is_readable_as_it_is() -> None:
    assert cut(KEY, b"{}", 5) == {KEY: b"{}"}


def test_pieces_of_other_revisions_are_leftovers_or_errors() -> None:
    records = cut(KEY, b"abcdefgh", 7, 3)
    leftover = cut(KEY, b"abcdefghijkl", 6, 3)[KEY + b"#3"]
    assert join(KEY, records | {KEY + b"#3": leftover}) == b"abcdefgh"
    stale = cut(KEY, b"abcdefgh", 6, 3)[KEY + b"#1"]
    with pytest.raises(CommitLogError, match="part 1 of 3 is missing"):
        join(KEY, records | {KEY + b"#1": stale})
    with pytest.raises(CommitLogError, match="'orders~app' is not whole: part 2 of 3"):
        join(KEY, {k: v for k, v in records.items() if k != KEY + b"#2"})


@pytest.mark.parametrize(
    "line",
    [
        b'{"part":',
        b'{"part":0}',
        b'{"part":0,"of":0,"revision":1}',
        b'{"part":null,"of":1}',
        b'{"part":' + b"[" * 200_000,
        b'{"part":0,"of":1e400,"revision":1}',
        b'{"part":0,"of":NaN,"revision":1}',
        b'{"part":0,"of":1' + b"0" * 5000 + b',"revision":1}',
    ],
)
def test_a_first_piece_that_is_none_of_ours_is_an_error(line: bytes) -> None:
    with pytest.raises(CommitLogError, match="no other client may write"):
        join(KEY, {KEY: line + b"\nabc"})


def test_keys_that_begin_alike_are_others() -> None:
    assert [key_of(KEY + end) for end in (b"", b"#12", b"#w1#2")] == [KEY] * 3
    assert key_of(KEY + b"s#1") != KEY
