"""Small Arrow batches are joined; no row is lost, moved or held back for long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.records.batch_joiner import HOLD_MS, BatchJoiner
from spark_kafka_sink.records.record_columns import CHUNK_BYTES, CHUNK_ROWS, ChunkSize


def batch(*values: object, name: str = "value") -> pa.RecordBatch:
    return pa.record_batch(
        {name: pa.array([None if v is None else str(v) for v in values], pa.string())}
    )


def joiner_of(
    batches: Iterable[pa.RecordBatch], now_ms: Callable[[], int] = lambda: 0
) -> BatchJoiner:
    return BatchJoiner(batches, now_ms, nullcontext)


def wanting(rows: int) -> ChunkSize:
    return ChunkSize(wanted_rows=rows)


def all_of(joiner: BatchJoiner, wanted_rows: int) -> list[pa.RecordBatch]:
    return list(iter(lambda: joiner.next(wanting(wanted_rows)), None))


@given(
    st.lists(st.integers(0, 30), max_size=30),
    st.lists(st.integers(1, 70), min_size=1, max_size=10),
)
def test_every_row_comes_once_in_order_in_the_wanted_sizes(
    sizes: list[int], wanted: list[int]
) -> None:
    whole = batch(*range(sum(sizes)))
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    batches = [whole.slice(end - size, size) for end, size in zip(ends, sizes, strict=True)]
    joiner = joiner_of(batches)
    joined: list[pa.RecordBatch] = []
    while (one := joiner.next(wanting(wanted[len(joined) % len(wanted)]))) is not None:
        joined.append(one)
    assert [v for one in joined for v in one["value"].to_pylist()] == whole["value"].to_pylist()
    for number, one in enumerate(joined):
        asked = wanted[number % len(wanted)]
        assert one.num_rows < asked + 30, "more was joined than was wanted"
        assert one.num_rows >= asked or one is joined[-1]
    assert joiner.next(wanting(1)) is None


def test_a_batch_that_is_large_enough_is_passed_on_as_it_is() -> None:
    first, second = batch("a", "b"), batch("c", "d")
    joiner = joiner_of([first, second])
    assert joiner.next(wanting(2)) is first
    assert joiner.next(wanting(1)) is second


@pytest.mark.parametrize("sizes", [[150] * 5, [150, 250, 150, 3, 3, 300]])
def test_what_is_joined_fits_into_a_chunk(sizes: list[int]) -> None:
    """What is more would be a chunk of its own, and cost as much as one that is full."""
    batches = [batch(*["x" * 10_000] * size) for size in sizes]
    joined = all_of(joiner_of(batches), CHUNK_ROWS)
    assert sum(one.num_rows for one in joined) == sum(sizes)
    assert all(one.nbytes <= CHUNK_BYTES for one in joined)
    short = [batch(*[None] * (size * 100)) for size in sizes]
    joined = all_of(joiner_of(short), CHUNK_ROWS)
    assert sum(one.num_rows for one in joined) == sum(sizes) * 100
    assert all(one.num_rows <= CHUNK_ROWS for one in joined)
    assert len(joined) < len(sizes)


def test_nothing_is_waited_for_that_would_not_fit() -> None:
    """The next batch is mostly as large as the last one."""
    taken: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            taken.append(number)
            yield batch(*["x" * 10_000] * 300)

    assert joiner_of(batches()).next(wanting(CHUNK_ROWS)).num_rows == 300
    assert taken == [0]


def test_rows_are_not_held_back_for_a_slow_input() -> None:
    """What has taken HOLD_MS to come is passed on before the next batch is waited for."""
    now = 0
    asked: list[int] = []

    def slow(pauses: list[int]) -> Iterator[pa.RecordBatch]:
        nonlocal now
        for number, pause in enumerate(pauses):
            asked.append(number)
            now += pause
            yield batch(number)

    joiner = joiner_of(slow([0, HOLD_MS // 2, HOLD_MS // 2, 0, HOLD_MS, HOLD_MS, 0]), lambda: now)
    assert [one.num_rows for one in (joiner.next(wanting(100)),) if one] == [3]
    assert asked == [0, 1, 2]
    assert [one.num_rows for one in (joiner.next(wanting(100)),) if one] == [2]
    assert asked == [0, 1, 2, 3, 4]
    assert [one.num_rows for one in (joiner.next(wanting(100)),) if one] == [1]
    assert asked == [0, 1, 2, 3, 4, 5]


def test_linger_counts_later_while_batches_are_joined() -> None:
    """Partitions are about to get the rows that are there: a short wait must not send theirs."""
    waits: list[int | None] = []
    delay: int | None = None

    @contextmanager
    def waited(delay_ms: int) -> Iterator[None]:
        nonlocal delay
        delay = delay_ms
        yield
        delay = None

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(4):
            waits.append(delay)
            yield batch(number)

    joiner = BatchJoiner(batches(), lambda: 0, waited)
    assert [one.num_rows for one in all_of(joiner, 2)] == [2, 2]
    assert waits == [0, HOLD_MS, 0, HOLD_MS]


def test_batches_with_other_columns_are_not_joined() -> None:
    batches = [batch("a"), batch("b"), batch("c", name="key"), batch("d")]
    joined = all_of(joiner_of(batches), 100)
    assert [one.to_pydict() for one in joined] == [
        {"value": ["a", "b"]},
        {"key": ["c"]},
        {"value": ["d"]},
    ]


def test_nested_columns_are_joined() -> None:
    headers = pa.array([[("k", b"v")], None], pa.map_(pa.string(), pa.binary()))
    batches = [
        pa.record_batch({"topic": pa.array(topics), "headers": headers})
        for topics in (["a", "b"], ["c", "b"])
    ]
    (joined,) = all_of(joiner_of(batches), 100)
    assert joined["topic"].to_pylist() == ["a", "b", "c", "b"]
    assert joined["headers"].to_pylist() == [[("k", b"v")], None] * 2


class Tagged(pa.ExtensionType):
    """An extension type over ``storage``."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "tests.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


