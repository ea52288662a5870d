"""The result that a call like commit_transaction waits for (Java's TransactionalRequestResult).

Owns: one outcome, set once by the sender thread, and the wait for it. Never: a decision.
"""

from __future__ import annotations

import threading

from spark_kafka_sink.clock import Clock, Waiters
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError


class TransactionalResult:
    """The outcome of ``operation``; the first of :meth:`done` and :meth:`fail` counts.

    ``_lock`` guards the outcome and the waiters. Any thread.
    """

    __slots__ = ("_acked", "_completed", "_error", "_lock", "_waiters", "operation")

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self._lock = threading.Lock()
        self._waiters = Waiters()
        self._completed = False
        self._error: KafkaError | None = None
        self._acked = False

    def done(self) -> None:
        self._complete(None)

    def fail(self, error: KafkaError) -> None:
        self._complete(error)

    def _complete(self, error: KafkaError | None) -> None:
        with self._lock:
            if not self._completed:
                self._completed = True
                self._error = error
            self._waiters.wake_all()

    @property
    def is_completed(self) -> bool:
        return self._completed

    @property
    def is_acked(self) -> bool:
        """True once a caller has waited for the outcome and received it."""
        return self._acked

    @property
    def error(self) -> KafkaError | None:
        """The error, once it has failed."""
        return self._error

    def await_(self, clock: Clock, deadline_ms: int) -> None:
        """Wait for the outcome; raise its error.

        Raises KafkaTimeoutError at the deadline. The operation continues, and calling it again
        waits for the same outcome.
        """
        with self._lock:
            latch = self._waiters.enlist()
            if self._completed:
                latch.open()
        clock.wait(latch, deadline_ms)
        if not self._completed:
            raise KafkaTimeoutError(
                f"{self.operation} did not complete in time",
                hint="it continues: call it again to wait for its outcome, or close the producer",
            )
        self._acked = True
        if self._error is not None:
            raise self._error
