"""``read_dead_letters``: a topic of dead letters as a DataFrame.

Owns: its columns, and the tasks that read. Never: the requests (``letter_reader.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.dead_letters.letter_reader import LetterReader
from spark_kafka_sink.datasource.plain_errors import without_traceback
from spark_kafka_sink.records.letters.letter_fields import letter_fields
from spark_kafka_sink.records.log_records import LogRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_ARROW: Final = pa.schema(
    [
        *(("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(_HEADER))),
        *((name, pa.string()) for name in ("topic", "reason", "code", "message")),
        *(("row", pa.int64()), ("batch", pa.int64())),
    ]
)
_ROWS_OF_A_BATCH: Final = 4096


@without_traceback
def read_dead_letters(spark: SparkSession, topic: str, **options: str | float | bool) -> DataFrame:
    """The dead letters that are in ``topic`` now, committed ones only, a row for each.

        letters = read_dead_letters(spark, "dlq.orders", **{"kafka.bootstrap.servers": "host:9092"})

    ``key``, ``value`` and ``headers`` are the letter's; ``topic`` is where its row was to go,
    ``reason``, ``code`` and ``message`` say why it could not, ``row`` is its number within its
    task, and ``batch`` the micro-batch (-1: none). ``options`` are those of a write that concern
    the connection. Executors read, each partition in a task; each action reads the topic again.
    """
    config = SinkConfig.parse(options).producer
    with AdminClient(config) as client:
        partitions = LetterReader(client, topic).partitions()

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with AdminClient(config) as client:
            reader = LetterReader(client, topic)
            for number in chain.from_iterable(batch[0].to_pylist() for batch in batches):
                records = reader.read(partitions[number])
                while some := list(islice(records, _ROWS_OF_A_BATCH)):
                    yield pa.RecordBatch.from_pylist([*map(_row, some)], schema=_ARROW)

    numbers = spark.range(0, len(partitions), 1, len(partitions))
    return numbers.mapInArrow(read, from_arrow_schema(_ARROW))


def _row(record: LogRecord) -> dict[str, object]:
    headers = [{"key": key, "value": value} for key, value in record.headers]
    of_record = {"key": record.key, "value": record.value, "headers": headers}
    return {**of_record, **letter_fields(record.headers)}
