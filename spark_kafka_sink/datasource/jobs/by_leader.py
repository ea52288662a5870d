"""``by_leader``: moves rows between tasks, so that each task writes to few brokers.

A row's key determines its Kafka partition, and so the broker. ``by_leader`` computes the partition
of each row before the write, with the partitioner of the write (``records/partitioning``). Then it
moves the row to the task that writes this partition. The partitions are sorted by their leaders,
and each task gets a few consecutive partitions.

The driver requests the leaders of the topic, because a Spark Connect client may not reach the
brokers. The user's process passes the driver's answer (:class:`Places`) to the executors unchanged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.named_columns import WITH_SCHEMA, ColumnFormat, JsonOptions
from spark_kafka_sink.config.option import OptionText
from spark_kafka_sink.datasource.process.asked_of_driver import schema_with_text, text_or_error
from spark_kafka_sink.records.column_plan import (
    ColumnPlan,
    ComposedColumns,
    IntervalUnits,
    NamedColumn,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from spark_kafka_sink.protocol.cluster import PartitionInfos
    from spark_kafka_sink.records.record_columns import RecordColumns

#: The option of the data source that carries the request to the driver. Its value is the schema.
_QUESTION: Final = "byleader"
_PARTITION: Final = "partition"
#: Columns that only exist within the plan: the task, and a hash of the row.
_TASK: Final = "__kprod_task"
_HASH: Final = "__kprod_hash"
#: A size of record batches in bytes, which partitioners need as an argument. It has no effect here,
#: because rows without a key are placed by a hash.
_BATCH_BYTES: Final = 16_384


def by_leader(df: DataFrame, *, tasks: int, **options: OptionText) -> DataFrame:
    """Moves the rows of ``df`` to other Spark partitions, so that each Spark partition writes to
    few brokers. Needs one shuffle.

        options = {"topic": "orders", "kafka.bootstrap.servers": "host:9092", "keyColumns": "id"}
        by_leader(df, tasks=200, **options).write.format("kprod").options(**options).save()

    ``tasks`` is the maximum number of Spark partitions. Each Spark partition gets the rows of at
    least one Kafka partition. ``options`` are the options of the write, and must contain ``topic``.

    The result has a column ``partition`` with the Kafka partition that the write's partitioner
    would choose. If ``df`` already has that column, only its nulls are replaced. For a row without
    a key, a hash of the row chooses the Kafka partition.

    All rows of a Kafka partition are in one task:

    - The rows of a key are written in the order that they have in the task. To determine the order,
      sort the result with ``sortWithinPartitions``.
    - If many rows have the same key, one task takes long.

    The shuffle saves more than it costs from about 2000 connections (tasks x brokers).

    Raises ConfigError for a stream, for a Spark before 4.1, and in these cases:

    - The option ``topic`` is not set. A column ``topic`` does not replace the option.
    - The key has a schema, or the partitioner is your own class.
    - ``df`` is a change feed with the structs ``before`` and ``after`` (Debezium).

    Also raises the errors of planning a write, such as SchemaError and KafkaTimeoutError.
    """
    from pyspark.sql import functions as F

    from spark_kafka_sink.datasource.jobs.backfill_rows import hashed

    if tasks < 1:
        raise ConfigError(f"tasks={tasks}: it is at least 1", kind=Kind.INVALID_VALUE)
    if df.isStreaming:
        raise ConfigError(
            "by_leader: the rows of a stream are planned anew in each micro-batch",
            hint="call by_leader in a foreachBatch function, with the micro-batch",
            kind=Kind.UNSUPPORTED_WRITE,
        )
    if not hasattr(df, "repartitionById"):
        raise ConfigError(
            "by_leader needs Spark 4.1, whose repartitionById puts rows into a given partition",
            hint="install pyspark 4.1 or later",
            kind=Kind.UNSUPPORTED_WRITE,
        )
    question = {**options, _QUESTION: df.schema.json()}
    text = text_or_error(df.sparkSession, question, "by_leader")
    tasks = min(tasks, len(Places.decode(text).leaders))
    columns = hashed(df)
    _refuse(
        not columns,
        "a DataFrame of maps and variants alone, which Spark can't hash",
        "add a column, such as the key",
    )
    hashes = df.withColumn(_HASH, F.xxhash64(*columns))
    placed = hashes.mapInArrow(_placing(text, tasks), _with_columns(df.schema))
    return placed.repartitionById(tasks, _TASK).drop(_TASK)


def _with_columns(schema: StructType) -> StructType:
    """The schema with two integer columns at its end: the Kafka partition of a row, named
    ``partition``, and the number of the task that writes the row. If ``schema`` has a column
    ``partition``, the new column replaces it.
    """
    from pyspark.sql.types import IntegerType, StructField, StructType

    kept = [field for field in schema.fields if field.name.lower() != _PARTITION]
    made = (StructField(name, IntegerType()) for name in (_PARTITION, _TASK))
    return StructType([*kept, *made])


@dataclass(frozen=True, slots=True)
class Places:
    """The data that executors need to choose partitions: the columns with the key and the
    partition, the topic's leaders, and the partitioner of the write.
    """

    key: ComposedColumns | None
    key_column: int | None
    partition_column: int | None
    topic: str
    leaders: tuple[int, ...]
    partitioner: str | None
    ignore_keys: bool

    def encode(self) -> str:
        """Returns this object as JSON, which the user's process passes from the driver to the
        executors.
        """
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Places:
        """Decodes the text that :meth:`encode` has made. The text is not checked."""
        fields = json.loads(text)
        key, leaders = fields.pop("key"), tuple(fields.pop("leaders"))
        return cls(key=None if key is None else _key_of(key), leaders=leaders, **fields)

    @property
    def infos(self) -> PartitionInfos:
        """The partitions of the topic with their leaders."""
        from spark_kafka_sink.protocol.cluster import PartitionInfo, PartitionInfos, TopicPartition

        numbered = enumerate(self.leaders)
        return PartitionInfos.of(
            self.topic,
            (PartitionInfo(TopicPartition(self.topic, n), leader) for n, leader in numbered),
        )


def _key_of(fields: dict[str, Any]) -> ComposedColumns:
    return ComposedColumns(
        tuple(NamedColumn(c["name"], c["index"], _tuples(c["units"])) for c in fields["columns"]),
        ColumnFormat(fields["format"]),
        nulls_are_null=fields["nulls_are_null"],
        json=JsonOptions(**fields["json"]),
    )


def _tuples(units: str | list[Any] | None) -> IntervalUnits:
    """Converts nested lists to nested tuples, because JSON has only lists. ``units`` are the units
    of interval columns.
    """
    return tuple(map(_tuples, units)) if isinstance(units, list) else units


def schema_with_places(
    options: Mapping[str, str], plan_columns: Callable[..., ColumnPlan]
) -> StructType:
    """Returns to ``by_leader`` what it needs to choose the Kafka partition of each row
    (:class:`Places`): the columns of the key and the partition, the partitioner, and the leader of
    each partition of the topic.

    ``by_leader`` runs in the user's process. With Spark Connect, this process may not reach the
    brokers. So ``by_leader`` sends a request to the driver, and this function runs on the driver.
    ``process/asked_of_driver.py`` describes the way of a request.

    * ``options``: the options of the write, and the request. The request is the option
      ``byleader``. Its value is the schema of the DataFrame, as JSON.
    * ``plan_columns``: the function of ``write/schema.py`` that finds the columns of the key and of
      the partition.

    The metadata of the returned schema contain the answer: a :class:`Places` object as JSON, or the
    KafkaError that ``by_leader`` then raises.
    """
    given = dict(options)
    schema = given.pop(_QUESTION)
    return schema_with_text(lambda: _places(given, schema, plan_columns).encode())


def _places(
    options: Mapping[str, str], schema_json: str, plan_columns: Callable[..., ColumnPlan]
) -> Places:
    from pyspark.sql.types import StructType

    from spark_kafka_sink.admin.admin_client import MISSING_TOPIC_TIMEOUT_MS, AdminClient
    from spark_kafka_sink.config.names.given_options import given_options
    from spark_kafka_sink.config.names.unknown_options import PREFIX
    from spark_kafka_sink.config.option_table import PARTITIONER_NAMES
    from spark_kafka_sink.config.parsing import sink_config_of

    config = sink_config_of(given_options(options, PREFIX))
    name = config.producer.partitioner_class
    _refuse(config.topic is None, "a column topic", "write each topic by itself: set topic")
    _refuse(
        name is not None and name not in PARTITIONER_NAMES,
        f"the partitioner {name}, because its class may need the values",
        "choose a partitioner of this package, or leave this function out",
    )
    schema = StructType.fromJson(json.loads(schema_json))
    columns = plan_columns(
        schema, config.topic, config.named_columns, config.log_topics, config.changes
    )
    changes = columns.changes
    _refuse(
        changes is not None and changes.images is not None,
        "a feed with the row before and after a change",
        "select the columns of the row after the change, and write these",
    )
    _refuse(
        columns.key is not None and columns.key.format in WITH_SCHEMA,
        "a key with a schema, because its bytes need the registry",
        "write the key as json or string",
    )
    topic = str(config.topic).strip()
    with AdminClient(config.producer) as admin:
        cluster = admin.describe_topics(
            (topic,),
            timeout_ms=config.producer.max_block_ms,
            missing_topic_timeout_ms=MISSING_TOPIC_TIMEOUT_MS,
        )
    infos = cluster.topics[topic]
    return Places(
        columns.key,
        columns.key_column,
        columns.partition_column,
        topic,
        tuple(infos.leader(number) for number in range(len(infos))),
        name,
        config.producer.partitioner_ignore_keys,
    )


def _refuse(condition: bool, what: str, hint: str) -> None:
    if condition:
        raise ConfigError(f"by_leader can't take {what}", hint=hint, kind=Kind.UNSUPPORTED_WRITE)


def _placing(
    places: str, tasks: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Creates a function for Spark's ``mapInArrow``. The function adds the Kafka partition and the
    task to each row. It imports this package on the executor.
    """

    def placed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_kafka_sink.datasource.jobs.by_leader import with_partitions

        return with_partitions(batches, places, tasks)

    return placed


