"""Limits the rate of a task to its share of maxRecordsPerSecond and maxBytesPerSecond.

**The share.** The rate is divided by the number of tasks that the application can run at the same
time. A task finds this number in Spark's configuration (:func:`tasks_at_once`). So the sum over all
tasks is never above the rate. If fewer tasks run, the sum is below the rate.

**The cost.** The cost of a row is the time that the row takes at the task's share of the rate. A
row is sent when its cost has passed since the previous row. The first row is sent when its cost has
passed since the row arrived. Without this wait, a write of many short tasks would exceed the rate.

**The credit.** If the task waits for input after its first row, this waiting time becomes a credit
of at most a second. The next rows are sent at once until the sum of their costs has reached the
credit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.base.clock import Clock, Latch, SystemClock
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.records.record_columns import RecordColumns

#: The largest cost in ms of the rows that are sent together. A single row may cost more.
PART_MS = 200
#: The largest credit in ms for time in which nothing was sent.
_BURST_MS = 1_000

_LOCAL = re.compile(r"local(?:\[(?P<threads>[0-9]+|\*)(?:,.*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[ *([0-9]+) *, *([0-9]+) *, *[0-9]+ *\]")


class RateLimit:
    """The rate limit of one task: its share of maxRecordsPerSecond and maxBytesPerSecond.
    ``waited_ms`` is the total wait in milliseconds, which other threads may read. ``text`` shows
    the limits in messages.
    """

    def __init__(self, config: SinkConfig, tasks: int, clock: Clock | None = None) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._ms_per_record = _ms_of_one(config.max_records_per_second, tasks)
        self._ms_per_byte = _ms_of_one(config.max_bytes_per_second, tasks)
        #: None before the first row: the wait for that earns no credit.
        self._paid_until_ms: float | None = None
        self.waited_ms = 0
        self.text = f"{' and '.join(_limits(config))}, shared by {tasks} tasks"

    def costs_ms(self, columns: RecordColumns) -> NDArray[np.float64]:
        """The cumulative cost of the rows in milliseconds, as a float64 array. Each item is the
        time that all rows up to this row need at the rate limit.
        """
        costs: NDArray[np.float64] = np.maximum(
            np.arange(1, columns.rows + 1) * self._ms_per_record,
            columns.input_bytes().cumsum() * self._ms_per_byte,
        )
        return costs

    @staticmethod
    def parts(
        columns: RecordColumns, costs: NDArray[np.float64]
    ) -> Iterator[tuple[RecordColumns, float]]:
        """Yields slices of ``columns``, each with its cost in milliseconds. ``costs`` is the array
        of :meth:`costs_ms`.

        The cost of a slice is at most PART_MS. Only a slice of a single row can cost more.
        """
        start, paid = 0, 0.0
        while start < columns.rows:
            end = max(int(costs.searchsorted(paid + PART_MS, side="right")), start + 1)
            cost = float(costs[end - 1]) - paid
            yield columns.slice(start, end - start), cost
            start, paid = end, paid + cost

    def wait(self, cost_ms: float) -> None:
        """Waits until the next rows may be sent. ``cost_ms`` is the time in milliseconds that these
        rows take at the rate limit. An interrupt ends the wait.
        """
        now = self._clock.now_ms()
        paid = now if self._paid_until_ms is None else self._paid_until_ms
        self._paid_until_ms = max(paid, now - _BURST_MS) + cost_ms
        # Rounded up, so that the limit is never exceeded.
        until = -int(-self._paid_until_ms // 1)
        if until > now:
            self._clock.wait(Latch(), until)
            self.waited_ms += self._clock.now_ms() - now


def _limits(config: SinkConfig) -> list[str]:
    """The rate limits that the user has set, as texts such as ``maxRecordsPerSecond=1000``."""
    records, size = config.max_records_per_second, config.max_bytes_per_second
    named = {"maxRecordsPerSecond": records, "maxBytesPerSecond": size}
    return [f"{name}={value}" for name, value in named.items() if value is not None]


def _pace(config: SinkConfig) -> list[str]:
    """The option connectionsPerSecond as a text, such as ``connectionsPerSecond=100``."""
    return [f"connectionsPerSecond={config.connections_per_second}"]


def tasks_at_once(config: SinkConfig, conf: Callable[[str], str]) -> int:
    """The number of tasks that share a rate: the option tasksAtOnce, or a number from Spark's
    configuration. Raises ConfigError if the number can't be determined.

    ``conf`` returns the value of a Spark config, or an empty text if it is not set.
    """
    if config.tasks_at_once is not None:
        return config.tasks_at_once
    # A Python writer can't find out how many partitions its write has, and where Spark runs them.
    cores = _cores(conf)
    if cores is None:
        raise ConfigError(
            f"{[*_limits(config), *_pace(config)][0]} is for all tasks together, and Spark's"
            " configuration does not show how many run at once",
            hint="set tasksAtOnce: the cores of all executors, or the partitions of the DataFrame"
            " if these are fewer",
        )
    return max(1, cores // _number(conf("spark.task.cpus"), 1))


def _cores(conf: Callable[[str], str]) -> int | None:
    master = conf("spark.master")
    local = _LOCAL.fullmatch(master)
    if local is not None:
        threads = local["threads"] or "1"
        return (os.cpu_count() or 1) if threads == "*" else int(threads)
    cluster = _LOCAL_CLUSTER.fullmatch(master)
    if cluster is not None:
        return int(cluster[1]) * int(cluster[2])
    one = _number(conf("spark.executor.cores"), 0)
    if not one and master.startswith(("yarn", "k8s:")):
        one = 1  # Spark's default there
    of_executors = one * _most_executors(conf, master)
    if master.startswith("spark:"):
        most = _number(conf("spark.cores.max"), 0)
        return min(filter(None, (most, of_executors)), default=None)
    return of_executors or None


def _most_executors(conf: Callable[[str], str], master: str) -> int:
    """The largest number of executors that Spark's configuration allows. 0 if the configuration
    does not limit the number.
    """
    if conf("spark.dynamicAllocation.enabled").lower() == "true":
        return _number(conf("spark.dynamicAllocation.maxExecutors"), 0)
    if master.startswith("spark:"):
        # A standalone cluster ignores spark.executor.instances: an application gets the cores of
        # all workers, or spark.deploy.defaultCores of the master, which no task can read.
        return 0
    return _number(conf("spark.executor.instances"), 0)


def _number(text: str, default: int) -> int:
    return int(text) if text.isdecimal() else default


def _ms_of_one(per_second: int | None, tasks: int) -> float:
    return 0.0 if per_second is None else 1000 * tasks / per_second
