"""Faults of the producer, made on purpose: what the invariants must notice.

Each is a context manager that breaks one class while it lasts. They are the mistakes that producers
have really been shipped with: a batch that is lost on its way back to its queue, a retry under
a new sequence, a batch completed twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.network.client.network_client import NetworkClient
from spark_kafka_sink.producer.accumulator.batch_filler import BatchFiller
from spark_kafka_sink.producer.accumulator.batch_returns import BatchReturns
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import (
    PartitionQueues,
    RecordAccumulator,
)
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.column_appender import ColumnAppender
from spark_kafka_sink.producer.metrics.produce_recorder import ProduceRecorder
from spark_kafka_sink.producer.send.record_future import ProduceRequestResult
from spark_kafka_sink.producer.sender import sender as sender_module
from spark_kafka_sink.producer.sender.sender import Sender
from spark_kafka_sink.producer.transaction.partition_sequences import Answer, PartitionSequences
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager
from tests.fakes.simulated_network import SimulatedNetwork
from tests.simulation.mutant import all_of, mutants_of


def _wrap(
    owner: type, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> AbstractContextManager[Any]:
    return patch.object(owner, name, make(getattr(owner, name)))


def _every(n: int, broken: Callable[..., Any]) -> Callable[..., Callable[..., Any]]:
    """Every n-th call is broken; ``broken`` gets the true method first."""

    def make(true: Callable[..., Any]) -> Callable[..., Any]:
        calls = 0

        def method(*given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls % n:
                return true(*given, **named)
            return broken(true, *given, **named)

        return method

    return make


def drop_a_reenqueued_batch() -> AbstractContextManager[Any]:
    return _wrap(BatchReturns, "reenqueue", _every(3, lambda true, *given: None))


def resend_with_a_new_sequence() -> AbstractContextManager[Any]:
    def broken(true: Any, self: BatchReturns, batch: ProducerBatch, now: int) -> None:
        true(self, batch, now)
        manager = self._transaction_manager
        if manager is not None:
            assert isinstance(manager, TransactionManager)
            sequence = manager._sequences.of[batch.tp].next_sequence
            identity, epoch = manager.producer_id_and_epoch
            batch.base_sequence, batch.buffers = -1, ()
            batch.set_producer_state(identity, epoch, sequence, transactional=False)

    return _wrap(BatchReturns, "reenqueue", _every(2, broken))


def complete_a_batch_twice() -> AbstractContextManager[Any]:
    def broken(true: Any, self: ProducerBatch, *given: Any) -> None:
        true(self, *given)
        self._listener.batches_done((self,))

    return _wrap(ProducerBatch, "complete", _every(5, broken))


def tell_a_row_twice() -> AbstractContextManager[Any]:
    def broken(true: Any, result: Any, futures: Any) -> None:
        true(result, [*futures, *futures[-1:]])

    return _wrap(ProduceRequestResult, "run_callbacks", _every(20, broken))


def lose_a_batch_at_its_expiry() -> AbstractContextManager[Any]:
    return _wrap(BatchReturns, "expired", _every(1, lambda true, *given: true(*given)[1:]))


def retry_in_the_wrong_order() -> AbstractContextManager[Any]:
    """A retry goes to the head, wherever its sequence belongs."""

    def broken(true: Any, self: Any, queue: Any, behind: int, batch: Any) -> None:
        true(self, queue, 0, batch)

    return _wrap(PartitionQueues, "insert", _every(1, broken))


def retry_behind_what_is_new() -> AbstractContextManager[Any]:
    def broken(true: Any, self: Any, queue: Any, behind: int, batch: Any) -> None:
        behind = len(queue.batches) - (queue.open is not None)
        true(self, queue, max(behind, 0), batch)

    return _wrap(PartitionQueues, "insert", _every(1, broken))


def let_the_first_batch_have_company() -> AbstractContextManager[Any]:
    """Java's rule: up to max.in.flight batches leave before any is acknowledged."""

    def method(self: PartitionSequences[Any]) -> bool:
        return len(self) < 5

    return patch.object(PartitionSequences, "can_send_new", method)


