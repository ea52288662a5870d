"""The state of a producer (open, failed or closed), the start of its network thread, and the
detection of forks.

:class:`Lifecycle` shows whether the producer accepts records, and which error its methods raise
after a failure. Other modules decide after which errors the producer has failed (DESIGN.md, rule
R2). ``sender.py`` has the loop of the network thread.

A forked child process has copies of its parent's producers, but not their threads. So a producer
can't be used in a forked child.
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
    """The number of forks between the process that has imported this module and the current process
    (``count``). It is 0 in the process that has imported the module, 1 in its forked child, and 2
    in a fork of this child.

    A producer stores the count when it is created. If the count is different later, the producer is
    in a forked child process.
    """

    # A comparison of process ids would need a system call for each record.
    count = 0

    @classmethod
    def increment(cls) -> None:
        cls.count += 1


os.register_at_fork(after_in_child=ForkCounter.increment)


class NetworkLink:
    """Forwards the calls of other threads to the network client of a producer.

    Some components need this link, and the client needs these components. So the link is created
    first, and gets the client later by :meth:`connect`. Without a client, the methods do nothing.
    """

    __slots__ = ("_client",)

    def __init__(self) -> None:
        self._client: KafkaClient | None = None

    def connect(self, client: KafkaClient | None) -> None:
        """Sets the client to which the calls go. None means that the client is closed."""
        self._client = client

    def wakeup(self) -> None:
        """Ends the client's current poll, because a batch or a request can be sent. Thread-safe."""
        client = self._client
        if client is not None:
            client.wakeup()

    def connection_failures(self) -> Mapping[str, str]:
        """The broker addresses to which the last connection failed, each with the reason. Used in
        error messages. Thread-safe.
        """
        client = self._client
        return {} if client is None else client.connection_failures()


class Lifecycle:
    """The state of a producer: first open, later failed or closed or both. A producer does not
    become open again.

    Fields are read without a lock. ``_lock`` guards the choice of the first error. A thread that
    holds another lock may take ``_lock``, because no other code is called while ``_lock`` is held.
    """

    __slots__ = (
        "_lock", "closed", "error", "fatal", "forced", "forks", "is_open", "is_reported", "pid"
    )  # fmt: skip

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: True while records are accepted. It is a field and not a property, because it is read for
        #: each record of ``send``.
        self.is_open = True
        #: The error of the first failure. Every later call that sends or waits raises this error.
        #: None if the producer has not failed.
        self.error: KafkaError | None = None
        #: True after a method has raised ``error``. ``close`` then need not wait for batches in
        #: flight.
        self.is_reported = False
        #: The error that has ended the network thread, or None. After this error, nothing more is
        #: sent.
        self.fatal: KafkaError | None = None
        #: ``closed`` is True after a call of :meth:`close`. ``forced`` is True if the network
        #: thread ends without sending the queued records.
        self.closed = False
        self.forced = False
        self.pid = os.getpid()
        self.forks = ForkCounter.count

    def fail(self, error: KafkaError) -> None:
        """Marks the producer as failed. Every later call that sends or waits raises ``error``. If
        the producer has already failed, the first error stays.
        """
        with self._lock:
            if self.error is None:
                self.error = error
            self.is_open = False

    def stop(self, fatal: KafkaError) -> None:
        """Marks the producer as failed because of the error ``fatal``, after which the network
        thread ends by itself.

        The producer's methods then raise a DeliveryError with the cause ``fatal``. There are two
        exceptions:

        * If ``fatal`` is an AuthenticationError, they raise ``fatal`` itself.
        * If the producer has already failed, they still raise the first error.
        """
        error = fatal
        # The writer's wait for metadata may raise the AuthenticationError first. The user must get
        # the same exception class in both cases.
        if not isinstance(fatal, AuthenticationError):
            text = f"the producer failed: {first_line(fatal)}"
            error = DeliveryError(text, hint=fatal.hint, kind=fatal.kind)
            error.__cause__ = fatal
        with self._lock:
            if self.fatal is None:
                self.fatal = fatal
        self.fail(error)

    def close(self, *, forced: bool = False) -> None:
        """Marks the producer as closed. With ``forced``, the network thread ends without sending
        the queued records.
        """
        # First ``forced``: if the network thread saw ``closed`` alone, it could begin to send the
        # queued records.
        if forced:
            self.forced = True
        self.closed = True
        self.is_open = False

    @property
    def is_forked(self) -> bool:
        """True if this process is a fork of the process that created the producer."""
        return self.forks != ForkCounter.count

    def check(self) -> None:
        """Raises IllegalStateError if the producer is closed or was created in another process
        (before a fork). Raises the producer's error if the producer has failed.
        """
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
    """The first line of the error's message. Used as a part of another error's message."""
    return error.message.splitlines()[0] if error.message else type(error).__name__
