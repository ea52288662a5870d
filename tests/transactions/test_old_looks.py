"""Looks at the leaders that are old: of a broker that is cut off, of a process that was stopped, or
of a transaction that has grown since.
"""

from __future__ import annotations

from itertools import count

import pytest

from spark_kafka_sink.admin.transaction_client import LastLook
from spark_kafka_sink.base.errors import ErrorCode, KafkaTimeoutError
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.ending import commit_all
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import TransactionalId
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.scene_requests import of_data, of_id
from tests.simulation.spark_world import LOG_TOPIC
from tests.transactions.open_transactions import leaders_at, one_for_each_broker, open_transactions
from tests.transactions.running_query import KEY, Query

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
ONE = "p~run~0"
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def loses_leader(scene: Scene, tp: TopicPartition, after_ms: int, back_ms: int) -> None:
    leader = scene.cluster.logs[tp].leader
    scene.after(after_ms, lambda: scene.cluster.move_leader(tp, -1))
    scene.after(back_ms, lambda: scene.cluster.move_leader(tp, leader))


def stops_this_process(scene: Scene, tp: TopicPartition, api: ApiKey, nth: int = 1) -> None:
    """SIGSTOP for 4 s, while the response to that request is under way. Meanwhile ``tp`` loses its
    leader.
    """
    task, met = scene.scheduler.current, count(1)
    assert task is not None

    def stops(_: Request) -> bool:
        if next(met) == nth:
            task.frozen_ms = scene.scheduler.now + 4_000
            loses_leader(scene, tp, 1_500, 8_000)
        return False

    scene.control.delay(api, 0, where=stops)


def log_partition(scene: Scene) -> TopicPartition:
    logs = scene.cluster.logs.items()
    return next(tp for tp, log in logs if tp.topic == LOG_TOPIC and log.batches)


def test_the_leaders_of_a_broker_that_is_cut_off_do_not_count(scene: Scene) -> None:
    """It leads the partition, as it believes."""
    cluster = scene.cluster
    transactions = open_transactions(scene.client(), [ONE], TP)
    client = scene.client()
    client.describe([ONE], client.deadline())
    cluster.cut_off(next(n for n in cluster.brokers if n != cluster.coordinator_of(ONE)))
    leaders = leaders_at(scene, TP, ApiKey.END_TXN, of_id(ONE))
    loses_leader(scene, TP, 0, 8_000)
    scene.scheduler.sleep(1)
    assert not commit_all(client, transactions, client.deadline(60_000)).unclear
    assert leaders
    assert -1 not in leaders


def test_a_check_asks_no_coordinator_that_is_cut_off(scene: Scene) -> None:
    """It coordinates the first transaction, and has led a partition of the second."""
    cluster, query, prepared = scene.cluster, Query.of(scene), list[PreparedTransaction]()
    query.commits(0, 1)
    owner = query.owner()
    workers = (TransactionalId(KEY, "run", f"w{n}", 0, owner.generation) for n in range(80))
    by_node = one_for_each_broker(cluster, map(str, workers))
    alive = cluster.coordinator_of(f"{KEY}~~log")
    cut_off = next(n for n in cluster.brokers if n != alive)
    cluster.move_leader(log_partition(scene), alive)
    cluster.move_leader(OTHER, cut_off)
    for partition, node in enumerate((cut_off, alive)):
        producer = scene.producer(by_node[node])
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord("t", f"row 2.{partition}".encode(), partition=partition))
        prepared.append(producer.prepare())
    client = query.driver.client
    client.describe([one.transactional_id for one in prepared], client.deadline())
    leaders = leaders_at(scene, OTHER, ApiKey.END_TXN, of_id(by_node[alive]))
    cluster.cut_off(cut_off)
    loses_leader(scene, OTHER, 0, 8_000)
    scene.after(8_000, lambda: cluster.rejoin(cut_off))
    scene.scheduler.sleep(1)
    batch = Batch(2, tuple(prepared), digest="2" * 32)
    assert query.driver.commit(owner, batch) is Commit.COMMITTED
    assert -1 not in leaders
    scene.scheduler.sleep(1_000)
    assert scene.values() == ["row 0", "row 1", "row 2.0", "row 2.1"]