def _acknowledged_by(wrong: Answer) -> AbstractContextManager[Any]:
    true = sender_module.answer_of

    def method(code: Any, **named: bool) -> Answer:
        answer = true(code, **named)
        return Answer.ACKNOWLEDGED if answer is wrong else answer

    return patch.object(sender_module, "answer_of", method)


def take_a_lost_answer_for_success() -> AbstractContextManager[Any]:
    return _acknowledged_by(Answer.LOST)


def take_out_of_order_for_a_duplicate() -> AbstractContextManager[Any]:
    return _acknowledged_by(Answer.OUT_OF_ORDER)


def keep_the_memory_of_a_failed_batch() -> AbstractContextManager[Any]:
    def broken(true: Any, self: RecordAccumulator, *batches: ProducerBatch) -> None:
        true(self, *[batch for batch in batches if batch.error is None])

    return _wrap(RecordAccumulator, "deallocate", _every(1, broken))


def give_memory_back_twice() -> AbstractContextManager[Any]:
    def broken(true: Any, self: BufferPool, size: int) -> None:
        true(self, size)
        true(self, size)

    return _wrap(BufferPool, "deallocate", _every(7, broken))


def forget_the_requests_of_a_lost_connection() -> AbstractContextManager[Any]:
    def broken(true: Any, self: NetworkClient, responses: Any, *given: Any, **named: Any) -> None:
        true(self, None, *given, **named)

    return _wrap(NetworkClient, "_cancel_in_flight", _every(2, broken))


def let_no_request_time_out() -> AbstractContextManager[Any]:
    return patch.object(NetworkClient, "_handle_timed_out_requests", lambda *given: None)


def lose_wakeups() -> AbstractContextManager[Any]:
    return _wrap(SimulatedNetwork, "wakeup", _every(2, lambda true, *given: None))


def forget_refused_slices() -> AbstractContextManager[Any]:
    """What the sender closed under the writer's hands is not encoded again."""
    return patch.object(ColumnAppender, "_encode_again", lambda *given: [])


def append_to_a_batch_that_another_closed() -> AbstractContextManager[Any]:
    """Positions go stale: the slice is taken into a batch of its own with its old deltas."""

    def broken(true: Any, self: BatchFiller, slices: Any, *given: Any) -> Any:
        from dataclasses import replace

        result = true(self, slices, *given)
        if result.refused:
            fresh = [replace(piece, generation=0) for piece in result.refused]
            again = true(self, fresh, *given)
            return replace(again, taken=again.taken + result.taken)
        return result

    return _wrap(BatchFiller, "append", _every(1, broken))


def split_and_lose_a_half() -> AbstractContextManager[Any]:
    return _wrap(ProducerBatch, "split", _every(1, lambda true, *given: true(*given)[:1]))


def go_on_after_a_failed_batch() -> AbstractContextManager[Any]:
    """A failed batch of columns is taken for one of ``send``: what is behind the hole is sent all
    the same.
    """

    return all_of(
        patch.object(Sender, "_fail_producer", lambda *given: None),
        patch.object(ProduceRecorder, "_fails_alone", lambda *given: True),
    )


def fail_what_is_behind_a_refused_record() -> AbstractContextManager[Any]:
    """It is not sent again under the next epoch: a record takes innocents with it."""
    return patch.object(PartitionSequences, "_may_be_written_twice", lambda *given: True)


def hold_every_partition_while_one_moves_on() -> AbstractContextManager[Any]:
    def broken(true: Any, self: TransactionManager, batch: ProducerBatch) -> bool:
        return bool(true(self, batch)) and (batch.has_sequence or not self._sequences.in_flight)

    return _wrap(TransactionManager, "may_drain", _every(1, broken))


def lose_what_goes_again_under_the_next_epoch() -> AbstractContextManager[Any]:
    def broken(true: Any, self: BatchReturns, batches: Any, now: int) -> None:
        true(self, batches[1:], now)

    return _wrap(BatchReturns, "begin_again", _every(1, broken))


def never_learn_of_a_new_leader() -> AbstractContextManager[Any]:
    return all_of(
        patch.object(Metadata, "request_update", lambda *given, **named: None),
        patch.object(Metadata, "update_leader", lambda *given, **named: False),
    )


MUTATIONS = mutants_of(sys.modules[__name__])
