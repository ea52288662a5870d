"""``read_dead_letters``: a topic of dead letters as a DataFrame.

Owns: its columns, and the reader behind ``format("kprod")`` with the option that
:func:`read_dead_letters` sets. Never: the requests (``letter_reader.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.dead_letters.letter_reader import LetterReader
from spark_kafka_sink.datasource.plain_errors import without_traceback
from spark_kafka_sink.records.letters.letter_fields import letter_fields
from spark_kafka_sink.records.log_records import LogRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The option that :func:`read_dead_letters` sets.
DEAD_LETTERS: Final = "deadLetters"
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_ARROW: Final = pa.schema(
    [
        *(("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(_HEADER))),
        *((name, pa.string()) for name in ("topic", "reason", "code", "message")),
        *(("row", pa.int64()), ("batch", pa.int64())),
    ]
)
LETTER_SCHEMA: Final = from_arrow_schema(_ARROW)
_ROWS_OF_A_BATCH: Final = 4096


def read_dead_letters(spark: SparkSession, topic: str, **options: str | float | bool) -> DataFrame:
    """The dead letters that are in ``topic`` now, committed ones only, a row for each.

        letters = read_dead_letters(spark, "dlq.orders", **{"kafka.bootstrap.servers": "host:9092"})

    ``key``, ``value`` and ``headers`` are the letter's; ``topic`` is where its row was to go,
    ``reason``, ``code`` and ``message`` say why it could not, ``row`` is its number within its
    task, and ``batch`` the micro-batch (-1: none). ``options`` are those of a write that concern
    the connection. Executors read; each action reads the topic again.
    """
    return spark.read.format("kprod").options(**options).option(DEAD_LETTERS, topic).load()


class DeadLetterReader(DataSourceReader):
    """Reads each partition of the topic in a task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name: value for name, value in options.items() if name != DEAD_LETTERS.lower()}
        self._topic = options[DEAD_LETTERS]
        self._config: ProducerConfig = SinkConfig.parse(given).producer

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        with AdminClient(self._config) as client:
            return [InputPartition(one) for one in LetterReader(client, self._topic).partitions()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with AdminClient(self._config) as client:
            records = LetterReader(client, self._topic).read(partition.value)
            while some := list(islice(records, _ROWS_OF_A_BATCH)):
                yield pa.RecordBatch.from_pylist([*map(_row, some)], schema=_ARROW)


def _row(record: LogRecord) -> dict[str, object]:
    headers = [{"key": key, "value": value} for key, value in record.headers]
    of_record = {"key": record.key, "value": record.value, "headers": headers}
    return {**of_record, **letter_fields(record.headers)}
