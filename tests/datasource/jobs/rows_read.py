"""The number of rows that Spark reads from Parquet files, by the metrics of Spark's queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


class RowsRead:
    """Counts the rows of each scan, also of Delta tables; Delta's log is no scan of this kind."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._next = 0
        self.take()

    def take(self) -> int:
        """The rows that were read since the last call."""
        self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        store = self._spark._jsparkSession.sharedState().statusStore()
        queries = [one.executionId() for one in self._each(store.executionsList())]
        new = [number for number in queries if number >= self._next]
        self._next = max(queries, default=-1) + 1
        return sum(self._of_query(store, number) for number in new)

    def _of_query(self, store: Any, number: int) -> int:
        values = store.executionMetrics(number)
        scans = [
            node
            for node in self._each(store.planGraph(number).allNodes())
            if node.name().startswith("Scan parquet")
        ]
        rows = [
            values.get(metric.accumulatorId())
            for scan in scans
            for metric in self._each(scan.metrics())
            if metric.name() == "number of output rows"
        ]
        return sum(int(one.get().replace(",", "")) for one in rows if one.isDefined())

    def _each(self, items: Any) -> Iterator[Any]:
        yield from self._spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(items)
