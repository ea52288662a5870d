"""A leader is lost between the check of a decision and its EndTxn: nothing is committed into it."""

from __future__ import annotations

import pytest

from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import TransactionalId
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.scene_requests import of_data
from tests.simulation.spark_world import PREFIX, TOPIC
from tests.transactions.open_transactions import one_for_each_broker
from tests.transactions.running_query import KEY, Query

AWAY_MS = 20_000
FAR = pytest.mark.life(nodes=3, network=NetworkFaults(latency_ms=5))
pytestmark = VERSIONS


def loses(scene: Scene, tp: TopicPartition, api: ApiKey, moving: str, loading_ms: int) -> list[int]:
    """Before the first such request, a broker is lost that coordinates ``moving``, and leads the
    only replica of ``tp``. The list has the time of that.
    """
    cluster, met = scene.cluster, list[int]()
    cluster.drops_markers = True

    def lost(request: Request) -> bool:
        is_first = not met and (api != ApiKey.END_TXN or of_data(request) == ("~~" not in moving))
        if is_first:
            met.append(cluster.now)
            leader = cluster.logs[tp].leader
            node = cluster.coordinator_of(moving) % 3 + 1
            cluster.move_coordinator(moving, node, resigned_ms=1, loading_ms=loading_ms)
            cluster.at(cluster.now + 100, lambda: cluster.move_leader(tp, -1))
            cluster.at(cluster.now + AWAY_MS, lambda: cluster.move_leader(tp, leader))
        return False

    scene.control.delay(api, 0, where=lost)
    return met


@FAR
def test_while_the_decision_is_written(scene: Scene) -> None:
    query = Query.of(scene)
    query.commits(0, 1)
    commit = query.prepare(2)
    met = loses(scene, TopicPartition("t", 0), ApiKey.END_TXN, f"{KEY}~~log", 9_000)
    assert commit() is Commit.COMMITTED
    assert scene.cluster.now - met[0] >= AWAY_MS
    scene.scheduler.sleep(1_000)
    assert scene.values() == ["row 0", "row 1", "row 2"]


@FAR
def test_while_the_rest_is_committed(scene: Scene) -> None:
    query = Query.of(scene)
    query.commits(0, 1)
    owner, prepared = query.owner(), []
    workers = (TransactionalId(KEY, "run", f"w{n}", 0, owner.generation) for n in range(50))
    by_node = one_for_each_broker(scene.cluster, map(str, workers))
    for n, id_ in enumerate(list(by_node.values())[:2]):
        producer = scene.producer(id_)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord("t", f"row 2.{n}".encode(), partition=n))
        prepared.append(producer.prepare())
    scene.scheduler.sleep(50)
    second = prepared[1].transactional_id
    met = loses(scene, TopicPartition("t", 1), ApiKey.END_TXN, second, 5_000)
    batch = Batch(2, tuple(prepared), digest="2" * 32)
    assert query.driver.commit(owner, batch) is Commit.COMMITTED
    assert scene.cluster.now - met[0] >= AWAY_MS
    scene.scheduler.sleep(1_000)
    assert scene.values() == ["row 0", "row 1", "row 2.0", "row 2.1"]


@pytest.mark.life(tasks=2)
def test_while_the_next_start_asks_for_ages(scene: Scene) -> None:
    written = scene.first_batch()
    scene.decides_and_dies(*written)
    tp = next(tp for tp, log in scene.cluster.logs.items() if tp.topic == TOPIC and log.batches)
    met = loses(scene, tp, ApiKey.LIST_TRANSACTIONS, written.ids[0], 2_000)
    scene.plan(scene.run("run-1"))
    assert scene.cluster.now - met[0] >= AWAY_MS
    assert scene.logged(PREFIX).last_done == 0
    scene.scheduler.sleep(1_000)
    assert len(scene.visible()) == 6


@pytest.mark.life(tasks=1)
def test_while_a_batch_is_aborted(scene: Scene) -> None:
    """Otherwise readers of the partition wait for ever."""
    written = scene.first_batch()
    logs = {tp: log for tp, log in scene.cluster.logs.items() if tp.topic == TOPIC and log.batches}
    loses(scene, next(iter(logs)), ApiKey.END_TXN, written.ids[0], 5_000)
    scene.abort(*written)
    scene.scheduler.sleep(400_000)
    assert [log.last_stable_offset for log in logs.values()] == [log.end for log in logs.values()]