def with_partitions(
    batches: Iterator[pa.RecordBatch], places: str, tasks: int
) -> Iterator[pa.RecordBatch]:
    """Adds the Kafka partition and the task of each row to the Arrow batches.

    - In ``batches``, the last column has a hash of the row.
    - In the result, the column ``partition`` has the Kafka partition. The last column has the
      number of the task. The column with the hash is removed.

    ``places`` is the text of a :class:`Places` object from the driver. ``tasks`` is the number of
    tasks. Raises DataError for a row if the write would refuse its key or its partition.
    """
    import numpy as np

    from spark_kafka_sink.records.partitioning.few_leaders import in_leader_order
    from spark_kafka_sink.records.partitioning.partitioners import (
        partitioner,
        without_fixed_partition,
    )
    from spark_kafka_sink.records.partitioning.topic_view import TopicView

    found = Places.decode(places)
    infos = found.infos
    plan = ColumnPlan(
        found.topic,
        key_column=found.key_column,
        partition_column=found.partition_column,
        key=found.key,
    )
    choice = partitioner(found.partitioner, ignore_keys=found.ignore_keys)
    view = TopicView(len(infos), infos.available, _BATCH_BYTES)
    among = np.array(view.available or range(view.count), np.int32)
    task_of = (in_leader_order(infos).astype(np.int64) * tasks // len(infos)).astype(np.int32)
    for batch in batches:
        columns = _columns(batch, plan)
        chosen = choice.assign(columns, {infos.topic: view}, _nothing_open)
        unfixed = without_fixed_partition(found.partitioner, columns, ignore_keys=found.ignore_keys)
        # The partition of each row must depend on the row alone. For a row without a key, the
        # partitioner chooses it at random, or depending on the previous rows. But Spark may compute
        # a part of the shuffle again, after an executor is lost:
        #   1. Row r goes to task 3, which reads and writes it, and ends.
        #   2. The executor is lost, with the output that tasks 4 to 9 have not read yet.
        #   3. In the second computation, row r goes to task 5, which writes it once more.
        # A row that goes to task 5 first, and to task 3 in the second computation, is lost. So a
        # hash of the row chooses the partition. (Spark's repartition sorts its rows for this
        # reason.)
        if unfixed.any():
            hashes = batch.column(_HASH).to_numpy().view(np.uint64)[unfixed]
            chosen[unfixed] = among[hashes % np.uint64(len(among))]
        yield _extended(batch, chosen, task_of[chosen])


def _columns(batch: pa.RecordBatch, plan: ColumnPlan) -> RecordColumns:
    from spark_kafka_sink.records.formats.composed_columns import with_composed
    from spark_kafka_sink.records.record_columns import from_record_batch

    composed, plan = with_composed(batch, plan) if plan.names_columns else (batch, plan)
    return from_record_batch(composed, plan, time.time_ns() // 1_000_000)


def _nothing_open(tp: object) -> None:
    """Returns None to a partitioner that asks for the number of free bytes in an open record batch.
    No record batch is open here.
    """
    del tp


def _extended(
    batch: pa.RecordBatch, partitions: npt.NDArray[np.int32], tasks: npt.NDArray[np.int32]
) -> pa.RecordBatch:
    import pyarrow as pa

    dropped = (_PARTITION, _HASH)
    kept = [n for n, name in enumerate(batch.schema.names) if name.lower() not in dropped]
    names = [batch.schema.names[n] for n in kept]
    arrays = [batch.column(n) for n in kept]
    return pa.RecordBatch.from_arrays(
        [*arrays, pa.array(partitions), pa.array(tasks)], [*names, _PARTITION, _TASK]
    )
