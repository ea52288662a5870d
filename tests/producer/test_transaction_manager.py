"""TransactionManager in idempotent mode; transactions are in a file of their own."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ErrorCode, IllegalStateError, KafkaError
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.lifecycle import Lifecycle
from spark_kafka_sink.producer.transaction.partition_sequences import (
    ACK_EXPIRY_MS,
    Action,
    Answer,
)
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager
from spark_kafka_sink.producer.transaction.transaction_states import LAST_EPOCH
from spark_kafka_sink.producer.transaction.txn_requests import Reaction
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages.init_producer_id import InitProducerIdResponse
from spark_kafka_sink.protocol.producer_ids import ProducerIdAndEpoch
from spark_kafka_sink.records.compression import Codec
from tests.fakes.accumulator_world import Listener
from tests.fakes.kafka_messages import init_response
from tests.fakes.transaction_world import new_manager

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
OK = init_response(ErrorCode.NONE, 7, 0)


def answer(manager: TransactionManager, response: InitProducerIdResponse) -> Reaction:
    """The manager asks for an id, and broker ``b`` answers."""
    request, _ = manager.requests.next_request(0)
    assert request is not None
    manager.requests.build(request)
    reaction = manager.requests.handle_response(request, response, "b")
    if reaction is Reaction.RETRY:
        manager.requests.retry(request, 0)
    return reaction


def ready() -> TransactionManager:
    manager = new_manager()
    assert answer(manager, OK) is Reaction.DONE
    return manager


def leave(manager: TransactionManager, tp: TopicPartition = TP, records: int = 1) -> ProducerBatch:
    batch = ProducerBatch(tp, 0, 1, 0, Listener())
    batch.append(b"", records, 0)
    batch.close(Codec())
    manager.batches_sent((batch,))
    return batch


def test_an_id_is_requested_once() -> None:
    manager = new_manager()
    assert manager.requests.waiting
    assert manager.requests.next_request(0)[0] is not None
    assert manager.requests.next_request(0)[0] is None
    assert not ready().requests.waiting


def test_nothing_is_drained_without_an_id_or_after_a_fatal_error() -> None:
    manager = new_manager()
    batch = ProducerBatch(TP, 0, 1, 0, Listener())
    assert not manager.may_drain(batch)
    answer(manager, OK)
    assert manager.may_drain(batch)
    manager.transition_to_fatal_error(KafkaError("the end"))
    assert not manager.may_drain(batch)


def test_a_retriable_refusal_of_an_id_is_retried() -> None:
    """NOT_COORDINATOR, too: any broker gives ids, so that none is looked for."""
    lifecycle = Lifecycle()
    manager = new_manager(lifecycle=lifecycle)
    for code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
        assert answer(manager, init_response(code, -1, -1)) is Reaction.RETRY
        assert lifecycle.fatal is None
    assert answer(manager, OK) is Reaction.DONE


def test_sequences_count_records_and_are_each_partitions_own() -> None:
    manager = ready()
    leave(manager, TP, 10)
    leave(manager, OTHER, 3)
    assert manager._sequences.of[TP].next_sequence == 10
    assert manager._sequences.of[OTHER].next_sequence == 3


def test_reusable_means_nothing_is_without_an_answer() -> None:
    manager = ready()
    assert manager.reusable
    first = leave(manager)
    assert not manager.reusable
    manager.handle_produce_response(first, Answer.ACKNOWLEDGED, 0, 1)
    assert manager.reusable
    batches = [leave(manager) for _ in range(3)]
    manager.handle_produce_response(batches[0], Answer.UNCLEAR, -1, 1)
    verdict = manager.handle_produce_response(batches[2], Answer.ACKNOWLEDGED, 3, 1)
    assert verdict.action is Action.COMPLETE
    assert verdict.proven == (batches[0], batches[1])
    assert manager.reusable


def test_a_split_leaves_its_pieces_without_an_answer() -> None:
    manager = ready()
    whole = leave(manager, records=4)
    manager.remove_in_flight_batch(whole)
    for base in (0, 2):
        piece = ProducerBatch(TP, 0, 2, 0, Listener())
        piece.record_count, piece.base_sequence = 2, base
        manager.add_in_flight_batch(piece)
        assert not manager.reusable
        assert manager.first_in_flight_sequence(TP) == 0


def test_a_batch_without_a_sequence_cannot_be_in_flight() -> None:
    """RecordAccumulator#insertInSequenceOrder."""
    manager = ready()
    with pytest.raises(IllegalStateError):
        manager.add_in_flight_batch(ProducerBatch(TP, 0, 1, 0, Listener()))


