"""Arrow columns as Kafka needs them: the second step on the way of a record.

Owns: :class:`ColumnPlan` (which column of the DataFrame is what; made once on the driver),
:class:`RecordColumns` (topic, partition, key, value, headers, timestamp of many rows, nulls and
casts decided) and :func:`from_record_batch`, which makes one from an Arrow batch. Never: partitions
of rows (``partitioners``), bytes of records (``record_encoder``), rows one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: Input bytes of one chunk (design.md rule 5.5).
MAX_CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """Which column of the incoming Arrow batches plays which part. Picklable; no Arrow inside.

    ``topic`` is the option (trimmed); when set, no topic column is read. The others are indices
    into the batch's columns, or None when the DataFrame has no such column. The types are read
    from each batch (Spark sends several Arrow types for one of its own).
    """

    topic: str | None = None
    value_column: int | None = None
    key_column: int | None = None
    topic_column: int | None = None
    headers_column: int | None = None
    partition_column: int | None = None
    timestamp_column: int | None = None


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Many records as columns; every array has ``rows`` entries. Immutable.

    ``topic`` is one name for all rows, or a dictionary<int32, string> array without nulls.
    ``partition`` is int32, -1 where the partitioner decides; None: it decides for all.
    ``key`` and ``value`` are binary or large_binary; None: null in every row.
    ``headers`` is each row's encoded headers section (count varint and headers); None: none.
    ``timestamp`` is int64 milliseconds since the epoch; None: the time of sending.
    ``first_row`` is this object's first row in the Arrow batch that it came from, for messages.
    """

    rows: int
    topic: str | pa.DictionaryArray
    partition: npt.NDArray[np.int32] | None = None
    key: pa.BinaryArray | pa.LargeBinaryArray | None = None
    value: pa.BinaryArray | pa.LargeBinaryArray | None = None
    headers: pa.BinaryArray | None = None
    timestamp: npt.NDArray[np.int64] | None = None
    first_row: int = 0

    def topics(self) -> list[str]:
        """The names of the topics that rows may go to, each once."""
        raise NotImplementedError

    def slice(self, offset: int, length: int) -> RecordColumns:
        """Rows [offset, offset + length), zero copy."""
        raise NotImplementedError

    def chunks(self, max_input_bytes: int = MAX_CHUNK_BYTES) -> Iterator[RecordColumns]:
        """Consecutive slices of at most ``max_input_bytes`` of input; a larger row comes alone."""
        raise NotImplementedError


def from_record_batch(batch: pa.RecordBatch, plan: ColumnPlan, now_ms: int) -> RecordColumns:
    """The rows of ``batch`` as RecordColumns; strings and binaries are not copied.

    ``now_ms`` (wall clock) is the timestamp of rows whose timestamp is null. Raises DataError
    naming column and row for a null topic, a negative partition or timestamp, a null header key.
    """
    raise NotImplementedError
