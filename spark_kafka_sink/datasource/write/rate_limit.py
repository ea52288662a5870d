"""A task's share of maxRecordsPerSecond and maxBytesPerSecond, and the wait that enforces it.

Owns: :class:`RateLimit`, a token bucket in units of time, and how many tasks share a rate. Never:
what is sent (``write_task``), a clock.

**The bucket.** A row costs the time that it takes at the task's share of the rate; it is sent when
that time has passed since the previous row, or since the first rows arrived: the bucket starts
empty, so that a write of many short tasks is no faster. Later waits for input earn credit for at
most a second.

**The share.** A Python writer knows neither how many partitions its write has nor where Spark runs
them. Tasks can read Spark's configuration, and with it how many tasks the application can run at
once; the rate is divided by that. So the sum over tasks is never above the rate, and below it when
fewer tasks run.
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

#: The time at the limit of the rows that are sent at once, in ms; at least one row.
PART_MS = 200
#: The credit for time in which nothing was sent, at most, in ms.
_BURST_MS = 1_000

_LOCAL = re.compile(r"local(?:\[(?P<threads>[0-9]+|\*)(?:,.*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[ *([0-9]+) *, *([0-9]+) *, *[0-9]+ *\]")


class RateLimit:
    """One task's limit. ``waited_ms`` is how long it has waited; other threads may read it."""

    def __init__(self, config: SinkConfig, tasks: int, clock: Clock | None = None) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._ms_per_record = _ms_of_one(config.max_records_per_second, tasks)
        self._ms_per_byte = _ms_of_one(config.max_bytes_per_second, tasks)
        #: None before the first row: the wait for that earns no credit.
        self._paid_until_ms: float | None = None
        self.waited_ms = 0
        self.text = f"{' and '.join(_limits(config))}, shared by {tasks} tasks"

    def costs_ms(self, columns: RecordColumns) -> NDArray[np.float64]:
        """The time at the limit of the rows up to each one, in ms."""
        costs: NDArray[np.float64] = np.maximum(
            np.arange(1, columns.rows + 1) * self._ms_per_record,
            columns.input_bytes().cumsum() * self._ms_per_byte,
        )
        return costs

    @staticmethod
    def parts(
        columns: RecordColumns, costs: NDArray[np.float64]
    ) -> Iterator[tuple[RecordColumns, float]]:
        """Slices of ``columns``, whose :meth:`costs_ms` are ``costs``, each with the milliseconds
        it costs: PART_MS, or a row's.
        """
        start, paid = 0, 0.0
        while start < columns.rows:
            end = max(int(costs.searchsorted(paid + PART_MS, side="right")), start + 1)
            cost = float(costs[end - 1]) - paid
            yield columns.slice(start, end - start), cost
            start, paid = end, paid + cost

    def wait(self, cost_ms: float) -> None:
        """Wait until rows that cost ``cost_ms`` may be sent. An interrupt ends it."""
        now = self._clock.now_ms()
        paid = now if self._paid_until_ms is None else self._paid_until_ms
        self._paid_until_ms = max(paid, now - _BURST_MS) + cost_ms
        # Rounded up, so that the limit is never exceeded.
        until = -int(-self._paid_until_ms // 1)
        if until > now:
            self._clock.wait(Latch(), until)
            self.waited_ms += self._clock.now_ms() - now


def _limits(config: SinkConfig) -> list[str]:
    """The limits that there are, as ``option=value``."""
    records, size = config.max_records_per_second, config.max_bytes_per_second
    named = {"maxRecordsPerSecond": records, "maxBytesPerSecond": size}
    return [f"{name}={value}" for name, value in named.items() if value is not None]


def tasks_at_once(config: SinkConfig, conf: Callable[[str], str]) -> int:
    """How many tasks share the rate: tasksAtOnce, or what Spark's configuration allows. ``conf``
    returns one of its entries, empty when it is not set. ConfigError when both are unknown.
    """
    if config.tasks_at_once is not None:
        return config.tasks_at_once
    cores = _cores(conf)
    if cores is None:
        raise ConfigError(
            f"{_limits(config)[0]} is for all tasks together, and Spark's configuration does not"
            " show how many run at once",
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
    most = _number(conf("spark.cores.max"), 0)
    if master.startswith("spark:") and most:
        return most
    one = _number(conf("spark.executor.cores"), 0)
    if not one and master.startswith(("yarn", "k8s:")):
        one = 1  # Spark's default there
    dynamic = conf("spark.dynamicAllocation.enabled") == "true"
    count = _number(
        conf("spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances"), 0
    )
    return one * count or None


def _number(text: str, default: int) -> int:
    return int(text) if text.isdecimal() else default


def _ms_of_one(per_second: int | None, tasks: int) -> float:
    return 0.0 if per_second is None else 1000 * tasks / per_second
