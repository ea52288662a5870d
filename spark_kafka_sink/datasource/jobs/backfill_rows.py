"""The rows of a backfill: the ranges of its column, and the rows of a step.

:func:`ranges_of` divides the values of a column into ranges. :func:`rows_between` selects the rows
of a step. ``backfill_plan.py`` explains ranges, slices and positions.

Every row of the source is in one range, even a row that is added after the plan was made:

- A range begins at a value of the column and ends before the first value of the next range.
- The first range has no lower bound, and also has the rows with null.
- The last range has no upper bound, and also has the rows with NaN, which Spark sorts last.

The slice of a row is a hash of the row's columns. This hash is the same in each call.

The bounds of the ranges are recorded as texts. The text of a timestamp is its microseconds since
the epoch, so it does not depend on a time zone. Other types are converted to text and back with
CAST.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql import types

from spark_kafka_sink.base.errors import ConfigError, safe_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Up to this number of distinct values, each value of a column is a range of its own.
_MOST_VALUES: Final = 10_000
#: The number of ranges of a column with more values.
_RANGES: Final = 1_000
_TYPES: Final = (
    types.IntegralType, types.FractionalType, types.DateType, types.TimestampType,
    types.TimestampNTZType, types.StringType, types.BooleanType,
)  # fmt: skip
#: Catalyst's functions that return other values in each query, by the names of their classes.
_CHANGING: Final = {
    "CurrentDate": "current_date()", "CurrentTime": "current_time()",
    "CurrentTimestamp": "current_timestamp()", "LocalTimestamp": "localtimestamp()",
    "MonotonicallyIncreasingID": "monotonically_increasing_id()", "Now": "now()",
    "Rand": "rand()", "RandStr": "randstr()", "Randn": "randn()", "Shuffle": "shuffle()",
    "SparkPartitionID": "spark_partition_id()", "Uniform": "uniform()", "Uuid": "uuid()",
}  # fmt: skip
_NOT_HASHED: Final = (types.MapType, types.VariantType)


class Ranges(NamedTuple):
    """The ranges of a column.

    - ``type_name`` is the type of the column.
    - ``bounds`` are the lower bounds of all ranges except the first, as texts.
    - ``rows`` has the number of rows in each range.
    """

    type_name: str
    bounds: tuple[str, ...]
    rows: tuple[int, ...]


def ranges_of(df: DataFrame, by: str) -> Ranges:
    """Divides the values of the column ``by`` into ranges, and counts the rows of each range. Runs
    Spark jobs that read this column.

    If the column has at most 10,000 distinct values, each value is a range. If it has more values,
    there are about 1,000 ranges with about the same number of distinct values.

    Raises ConfigError if the column does not exist. Also raises ConfigError if its type is not a
    number, a date, a timestamp, a string or a boolean.
    """
    field = next((one for one in df.schema.fields if one.name == by), None)
    if field is None or not isinstance(field.dataType, _TYPES):
        found = (
            "there is no such column" if field is None else f"it is {field.dataType.simpleString()}"
        )
        raise ConfigError(
            f"by='{safe_text(by)}': {found}",
            hint="it is the name of a top-level column: a number, a date, a timestamp, a string or "
            "a boolean; steps=40 needs no column",
        )
    column = _named(by)
    counts = df.groupBy(column.alias("value")).agg(F.count(F.lit(1)).alias("rows"))
    text = _text_of(F.col("value"), field.dataType)
    values = counts.orderBy(F.col("value").asc_nulls_first()).limit(_MOST_VALUES + 1)
    rows = values.select(text.alias("text"), "rows").collect()
    if len(rows) > _MOST_VALUES:
        by_range = counts.repartitionByRange(_RANGES, F.col("value").asc_nulls_first())
        numbered = by_range.groupBy(F.spark_partition_id().alias("range")).agg(
            F.min("value").alias("value"), F.sum("rows").alias("rows")
        )
        ordered = numbered.orderBy(F.col("value").asc_nulls_first())
        rows = ordered.select(text.alias("text"), "rows").collect()
    bounds: list[str] = []
    counted: list[int] = []
    for index, one in enumerate(rows):
        # The first bound is never needed, nor is that of the nulls, which come first.
        if index and one["text"] is not None and (index > 1 or rows[0]["text"] is not None):
            bounds.append(str(one["text"]))
            counted.append(0)
        elif not index:
            counted.append(0)
        counted[-1] += int(one["rows"])
    return Ranges(field.dataType.simpleString(), tuple(bounds), tuple(counted))


def rows_between(
    df: DataFrame, first: int, end: int, *, slices: int, by: str = "", type_name: str = "",
    bounds: tuple[str, ...] = (),
) -> DataFrame:  # fmt: skip
    """Returns the rows of ``df`` that a step writes: the rows at the positions from ``first`` up to
    ``end`` - 1 of the plan. A position is the number of a slice. The slices of all ranges are
    numbered consecutively, from 0 (``backfill_plan.py``).

    The other arguments describe the plan:

    - ``slices`` is the number of slices in each range.
    - ``by`` is the column that divides the rows into ranges, and ``type_name`` is its type.
    - ``bounds`` are the lower bounds of all ranges except the first.

    If the step begins or ends within a range, calls :func:`check_slices`, which may raise
    ConfigError.
    """
    at, within = divmod(first, slices)
    after = -(-end // slices)
    found = df
    if by:
        column = _named(by)
        low = _value(bounds[at - 1], type_name) if at else None
        high = _value(bounds[after - 1], type_name) if after <= len(bounds) else None
        if low is not None:
            found = found.where(column >= low)
        if high is not None:
            # (A condition on a partition column alone reads its partitions only.)
            below = column < high
            found = found.where(below if at else column.isNull() | below)
    if within or end % slices:
        check_slices(df)
        slice_ = F.pmod(F.xxhash64(*hashed(df)), F.lit(slices))
        found = found.where((slice_ >= within) & (slice_ < within + end - first))
    return found


def check_hash(df: DataFrame) -> None:
    """Raises ConfigError if ``df`` has no column that Spark can hash. A backfill with the argument
    ``steps`` divides the rows by a hash of their columns.
    """
    if not hashed(df):
        raise ConfigError(
            "steps: none of the columns can be hashed, as a map or a variant can't",
            hint="add a column, or give by=, the name of a column by which rows are cut",
        )


def check_slices(df: DataFrame) -> None:
    """Raises ConfigError if the query plan of ``df`` has a function that returns another value in
    each query, for example ``current_timestamp()``. With such a function, the hash of a row could
    differ from step to step. Then the row could be in two steps, or in none.

    - The error is also raised if a later ``select`` leaves out the column with the function. The
      query plan still has that column.
    - A Spark Connect client can't read the query plan. There, this function does nothing.
    """
    try:
        # Columns and literals of these names are no classes of functions.
        plan = df._jdf.queryExecution().analyzed().toJSON()  # noqa: SLF001 - no public way
    except AttributeError:
        return
    classes = set(re.findall(r'"org\.apache\.spark\.sql\.catalyst\.expressions\.(\w+)"', plan))
    found = sorted(name for one, name in _CHANGING.items() if one in classes)
    if '"udfDeterministic":false' in plan:
        found.append("a function that is not deterministic")
    if found:
        raise ConfigError(
            f"the rows are divided by a hash of their columns, which {', '.join(found)} would "
            "change from step to step: rows would be lost or written twice",
            hint="store the rows in a table first, or make the DataFrame without the function; a "
            "literal in its place must be the same in each call",
        )


def hashed(df: DataFrame) -> list[Column]:
    """The columns of ``df`` that a hash of the row covers: all except maps and variants."""
    return [_named(one.name) for one in df.schema.fields if not _holds(one.dataType)]


def _holds(found: types.DataType) -> bool:
    """Whether the type is a map or a variant, or contains a map or a variant. xxhash64 can't hash
    these types.
    """
    if isinstance(found, types.StructType):
        return any(_holds(one.dataType) for one in found.fields)
    if isinstance(found, types.ArrayType):
        return _holds(found.elementType)
    return isinstance(found, _NOT_HASHED)


def _named(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _text_of(column: Column, of: types.DataType) -> Column:
    """Converts a column of the type ``of`` to the texts that are recorded as bounds of ranges.
    :func:`_value` converts a text back.

    A string that is not valid UTF-8 becomes null, so that no range begins at this string: Python
    would read it as a different string.
    """
    if isinstance(of, types.TimestampType):
        column = F.unix_micros(column)
    elif isinstance(of, types.StringType):
        column = F.when(F.is_valid_utf8(column), column)
    return column.cast("string")


def _value(text: str, type_name: str) -> Column:
    if type_name == "timestamp":
        return F.timestamp_micros(F.lit(int(text)))
    return F.lit(text).cast(type_name)
