"""A state cut into records and put together again, whatever else lies there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.errors import CommitError
from spark_kafka_sink.transactions.commit_log.log_parts import belongs_to, cut, join

KEY = b"orders~app"
#: A state is JSON: it does not begin like a part.
STATES = st.binary(max_size=60).filter(lambda state: not state.startswith(b'{"part":'))


@given(st.lists(st.none() | STATES, max_size=8), st.integers(1, 20))
def test_what_was_written_last_is_what_is_read(states: list[bytes | None], limit: int) -> None:
    """Long and short states and tombstones by turns; nothing is left over in between."""
    there: dict[bytes, bytes] = {}
    for revision, state in enumerate(states):
        records = cut(KEY, state, revision, there, limit)
        assert all(belongs_to(KEY, record_key) for record_key in records)
        for record_key, value in records.items():
            if value is None:
                assert record_key in there
                del there[record_key]
            else:
                there[record_key] = value
        assert join(KEY, there) == state
        assert (state is None) == (not there)


def test_a_state_that_looks_like_a_part_is_none() -> None:
    state = b'{"part":0,"of":1,"revision":1}'
    there = {k: v for k, v in cut(KEY, state, 5, ()).items() if v is not None}
    assert join(KEY, there) == state


def test_a_state_of_one_record_is_readable_as_it_lies() -> None:
    assert cut(KEY, b"{}", 5, ()) == {KEY: b"{}"}


def test_parts_of_other_revisions_are_leftovers_behind_the_end_and_errors_before_it() -> None:
    records = {k: v for k, v in cut(KEY, b"abcdefgh", 7, (), 3).items() if v is not None}
    leftover = cut(KEY, b"abcdefghijkl", 6, (), 3)[KEY + b"#3"]
    assert leftover is not None
    assert join(KEY, records | {KEY + b"#3": leftover}) == b"abcdefgh"
    stale = cut(KEY, b"abcdefgh", 6, (), 3)[KEY + b"#1"]
    assert stale is not None
    with pytest.raises(CommitError, match="part 1 of 3 is missing"):
        join(KEY, records | {KEY + b"#1": stale})
    with pytest.raises(CommitError, match="'orders~app' is not whole: part 2 of 3"):
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
def test_a_first_part_that_is_none_of_ours_is_an_error(line: bytes) -> None:
    with pytest.raises(CommitError, match="no other client may write"):
        join(KEY, {KEY: line + b"\nabc"})


def test_keys_that_begin_alike_are_others() -> None:
    assert belongs_to(KEY, KEY)
    assert belongs_to(KEY, KEY + b"#12")
    assert not belongs_to(KEY, KEY + b"s")
    assert not belongs_to(KEY, b"orders")
