"""Converts Rows to Arrow batches, for streams on pyspark 4.0, which has no Arrow stream writer.

Only the columns that a :class:`ColumnPlan` names are converted. ``records/record_columns`` checks
the values.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_kafka_sink.records.column_plan import ColumnPlan

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

#: The largest number of rows in an Arrow batch. The number is small, because a row may be large,
#: and takes even more memory as Python objects.
ROWS_PER_BATCH = 1024

_COLUMNS = tuple(f.name for f in fields(ColumnPlan) if f.name.endswith("_column"))


class RowAdapter:
    """Converts Spark's ``Row`` objects to Arrow batches.

    The batches have only the columns that the plan names. The attribute ``plan`` is a copy of the
    plan with the indices of the columns in these batches.
    """

    def __init__(self, schema: StructType, plan: ColumnPlan) -> None:
        names = [name for name in _COLUMNS if getattr(plan, name) is not None]
        self._sources: list[int] = [getattr(plan, name) for name in names]
        renumbered: dict[str, Any] = {name: index for index, name in enumerate(names)}
        self.plan = replace(plan, **renumbered)
        types = [schema.fields[source].dataType for source in self._sources]
        converted = [_conversion(data_type) for data_type in types]
        self._cells = [cell for _, cell in converted]
        self._schema = pa.schema(
            [
                pa.field(schema.fields[source].name, arrow)
                for source, (arrow, _) in zip(self._sources, converted, strict=True)
            ]
        )

    def batches(
        self, rows: Iterable[Sequence[object]], rows_per_batch: int = ROWS_PER_BATCH
    ) -> Iterator[pa.RecordBatch]:
        """Yields Arrow batches of at most ``rows_per_batch`` rows, in the order of the rows."""
        iterator = iter(rows)
        while chunk := list(islice(iterator, rows_per_batch)):
            arrays = [
                pa.array(
                    [row[source] if cell is None else cell(row[source]) for row in chunk],
                    type=field.type,
                )
                for source, cell, field in zip(
                    self._sources, self._cells, self._schema, strict=True
                )
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _conversion(data_type: DataType) -> tuple[pa.DataType, Callable[[object], object] | None]:
    """The Arrow type of a planned column, and a function that converts a Python value to a value
    that Arrow accepts. The function is None if no conversion is needed.
    """
    from pyspark.sql import types

    if isinstance(data_type, types.BinaryType):
        return pa.binary(), None
    if isinstance(data_type, types.IntegerType):
        return pa.int32(), None
    if isinstance(data_type, types.LongType):
        return pa.int64(), None
    if isinstance(data_type, types.TimestampType):
        return pa.timestamp("us", tz="UTC"), _to_utc
    if isinstance(data_type, types.TimestampNTZType):
        return pa.timestamp("us"), None
    if isinstance(data_type, types.MapType):
        return pa.map_(pa.string(), pa.binary()), _items
    if isinstance(data_type, types.ArrayType):
        header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        return pa.list_(header), _header_dicts
    return pa.string(), None  # string, char, varchar: schema.py let nothing else pass


def _to_utc(cell: object) -> object:
    """Converts a timestamp cell to UTC. (Spark passes a naive datetime in this process's time
    zone.)
    """
    if isinstance(cell, dt.datetime) and cell.tzinfo is None:
        return cell.astimezone(dt.UTC)
    return cell


def _items(cell: object) -> object:
    return list(cell.items()) if isinstance(cell, dict) else cell


def _header_dicts(cell: object) -> object:
    if not isinstance(cell, list):
        return cell
    return [None if header is None else {"key": header[0], "value": header[1]} for header in cell]
