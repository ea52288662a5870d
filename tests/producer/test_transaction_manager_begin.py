"""Where a transaction's identity (producer id, epoch) comes from, in both versions of transactions.

What rule R2 puts in the place of Java's: no epoch is raised by the client; version 1 asks
the coordinator for the next identity when the next transaction begins.
"""

from __future__ import annotations

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.producer.transaction.transaction_states import State
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from spark_kafka_sink.protocol.messages.end_txn import EndTxnRequest
from spark_kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.fakes.kafka_messages import end_request, end_response, init_request
from tests.fakes.sender_world import PRODUCER_ID, TP0, TP1, TP2
from tests.fakes.transaction_world import TRANSACTIONAL_ID, TransactionWorld, is_completed


def test_version_1_asks_in_order_and_one_request_at_a_time() -> None:
    """TransactionManagerTest#testBasicTransaction,
    TransactionManagerTest#testMaybeAddPartitionToTransaction.
    """
    with TransactionWorld(1) as world:
        result = world.manager.initialize_transactions()
        world.round(3)
        assert world.asked == ["find"], "two transactional requests at once"
        world.find()
        world.round(2)
        assert world.asked == ["find", "init"]
        assert world.client.requests[0].destination in (1, 2)
        assert world.client.requests[1].destination == 2
        world.init()
        world.round()
        world.check_done(result)
        world.manager.begin_transaction()
        batches = [world.send(tp) for tp in (TP0, TP1, TP2)]
        commit = world.manager.begin_commit()
        world.round(3)
        assert world.asked[2:] == ["add"]
        world.add(TP0, TP1, TP2)
        world.round(1)
        assert not any(batch.is_done for batch in batches)
        for offset, tps in ((0, (TP0, TP1)), (0, (TP2,))):
            world.acknowledge_all(tps, offset)
        world.round(2)
        assert all(batch.is_done for batch in batches)
        world.end()
        world.await_(commit)
        assert world.asked[3:] == ["produce", "produce", "end"]
        (init,) = world.client.sent(InitProducerIdRequest)
        assert init == init_request(TRANSACTIONAL_ID, 60_000)
        (add,) = world.client.sent(AddPartitionsToTxnRequest)
        added = {TopicPartition(t.name, number) for t in add.topics for number in t.partitions}
        assert added == {TP0, TP1, TP2}
        (end,) = world.client.sent(EndTxnRequest)
        assert end == end_request(TRANSACTIONAL_ID, PRODUCER_ID, 0, True, 1)
        assert end.versions.max == 4
        assert {r.versions.max for r in world.client.produced} == {11}
        assert all(batch.producer_id == PRODUCER_ID for batch in world.produced)


def test_version_1_takes_its_next_identity_at_the_next_begin() -> None:
    """TransactionManagerTest#testBasicTransaction: one (producer id, epoch) is one transaction."""
    with TransactionWorld(1, written=True) as world:
        world.commit()
        world.client.requests.clear()
        assert world.state is State.READY
        world.manager.begin_transaction()
        assert not world.manager.has_producer_id
        batch = world.send()
        world.init(ErrorCode.CONCURRENT_TRANSACTIONS)
        world.round(2)
        world.init()
        world.round(2, ms=25)
        assert world.manager.producer_id_and_epoch == (PRODUCER_ID, 1)
        world.add(TP0)
        world.round(2)
        world.acknowledge()
        world.round(2)
        assert batch.is_done
        assert world.asked == ["init", "init", "add", "produce"]
        inits = world.client.sent(InitProducerIdRequest)
        assert inits == [init_request(TRANSACTIONAL_ID, 60_000, PRODUCER_ID, 0)] * 2
        assert [(b.epoch, b.sequence) for b in world.produced] == [(1, 0)]


def test_version_2_adds_no_partitions_and_uses_the_ends_epoch() -> None:
    """TransactionManagerTest#testTransactionManagerEnablesV2,
    TransactionManager.EndTxnHandler#handleResponse.
    """
    with TransactionWorld(2, begun=True) as world:
        batch = world.send()
        world.acknowledge()
        world.round(2)
        assert batch.is_done
        world.commit()
        assert world.asked == ["produce", "end"]
        assert world.client.produced[0].versions == (12, 12)
        assert world.client.produced[0].transactional_id == TRANSACTIONAL_ID
        (end,) = world.client.sent(EndTxnRequest)
        assert end == end_request(TRANSACTIONAL_ID, PRODUCER_ID, 0, True, 2)
        assert end.versions == (5, 5)
        assert world.manager.producer_id_and_epoch == (PRODUCER_ID, 1)
        world.manager.begin_transaction()
        world.write(offset=2)
        assert [(b.epoch, b.sequence) for b in world.produced] == [(0, 0), (1, 0)]


def test_an_epoch_at_its_end_brings_a_new_producer_id() -> None:
    """TransactionManager.EndTxnHandler#handleResponse."""

    with TransactionWorld(2, written=True) as world:
        world.client.prepare(EndTxnRequest, end_response(ErrorCode.NONE, 815, 0))
        world.await_(world.manager.begin_commit())
        assert world.manager.producer_id_and_epoch == (815, 0)
        world.manager.begin_transaction()
        world.write(offset=2)
        assert (world.produced[-1].producer_id, world.produced[-1].sequence) == (815, 0)


def test_a_changed_cluster_version_spares_an_open_transaction() -> None:
    """TransactionManager#maybeUpdateTransactionV2Enabled."""
    with TransactionWorld(1, written=True) as world:
        world.set_version(2, features_epoch=2)
        world.commit()
        assert world.client.sent(EndTxnRequest)[0].versions == (0, 4)
        assert world.manager._identity.transaction.version == 1
        world.set_version(1, features_epoch=1)  # an old broker's word; the newer one holds
        world.manager.begin_transaction()
        assert world.manager._identity.transaction.version == 2
        world.init()
        world.round(2)
        world.client.requests.clear()
        world.write(offset=2)
        assert world.asked == ["produce"]
        assert [b.epoch for b in world.produced] == [1]
        world.commit()
        world.manager.begin_transaction()
        assert world.manager._identity.transaction.version == 2, "an old broker's word was taken"


def test_an_abort_before_the_first_identity_needs_no_request() -> None:
    """Version 1: the InitProducerId that begin asked for is answered after the abort."""
    with TransactionWorld(1, written=True) as world:
        world.commit()
        world.manager.begin_transaction()
        world.round(2)
        abort = world.manager.begin_abort()
        world.round(2)
        assert not is_completed(abort), "two transactional requests at once"
        world.init()
        world.await_(abort)
        assert world.state is State.READY
        assert world.asked.count("end") == 1
        assert world.manager.producer_id_and_epoch == (PRODUCER_ID, 1)
        world.manager.begin_transaction()
        assert world.asked.count("init") == 1
