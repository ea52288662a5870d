"""Sends the progress of a Python worker and of a commit to the topic of the option progressTopic.

A record is a :class:`WorkerProgress` as JSON. A worker sends the sums over all its tasks of a
stage, at most every 10 s. So short tasks are included, but a stage of less than 10 s sends nothing.
A separate thread sends the records (``task_progress``), and no task waits for this thread.

A topic is used, because Spark has no other way: a Python data source has no accumulators, and
Spark's status has no figures of a running Python task. ``monitoring/running_writes.py`` reads the
records.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from spark_kafka_sink.base.described_fields import Described, as_json
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import KafkaError, coded, warn_once
from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.datasource.write.task_progress import TaskProgress, Watcher

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient

_log = logging.getLogger(__name__)

EVERY_S: Final = 10.0
#: The time limit in ms for sending a record.
_SEND_MS: Final = 10_000
#: The time in seconds after a failure in which nothing is sent.
_PAUSE_S: Final = 60.0

#: Fields that TaskProgress and WorkerProgress both have. A worker sums them over its tasks.
_SUMMED: Final = (
    "rows", "megabytes", "retries", "input_wait_ms", "buffer_wait_ms", "throttle_ms",
    "rate_wait_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProgress:
    """A record for the topic of the option progressTopic. It has the figures of one Python process,
    either for one stage of a write, or for a commit.
    """

    worker: Annotated[
        str,
        Described(
            "The name of the Python worker, which is also the key of the record. In a record of "
            "the driver, the name ends with `-commit`."
        ),
    ]
    application_id: Annotated[str, Described("Spark's application id.")]
    query_id: Annotated[str, Described("The streaming query's id; empty in batch jobs.")]
    query_name: Annotated[str, Described("The streaming query's name; empty without a name.")]
    batch_id: Annotated[int, Described("The id of the micro-batch; -1 in batch jobs.")]
    stage_id: Annotated[int, Described("The id of the Spark stage that writes the rows.")]
    finished_tasks: Annotated[
        int, Described("The number of task attempts that have ended.", "tasks")
    ] = 0
    rows: Annotated[int, Described("Rows that brokers have acknowledged.", "rows")] = 0
    megabytes: Annotated[
        float, Described("Size of the record batches that brokers have acknowledged.", "MB")
    ] = 0.0
    retries: Annotated[int, Described("Record batches that were sent again.", "batches")] = 0
    input_wait_ms: Annotated[int, Described("Waits for Spark's next rows.", "ms")] = 0
    buffer_wait_ms: Annotated[int, Described("Waits for memory.", "ms")] = 0
    throttle_ms: Annotated[int, Described("Throttling that brokers imposed.", "ms")] = 0
    rate_wait_ms: Annotated[int, Described("Waits for limits of the write's rate.", "ms")] = 0
    oldest_batch_ms: Annotated[
        int, Described("Age of the oldest record batch without a response.", "ms")
    ] = 0
    commit_ms: Annotated[
        int | None,
        Described(
            "Duration of the commit so far, in a record of the driver. After the commit, the "
            "driver sends a last record with 0. Null in a record of a Python worker.",
            "ms",
        ),
    ] = None


class WorkerSums:
    """Sums the progress of the task attempts that this Python process runs, for the records in
    progressTopic. The sums are for one stage of a write, and begin at 0 with each new stage.
    Thread-safe.
    """

    every_s = EVERY_S

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._name = f"{platform.node()}-{os.getpid()}-{time.time_ns() // 1_000_000}"
        # The attempts run one after the other. But the sending thread of an attempt may overlap
        # with the thread of the next attempt.
        self._lock = threading.Lock()
        self._stage: tuple[str, int, int] | None = None
        self._sums = dict.fromkeys(_SUMMED, 0)
        self._finished = 0
        self._quiet_until = 0.0

    def add(
        self, identity: TaskIdentity, progress: TaskProgress, *, finished: bool
    ) -> WorkerProgress | None:
        """Adds the progress of a task attempt. ``finished`` is true for the last progress of the
        attempt. Returns the record to send, or None if the last record is less than 10 s old.
        """
        with self._lock:
            stage = (identity.app_id, identity.batch_id, identity.stage_id)
            now = self._monotonic_s()
            if stage != self._stage:
                begun = now - progress.elapsed_ms / 1000
                self._stage, self._quiet_until = stage, begun + EVERY_S
                self._sums, self._finished = dict.fromkeys(_SUMMED, 0), 0
            counts = {n: self._sums[n] + getattr(progress, n) for n in _SUMMED}
            if finished:
                self._sums = counts
                self._finished += 1
            if now < self._quiet_until:
                return None
            self._quiet_until = now + EVERY_S
            return WorkerProgress(
                **_whose(self._name, identity),
                **counts,
                finished_tasks=self._finished,
                oldest_batch_ms=0 if finished else progress.oldest_batch_ms,
            )

    def pause(self) -> None:
        """Makes :meth:`add` return no record for a minute, because a record could not be sent."""
        with self._lock:
            self._quiet_until = self._monotonic_s() + _PAUSE_S


_worker: ProcessLocal[WorkerSums] = ProcessLocal(WorkerSums)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Adds the progress of a task attempt to :class:`WorkerSums`, and sends the records."""

    worker: WorkerSums
    identity: TaskIdentity
    sender: ProgressSender
    every_s: float = EVERY_S

    def running(self, progress: TaskProgress) -> None:
        self._send(self.worker.add(self.identity, progress, finished=False))

    def finished(self, progress: TaskProgress) -> None:
        self._send(self.worker.add(self.identity, progress, finished=True))

    def _send(self, record: WorkerProgress | None) -> None:
        if record is not None and not self.sender.send(record):
            self.worker.pause()


