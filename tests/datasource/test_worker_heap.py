"""What a Python worker imported is not visited by each of its garbage collections."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_kafka_sink.datasource.process.worker_heap import freeze_modules


def test_a_users_own_process_is_left_alone():
    """Its cycles must be found, whoever plans a write there."""
    before = gc.get_freeze_count()
    assert freeze_modules() is False
    assert gc.get_freeze_count() == before


@pytest.mark.spark
def test_a_worker_is_frozen_after_its_first_two_pieces_of_work(spark):
    """Spark's daemon collects garbage after each task: 16 ms of CPU with all that is imported.
    pandas is imported behind the first task, by Spark's ``pyarrow.array`` for its message.
    """

    def frozen(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        import pyarrow

        from spark_kafka_sink.datasource.process.worker_heap import freeze_modules

        assert freeze_modules()
        first = gc.get_freeze_count()
        imported = [[] for _ in range(1000)]
        assert freeze_modules()
        second = gc.get_freeze_count()
        rows = [[] for _ in range(1000)]
        assert freeze_modules()  # by the third task: nothing more is frozen
        counts = [first, second - first, gc.get_freeze_count() - second]
        assert len(imported) == len(rows)
        columns = [pyarrow.array([count], pyarrow.int64()) for count in counts]
        yield pyarrow.RecordBatch.from_arrays(columns, names=["first", "second", "third"])

    (row, *_) = spark.range(1).mapInArrow(frozen, "first long, second long, third long").collect()
    assert row.first > 10_000
    assert row.second >= 1000
    assert row.third == 0