def test_a_check_asks_no_old_coordinator_of_the_log(scene: Scene) -> None:
    """It was cut off since the last commit, and has led the partition of the rows. The leader of
    the log accepts the write nevertheless, because it asks the new coordinator.
    """
    cluster, query = scene.cluster, Query.of(scene)
    query.commits(0, 1)
    log = f"{KEY}~~log"
    cut_off = cluster.coordinator_of(log)
    alive = cut_off % 3 + 1
    cluster.move_leader(log_partition(scene), alive)
    cluster.move_leader(TP, cut_off)
    owner = query.owner()
    workers = (TransactionalId(KEY, "run", f"w{n}", 0, owner.generation) for n in range(80))
    producer = scene.producer(one_for_each_broker(cluster, map(str, workers))[alive])
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(ProducerRecord("t", b"row 2", partition=0))
    prepared = producer.prepare()
    client = query.driver.client
    client.describe([prepared.transactional_id, log], client.deadline())
    leaders = leaders_at(scene, TP, ApiKey.END_TXN, of_data)
    cluster.cut_off(cut_off)
    loses_leader(scene, TP, 0, 8_000)
    scene.after(8_000, lambda: cluster.rejoin(cut_off))
    scene.scheduler.sleep(200)
    assert query.driver.commit(owner, Batch(2, (prepared,), digest="2" * 32)) is Commit.COMMITTED
    assert leaders
    assert -1 not in leaders
    assert scene.values() == ["row 0", "row 1", "row 2"]


def test_a_leader_that_is_back_is_seen_elsewhere(scene: Scene) -> None:
    """The coordinator was cut off before, and another broker coordinates the transaction now."""
    cluster = scene.cluster
    transactions = open_transactions(scene.client(), [ONE], TP)
    client = scene.client()
    client.describe([ONE], client.deadline())
    client.open_transactions("p", client.deadline())  # a connection to each broker
    cut_off = cluster.coordinator_of(ONE)
    cluster.move_leader(TP, -1)
    cluster.cut_off(cut_off)
    cluster.move_leader(TP, cut_off % 3 + 1)
    scene.scheduler.sleep(1_000)
    assert not commit_all(client, transactions, client.deadline(10_000)).unclear


@VERSIONS
@pytest.mark.parametrize("is_open", [True, False])
def test_an_orphan_that_writes_on_is_described_again(scene: Scene, is_open: bool) -> None:
    """The first request to end it is lost. Its task lives, and writes to another partition."""
    if not is_open and scene.life.transaction_version == 1:
        return  # version 1 ends no idle id
    producer = scene.producer(ONE)
    producer.init_transactions()
    producer.begin_transaction()
    if is_open:
        producer.send(ProducerRecord("t", b"row", partition=0))
        producer.flush()
    client = scene.client()
    found = client.describe([ONE], client.deadline())
    of_version = ApiKey.END_TXN if scene.life.transaction_version == 2 else ApiKey.INIT_PRODUCER_ID
    scene.control.drop(of_version, 1, processed=False)
    leaders = leaders_at(scene, OTHER, of_version, of_id(ONE))

    def writes() -> None:
        scene.scheduler.sleep(1_000)
        producer.send(ProducerRecord("t", b"row", partition=1))
        producer.flush()
        loses_leader(scene, OTHER, 0, 15_000)

    scene.scheduler.start(writes, "task")
    assert client.abort_exactly(found, client.deadline(60_000)) == {ONE: ErrorCode.NONE}
    assert len(leaders) > 1
    assert -1 not in leaders


def test_a_process_that_was_stopped_in_a_look_looks_again(scene: Scene) -> None:
    transactions = open_transactions(scene.client(), [ONE], TP)
    client = scene.client()
    client.describe([ONE], client.deadline())
    scene.control.answer(ApiKey.END_TXN, LOADING, 1)
    leaders = leaders_at(scene, TP, ApiKey.END_TXN, of_id(ONE))
    stops_this_process(scene, TP, ApiKey.METADATA)
    look = LastLook(client.clock.now_ms(), {ONE: [("t", [0])]})
    assert not commit_all(client, transactions, client.deadline(60_000), look=look).unclear
    assert len(leaders) > 1
    assert -1 not in leaders


