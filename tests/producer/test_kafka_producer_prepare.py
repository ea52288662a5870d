"""A prepared transaction has left the producer: what the facade says on the wire, and what not."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from spark_kafka_sink.base.errors import (
    DeliveryError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
)
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from tests.fakes.fake_cluster import FOREVER
from tests.fakes.producer_world import END, INIT, ProducerWorld, columns, texts

#: Time passes only when a test waits.
pytestmark = pytest.mark.simulated

METADATA = 3
PRODUCE = 0


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def world(request: pytest.FixtureRequest) -> ProducerWorld:
    return ProducerWorld(transaction_version=request.param)


def begun(
    world: ProducerWorld, name: str = "id", rows: Sequence[str] = (), **options: object
) -> KafkaProducer:
    """In a transaction, with these rows."""
    producer = world.producer(name, **options)
    producer.init_transactions()
    producer.begin_transaction()
    if rows:
        producer.send_columns(columns(*rows))
    return producer


def test_prepare_sends_everything_and_returns_what_ends_it(world: ProducerWorld) -> None:
    producer = begun(world, rows=["a", "b"])
    prepared = producer.prepare()
    assert prepared.transactional_id == "id"
    assert (prepared.producer_id, prepared.producer_epoch) == producer.producer_id_and_epoch
    assert prepared.transaction_version == world.cluster.transaction_version
    assert world.values(committed=False) == texts("a", "b")
    assert world.values() == []
    world.end(prepared)
    assert world.values() == texts("a", "b")
    producer.close(0)


@pytest.mark.parametrize("timeout_ms", [None, 0, 1_000])
def test_closing_a_prepared_producer_asks_no_coordinator(
    world: ProducerWorld, timeout_ms: int | None
) -> None:
    producer = begun(world, rows=["a"])
    prepared = producer.prepare()
    producer.park()
    asked = list(world.asked)
    producer.close(timeout_ms)
    world.scheduler.sleep(1_000)
    assert world.asked == asked == [("init", "id")]
    assert world.state_of("id") == "Ongoing"
    world.end(prepared)
    assert world.values() == texts("a")


@pytest.mark.parametrize("error", [None, RuntimeError("the task fails later")])
def test_leaving_the_with_block_keeps_a_prepared_transaction(
    world: ProducerWorld, error: Exception | None
) -> None:
    try:
        with begun(world) as producer:
            producer.send_columns(columns("a"))
            producer.prepare()
            if error is not None:
                raise error
    except RuntimeError:
        pass
    assert world.asked == [("init", "id")]
    assert world.state_of("id") == "Ongoing"


def test_an_exception_in_the_with_block_sends_and_aborts(world: ProducerWorld) -> None:
    """As Java's try-with-resources; readers would else wait for transaction.timeout.ms."""

    def leave(producer: KafkaProducer, *rows: str) -> None:
        with producer:
            for row in rows:
                producer.send(ProducerRecord("t", row.encode(), partition=0))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        leave(begun(world), "a")
    assert world.asked == [("init", "id"), ("abort", "id")]
    assert world.values() == texts()
    with pytest.raises(RuntimeError):
        leave(world.of(world.config), "b", "c")
    world.scheduler.sleep(1_000)  # for the marker: until then nothing behind it is committed
    assert world.values() == texts("b", "c")


def test_a_prepared_producer_can_not_send_end_or_prepare(world: ProducerWorld) -> None:
    producer = begun(world, rows=["a"])
    producer.prepare()
    for call in (
        lambda: producer.send_columns(columns("b")),
        producer.prepare,
        producer.begin_transaction,
        producer.init_transactions,
        producer.commit_transaction,
        producer.abort_transaction,
    ):
        with pytest.raises(IllegalStateError):
            call()
    assert producer.reusable, "it can go on when the driver has ended its transaction"
    producer.close(0)
    assert world.asked == [("init", "id")]


def test_a_warm_producer_has_a_new_identity_after_the_driver(world: ProducerWorld) -> None:
    producer = begun(world)
    identities = set()
    for n in range(3):
        producer.start_attempt()
        producer.send_columns(columns(f"a{n}", f"b{n}"))
        assert producer.finish_attempt().rows == 2
        prepared = producer.prepare()
        identities.add((prepared.producer_id, prepared.producer_epoch))
        producer.park()
        world.end(prepared)
        producer.forget_prepared()
        producer.init_transactions()
        producer.begin_transaction()
    producer.close(0)
    assert len(identities) == 3
    assert len(world.values()) == 6


