"""The failure of a whole producer, and the error that its methods raise from then on.

Owns: a producer's failure and its message. It connects the sources of failures (the batch recorder,
the sender, an interrupted call) with the components that must stop. Never: which batch fails
(``sender.py``), which of them fails the attempt (``batch_completion.py``).

The effect of a permanently failed batch (rule R2):

- records of ``send`` fail, and the others continue: the idempotent producer under a new id, because
  nothing may be sent after a sequence gap (``transaction_manager.py``);
- rows of columns belong to an attempt, which is lost as a whole: unacknowledged rows fail, and
  every method but ``close`` raises;
- a transaction can then only be aborted; after ``abort_transaction`` the producer is usable.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import AuthenticationError, DeliveryError, KafkaError
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.metrics.produce_recorder import ProduceRecorder
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager


class ProducerFailure:
    """Of one producer. Every method but close raises ``failure``; None while there is none.

    ``fatal_error`` returns the sender's fatal error.
    """

    __slots__ = ("_accumulator", "_clock", "_fatal_error", "_manager", "_recorder", "failure")

    def __init__(
        self,
        clock: Clock,
        accumulator: RecordAccumulator,
        recorder: ProduceRecorder,
        transaction_manager: TransactionManager | None,
        fatal_error: Callable[[], KafkaError | None],
    ) -> None:
        self._clock = clock
        self._accumulator = accumulator
        self._recorder = recorder
        self._manager = transaction_manager
        self._fatal_error = fatal_error
        self.failure: KafkaError | None = None

    def raise_failure(self) -> None:
        """Raise the error that failed this attempt, if there is one."""
        batch = self._recorder.failed_batch
        cause = batch.error if batch is not None else self._fatal_error()
        if cause is None:
            if self.failure is not None:
                raise self.failure
            return
        if batch is None and isinstance(cause, AuthenticationError):
            # A wait of the writer may raise it first: the error must be the same either way.
            self.fail_producer(cause)
            raise cause
        if batch is None:
            error = DeliveryError(
                f"the producer failed: {first_line(cause)}", hint=cause.hint, kind=cause.kind
            )
        else:
            age = self._clock.now_ms() - batch.created_ms
            error = DeliveryError(
                f"{batch.tp}: {batch.record_count} rows were not acknowledged (attempts: "
                f"{batch.attempts + (batch.drained_ms > 0)}, age: {age} ms): {first_line(cause)}",
                hint=cause.hint,
                kind=cause.kind,
            )
        self.fail_producer(error)
        raise error from cause

    def fail_producer(self, error: KafkaError) -> None:
        """From now on every method but close raises ``error``; queued batches are not sent.

        In a transaction only the transaction fails and can be aborted, unless an interrupted append
        left the accumulator in an unknown state.
        """
        manager = self._manager
        if (
            manager is not None
            and manager.has_ongoing_transaction
            and self._accumulator.failure is None
            and self._fatal_error() is None
        ):
            manager.transition_to_abortable_error(error)
            return
        if self.failure is None:
            self.failure = error
        self._accumulator.fail(error)


def first_line(error: KafkaError) -> str:
    """The first line of ``error``'s message, for use in another message."""
    return error.message.splitlines()[0] if error.message else type(error).__name__
