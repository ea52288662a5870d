"""Sends the queued records of producers that were not closed, when the Python interpreter exits.

Without this module, a script that ends without ``close`` would lose its queued records without a
message, because the network thread is a daemon thread.

* If a process ends by ``os._exit`` (as Spark's forked workers do) or by a signal, queued records
  are lost.
* A child process of ``os.fork`` has copies of its parent's producers. The module ignores these
  copies.
* A producer without queued records does not delay the exit.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import warn
from spark_kafka_sink.producer.lifecycle import first_line
from spark_kafka_sink.producer.metrics.producer_metrics import Measurement

if TYPE_CHECKING:
    from spark_kafka_sink.producer.wiring import ProducerParts

_log = logging.getLogger(__name__)

#: How long a network thread may take to end after a forced close.
_FORCED_CLOSE_S: Final = 1.0
#: How long a network thread may take to fail a batch whose delivery.timeout.ms is over.
_EXPIRY_S: Final = 0.5
#: A wait that takes longer than this is logged.
_QUIET_S: Final = 1.0


class _Watched:
    """The producers of this process that have a network thread. ``lock`` guards the list, because
    any thread may create a producer.
    """

    lock = threading.Lock()
    parts: list[ProducerParts] = []  # noqa: RUF012 - one for each process
    #: The id of the process in which :func:`flush_at_exit` is registered. A forked child process
    #: must register the function again.
    hooked_in: int | None = None


def watch(parts: ProducerParts) -> None:
    """Registers a producer that has just started. :func:`flush_at_exit` will then send its queued
    records when the interpreter exits.
    """
    with _Watched.lock:
        _Watched.parts = [one for one in _Watched.parts if _has_thread(one)]
        _Watched.parts.append(parts)
        if _Watched.hooked_in == os.getpid():
            return
        if _Watched.hooked_in is None:
            atexit.register(flush_at_exit)
        if _is_child_of_multiprocessing():
            from multiprocessing.util import Finalize

            Finalize(None, flush_at_exit, exitpriority=0)
        _Watched.hooked_in = os.getpid()


def _is_child_of_multiprocessing() -> bool:
    """True in a child process of ``multiprocessing``. The check does not import
    ``multiprocessing``, because a Spark task should not import it. A child process of
    ``multiprocessing`` has already imported it.
    """
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _renew_lock() -> None:
    """Creates a new lock in a forked child process. At the time of the fork, another thread of the
    parent may have held the old lock. Without a new lock, the child would wait for the old lock
    forever.
    """
    _Watched.lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


# The interpreter exits in these steps:
#
# 1. The main thread ends. ``threading`` joins the threads that are not daemons. These threads may
#    still call ``send``.
# 2. The functions that ``atexit`` has registered run, the newest first. Daemon threads still run.
#    ``flush_at_exit`` runs in this step.
# 3. The interpreter stops every daemon thread.
#
# A child process of ``multiprocessing`` skips step 2. In such a process, a finalizer of
# ``multiprocessing`` calls ``flush_at_exit``.
def flush_at_exit() -> None:
    """Closes all producers that still have records to send, or that have an open transaction with
    rows. Waits until the records are sent, for at most delivery.timeout.ms. Ctrl-C ends the wait.

    The close aborts an open transaction. If records are lost, logs one warning with their number.
    Rows of an aborted transaction count as lost. Raises nothing.
    """
    with _Watched.lock:
        unfinished = [one for one in _Watched.parts if _has_work(one)]
    if not unfinished:
        return
    lost = [_Loss(one) for one in unfinished]
    for one in unfinished:
        one.sender.initiate_close()
    _wait(unfinished, sum(one.waiting for one in lost))
    left = [one for one in unfinished if one.thread.is_alive()]
    for one in left:
        one.sender.force_close()
    try:
        for one in left:
            one.thread.join(_FORCED_CLOSE_S)
    except KeyboardInterrupt:
        pass  # the warning comes first
    _warn(lost)


def _has_thread(parts: ProducerParts) -> bool:
    return not parts.lifecycle.is_forked and parts.thread.is_alive()


def _has_work(parts: ProducerParts) -> bool:
    """Returns True if :func:`flush_at_exit` must close the producer: it has records without an
    outcome, or it has acknowledged rows in an open transaction.

    Returns False in these cases:

    * The network thread has ended, or this process is a fork.
    * A close was forced, for example by the timeout 0.
    * The producer has failed, and a method has already raised the error.
    """
    # A producer that a daemon thread is just closing also counts: the daemon thread would end with
    # the interpreter. So ``closed`` is not checked.
    life = parts.lifecycle
    return (
        _has_thread(parts)
        and not life.forced
        and not life.is_reported
        and (bool(parts.accumulator.incomplete) or _rows_of_transaction(parts) > 0)
    )


def _rows_of_transaction(parts: ProducerParts) -> int:
    """The number of acknowledged rows in the producer's open transaction. Closing the producer
    aborts the transaction, so read_committed consumers will not see these rows. The number is 0 if
    no transaction is open, if the transaction is prepared, or if it is being committed or aborted.
    """
    manager = parts.transactional
    if manager is None or not manager.has_ongoing_transaction or manager.is_completing:
        return 0
    return parts.recorder.report().rows


def _wait(unfinished: list[ProducerParts], records: int) -> None:
    """Waits until all network threads of ``unfinished`` have ended. Waits for each thread at most
    until the delivery.timeout.ms of its producer is over. Ctrl-C ends the wait.
    """
    begun = time.monotonic()
    announced = False
    try:
        for one in unfinished:
            until = begun + one.config.delivery_timeout_ms / 1000 + _EXPIRY_S
            one.thread.join(min(_QUIET_S, max(0.0, until - time.monotonic())))
            if one.thread.is_alive() and not announced:
                announced = True
                _log.info(
                    "sending %d records before the interpreter exits; Ctrl-C ends it", records
                )
            one.thread.join(max(0.0, min(until - time.monotonic(), threading.TIMEOUT_MAX)))
    except KeyboardInterrupt:
        pass  # what is left is counted as not sent


class _Loss:
    """Counts the records of one producer that are lost after this object was created."""

    def __init__(self, parts: ProducerParts) -> None:
        self._parts = parts
        self._failed_before = self._failed()
        self._aborts = parts.transactional is not None and _rows_of_transaction(parts) > 0
        #: The number of records that have no outcome yet.
        self.waiting = self._incomplete()

    def _failed(self) -> int:
        return int(self._parts.metrics.total(Measurement.ERRORS))

    def _incomplete(self) -> int:
        accumulator = self._parts.accumulator
        with accumulator.lock:
            return sum(one.record_count for one in accumulator.incomplete.all() if not one.is_done)

    def count(self) -> int:
        """The number of lost records. These are records that have failed, records without an
        outcome, and acknowledged rows of a transaction that the close aborts.
        """
        lost = self._failed() - self._failed_before + self._incomplete()
        return lost + (self._parts.recorder.report().rows if self._aborts else 0)

    def cause(self) -> str | None:
        error = self._parts.lifecycle.fatal or self._parts.recorder.failed_alone[1]
        return None if error is None else first_line(error)


def _warn(lost: list[_Loss]) -> None:
    """Logs one warning with the number of lost records of all producers in ``lost``. Logs nothing
    if no record is lost.
    """
    records = sum(one.count() for one in lost)
    if records:
        why = next(
            (cause for one in lost if (cause := one.cause()) is not None), "no time was left"
        )
        warn(
            _log,
            Kind.NOT_CLOSED,
            "%d records were not sent before the interpreter exited (%s): call close() or flush()"
            " and look at its error, or use the producer in a with statement",
            records,
            why,
        )
