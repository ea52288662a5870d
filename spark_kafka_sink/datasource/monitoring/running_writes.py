"""The running writes, on the driver: the sums of the figures that workers send to progressTopic.

Worker processes send the records (``write/worker_progress.py``). Other clients may also write to
the topic, so invalid records are skipped, and the number of stored records is limited.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.described_fields import from_json
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.json_object import json_object
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.monitoring.measurements import NO_QUERY
from spark_kafka_sink.datasource.monitoring.topic_tail import TopicTail
from spark_kafka_sink.datasource.write.worker_progress import EVERY_S, WorkerProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The time in seconds after which a worker without a new record counts as no longer writing.
_SILENT_S: Final = 3 * EVERY_S
#: A write is over if none of its workers has sent a record for this time in seconds.
_OVER_S: Final = 6 * EVERY_S
#: The least time in seconds that a rate covers. Each worker sends one record in this time.
_RATE_S: Final = EVERY_S
#: The time limit of a read in ms.
_READ_MS: Final = 10_000
_LARGEST_RECORD: Final = 10_000
_MOST_WRITES: Final = 200
_MOST_WORKERS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Waits:
    """The times in milliseconds that the tasks of a write have waited, each summed over all tasks.

    - ``input``: for Spark's rows.
    - ``memory``: for room in buffer.memory.
    - ``quota``: because of brokers' quotas.
    - ``rate``: because of maxRecordsPerSecond or maxBytesPerSecond.
    """

    input: int = 0
    memory: int = 0
    quota: int = 0
    rate: int = 0


@dataclass(frozen=True, slots=True)
class RunningWrite:
    """The figures of a query's running micro-batch, or the sums over the application's running
    batch jobs. Rows of failed attempts are included.
    """

    query: str
    batch_id: int = -1
    #: Python workers that sent figures within half a minute.
    workers: int = 0
    finished_tasks: int = 0
    rows: int = 0
    megabytes: float = 0.0
    retries: int = 0
    waits: Waits = field(default_factory=Waits)
    oldest_batch_ms: int = 0
    #: The duration of the running commit so far, in milliseconds. 0 if no commit runs.
    commit_ms: int = 0
    rows_per_second: float = 0.0
    megabytes_per_second: float = 0.0


@dataclass(slots=True)
class _Rate:
    """Computes the rate of a query between two reads, in rows and megabytes per second. ``at`` is
    the time of the earlier read in seconds, and ``found`` the last computed rate.
    """

    at: float = 0.0
    rows: int = 0
    megabytes: float = 0.0
    found: tuple[float, float] = (0.0, 0.0)

    def of(self, now: float, rows: int, megabytes: float) -> tuple[float, float]:
        seconds = now - self.at
        if self.at and seconds < _RATE_S:
            return self.found
        if self.at:
            more = (max(rows - self.rows, 0), max(megabytes - self.megabytes, 0.0))
            self.found = (round(more[0] / seconds, 1), round(more[1] / seconds, 3))
        self.at, self.rows, self.megabytes = now, rows, megabytes
        return self.found


#: The last record of each worker, with the time of its arrival, by the worker's name.
_Workers = dict[str, tuple[float, WorkerProgress]]


class RunningWrites:
    """Reads the figures of running tasks from the topic of the option progressTopic. Begins with
    the records that arrive after the first :meth:`read`. Not thread-safe.

    - ``spark`` is a session. Only writes of its Spark application count.
    - ``options`` are options of the writes: kafka.bootstrap.servers, the options of the login, and
      progressTopic.

    The principal needs READ and DESCRIBE on the topic. Raises ConfigError for invalid options, and
    if progressTopic is not set.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        config = parse_sink_config(options)
        if config.progress_topic is None:
            raise ConfigError(
                "progressTopic is not set, and so no task sends its progress",
                hint="set the option for the writes and here, to the name of a topic with one"
                " partition",
            )
        self._application = spark.conf.get("spark.app.id")
        self._client = TransactionClient(config.producer)
        self._tail = TopicTail(self._client, config.progress_topic, "progressTopic")
        self._monotonic_s = monotonic_s
        #: By the label of the query, the micro-batch, and for a batch job the stage (otherwise -1).
        self._writes: dict[tuple[str, int, int], _Workers] = {}
        self._rates: dict[str, _Rate] = {}

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def read(self) -> list[RunningWrite]:
        """Reads the records since the last call, and returns the running writes, sorted by query.
        Raises KafkaError if brokers do not respond.
        """
        now = self._monotonic_s()
        for value in self._tail.new_values(_READ_MS):
            record = _parsed(value)
            if record is not None and record.application_id == self._application:
                self._add(record, now)
        self._forget(now)
        queries = {name for name, _, _ in self._writes}
        self._rates = {name: self._rates.get(name, _Rate()) for name in queries}
        return [self._so_far(name, now) for name in sorted(queries)]

    def _add(self, record: WorkerProgress, now: float) -> None:
        label = record.query_name or record.query_id or NO_QUERY
        # A commit runs on the driver, and knows no stage.
        key = (label, record.batch_id, record.stage_id if record.batch_id < 0 else -1)
        if key not in self._writes:
            if len(self._writes) >= _MOST_WRITES:
                return
            # This is a new micro-batch, so earlier micro-batches of the query are over.
            for other in [k for k in self._writes if k[0] == label and 0 <= k[1] < key[1]]:
                del self._writes[other]
        workers = self._writes.setdefault(key, {})
        name = f"{record.worker} {record.stage_id}"
        if name in workers or len(workers) < _MOST_WORKERS:
            workers[name] = (now, record)

    def _forget(self, now: float) -> None:
        for key, workers in list(self._writes.items()):
            if all(now - at > _OVER_S for at, _ in workers.values()):
                del self._writes[key]

    def _so_far(self, query: str, now: float) -> RunningWrite:
        """The figures of all running writes of a query, added up. All batch jobs of the application
        count as one query with the name ``batch``.
        """
        keys = [key for key in self._writes if key[0] == query]
        came = [one for key in keys for one in self._writes[key].values()]
        every = [record for _, record in came]
        alive = [record for at, record in came if now - at <= _SILENT_S]
        rows, megabytes = sum(r.rows for r in every), sum(r.megabytes for r in every)
        rates = self._rates[query].of(now, rows, megabytes)
        return RunningWrite(
            query,
            max(batch for _, batch, _ in keys),
            workers=sum(r.commit_ms is None for r in alive),
            finished_tasks=sum(r.finished_tasks for r in every),
            rows=rows,
            megabytes=round(megabytes, 3),
            retries=sum(r.retries for r in every),
            waits=Waits(
                sum(r.input_wait_ms for r in every),
                sum(r.buffer_wait_ms for r in every),
                sum(r.throttle_ms for r in every),
                sum(r.rate_wait_ms for r in every),
            ),
            oldest_batch_ms=max((r.oldest_batch_ms for r in alive), default=0),
            commit_ms=max((r.commit_ms or 0 for r in alive), default=0),
            rows_per_second=rates[0],
            megabytes_per_second=rates[1],
        )


def _parsed(value: bytes) -> WorkerProgress | None:
    if len(value) > _LARGEST_RECORD:
        return None
    try:
        record = from_json(WorkerProgress, json_object(value) or {})
    except (KeyError, TypeError, ValueError):
        return None
    numbers = (getattr(record, one.name) for one in fields(record))
    valid = all(-1 <= one < 2**62 for one in numbers if isinstance(one, int | float))
    return record if valid else None
