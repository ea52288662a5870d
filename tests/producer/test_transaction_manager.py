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
from spark_kafka_sink.producer.transaction.txn_requests import Reaction
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages.init_producer_id import InitProducerIdResponse
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


def test_a_new_identity_waits_for_the_old_ones_requests() -> None:
    """Java raises the epoch instead (TransactionManager.bumpIdempotentEpochAndResetIdIfNeeded)."""
    manager = ready()
    manager.handle_produce_response(leave(manager), Answer.ACKNOWLEDGED, 0, 1)
    failed, behind = leave(manager), leave(manager)
    assert manager.handle_lost_sequence(failed, KafkaError("no"), unclear=False) == ()
    assert manager.renewing
    manager.renew()
    assert manager.has_producer_id, "one batch still has a sequence of the old identity"
    assert not manager.may_drain(ProducerBatch(TP, 0, 2, 0, Listener()))
    manager.handle_produce_response(behind, Answer.REFUSED, -1, 1)
    manager.handle_lost_sequence(behind, KafkaError("no"), unclear=False)
    manager.renew()
    assert not manager.has_producer_id
    assert not manager.renewing
    answer(manager, init_response(ErrorCode.NONE, 8, 0))
    assert manager.may_drain(ProducerBatch(TP, 0, 2, 0, Listener()))
    assert leave(manager).base_sequence == 0


def test_a_batch_that_was_never_sent_costs_no_identity() -> None:
    """It has no sequence, so that no sequence is missing at the broker."""
    manager = ready()
    waiting = ProducerBatch(TP, 0, 1, 0, Listener())
    assert manager.handle_lost_sequence(waiting, KafkaError("expired"), unclear=False) == ()
    assert not manager.renewing
    assert manager.may_drain(waiting)
