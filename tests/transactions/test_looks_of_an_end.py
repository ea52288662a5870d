"""The looks before EndTxn is sent again: few requests, patient with slow brokers."""

from __future__ import annotations

import pytest

from spark_kafka_sink.admin.transaction_client import LastLook
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.ending import commit_all, end_decided
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import Scene
from tests.simulation.scene_requests import of_data, of_id
from tests.transactions.open_transactions import leaders_at, one_for_each_broker, open_transactions
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
    look = LastLook(client.clock.now_ms(), {})
    ended = commit_all(client, transactions, client.deadline(120_000), look=look)
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


def ids_of_brokers(scene: Scene, first: int = 0) -> list[str]:
    """A transactional id for each coordinator, in the order of the brokers."""
    found = one_for_each_broker(scene.cluster, (f"p~run~{n}" for n in range(first, first + 80)))
    return [found[node] for node in sorted(found)]


def test_a_silent_search_of_a_coordinator_delays_no_other(scene: Scene) -> None:
    ids = ids_of_brokers(scene)[:2]
    open_transactions(scene.client(), ids, TP)
    client = scene.client()
    client.describe(ids, client.deadline())
    client.loop.forget_coordinators(ids[1:])
    fault = scene.control.drop(ApiKey.FIND_COORDINATOR, 1, processed=False)
    assert set(client.describe_now(ids, client.deadline())) == {ids[0]}
    assert fault.fired


def test_a_silent_search_of_a_coordinator_ends_no_commit(scene: Scene) -> None:
    """One coordinator loads. The other one moves, and the broker that is asked for it is silent."""
    ids = ids_of_brokers(scene)[:2]
    transactions = open_transactions(scene.client(), ids, TP)
    client = scene.client()
    client.describe(ids, client.deadline())
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    scene.control.answer(ApiKey.END_TXN, loading, 1, where=of_id(ids[0]))
    scene.control.answer(ApiKey.END_TXN, ErrorCode.NOT_COORDINATOR, 1, where=of_id(ids[1]))
    fault = scene.control.drop(ApiKey.FIND_COORDINATOR, 1, processed=False)
    look = LastLook(client.clock.now_ms(), {})
    ended = commit_all(client, transactions, client.deadline(120_000), look=look)
    assert fault.fired
    assert not ended.unclear


def test_a_young_transaction_waits_beside_an_old_one(scene: Scene) -> None:
    """A third one is committed. Only the young one has a partition without a leader."""
    cluster, other = scene.cluster, TopicPartition("t", 1)
    ids = [f"p~run~{n}" for n in range(3)]
    leaders = leaders_at(scene, other, ApiKey.END_TXN, of_id(ids[2]))
    client = scene.client()
    first = open_transactions(client, ids[:2], TP)
    scene.scheduler.sleep(50_000)
    young = open_transactions(client, ids[2:], other)
    client.end(first[:1], committed=True, deadline_ms=client.deadline())
    leader = cluster.logs[other].leader
    cluster.move_leader(other, -1)
    cluster.at(cluster.now + 3_000, lambda: cluster.move_leader(other, leader))
    ended = end_decided(
        client,
        [*first, *young],
        client.deadline(120_000),
        checked_until_ms=0,
        only_lost=False,
    )
    assert not ended.unclear
    assert leaders
    assert -1 not in leaders


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_a_silent_coordinator_is_not_asked_for_leaders(scene: Scene, first: int) -> None:
    """The other coordinator has cut the connection, so neither has responded."""
    silent, cut = ids_of_brokers(scene, first)[:2]
    open_transactions(scene.client(), [silent, cut], TP)
    client = scene.client()
    found = client.describe([silent, cut], client.deadline())
    node, is_silent = scene.cluster.coordinator_of(silent), list[bool]()

    def falls_silent(_: Request) -> bool:
        is_silent.append(True)
        return True

    for api in (ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.DESCRIBE_TRANSACTIONS):
        scene.control.drop(
            api, FOREVER, processed=False, node=node, where=lambda _: bool(is_silent)
        )
    scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, node=node, where=falls_silent)
    scene.control.cut(ApiKey.END_TXN, 1, processed=False, where=of_id(cut))
    answers = client.abort_exactly(found, client.deadline(60_000), prepared=[silent, cut])
    assert answers[cut] is ErrorCode.NONE


def test_a_list_without_a_response_delays_no_commit_of_others(scene: Scene) -> None:
    """One is committed. The coordinator of another one does not list transactions."""
    cluster, ids = scene.cluster, ids_of_brokers(scene)[:3]
    transactions = open_transactions(scene.client(), ids, TP)
    client = scene.client()
    client.describe(ids, client.deadline())
    begun, loading = cluster.now, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    scene.control.answer(ApiKey.END_TXN, loading, FOREVER, where=of_id(ids[0]))
    is_second = of_id(ids[1])
    scene.control.answer(
        ApiKey.END_TXN,
        loading,
        FOREVER,
        where=lambda request: is_second(request) and cluster.now < begun + 8_500,
    )
    node = cluster.coordinator_of(ids[0])
    scene.control.drop(ApiKey.LIST_TRANSACTIONS, FOREVER, processed=False, node=node)
    look = LastLook(client.clock.now_ms(), {})
    ended = commit_all(client, transactions, client.deadline(60_000), look=look)
    assert ended.unclear == (ids[0],)


@pytest.mark.parametrize("slow_ms", [1_000, 2_500])
def test_slow_lists_of_ages_hide_no_old_transaction(scene: Scene, slow_ms: int) -> None:
    """One is committed, the other has no leader. Three lists take longer than two seconds."""
    client = scene.client()
    first = open_transactions(client, ["p~run~0"], TP)
    second = open_transactions(client, ["p~run~1"], TopicPartition("t", 1))
    scene.cluster.move_leader(TopicPartition("t", 1), -1)
    scene.control.delay(ApiKey.LIST_TRANSACTIONS, slow_ms, FOREVER)
    ended = commit_all(client, [*first, *second], client.deadline(120_000))
    assert not ended.lost
    assert not ended.unclear