@VERSIONS
@pytest.mark.parametrize("nth", [1, 2])
def test_a_process_that_was_stopped_in_a_write_looks_again(scene: Scene, nth: int) -> None:
    """The first write is of DECIDED, the second of DONE."""
    query = Query.of(scene)
    query.commits(0, 1)
    commit = query.prepare(2)
    tp = log_partition(scene)
    leaders = leaders_at(scene, tp, ApiKey.END_TXN, lambda request: not of_data(request))
    stops_this_process(scene, tp, ApiKey.PRODUCE, nth)
    assert commit() is Commit.COMMITTED
    assert leaders
    assert -1 not in leaders
    scene.scheduler.sleep(10_000)
    assert scene.values() == ["row 0", "row 1", "row 2"]


def test_a_write_is_not_committed_long_after_its_produce(scene: Scene) -> None:
    """Its check takes long, and does not look at the leaders."""
    query = Query.of(scene)
    query.commits(0, 1)
    tp = log_partition(scene)
    leaders = leaders_at(scene, tp, ApiKey.END_TXN, lambda request: not of_data(request))
    client = scene.client()
    session = CommitLog(client, LOG_TOPIC).open(KEY, client.deadline())

    def check() -> None:
        loses_leader(scene, tp, 1_000, 6_000)
        scene.scheduler.sleep(2_000)

    session.write(session.state, client.deadline(), check=check)
    assert leaders
    assert -1 not in leaders


def test_a_write_that_waits_for_a_leader_names_the_partition(scene: Scene) -> None:
    """And not the response to an earlier EndTxn."""
    query = Query.of(scene)
    query.commits(0, 1)
    commit = query.prepare(2)
    tp = log_partition(scene)

    def loses(request: Request) -> bool:
        scene.cluster.move_leader(tp, -1)
        return not of_data(request)

    scene.control.answer(ApiKey.END_TXN, LOADING, 1, where=loses)
    with pytest.raises(KafkaTimeoutError, match=f"partition {tp} has no leader") as failed:
        commit()
    assert failed.value.kind is ErrorCode.LEADER_NOT_AVAILABLE


@pytest.mark.parametrize("slow_ms", [2_500, 5_000, 9_000])
def test_slow_coordinators_do_not_stop_a_commit(scene: Scene, slow_ms: int) -> None:
    query = Query.of(scene)
    query.commits(0, 1)
    commit = query.prepare(2)
    scene.control.delay(ApiKey.END_TXN, slow_ms, FOREVER, where=of_data)
    scene.control.delay(ApiKey.DESCRIBE_TRANSACTIONS, slow_ms, FOREVER)
    begun = scene.scheduler.now
    assert commit() is Commit.COMMITTED
    assert scene.scheduler.now - begun < 45_000


@pytest.mark.life(nodes=1)
def test_a_throttled_connection_does_not_stop_a_commit(scene: Scene) -> None:
    """For a second, the longest time of a request quota by default."""
    query = Query.of(scene)
    query.commits(0, 1)
    commit = query.prepare(2)
    scene.control.answer(ApiKey.END_TXN, LOADING, 1, where=of_data)
    scene.cluster.throttle_ms = lambda: 1_000
    assert commit() is Commit.COMMITTED


@pytest.mark.life(nodes=1)
def test_a_throttled_connection_does_not_stop_an_abort(scene: Scene) -> None:
    """Of an orphan that has written nothing, so that its description is the whole look."""
    producer = scene.producer(ONE)
    producer.init_transactions()
    producer.begin_transaction()
    client = scene.client()
    found = client.describe([ONE], client.deadline())
    scene.cluster.throttle_ms = lambda: 1_500
    assert client.abort_exactly(found, client.deadline(10_000)) == {ONE: ErrorCode.NONE}
