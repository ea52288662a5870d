"""Prepared transactions: what may be prepared, and that nothing but the driver touches it then."""

from __future__ import annotations

import pickle

import pytest

from spark_kafka_sink.base.errors import ErrorCode, IllegalStateError, KafkaError
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import IncompleteBatches
from spark_kafka_sink.producer.transaction.partition_sequences import Answer
from spark_kafka_sink.producer.transaction.transaction_states import State
from spark_kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.records.compression import Codec
from tests.fakes.accumulator_world import Listener
from tests.fakes.kafka_messages import add_response
from tests.fakes.sender_world import PRODUCER_ID, TP0, TP1
from tests.fakes.transaction_world import (
    BOTH,
    TRANSACTIONAL_ID,
    TransactionWorld,
    initialized_manager,
)


@BOTH
def test_a_prepared_transaction_is_nobodys_here(version: int) -> None:
    with TransactionWorld(version, written=True) as world:
        prepared = world.manager.prepare()
        assert prepared == PreparedTransaction(TRANSACTIONAL_ID, PRODUCER_ID, 0, version)
        assert pickle.loads(pickle.dumps(prepared)) == prepared
        assert world.manager._identity.transaction.partitions == {TP0}
        world.client.requests.clear()
        for call in (
            world.manager.begin_commit,
            world.manager.begin_abort,
            world.manager.begin_transaction,
            world.manager.initialize_transactions,
            world.manager.prepare,
            lambda: world.manager.maybe_add_partition(TP1),
            lambda: world.manager.transition_to_abortable_error(KafkaError("late")),
        ):
            with pytest.raises(IllegalStateError):
                call()
        assert not world.manager.may_drain(ProducerBatch(TP0, 0, 1, 0, Listener()))
        assert not world.manager.reusable
        world.sender.initiate_close()
        world.sender.run()
        assert world.asked == [], "closing ended a prepared transaction"
        assert world.state is State.PREPARED


def test_a_forced_close_or_failure_keeps_a_prepared_transaction() -> None:
    for end in ("force", "fatal"):
        with TransactionWorld(written=True) as world:
            world.manager.prepare()
            world.client.requests.clear()
            if end == "force":
                world.sender.force_close()
            else:
                world.manager.transition_to_fatal_error(KafkaError("a bug"))
                world.sender.initiate_close()
            world.sender.run()
            assert world.asked == []


@BOTH
def test_an_id_whose_prepared_transaction_ended_is_initialized(version: int) -> None:
    with TransactionWorld(version, written=True) as world:
        world.commit()
        world.manager.begin_transaction()
        if version == 1:
            world.init()
            world.round(2)
        world.write(offset=2)
        world.manager.prepare()
        world.manager.forget_prepared()
        assert world.state is State.UNINITIALIZED
        assert not world.manager.has_producer_id
        world.client.requests.clear()
        world.epoch = 4
        result = world.manager.initialize_transactions()
        world.init()
        world.await_(result)
        assert world.asked == ["init"], "the coordinator is still known"
        # An identity of before, told, would be called fenced.
        assert world.client.sent(InitProducerIdRequest)[0].producer_id == -1
        world.manager.begin_transaction()
        world.write(offset=3)
        assert [(b.epoch, b.sequence) for b in world.produced] == [(5, 0)]


def test_prepare_is_refused_while_anything_is_unanswered() -> None:
    incomplete = IncompleteBatches()
    manager = initialized_manager(incomplete)
    manager.begin_transaction()

    def refused() -> None:
        with pytest.raises(IllegalStateError, match="not acknowledged"):
            manager.prepare()
        assert manager.state is State.IN_TRANSACTION

    manager.maybe_add_partition(TP0)
    refused()  # a partition to be added
    request, _ = manager.requests.next_request(0)
    assert request is not None
    manager.requests.build(request)
    refused()  # a partition that is asked for
    added = add_response({TP0: ErrorCode.NONE})
    manager.requests.handle_response(request, added, "here")
    batch = ProducerBatch(TP0, 0, 1, 0, Listener())
    batch.append(b"", 1, 0)
    batch.close(Codec())
    manager.batches_sent((batch,))
    refused()  # a sequence without an answer
    manager.handle_produce_response(batch, Answer.ACKNOWLEDGED, 0, 0)
    incomplete.add(batch)
    refused()  # a batch in the accumulator
    incomplete.remove((batch,))
    assert manager.prepare() == PreparedTransaction(TRANSACTIONAL_ID, 7, 0, 1)
