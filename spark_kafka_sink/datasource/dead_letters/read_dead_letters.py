"""``read_dead_letters``: a topic of dead letters as a DataFrame.

Owns: its columns, and the reader behind ``format("kprod")`` with the option that
:func:`read_dead_letters` sets. Never: the requests (``letter_reader.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.dead_letters.letter_reader import LetterReader
from spark_kafka_sink.datasource.plain_errors import without_traceback
from spark_kafka_sink.datasource.process_logging import configure_logging
from spark_kafka_sink.records.letters.letter_fields import letter_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

#: The option that :func:`read_dead_letters` sets.
DEAD_LETTERS: Final = "deadLetters"
_SCHEMA: Final = (
    "key binary, value binary, headers array<struct<key string, value binary>>, topic string,"
    " reason string, code string, message string, row long, batch long"
)


def read_dead_letters(spark: SparkSession, topic: str, **options: str | float | bool) -> DataFrame:
    """The dead letters that are in ``topic`` now, committed ones only, a row for each.

        letters = read_dead_letters(spark, "dlq.orders", **{"kafka.bootstrap.servers": "host:9092"})

    ``key``, ``value`` and ``headers`` are the letter's; ``topic`` is where its row was to go,
    ``reason``, ``code`` and ``message`` say why it could not, ``row`` is its number within its
    task, and ``batch`` the micro-batch (-1: none). ``options`` are those of a write that concern
    the connection. Executors read; each action reads the topic again.
    """
    reader = spark.read.format("kprod").schema(_SCHEMA).options(**options)
    return reader.option(DEAD_LETTERS, topic).load()


class DeadLetterReader(DataSourceReader):
    """Reads each partition of the topic in a task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = dict(options)
        self._topic = given.pop(DEAD_LETTERS.lower())
        self._config = SinkConfig.parse(given).producer

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        with AdminClient(self._config) as client:
            return [InputPartition(one) for one in LetterReader(client, self._topic).partitions()]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        configure_logging()
        with AdminClient(self._config) as client:
            reader = LetterReader(client, self._topic)
            for one in reader.read(*partition.value):
                letter = {"key": one.key, "value": one.value, "headers": list(one.headers)}
                yield Row(**letter, **letter_fields(one.headers))
            if reader.left_out:
                _log.info(
                    "kprod: %d letters of '%s' are in transactions that have not ended: not read",
                    reader.left_out,
                    self._topic,
                )
