"""``upserts``: the last change of each key of a change feed, as a DataFrame.

A window function of Spark ranks the changes of each key, and only the last change stays. This needs
one shuffle, and no Python code processes rows. The sink can't do this itself: it can't shuffle, and
the changes of a key have no order if they are in different tasks. ``records/changes/`` makes the
Kafka records of the changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, SchemaError, safe_text
from spark_kafka_sink.config.changelog import (
    CHANGELOGS,
    KEYS_OF_UPSERTS,
    TIED,
    UNORDERED,
    Changelog,
    changelog_of,
    source_position,
    unstable_type,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField
    from pyspark.sql.window import WindowSpec

#: The description of a feed as a mapping, as the option ``changelog`` has it in JSON.
Description = Mapping[str, str | Sequence[str]]

#: Options of to_json, which has milliseconds otherwise.
_WHOLE_TIMES: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
#: Columns that only exist within the plan.
_OURS: Final = "__kprod_"
_SOURCE: Final = "source"
_MOVED, _KEY, _BAD, _PLACE, _RANK = (
    f"{_OURS}{name}" for name in ("moved", "key", "bad", "place", "rank")
)
_COUNT, _TEXT, _SAME, _ROW = (f"{_OURS}{name}" for name in ("count", "text", "same", "row"))


def upserts(
    df: DataFrame,
    keys: Sequence[str],
    changelog: str | Description = "delta-cdf",
    order_by: Sequence[str | Column] = (),
) -> DataFrame:
    """Returns the last change of each key in the feed ``df``: one row for each key, all columns.

        feed = spark.read.option("readChangeFeed", "true").option("startingVersion", 5)
        (upserts(feed.table("t"), keys=["id"]).write.format("kprod")
            .option("changelog", "delta-cdf").option("keyColumns", "id").option("valueColumns", "*")
            .option("kafka.bootstrap.servers", "host:9092").option("topic", "t").save())

    - ``keys`` are the columns of the primary key. In Debezium, these are fields of ``after``.
    - ``changelog`` is ``delta-cdf``, ``debezium``, ``flink``, or a mapping (option ``changelog``).
    - ``order_by`` are columns that define the order of a key's changes: a later change has greater
      values. The default is ``_commit_version``, or the position in Debezium's ``source``.

    An update that changes the key becomes two rows: a delete of the old key, and the new row.
    ``upserts`` needs one shuffle, by key. For a stream, call it in a ``foreachBatch`` function.

    Three kinds of rows always stay: rows without a key, rows with an unknown change type, and rows
    with null in a column that defines the order. If several different rows of a key have the last
    position, all of them stay. The sink makes each of these rows a dead letter or an error.

    Raises ConfigError for a stream, if ``order_by`` and its default are missing, and for a mapping
    with a type ``before`` but no ``delete``. Raises SchemaError for a missing column, and for a key
    column whose equal values may have different bytes, such as the doubles 0.0 and -0.0.
    """
    log = _changelog(changelog)
    _check(df, keys, log)
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    feed = df if log.images is None else _with_moved(df, keys, log)
    order = _order(df, log, order_by)
    type_ = F.col(_quoted(log.column))
    key = [_key(name, log, type_) for name in keys]
    known = F.coalesce(type_.isin(*log.types), F.lit(False))  # noqa: FBT003 - Spark's
    has_key = reduce(or_, (one.isNotNull() for one in key))
    is_ordered = reduce(and_, (one.isNotNull() for one in order))
    # A row that can't be ranked must not hide another row. Its place is null, and it always stays.
    is_bad = ~(known & has_key & is_ordered)
    place = F.when(~is_bad, F.struct(*order, _rank(type_, log, order_by)))
    key_names = [f"{_KEY}{number}" for number in range(len(key))]
    ranked = feed.select(
        "*",
        *(one.alias(name) for one, name in zip(key, key_names, strict=True)),
        is_bad.alias(_BAD),
        place.alias(_PLACE),
    )
    of_key = Window.partitionBy(*key_names, _BAD)
    last_first = of_key.orderBy(F.col(_PLACE).desc())
    last = ranked.withColumn(_RANK, F.rank().over(last_first)).where(F.col(_RANK) == 1)
    told = _compared(last, of_key, last_first, _row_text(df, log, order_by, type_))
    one_each = told.where(F.col(_BAD) | ~F.col(_SAME) | (F.col(_ROW) == 1))
    is_unordered = known & has_key & ~is_ordered
    type_after = F.when(is_unordered, F.lit(UNORDERED)).otherwise(_resulting_type(type_, log))
    columns = (_marked(field, keys, log) for field in df.schema.fields)
    return one_each.withColumn(log.column, type_after).select(*columns)


def _marked(field: StructField, keys: Sequence[str], log: Changelog) -> Column:
    """Returns the column that ``field`` describes. Some columns get the names of the keys as
    metadata, which the planning of the write compares with the option keyColumns:

    - the column with the change type
    - the key columns
    - the struct ``after``, if the keys are fields of this struct (in a feed of Debezium)

    All other columns lose this metadata, which an earlier call of ``upserts`` may have set.
    """
    from pyspark.sql import functions as F

    rows = keys if log.images is None else log.images[1:]
    marked = {name.lower() for name in (log.column, *rows)}
    metadata = dict(field.metadata)
    if field.name.lower() in marked:
        metadata[KEYS_OF_UPSERTS] = list(keys)
    elif KEYS_OF_UPSERTS in metadata:
        # A table keeps the metadata of an earlier call of upserts. (Without any metadata, alias
        # would keep the column's.)
        metadata[KEYS_OF_UPSERTS] = []
    column = F.col(_quoted(field.name))
    return column if metadata == field.metadata else column.alias(field.name, metadata=metadata)


def _resulting_type(type_: Column, log: Changelog) -> Column:
    """Returns a column with the change type that each row has in the result of ``upserts``. This is
    ``type_``, the row's change type in the feed, except in two cases:

    - ``TIED``, if several changes of a key share the last place in the order of changes, and their
      rows differ.
    - The type of a delete, if the row is the pre-image of an update (the table's row before the
      update). A pre-image is the last change of a key only if the update has changed the key. So
      the old key is deleted.
    """
    from pyspark.sql import functions as F

    tied = ~F.col(_BAD) & ~F.col(_SAME)
    known = F.when(tied, F.lit(TIED))
    if log.preimages:
        # The old key gets a tombstone. (Flink's upsert-kafka does the same.)
        known = known.when(type_.isin(*log.preimages), F.lit(log.deletes[0]))
    return known.otherwise(type_)


def _compared(
    last: DataFrame, of_key: WindowSpec, last_first: WindowSpec, text: Column
) -> DataFrame:
    """Adds four columns to ``last``, which has the last changes of each key. A key has several last
    changes if they share the last place in the order of the key's changes.

    - ``_COUNT`` is the number of last changes of the row's key.
    - ``_ROW`` is the number of the row among these changes, from 1.
    - ``_TEXT`` is the table's row as JSON. It is null if the key has only one last change, and for
      a row that can't be ranked.
    - ``_SAME`` tells whether all last changes of the key have equal rows. Equal rows mean that the
      source has sent a change twice. If rows differ, it is unknown which change is the last.
    """
    from pyspark.sql import functions as F

    counted = last.withColumn(_COUNT, F.count(F.lit(1)).over(of_key))
    # A delete has no text; min and max would pass over a null.
    text = F.coalesce(text, F.lit(""))
    compared = counted.withColumn(_TEXT, F.when((F.col(_COUNT) > 1) & ~F.col(_BAD), text))
    first, final = F.min(_TEXT).over(of_key), F.max(_TEXT).over(of_key)
    numbered = compared.withColumn(_ROW, F.row_number().over(last_first))
    return numbered.withColumn(_SAME, first.eqNullSafe(final))


def _row_text(
    df: DataFrame, log: Changelog, order_by: Sequence[str | Column], type_: Column
) -> Column:
    """A column with the table's row as JSON, with the values after the change. Null for a delete,
    and for the pre-image of an update.
    """
    from pyspark.sql import functions as F

    if log.images is not None:
        row = F.col(_quoted(log.images[1]))
    else:
        feed = {log.column, *log.metadata, *(one for one in order_by if isinstance(one, str))}
        row = F.struct(*(F.col(_quoted(name)) for name in df.columns if name not in feed))
    return F.when(~type_.isin(*log.deletes, *log.preimages), F.to_json(row, _WHOLE_TIMES))


def _with_moved(df: DataFrame, keys: Sequence[str], log: Changelog) -> DataFrame:
    """Replaces each row that changes a key by two rows: a delete with the old key, and an insert
    with the new key. All other rows stay the same.
    """
    # (Debezium's connectors write these two rows themselves if the primary key is known.)
    from pyspark.sql import functions as F

    assert log.images is not None
    before, after = (F.col(_quoted(name)) for name in log.images)
    type_ = F.col(_quoted(log.column))
    differ = (~before[name].eqNullSafe(after[name]) for name in keys)
    is_row = type_.isin(*log.inserts, *log.updates) & before.isNotNull() & after.isNotNull()
    moved = is_row & reduce(or_, differ)
    # 0: as it is, 1: the delete, 2: the insert.
    which = F.explode(F.when(moved, F.array(F.lit(1), F.lit(2))).otherwise(F.array(F.lit(0))))
    made = {
        log.column: F.when(F.col(_MOVED) == 1, F.lit(log.deletes[0]))
        .when(F.col(_MOVED) == 2, F.lit(log.inserts[0]))
        .otherwise(type_),
        log.images[0]: F.when(F.col(_MOVED) != 2, before),
        log.images[1]: F.when(F.col(_MOVED) != 1, after),
    }
    columns = [
        made[name].alias(name) if name in made else F.col(_quoted(name)) for name in df.columns
    ]
    return df.select("*", which.alias(_MOVED)).select(*columns)


def _key(name: str, log: Changelog, type_: Column) -> Column:
    from pyspark.sql import functions as F

    if log.images is None:
        return F.col(_quoted(name))
    before, after = (F.col(_quoted(image))[name] for image in log.images)
    return F.when(type_.isin(*log.deletes), before).otherwise(after)


def _rank(type_: Column, log: Changelog, order_by: Sequence[str | Column]) -> Column:
    """A column that ranks changes with the same key and the same position in the feed. The later
    change has the greater rank.

    - The pre-image of an update (the row before the update) is earlier than its post-image.
    - A row of a snapshot is earlier than a change of that row.
    - If the position is the version of the table, a delete is earlier than an insert. Both come
      from one commit that has replaced the row.
    - If the position is another column, for example a time, a delete and an insert have the same
      rank.
    """
    from pyspark.sql import functions as F

    # Names first: a Column that is compared is another Column, and has no truth value.
    is_own = all(isinstance(one, str) for one in order_by) and tuple(order_by) in ((), log.order)
    older = [*log.preimages, *log.snapshots]
    rank = F.when(type_.isin(*older), F.lit(0))
    if is_own and log.images is None:
        rank = rank.when(type_.isin(*log.deletes), F.lit(1))
    return rank.otherwise(F.lit(2))


def _order(df: DataFrame, log: Changelog, order_by: Sequence[str | Column]) -> list[Column]:
    from pyspark.sql import functions as F

    given = [F.col(one) if isinstance(one, str) else one for one in order_by]
    if given:
        return given
    if log.order and all(name.split(".")[0] in df.columns for name in log.order):
        return [F.col(name) for name in log.order]
    source = df.schema[_SOURCE].dataType if _SOURCE in df.columns else None
    position = () if log.images is None else source_position(getattr(source, "names", ()))
    if position:
        # A number as text is greater if it is longer: a change number of Oracle, a file of MySQL.
        fields = getattr(source, "fields", [])
        texts = {field.name for field in fields if field.dataType.typeName() == "string"}
        parts = [(F.col(_SOURCE)[name], name in texts) for name in position]
        return [
            F.when(one.isNotNull(), F.struct(F.length(one), one)) if is_text else one
            for one, is_text in parts
        ]
    raise ConfigError(
        "upserts: it is not known which change of a key is the last one: the feed has no position"
        f"{' in ' + ', '.join(log.order) if log.order else ''}",
        hint='name columns in which later changes are greater: order_by=["offset"] for a feed that'
        " was read from Kafka",
    )


def _changelog(changelog: str | Description) -> Changelog:
    text = changelog if isinstance(changelog, str) else json.dumps(dict(changelog))
    try:
        return changelog_of(text)
    except ValueError as error:
        raise ConfigError(
            f"upserts: changelog is invalid: {error}",
            hint=f"changelog takes {', '.join(CHANGELOGS)}, or a mapping such as"
            ' {"column": "op", "insert": ["I"], "update": ["U"], "delete": ["D"]}',
            kind=Kind.INVALID_VALUE,
        ) from None


def _check(df: DataFrame, keys: Sequence[str], log: Changelog) -> None:
    if df.isStreaming:
        raise ConfigError(
            "upserts: Spark ranks no rows of a stream, so the last change of a key is not known",
            hint="call it in a foreachBatch function: write = foreach_batch(name, **options), then"
            " lambda batch, number: write(upserts(batch, keys), number)",
            kind=Kind.UNSUPPORTED_WRITE,
        )
    if isinstance(keys, str) or not keys:
        raise ConfigError(
            "upserts: keys must be a list of at least one column",
            hint='name the primary key of the table, for example keys=["id"]',
        )
    if log.preimages and not log.deletes:
        raise ConfigError(
            "upserts: changelog names a change type for before and none for delete, and the old key"
            " of an update that changes the key becomes a delete",
            hint="add the field delete to the description, here and in the option changelog, for"
            ' example "delete": ["D"]; the feed itself need not have this type',
            kind=Kind.INVALID_VALUE,
        )
    for name in (log.column, *(log.images or ())):
        _field(df.schema, name, "changelog")
    rows = df.schema if log.images is None else df.schema[log.images[1]].dataType
    for name in keys:
        unstable = unstable_type(_field(rows, name, "keys"))
        if unstable is not None:
            raise SchemaError(
                f"upserts: keys names {safe_text(name)}, which holds a {unstable}, and equal values"
                " of this type are not always the same bytes",
                hint="name other columns, or cast it to decimal, or to string without a collation",
                kind=Kind.COLUMN_TYPE,
            )


def _field(rows: DataType, name: str, argument: str) -> DataType:
    """The type of the field or column ``name``, in any letter case. If there is no such field,
    raises SchemaError with ``argument`` in the message.
    """
    fields = getattr(rows, "fields", [])
    found = next((one for one in fields if one.name.lower() == name.lower()), None)
    if found is None:
        names = safe_text(", ".join(one.name for one in fields), 200)
        raise SchemaError(
            f"upserts: {argument} needs a column {safe_text(name)}, which is not there",
            hint=f"there are {names}",
            kind=Kind.NO_SUCH_COLUMN,
        )
    of: DataType = found.dataType
    return of


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
