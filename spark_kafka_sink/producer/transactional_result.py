"""What a call like commit_transaction waits for (Java's TransactionalRequestResult).

Owns: one outcome, told once by the sender's thread, and the wait for it. Never: a decision.
"""

from __future__ import annotations

from spark_kafka_sink.clock import Clock, Latch
from spark_kafka_sink.errors import ErrorCode, KafkaError, KafkaTimeoutError


class TransactionalResult:
    """The outcome of ``operation``; the first of :meth:`done` and :meth:`fail` counts."""

    __slots__ = ("_acked", "_error", "_latch", "operation")

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self._latch = Latch()
        self._error: KafkaError | None = None
        self._acked = False

    def done(self) -> None:
        self._latch.open()

    def fail(self, error: KafkaError) -> None:
        if not self._latch.is_open:
            self._error = error
            self._latch.open()

    @property
    def is_completed(self) -> bool:
        return self._latch.is_open

    @property
    def is_acked(self) -> bool:
        """True once somebody has waited to the end and knows the outcome."""
        return self._acked

    @property
    def error(self) -> KafkaError | None:
        """Why it failed, once it has."""
        return self._error

    def await_(self, clock: Clock, deadline_ms: int) -> None:
        """Wait for the outcome; raise its error.

        Raises KafkaTimeoutError at the deadline. Nothing is given up by that: the operation goes
        on, and calling it again waits for the same outcome.
        """
        if not clock.wait(self._latch, deadline_ms):
            raise KafkaTimeoutError(
                f"{self.operation} was not complete in time",
                hint="it goes on: call it again to wait for its outcome, or close the producer",
                code=ErrorCode.REQUEST_TIMED_OUT,
            )
        self._acked = True
        if self._error is not None:
            raise self._error
