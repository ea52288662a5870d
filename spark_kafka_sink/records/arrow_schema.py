"""Converts Arrow record batches, the arguments of ``send_batch``, to columns of records.

The name of a column determines its role: key, value, topic and so on. The rules and the error
messages are the same as for a DataFrame (``datasource/write/schema.py``). ``record_columns`` checks
the values of rows.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from spark_kafka_sink.base.errors import DataError, SchemaError
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.records.record_columns import RecordColumns, from_record_batch

#: The name of Arrow's type for the signatures of packages that do not import Arrow.
ArrowBatch = pa.RecordBatch

_TEXT_OR_BYTES = "string or binary"
_HEADERS = "list<struct<key:string,value:binary>> or map<string,binary or string>"
_TIMESTAMP = "timestamp or int64 (milliseconds since the epoch)"


def plan_batch(schema: pa.Schema, topic: str | None) -> ColumnPlan:
    """Determines which columns of ``schema`` are the key, the value and so on.

    If ``topic`` is given, it is the topic of all rows, and a column ``topic`` is ignored. If
    ``topic`` is None, the column ``topic`` has the topic of each row.

    Raises SchemaError if a required column is missing, or if a column has a wrong type. The column
    ``value`` is always required. The column ``topic`` is required if ``topic`` is None.
    """
    topic = None if topic is None else topic.strip()
    topic_column = None
    if topic is None:
        topic_column = _column(schema, "topic", _is_text, "string")
        if topic_column is None:
            raise SchemaError(
                "topic option required when no 'topic' attribute is present. Use the topic option"
                " for setting a topic.",
                hint="give the argument topic, or a column topic",
            )
    key = _column(schema, "key", _is_text_or_bytes, _TEXT_OR_BYTES)
    value = _column(schema, "value", _is_text_or_bytes, _TEXT_OR_BYTES)
    if value is None:
        raise SchemaError(
            "Required attribute 'value' not found", hint="add a column value (string or binary)"
        )
    return ColumnPlan(
        topic=topic,
        value_column=value,
        key_column=key,
        topic_column=topic_column,
        headers_column=_column(schema, "headers", _is_headers, _HEADERS),
        partition_column=_column(schema, "partition", _is_integer, "int"),
        timestamp_column=_column(schema, "timestamp", _is_timestamp, _TIMESTAMP),
    )


class ArrowBatchReader:
    """Converts Arrow record batches to columns of records.

    Consecutive batches often have the same schema and topic. For these batches, the object
    determines only once which column is the key, the value and so on.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[pa.Schema, str | None, ColumnPlan] | None = None

    @staticmethod
    def checked(batch: object) -> pa.RecordBatch:
        """Returns ``batch`` unchanged. Raises DataError if it is not a pyarrow.RecordBatch."""
        if isinstance(batch, pa.RecordBatch):
            return batch
        raise DataError(
            f"send_batch takes a pyarrow.RecordBatch, not {type(batch).__name__}",
            hint="a table's are in table.to_batches()",
        )

    def columns(self, batch: object, topic: str | None, now_ms: int) -> RecordColumns:
        """Converts ``batch``, a pyarrow.RecordBatch, to columns of records.

        ``topic`` is the topic of all rows. None means that the batch has a column ``topic``. A row
        with a null timestamp gets the timestamp ``now_ms`` (milliseconds since the epoch).

        Raises SchemaError if a required column is missing, or if a column has a wrong type. Raises
        DataError if ``batch`` is no pyarrow.RecordBatch, or if a row can't be sent.
        """
        rows = self.checked(batch)
        last = self._last
        if last is None or last[1] != topic or not last[0].equals(rows.schema):
            last = self._last = (rows.schema, topic, plan_batch(rows.schema, topic))
        try:
            return from_record_batch(rows, last[2], now_ms)
        except pa.ArrowInvalid as error:
            # Its text may hold a value.
            raise DataError(
                "a value of the Arrow batch does not fit into a field of Kafka (a partition beyond"
                " 32 bits, most likely)"
            ) from error


def columns_of_record(topic: str, key: bytes | None, value: bytes | None) -> RecordColumns:
    """Creates columns with one row for a single record."""
    return RecordColumns(
        rows=1,
        topic=topic,
        key=None if key is None else pa.array([key], pa.binary()),
        value=None if value is None else pa.array([value], pa.binary()),
    )


def _column(
    schema: pa.Schema, name: str, accepts: Callable[[pa.DataType], bool], wanted: str
) -> int | None:
    """Finds the first column with exactly the name ``name``, and returns its index. None if there
    is no such column.

    Raises SchemaError if ``accepts`` returns False for the type of this column. ``wanted``
    describes the accepted types in the message.
    """
    for index, field in enumerate(schema):
        if field.name == name:
            if accepts(_plain(field.type)):
                return index
            raise SchemaError(
                f"{name} attribute unsupported type {field.type}. {name} must be a(n) {wanted}",
                hint=f"cast it, or drop or rename the column {name}",
            )
    return None


def _plain(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def _is_text(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(data_type)
        or types.is_large_string(data_type)
        or types.is_string_view(data_type)
        or types.is_null(data_type)
    )


def _is_text_or_bytes(data_type: pa.DataType) -> bool:
    types = pa.types
    return _is_text(data_type) or bool(
        types.is_binary(data_type)
        or types.is_large_binary(data_type)
        or types.is_fixed_size_binary(data_type)
        or types.is_binary_view(data_type)
    )


def _is_integer(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_null(data_type))


def _is_timestamp(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_timestamp(data_type) or types.is_int64(data_type) or types.is_null(data_type)
    )


def _is_headers(data_type: pa.DataType) -> bool:
    types = pa.types
    if types.is_null(data_type):
        return True
    if types.is_map(data_type):
        return _is_text(data_type.key_type) and _is_text_or_bytes(data_type.item_type)
    if not (types.is_list(data_type) or types.is_large_list(data_type)):
        return False
    element = data_type.value_type
    return bool(
        types.is_struct(element)
        and [field.name for field in element] == ["key", "value"]
        and _is_text(element.field("key").type)
        and _is_text_or_bytes(element.field("value").type)
    )