def test_initializing_an_id_aborts_an_undecided_transaction(world: ProducerWorld) -> None:
    """The loser of a speculative pair: its message was thrown away, its id comes to use again."""
    producer = begun(world, rows=["loser"])
    producer.prepare()
    producer.forget_prepared()
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_columns(columns("winner"))
    world.end(producer.prepare())
    assert world.values() == texts("winner")
    producer.close(0)


def test_only_a_prepared_transaction_can_be_forgotten(world: ProducerWorld) -> None:
    producer = begun(world)
    with pytest.raises(IllegalStateError, match="forget a prepared"):
        producer.forget_prepared()
    producer.send_columns(columns("a"))
    with pytest.raises(IllegalStateError, match="forget a prepared"):
        producer.forget_prepared()
    producer.abandon(5_000)


def test_a_transaction_without_a_row_is_not_prepared(world: ProducerWorld) -> None:
    producer = begun(world)
    with pytest.raises(IllegalStateError, match="nothing was written"):
        producer.prepare()
    producer.abandon(5_000)


def test_a_transaction_with_a_refused_batch_is_not_prepared(world: ProducerWorld) -> None:
    fault = world.cluster.control.answer(PRODUCE, ErrorCode.INVALID_RECORD)
    producer = begun(world, rows=["a"])
    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        producer.prepare()
    assert fault.fired
    producer.abandon(5_000)
    world.scheduler.sleep(100)
    assert world.state_of("id") in ("CompleteAbort", "Empty")
    assert world.values() == []


def test_without_transactions_there_is_nothing_to_prepare(world: ProducerWorld) -> None:
    producer = world.of(world.config)
    with pytest.raises(IllegalStateError, match="transactional"):
        producer.prepare()
    producer.abandon(1_000)


def test_counts_begin_with_each_transaction(world: ProducerWorld) -> None:
    producer = begun(world)
    for n in range(2):
        producer.send_columns(columns(f"a{n}"))
        world.end(producer.prepare())
        producer.forget_prepared()
        producer.init_transactions()
        producer.begin_transaction()
    producer.close(0)
    assert world.values() == texts("a0", "a1")


# --- giving up ---------------------------------------------------------------------------------


def test_abandoning_an_open_transaction_aborts_and_sends_nothing(world: ProducerWorld) -> None:
    producer = begun(world, batch_size=262_144, linger_ms=60_000)
    producer.send_columns(columns("a"))
    producer.flush()
    producer.send_columns(columns("never sent"))
    producer.abandon(5_000)
    world.scheduler.sleep(100)
    assert world.asked[0] == ("init", "id")
    assert len(world.asked) == 2, "EndTxn, or with version 1 it may be InitProducerId"
    assert world.values(committed=False) == texts("a")
    assert world.values() == []
    assert world.state_of("id") != "Ongoing"


@pytest.mark.parametrize("waits", [True, False])
def test_abandoning_without_a_leader_ends_nothing(world: ProducerWorld, waits: bool) -> None:
    """Its marker would be dropped. The driver ends it, or it times out. With rows that wait for the
    leader the producer knows already that it is lost.
    """
    producer = begun(world)
    producer.send_columns(columns("a"))
    producer.flush()
    (tp,) = (tp for tp, log in world.cluster.logs.items() if log.batches)
    world.cluster.move_leader(tp, -1)
    if waits:
        producer.send_columns(columns("b"))
        world.scheduler.sleep(2_000)
    producer.abandon(5_000)
    world.scheduler.sleep(100)
    assert world.asked == [("init", "id")]
    assert world.state_of("id") == "Ongoing"


def test_abandoning_without_new_metadata_ends_nothing(world: ProducerWorld) -> None:
    """Those that it has may be from before a leader was lost."""
    producer = begun(world)
    producer.send_columns(columns("a"))
    producer.flush()
    fault = world.cluster.control.drop(METADATA, FOREVER, processed=False)
    producer.abandon(5_000)
    world.scheduler.sleep(100)
    assert fault.fired
    assert world.asked == [("init", "id")]
    assert world.state_of("id") == "Ongoing"


