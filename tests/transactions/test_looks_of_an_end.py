"""The looks before EndTxn is sent again: few requests, patient with slow brokers."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.ending import commit_all
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import Scene
from tests.simulation.scene_requests import of_data
from tests.transactions.open_transactions import open_transactions
from tests.transactions.running_query import Query

TP = TopicPartition("t", 0)


def test_a_coordinator_that_loads_gets_few_descriptions(scene: Scene) -> None:
    """Not one for each transaction in each look."""
    ids = [f"p~run~{n}" for n in range(200)]
    transactions = open_transactions(scene.client(), ids, TP)
    client = scene.client()
    client.describe(ids, scene.soon())
    node = scene.cluster.coordinator_of(ids[0])
    for i in ids:
        if scene.cluster.coordinator_of(i) == node:
            scene.cluster.move_coordinator(i, node % 3 + 1, loading_ms=30_000)
    watched = scene.watch()
    looked_ms = client.clock.now_ms()
    ended = commit_all(client, transactions, client.deadline(120_000), looked_ms=looked_ms)
    assert not ended.unclear
    assert len(watched.of(ApiKey.DESCRIBE_TRANSACTIONS)) < 30 * 10


def test_a_silent_coordinator_does_not_stop_the_aborts_of_others(scene: Scene) -> None:
    """It coordinates the first transaction. The others' first EndTxn is refused."""
    ids = [f"p~run~{n}" for n in range(30)]
    open_transactions(scene.client(), ids, TP)
    client, cluster = scene.client(), scene.cluster
    found = client.describe(ids, client.deadline())
    silent = cluster.coordinator_of(ids[0])
    others = [i for i in ids if cluster.coordinator_of(i) != silent]
    is_silent: list[bool] = []

    def falls_silent(request: Request) -> bool:
        is_silent.append(True)  # after the first look
        return cluster.coordinator_of(request.body.transactional_id) != silent

    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    scene.control.answer(ApiKey.END_TXN, busy, len(others), where=falls_silent)
    for api in (ApiKey.END_TXN, ApiKey.METADATA, ApiKey.API_VERSIONS):
        scene.control.drop(
            api, FOREVER, processed=False, node=silent, where=lambda _: bool(is_silent)
        )
    answers = client.abort_exactly(found, client.deadline(60_000), prepared=ids)
    assert {answers[i] for i in others} == {ErrorCode.NONE}


@pytest.mark.parametrize("slow_ms", [1_100, 1_500])
def test_a_slow_broker_does_not_stop_a_commit(scene: Scene, slow_ms: int) -> None:
    """Each response takes longer than a second, and the first EndTxn is refused."""
    query = Query.of(scene)
    query.commits(0, 1)
    commit = query.prepare(2)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    scene.control.answer(ApiKey.END_TXN, loading, 1, where=of_data)
    for api in (ApiKey.END_TXN, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.METADATA):
        scene.control.delay(api, slow_ms, FOREVER)
    begun = scene.scheduler.now
    assert commit() is Commit.COMMITTED
    assert scene.scheduler.now - begun < 40_000
