"""What a Python worker imported is not visited by each of its garbage collections."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_kafka_sink.datasource.process.worker_heap import freeze_modules
from tests.programs import run_python

_PLAN_AND_COMMIT = """
import gc
import sys
from importlib.machinery import ModuleSpec

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StructField, StructType
from spark_kafka_sink.datasource.source import KprodDataSource
from tests.datasource.commit_messages import message

sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "preflight": "off"}
schema = StructType([StructField("value", BinaryType())])
counts = [gc.get_freeze_count()]
writer = KprodDataSource(CaseInsensitiveDict(options)).writer(schema, overwrite=False)
counts.append(gc.get_freeze_count())
held = [[] for _ in range(1000)]
writer.commit([message()])
counts.append(gc.get_freeze_count())
print(*counts)
"""


def test_a_plan_and_a_commit_freeze_the_heap_of_a_worker():
    """The process believes that it is a worker: its main module has the name of Spark's daemon."""
    printed = run_python("-c", _PLAN_AND_COMMIT).stdout.split()
    before, planned, committed = (int(count) for count in printed[-3:])
    assert before == 0
    assert planned > 10_000
    assert committed >= planned + 1000


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
