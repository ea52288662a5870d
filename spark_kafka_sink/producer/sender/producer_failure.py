"""What a failure does to a whole producer, and what its calls raise from then on.

Owns: the error that broke a producer, and how it is told. It joins those who learn of failures (the
recorder of batches, the sender, a call that was interrupted) with those who must stop. Never: which
batch fails (``sender.py``), which of them loses an attempt (``batch_completion.py``).

What a batch that failed for good does (rule R2):

- records of ``send`` fail, and the others go on: the idempotent producer under a new id, because
  nothing may be sent behind a hole (``transaction_manager.py``);
- rows of columns belong to an attempt, which is lost as a whole: what was not acknowledged fails,
  and every call but ``close`` raises;
- a transaction can only be aborted now; after ``abort_transaction`` the producer goes on.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import AuthenticationError, DeliveryError, KafkaError
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.metrics.produce_recorder import ProduceRecorder
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager


class ProducerFailure:
    """Of one producer. ``failure`` is what every call but close raises, None while all is well.

    ``fatal_error`` asks the sender what ended it for good.
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
        """Raise what made this attempt fail, if anything did."""
        batch = self._recorder.failed_batch
        cause = batch.error if batch is not None else self._fatal_error()
        if cause is None:
            if self.failure is not None:
                raise self.failure
            return
        if batch is None and isinstance(cause, AuthenticationError):
            # The writer's own wait may have met it first: the same error, whoever did.
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
        """From now on every call but close raises ``error``; nothing that waits is sent.

        A transaction can be aborted, and the producer go on; unless what an interrupted append left
        behind is not known.
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
    """Of what ``error`` says, for another one's message."""
    return error.message.splitlines()[0] if error.message else type(error).__name__
