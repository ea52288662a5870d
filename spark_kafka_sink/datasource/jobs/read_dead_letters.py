"""``read_dead_letters``: reads a dead-letter topic as a DataFrame.

Spark reads the topic through ``format("kprod")``, with an internal option that only
:func:`read_dead_letters` sets. ``admin/committed_reader.py`` sends the requests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.committed_reader import CommittedReader
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.process.active_session import active_session
from spark_kafka_sink.datasource.process.plain_errors import without_traceback
from spark_kafka_sink.datasource.process.process_logging import configure_logging
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
    """Returns a DataFrame with a row for each committed dead letter that is in ``topic`` now.

        letters = read_dead_letters(spark, "dlq.orders", **{"kafka.bootstrap.servers": "host:9092"})

    ``options`` are the connection options of a write. Executors read the topic, and each action
    reads it again. The DataFrame has these columns:

    - ``key``, ``value`` and ``headers`` of the dead letter.
    - ``topic``, to which the row should have been sent.
    - ``reason``, ``code`` and ``message``, which show why the row could not be sent.
    - ``row``, the row's number within its task.
    - ``batch``, the number of the micro-batch. It is -1 if the row was not written in a
      micro-batch.
    """
    reader = spark.read.format("kprod").schema(_SCHEMA).options(**options)
    with active_session(spark):
        return reader.option(DEAD_LETTERS, topic).load()


class DeadLetterReader(DataSourceReader):
    """Spark's reader of a dead-letter topic. Each task reads one Kafka partition, up to the end
    that the partition had when Spark planned the read. Dead letters in open transactions are not
    read.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        given = dict(options)
        self._topic = given.pop(DEAD_LETTERS.lower())
        self._config = parse_sink_config(given).producer

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        with AdminClient(self._config) as client:
            return [
                InputPartition(one) for one in CommittedReader(client, self._topic).partitions()
            ]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        configure_logging()
        with AdminClient(self._config) as client:
            reader = CommittedReader(client, self._topic)
            for one in reader.read(*partition.value):
                letter = {"key": one.key, "value": one.value, "headers": list(one.headers)}
                yield Row(**letter, **letter_fields(one.headers))
            if reader.left_out:
                _log.info(
                    "kprod: %d dead letters of '%s' are in open transactions and were not read",
                    reader.left_out,
                    self._topic,
                )
