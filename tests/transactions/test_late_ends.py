"""EndTxn is not sent when the look at the leaders is too long ago."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import Scene
from tests.transactions.open_transactions import one_for_each_broker, open_transactions

TP = TopicPartition("t", 0)


@pytest.mark.parametrize("slow_ms", [1_900, 7_500])
def test_no_end_is_sent_when_its_connection_opens_late(scene: Scene, slow_ms: int) -> None:
    """A leader is lost more than a second before the connection to its coordinator is open."""
    cluster = scene.cluster
    by_node = one_for_each_broker(cluster, (f"p~run~{n}" for n in range(60)))
    first, second, third = sorted(by_node)
    ids = [by_node[first], by_node[second]]
    open_transactions(scene.client(), ids, TP)
    client, leader = scene.client(), cluster.logs[TP].leader
    found = client.describe(ids, client.deadline())
    begun = cluster.now
    cluster.move_coordinator(ids[1], third)
    cluster.at(begun + slow_ms - 1_100, lambda: cluster.move_leader(TP, -1))
    cluster.at(begun + 20_000, lambda: cluster.move_leader(TP, leader))
    scene.control.hold(ApiKey.API_VERSIONS, slow_ms, node=third)
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    scene.control.answer(ApiKey.END_TXN, busy, 3, where=lambda r: r.body.transactional_id == ids[0])
    leaders: list[int] = []

    def watched(request: Request) -> bool:
        leaders.append(cluster.logs[TP].leader)
        return False

    scene.control.delay(ApiKey.END_TXN, 0, FOREVER, where=watched)
    answers = client.abort_exactly(found, client.deadline(60_000), prepared=ids)
    assert set(answers.values()) == {ErrorCode.NONE}
    assert -1 not in leaders