def this_worker(config: ProducerConfig, topic: str, identity: TaskIdentity) -> Watcher:
    """Creates the :class:`Watcher` of a task attempt. The watcher adds the attempt's progress to
    the sums of this process, and sends these sums to ``topic``.
    """
    return _Attempt(_worker(), identity, ProgressSender(config, topic))


@dataclass(frozen=True, slots=True)
class ProgressSender:
    """Writes records to a topic, with connections that the process keeps."""

    config: ProducerConfig
    topic: str

    def send(self, record: WorkerProgress) -> bool:
        """Sends a record. If that fails, returns False and logs a warning, once per process."""
        from spark_kafka_sink.transactions.driver_transactions import TopicRecord, write_record

        value = json.dumps(as_json(record), separators=(",", ":")).encode()
        entry = TopicRecord(self.topic, value, record.worker.encode(), "progressTopic")
        try:
            with _lent(self.config) as client:
                write_record(client, entry, client.deadline(_SEND_MS))
        except KafkaError as error:
            text = f"the progress of tasks can't be sent: {error.message}"
            warn_once(_log, [coded(Kind.REPORT_NOT_WRITTEN, text, error.hint)])
            return False
        except Exception:  # noqa: BLE001 - the write does not depend on it
            _log.debug("the progress of tasks can't be sent", exc_info=True)
            return False
        return True


_clients: ProcessLocal[list[tuple[ProducerConfig, TransactionClient]]] = ProcessLocal(list)


@contextmanager
def _lent(config: ProducerConfig) -> Iterator[TransactionClient]:
    """Lends a client to one thread at a time. Afterwards the client is kept for the next thread, or
    closed after an error. No lock is needed, because ``pop`` and ``append`` of a list are atomic.
    """
    from spark_kafka_sink.admin.transaction_client import TransactionClient

    client = None
    kept = _clients()
    while kept and client is None:
        of, found = kept.pop()
        if of == config:
            client = found
        else:
            found.close()
    client = client or TransactionClient(config)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    kept.append((config, client))


@contextmanager
def watched_commit(config: ProducerConfig, topic: str, identity: TaskIdentity) -> Iterator[None]:
    """A context manager for the commit of a batch. While the ``with`` block runs, a thread sends a
    record to progressTopic every 10 s, with the time since the commit has begun. At the end of the
    block, the thread sends a last record, whose ``commit_ms`` is 0. A commit of less than 10 s
    sends nothing.
    """
    over = threading.Event()
    sender, name = ProgressSender(config, topic), f"{platform.node()}-{os.getpid()}-commit"
    begun = time.monotonic()

    def send(commit_ms: int) -> None:
        sender.send(WorkerProgress(**_whose(name, identity), commit_ms=commit_ms))

    def speak() -> None:
        sent = False
        while not over.wait(EVERY_S):
            sent = True
            send(max(round((time.monotonic() - begun) * 1000), 1))
        if sent:
            send(0)

    threading.Thread(target=speak, name="kprod-commit-progress", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _whose(worker: str, identity: TaskIdentity) -> dict[str, Any]:
    return {
        "worker": worker,
        "application_id": identity.app_id,
        "query_id": identity.query_id,
        "query_name": identity.query_name,
        "batch_id": identity.batch_id,
        "stage_id": identity.stage_id,
    }
