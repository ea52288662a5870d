"""The state of a producer: open, failed or closed; its process, thread and client.

Owns: :class:`Lifecycle`, which determines whether records are accepted, and which error every
method raises after a failure; the start of the network thread; the count of forks, because a forked
child has copies of its parent's producers without their threads. Never: the decision whether an
error fails the producer, the thread's work (``sender.py``).

The effect of a permanently failed batch (rule R2):

- records of ``send`` fail, and other records continue. An idempotent producer continues under a new
  epoch, because nothing may be sent after a sequence gap (``transaction_manager.py``);
- rows of columns belong to an attempt, which fails as a whole: unacknowledged rows fail, and every
  method except for ``close`` raises the error;
- a transaction can then only be aborted; after ``abort_transaction`` the producer is usable.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    DeliveryError,
    IllegalStateError,
    KafkaError,
)
from spark_kafka_sink.network.client.kafka_client import KafkaClient


class NetworkThread(Protocol):
    """The methods of ``threading.Thread`` that the producer uses."""

    def is_alive(self) -> bool: ...

    def join(self, timeout: float | None = None) -> None: ...


StartThread = Callable[[Callable[[], None], str], NetworkThread]


def start_thread(run: Callable[[], None], name: str) -> NetworkThread:
    """Starts a daemon thread with this name, and returns it."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


class ForkCounter:
    """Counts the forks of this process since this module was loaded.

    The count shows whether a producer is used in a forked child. A comparison of process ids would
    need a system call for each record.
    """

    count = 0

    @classmethod
    def increment(cls) -> None:
        cls.count += 1


os.register_at_fork(after_in_child=ForkCounter.increment)


class NetworkLink:
    """The calls that other threads make to the network client.

    The link is created before the client, because the client is created from components that need
    the link. While there is no client, the methods do nothing.
    """

    __slots__ = ("_client",)

    def __init__(self) -> None:
        self._client: KafkaClient | None = None

    def connect(self, client: KafkaClient | None) -> None:
        """Sets the client. None means that the client is closed."""
        self._client = client

    def wakeup(self) -> None:
        """Ends the client's poll, because there is a batch or a request to send. Thread-safe."""
        client = self._client
        if client is not None:
            client.wakeup()

    def connection_failures(self) -> Mapping[str, str]:
        """The addresses that could not be reached, with the reasons, for errors. Thread-safe."""
        client = self._client
        return {} if client is None else client.connection_failures()


class Lifecycle:
    """The state of a producer: open at first, then failed, closed, or both. It is never open again.

    Single fields are read without a lock. ``_lock`` makes sure that only the first failure counts.
    A thread may take this lock while it holds any other lock. No other code is called while this
    lock is held.
    """

    __slots__ = (
        "_lock", "closed", "error", "fatal", "forced", "forks", "is_open", "is_reported", "pid"
    )  # fmt: skip

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Records are accepted. A field: it is read for each record of ``send``.
        self.is_open = True
        #: The error that every method except ``close`` raises after the producer has failed: the
        #: first failure.
        self.error: KafkaError | None = None
        #: A call has raised it: ``close`` need not wait for batches in flight.
        self.is_reported = False
        #: The error that stops the network thread: nothing more is sent.
        self.fatal: KafkaError | None = None
        #: ``close`` was called; ``forced``: it does not wait for queued records.
        self.closed = False
        self.forced = False
        self.pid = os.getpid()
        self.forks = ForkCounter.count

    def fail(self, error: KafkaError) -> None:
        """Marks the producer as failed: every method except ``close`` raises ``error``. The first
        error is kept.
        """
        with self._lock:
            if self.error is None:
                self.error = error
            self.is_open = False

    def stop(self, fatal: KafkaError) -> None:
        """Marks the producer as failed, and stops the sending. The first ``fatal`` error is
        kept.
        """
        error = fatal
        # An authentication error may be raised by a wait of the writer first: it must be the same
        # either way.
        if not isinstance(fatal, AuthenticationError):
            text = f"the producer failed: {first_line(fatal)}"
            error = DeliveryError(text, hint=fatal.hint, kind=fatal.kind)
            error.__cause__ = fatal
        with self._lock:
            if self.fatal is None:
                self.fatal = fatal
        self.fail(error)

    def close(self, *, forced: bool = False) -> None:
        """Marks the producer as closed.

        The field ``forced`` is set before the state, because the network thread must not begin work
        that a forced close skips.
        """
        if forced:
            self.forced = True
        self.closed = True
        self.is_open = False

    @property
    def is_forked(self) -> bool:
        """True if this process is a fork of the process that created the producer."""
        return self.forks != ForkCounter.count

    def check(self) -> None:
        """Raises an error unless the producer is open and belongs to this process."""
        if self.is_forked:
            raise IllegalStateError(
                f"this producer was made in process {self.pid}, not in {os.getpid()}",
                hint="a forked process has no network thread and no connections of the producer:"
                " make a new producer after forking",
            )
        if self.closed:
            raise IllegalStateError("the producer is closed")
        self.raise_error()

    def raise_error(self) -> None:
        """Raises the error of a failed producer. Does nothing if the producer has not failed."""
        if self.error is not None:
            self.is_reported = True
            raise self.error


def first_line(error: KafkaError) -> str:
    """The first line of ``error``'s message, for use in another message."""
    return error.message.splitlines()[0] if error.message else type(error).__name__