def test_abandoning_sends_no_late_end_into_a_lost_leader(world: ProducerWorld) -> None:
    """The coordinator loads for two seconds."""
    producer = begun(world)
    producer.send_columns(columns("a"))
    producer.flush()
    cluster = world.cluster
    cluster.drops_markers = True
    (tp,) = (tp for tp, log in cluster.logs.items() if log.batches)
    leaders: list[int] = []

    def watched(_: object) -> bool:
        leaders.append(cluster.logs[tp].leader)
        return False

    for api in (END, INIT):
        cluster.control.delay(api, 0, FOREVER, where=watched)
    cluster.move_coordinator("id", cluster.coordinator_of("id") % 3 + 1, loading_ms=2_000)
    cluster.at(cluster.now + 1_500, lambda: cluster.move_leader(tp, -1))
    producer.abandon(5_000)
    assert leaders
    assert -1 not in leaders
    assert world.state_of("id") == "Ongoing"


def test_abandoning_with_an_unresolved_batch_fences_it(world: ProducerWorld) -> None:
    """Version 1's EndTxn leaves the epoch as it is: a late copy would open the next one."""
    producer = begun(world, delivery_timeout_ms=2_000, request_timeout_ms=1_000, linger_ms=0)
    producer.send_columns(columns("a"))
    producer.flush()
    fault = world.cluster.control.drop(PRODUCE, FOREVER, processed=False)
    producer.send_columns(columns("lost"))
    with pytest.raises(KafkaError):
        producer.finish_attempt()
    assert fault.fired
    world.cluster.control.clear()
    producer.abandon(10_000)
    world.scheduler.sleep(100)
    last = "init" if world.cluster.transaction_version == 1 else "abort"
    assert world.asked[-1] == (last, "id")
    assert world.state_of("id") != "Ongoing"
    assert world.values() == []


def test_abandoning_takes_no_longer_than_it_may(world: ProducerWorld) -> None:
    producer = begun(world, rows=["a"])
    producer.flush()
    fault = world.cluster.control.drop(END, FOREVER, processed=False)
    fence = world.cluster.control.drop(INIT, FOREVER, processed=False)
    start = world.scheduler.now
    producer.abandon(5_000)
    assert world.scheduler.now - start <= 5_100
    assert fault.fired or fence.fired
    producer.abandon(5_000)  # and again does nothing
    assert world.scheduler.now - start <= 5_100


def test_abandoning_before_anything_was_written_asks_for_nothing(world: ProducerWorld) -> None:
    begun(world, "empty").abandon(5_000)
    assert world.asked == [("init", "empty")]
    never = world.producer("never")
    never.abandon(5_000)
    assert world.asked == [("init", "empty")]


def test_a_forked_child_leaves_its_parents_transaction_alone(world: ProducerWorld) -> None:
    producer = begun(world, rows=["a"])
    producer.flush()
    child = os.fork()
    if child == 0:
        producer.abandon(5_000)
        producer.close(0)
        os._exit(0 if world.asked == [("init", "id")] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    world.end(producer.prepare())
    assert world.values() == texts("a")
    producer.close(0)


def test_rows_that_were_not_acknowledged_are_not_prepared(world: ProducerWorld) -> None:
    producer = begun(world, rows=["a"])
    producer._rows_before -= 1  # a bug that loses a row
    with pytest.raises(DeliveryError, match="2 rows were appended, but 1"):
        producer.prepare()
    with pytest.raises(KafkaError):
        producer.prepare()
    producer.abandon(5_000)
    assert world.asked[-1] == ("abort", "id")


def test_a_batch_that_expires_in_flight_is_waited_for(world: ProducerWorld) -> None:
    """It left a moment before delivery.timeout.ms was over, and is never answered: the flush is
    over, without a word of a bug, when request.timeout.ms is.
    """
    world.cluster.control.answer(0, ErrorCode.NOT_ENOUGH_REPLICAS, times=85)
    world.cluster.control.drop(0, FOREVER, nth=86)
    heard: list[KafkaError | None] = []
    producer = begun(
        world,
        "a",
        delivery_timeout_ms=95_000,
        request_timeout_ms=60_000,
        retry_backoff_ms=1000,
        retry_backoff_max_ms=1000,
    )
    start = world.scheduler.now_ms()
    producer.send(ProducerRecord("t", b"v"), lambda _, error: heard.append(error))
    producer.flush()
    assert 125_000 < world.scheduler.now_ms() - start < 155_000
    with pytest.raises(KafkaError, match="Expiring 1 record"):
        producer.prepare()
    producer.close(0)
    world.cluster.control.check()
    assert len(heard) == 1
    assert isinstance(heard[0], KafkaTimeoutError)