DICTIONARY = pa.array(["x" * 1000, "y"] * 50).dictionary_encode()


@pytest.mark.parametrize(
    "column",
    [
        DICTIONARY,
        pa.array([f"{n}" for n in range(100)]).cast(pa.dictionary(pa.int8(), pa.string())),
        pa.ListArray.from_arrays(list(range(101)), DICTIONARY),
        pa.StructArray.from_arrays([DICTIONARY], ["of"]),
        pa.RunEndEncodedArray.from_arrays(pa.array([100], pa.int32()), pa.array(["x" * 1000])),
        pa.ExtensionArray.from_storage(Tagged(DICTIONARY.type), DICTIONARY),
    ],
    ids=["dictionary", "int8", "list", "struct", "runs", "extension"],
)
def test_rows_that_are_larger_than_their_bytes_are_not_joined(column: pa.Array) -> None:
    """A chunk's bytes would be no bound of them; and some dictionaries can't be joined."""
    batches = [pa.record_batch({"value": column})] * 5
    assert all_of(joiner_of(batches), CHUNK_ROWS) == batches


def test_an_input_error_is_raised_after_the_rows_before_it() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch("a")
        yield batch("b")
        raise OSError("the input broke")

    joiner = joiner_of(broken())
    joined = joiner.next(wanting(100))
    assert joined is not None
    assert joined["value"].to_pylist() == ["a", "b"]
    for _ in range(2):
        with pytest.raises(OSError, match="the input broke"):
            joiner.next(wanting(100))


def test_an_interrupt_is_raised_at_once() -> None:
    def interrupted() -> Iterator[pa.RecordBatch]:
        yield batch("a")
        raise KeyboardInterrupt

    joiner = joiner_of(interrupted())
    with pytest.raises(KeyboardInterrupt):
        joiner.next(wanting(100))
