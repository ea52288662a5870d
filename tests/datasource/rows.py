"""Rows to write, and what of them is read back."""

from __future__ import annotations

ROWS = [str(n) for n in range(1, 6)]


def values(consumed):
    return sorted(value.decode() for value in consumed.values)


def frame(spark, data, schema, partitions=1):
    return spark.createDataFrame(data, schema).coalesce(partitions)
