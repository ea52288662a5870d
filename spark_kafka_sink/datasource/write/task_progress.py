"""Reports the progress of a running task every 30 s, with a log line and a call of each progress
listener.

A :class:`ProgressLog` has its own thread, so it reports the progress even while the task's other
threads wait. ``worker_progress.py`` makes the records for progressTopic.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, Self

from spark_kafka_sink.base.described_fields import Described, as_json
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import warn
from spark_kafka_sink.datasource.process.process_logging import configure_logging
from spark_kafka_sink.producer.metrics.produce_report import ProducerProgress

_log = logging.getLogger(__name__)

EVERY_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """The progress of one task attempt."""

    partition: Annotated[
        int,
        Described("The index of the task, which is also the number of the DataFrame's partition."),
    ]
    attempt: Annotated[int, Described("The number of the attempt, from 0.")]
    batch_id: Annotated[int, Described("The id of the micro-batch; -1 in batch jobs.")]
    elapsed_ms: Annotated[int, Described("Time since the attempt began.", "ms")]
    rows: Annotated[int, Described("Rows that brokers have acknowledged.", "rows")]
    megabytes: Annotated[
        float, Described("Size of the record batches that brokers have acknowledged.", "MB")
    ]
    rows_per_second: Annotated[
        float,
        Described(
            "Rows per second that brokers acknowledged in the last 30 s. With the option"
            " progressTopic: in the last 10 s.",
            "rows/s",
        ),
    ]
    retries: Annotated[int, Described("Record batches that were sent again.", "batches")]
    in_flight: Annotated[
        int, Described("Record batches that were sent and have no response yet.", "batches")
    ]
    oldest_batch_ms: Annotated[
        int, Described("Age of the oldest record batch without a response.", "ms")
    ]
    slowest_broker: Annotated[
        int, Described("Id of the broker with the longest mean latency; -1 if no broker responded.")
    ]
    slowest_broker_ms: Annotated[float, Described("Mean latency of the slowest broker.", "ms")]
    input_wait_ms: Annotated[int, Described("Waited so far for Spark's next rows.", "ms")] = 0
    buffer_wait_ms: Annotated[int, Described("Waited so far for memory.", "ms")] = 0
    throttle_ms: Annotated[int, Described("Throttling so far that brokers imposed.", "ms")] = 0
    rate_wait_ms: Annotated[
        int, Described("Waited so far for maxRecordsPerSecond or maxBytesPerSecond.", "ms")
    ] = 0
    waits_for: Annotated[
        str,
        Described(
            "The reason why the task waits now, and the brokers that have not responded, each"
            " with the number of record batches without a response."
        ),
    ]
    last_answer: Annotated[str, Described("The last response that caused a retry, and its broker.")]

    def line(self) -> str:
        """The progress as a log line of ``name=value`` pairs."""
        fields = as_json(self)
        assert isinstance(fields, dict)
        values = " ".join(f"{name}={value}" for name, value in fields.items() if value != "")
        return f"kprod writes {values}"


ProgressListener = Callable[[TaskProgress], object]


class Watcher(Protocol):
    """The interface of an object that receives the progress of a task attempt more often than the
    log does: every ``every_s`` seconds, by a call of ``running``.
    """

    @property
    def every_s(self) -> float: ...

    def running(self, progress: TaskProgress) -> None: ...

    def finished(self, progress: TaskProgress) -> None:
        """Receives the last progress of an attempt, successful or not."""
        ...


def progress_listener(path: str) -> ProgressListener:
    """Imports the function with the import path ``path``, which is an item of the option
    progressListeners.

    Raises ConfigError if there is no such function.
    """
    from spark_kafka_sink.base.security.import_paths import find_function

    return find_function(path, "progressListeners", "progress")


class ProgressLog:
    """A context manager that reports the progress of a task attempt every ``every_s`` seconds, from
    its own thread. The end of the attempt does not wait for the thread.

    ``progress`` returns the current progress. It is logged (:meth:`TaskProgress.line`), and passed
    to ``listeners`` and to the methods of ``watcher``.
    """

    def __init__(
        self,
        progress: Callable[[], TaskProgress],
        every_s: float = EVERY_S,
        listeners: Sequence[ProgressListener] = (),
        watcher: Watcher | None = None,
    ) -> None:
        self._progress = progress
        self._every_s = every_s
        self._listeners = listeners
        self._watcher = watcher
        self._last: TaskProgress | None = None
        self._over = threading.Lock()

    def __enter__(self) -> Self:
        self._over.acquire()
        threading.Thread(target=self._speak, name="kprod-task-progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._watcher is not None:
            # The progress is read before the thread ends, because the producer may already serve
            # the worker's next task when the thread runs.
            self._last = self._now()
        self._over.release()

    def _speak(self) -> None:
        watcher = self._watcher
        look_s = self._every_s if watcher is None else min(self._every_s, watcher.every_s)
        silent_s = 0.0
        while not self._over.acquire(timeout=look_s):
            silent_s += look_s
            progress = self._now()
            if progress is None:
                continue
            if watcher is not None:
                watcher.running(progress)
            if silent_s >= self._every_s:
                silent_s = 0.0
                self._say(progress)
        if watcher is not None and self._last is not None:
            watcher.finished(self._last)

    def _say(self, progress: TaskProgress) -> None:
        configure_logging()
        _log.info("%s", progress.line())
        for listener in self._listeners:
            _deliver(listener, progress)

    def _now(self) -> TaskProgress | None:
        try:
            return self._progress()
        except Exception:  # noqa: BLE001 - the task continues without its line
            _log.debug("a task's progress can't be reported", exc_info=True)
            return None


def _deliver(listener: ProgressListener, progress: TaskProgress) -> None:
    try:
        listener(progress)
    except BaseException as error:  # noqa: BLE001 - a user's code must not end this thread
        from spark_kafka_sink.base.security.import_paths import place_of

        where = place_of(error)
        warn(_log, Kind.REPORT_NOT_WRITTEN, "a task's progress can't be delivered: %s", where)


def waits_for(step: str, progress: ProducerProgress | None) -> str:
    """Describes why a task waits, and the brokers that have not responded. If the producer has used
    up its memory (buffer.memory), the task waits for memory. In any other case, the reason is
    ``step``.
    """
    if progress is None:
        return step
    what = "memory (buffer.memory is used up)" if progress.waits_for_memory else step
    owing = [
        f"broker {node} ({count} batches, {age} ms)"
        for node, (count, age) in sorted(progress.on_wire.items())
    ]
    return f"{what}: {', '.join(owing)}" if owing else what
