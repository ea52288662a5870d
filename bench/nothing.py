"""A Python data source that discards all rows. It shows the cost of Spark with any Python sink.

The data source has the name ``nothing``. It supports batch and stream, with Arrow writers like the
writers of kprod.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType


class NothingWriter(DataSourceArrowWriter):
    """Reads its input and forgets it."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class NothingStreamWriter(DataSourceStreamArrowWriter):
    """Reads its input and forgets it."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class NothingSource(DataSource):
    """``format("nothing")``."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def writer(self, schema: StructType, overwrite: bool) -> NothingWriter:
        return NothingWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NothingStreamWriter:  # noqa: N802
        return NothingStreamWriter()