def test_an_old_acknowledgement_lapses_and_the_producer_probes() -> None:
    manager = ready()
    manager.handle_produce_response(leave(manager), Answer.ACKNOWLEDGED, 0, now=1_000)
    manager.expire_acks(1_000 + ACK_EXPIRY_MS)
    assert manager._sequences.of[TP].acknowledged
    manager.expire_acks(1_000 + 2 * ACK_EXPIRY_MS)
    assert not manager._sequences.of[TP].acknowledged
    leave(manager)
    assert not manager.may_drain(ProducerBatch(TP, 0, 2, 0, Listener()))


def test_the_producer_id_0_is_one() -> None:
    manager = new_manager()
    assert not manager.has_producer_id
    answer(manager, init_response(ErrorCode.NONE, 0, 0))
    assert manager.has_producer_id


def identity_of(batch: ProducerBatch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


def refused(manager: TransactionManager, batch: ProducerBatch) -> None:
    """A broker refuses ``batch`` for what it holds, and it fails alone."""
    assert manager.handle_produce_response(batch, Answer.INVALID, -1, 1).action is Action.FAIL
    assert manager.handle_lost_sequence(batch) == ()


def test_only_the_failed_partition_waits_for_the_next_epoch() -> None:
    """TransactionManager.bumpIdempotentEpochAndResetIdIfNeeded, maybeUpdateProducerIdAndEpoch;
    TransactionManagerTest#testHealthyPartitionRetriesDuringEpochBump.
    """
    manager = ready()
    for tp in (TP, OTHER):
        manager.handle_produce_response(leave(manager, tp), Answer.ACKNOWLEDGED, 0, 1)
    failed, behind, healthy = leave(manager), leave(manager), leave(manager, OTHER)
    refused(manager, failed)
    assert manager.take_moved() == []
    assert not manager.may_drain(ProducerBatch(TP, 0, 2, 0, Listener()))
    assert manager.may_drain(ProducerBatch(OTHER, 0, 2, 0, Listener()))
    assert identity_of(leave(manager, OTHER)) == (7, 0, 2), "it keeps its epoch: one is in flight"
    manager.handle_produce_response(behind, Answer.OUT_OF_ORDER, -1, 1)
    assert manager.take_moved() == [behind]
    assert not manager.moving
    assert identity_of(leave(manager)) == (7, 1, 0)
    manager.handle_produce_response(healthy, Answer.ACKNOWLEDGED, 1, 1)
    assert identity_of(leave(manager, OTHER)) == (7, 0, 3)


def test_a_partition_with_nothing_in_flight_takes_the_newest_epoch() -> None:
    manager = ready()
    manager.handle_produce_response(leave(manager, OTHER), Answer.ACKNOWLEDGED, 0, 1)
    refused(manager, leave(manager))
    manager.take_moved()
    assert identity_of(leave(manager, OTHER)) == (7, 1, 0)


def test_two_failures_of_one_epoch_raise_it_once() -> None:
    manager = ready()
    first, second = leave(manager), leave(manager, OTHER)
    refused(manager, first)
    refused(manager, second)
    manager.take_moved()
    assert manager.producer_id_and_epoch == (7, 1)
    assert identity_of(leave(manager, OTHER)) == (7, 1, 0)
    refused(manager, leave(manager))
    assert manager.producer_id_and_epoch == (7, 2)


def test_after_the_last_epoch_comes_a_new_id() -> None:
    """What is in flight elsewhere keeps its identity meanwhile."""
    manager = ready()
    manager._identity.producer = ProducerIdAndEpoch(7, LAST_EPOCH)
    elsewhere = leave(manager, OTHER)
    refused(manager, leave(manager))
    assert manager.take_moved() == []
    assert not manager.has_producer_id
    assert not manager.may_drain(ProducerBatch(TP, 0, 2, 0, Listener()))
    answer(manager, init_response(ErrorCode.NONE, 8, 0))
    assert identity_of(leave(manager)) == (8, 0, 0)
    assert manager.handle_produce_response(elsewhere, Answer.ACKNOWLEDGED, 0, 1).action is (
        Action.COMPLETE
    )
    assert identity_of(leave(manager, OTHER)) == (8, 0, 0)


def test_a_batch_that_was_never_sent_costs_no_epoch() -> None:
    """It has no sequence, so that no sequence is missing at the broker."""
    manager = ready()
    waiting = ProducerBatch(TP, 0, 1, 0, Listener())
    assert manager.handle_lost_sequence(waiting) == ()
    assert not manager.moving
    assert manager.producer_id_and_epoch == (7, 0)
    assert manager.may_drain(waiting)
