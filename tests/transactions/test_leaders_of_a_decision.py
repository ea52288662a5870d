"""The leaders of a batch's partitions are those of the moment of its decision."""

from __future__ import annotations

import pytest

from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import TransactionalId
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import Fault
from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.scene import VERSIONS, Scene
from tests.transactions.open_transactions import one_for_each_broker
from tests.transactions.running_query import KEY, Query

AWAY_MS = 4_000
pytestmark = [VERSIONS, pytest.mark.life(nodes=3, network=NetworkFaults(latency_ms=5))]


@pytest.mark.parametrize("used_again", [True, False], ids=["used again", "first check"])
def test_a_leader_is_lost_while_the_ages_are_asked_for_again(
    scene: Scene, used_again: bool
) -> None:
    """The coordinator resigns between DescribeTransactions and ListTransactions, as in a rolling
    restart. So the ages need another round, in which a leader is lost.
    """
    cluster, tp = scene.cluster, TopicPartition("t", 0)
    query = Query.of(scene)
    (query if used_again else query.elsewhere()).commits(0, 1)
    commit = query.prepare(2)
    (id_,) = scene.open_ids()
    cluster.drops_markers = True
    met: list[int] = []
    meets = cluster.control.met_by

    def met_by(request: Request, node: int) -> list[Fault]:
        if request.api == ApiKey.LIST_TRANSACTIONS and not met:
            met.append(cluster.now)
            coordinator = cluster.coordinator_of(id_)
            cluster.move_coordinator(id_, coordinator % 3 + 1, resigned_ms=1, loading_ms=1_000)
            leader = cluster.logs[tp].leader

            def lost() -> None:
                met.append(cluster.now)
                cluster.move_leader(tp, -1)

            cluster.at(cluster.now + 100, lost)
            cluster.at(cluster.now + AWAY_MS, lambda: cluster.move_leader(tp, leader))
        return meets(request, node)

    cluster.control.met_by = met_by
    assert commit() is Commit.COMMITTED
    assert len(met) == 2
    scene.scheduler.sleep(2 * AWAY_MS)
    assert scene.values() == ["row 0", "row 1", "row 2"], "a marker was dropped: rows are lost"


@pytest.mark.parametrize(
    "slow", [ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS], ids=["describe", "list"]
)
@pytest.mark.parametrize("used_again", [True, False], ids=["used again", "first check"])
def test_a_leader_is_lost_while_one_coordinator_is_slow(
    scene: Scene, slow: ApiKey, used_again: bool
) -> None:
    """The log's coordinator answers Metadata at once, and another one takes 2 s for its part of the
    round (a pause of its process). Meanwhile a leader is lost.
    """
    cluster, tp = scene.cluster, TopicPartition("t", 0)
    query = Query.of(scene)
    (query if used_again else query.elsewhere()).commits(0, 1)
    owner = query.owner()
    workers = (TransactionalId(KEY, "run", f"w{n}", 0, owner.generation) for n in range(50))
    by_node = one_for_each_broker(cluster, map(str, workers))
    first = cluster.coordinator_of(f"{KEY}~~log")
    second = next(node for node in by_node if node != first)
    prepared = []
    for n, id_ in enumerate((by_node[first], by_node[second])):
        producer = scene.producer(id_)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord("t", f"row 2.{n}".encode(), partition=0))
        prepared.append(producer.prepare())
    scene.scheduler.sleep(50)
    query.watched.arrived.clear()
    cluster.drops_markers = True

    def lost() -> None:
        leader = cluster.logs[tp].leader
        cluster.move_leader(tp, -1)
        cluster.at(cluster.now + AWAY_MS, lambda: cluster.move_leader(tp, leader))

    met: list[Request] = []
    meets = cluster.control.met_by

    def met_by(request: Request, node: int) -> list[Fault]:
        if request.api == ApiKey.METADATA and not met and node == first:
            met.append(request)
            cluster.at(cluster.now + 100, lost)
        return meets(request, node)

    if used_again:
        cluster.control.met_by = met_by
    held = cluster.control.hold(slow, 2_000, 1, node=second)
    if not used_again:
        scene.after(100, lost)
    batch = Batch(2, tuple(prepared), digest="2" * 32)
    assert query.driver.commit(owner, batch) is Commit.COMMITTED
    assert held.fired
    assert met or not used_again
    scene.scheduler.sleep(2 * AWAY_MS)
    assert scene.values() == ["row 0", "row 1", "row 2.0", "row 2.1"], "rows are lost"
