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
def test_a_workers_modules_are_frozen_after_its_first_work(spark):
    """Spark's daemon collects garbage after each task: 16 ms of CPU with all that is imported."""

    def frozen(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        import pyarrow

        from spark_kafka_sink.datasource.process.worker_heap import freeze_modules

        assert freeze_modules()
        first = gc.get_freeze_count()
        more = [[] for _ in range(100)]
        assert freeze_modules()  # again by the next task: nothing more is frozen
        assert gc.get_freeze_count() == first, len(more)
        counts = pyarrow.array([first], pyarrow.int64())
        yield pyarrow.RecordBatch.from_arrays([counts], names=["frozen"])

    (row, *_) = spark.range(1).mapInArrow(frozen, "frozen long").collect()
    assert row.frozen > 10_000
