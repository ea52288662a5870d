"""A stream of numbers whose offsets look like a Kafka source's in the checkpoint: for offsetsGroup.

As ``rate-micro-batch``, every micro-batch has as many rows as the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType


class CountedSource(DataSource):
    """``topic``: of the offsets, in its partition 0; ``rows`` of a micro-batch, of ``tasks``."""

    @classmethod
    def name(cls) -> str:
        return "counted"

    def schema(self) -> str:
        return "seq bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        of = self.options
        return CountedReader(of["topic"], int(of["rows"]), int(of["tasks"]))


class CountedReader(DataSourceStreamReader):
    def __init__(self, topic: str, rows: int, tasks: int) -> None:
        self._topic = topic
        self._rows = rows
        self._tasks = tasks

    def initialOffset(self) -> dict:
        return {self._topic: {"0": 0}}

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:
        return {self._topic: {"0": start[self._topic]["0"] + self._rows}}

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        first, last = (int(one[self._topic]["0"]) for one in (start, end))
        bounds = [first + (last - first) * i // self._tasks for i in range(self._tasks + 1)]
        return [InputPartition(pair) for pair in zip(bounds, bounds[1:], strict=False)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield from ((seq,) for seq in range(*partition.value))
