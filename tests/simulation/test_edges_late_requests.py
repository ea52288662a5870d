"""Requests that were lost and arrive late, listings that leave something out, brokers that come
back: nothing of it tears a batch or is taken for an answer.
"""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.base.errors import CommitError, ErrorCode, KafkaError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.lease import margin_ms
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster import api_list_transactions
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.scene_requests import of_the_log
from tests.simulation.seeded_cluster import ClusterFaults
from tests.simulation.spark_world import TIMEOUT_MS, Run

#: What a healthy step may take, in simulated milliseconds: nobody is waited for longer than 2 s.
SOON_MS = 2_500
ENDS = (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN)


@VERSIONS
@pytest.mark.life(tasks=2, new_worker=0.0)
def test_a_late_request_of_a_sweep_spares_the_next_batch(scene: Scene) -> None:
    """The loser of a speculative pair lives on, warm; what ends its transaction is on its way for
    long (a network that heals sends the bytes of a closed connection again), and arrives when the
    driver has looked at the next batch. (Its id is never used again.)
    """
    run, plan = scene.second_plan()
    winner, loser = scene.speculative_pair(run, 1, plan)
    assert loser.prepared is not None
    hit = loser.prepared.transactional_id
    lost: list[tuple[Request, int]] = []

    def keeps(request: Request) -> bool:
        if request.body.transactional_id != hit:
            return False
        lost.append((request, scene.cluster.coordinator_of(hit)))
        return True

    for api in ENDS:
        scene.control.drop(api, FOREVER, processed=False, where=keeps)
    assert scene.commit(run, 1, plan, [winner]) is Commit.COMMITTED
    scene.control.clear()
    on_their_way = tuple(lost)
    assert on_their_way
    assert scene.open_ids() == [hit]
    written = scene.written(run, 2)
    assert hit not in written.ids
    arrived: list[Request] = []

    def arrives(request: Request) -> bool:
        if of_the_log(request) and not arrived:
            for late, node in on_their_way:
                arrived.append(late)
                scene.cluster._work(late, node, {})
            scene.cluster.advance(scene.cluster.now)
        return False

    scene.control.delay(ApiKey.END_TXN, 1, FOREVER, where=arrives)
    assert scene.commit(*written) is Commit.COMMITTED
    assert arrived
    scene.ends_with_tasks((0, 0), (0, 1), (1, 0), (2, 0), (2, 1))


# -- a broker that comes back ----------------------------------------------------------------------


def behind_broker_3(scene: Scene, *, was_down: bool) -> Run:
    """A warm driver, whose metadata is from when broker 3 was down; it coordinates all ids of tasks
    from now on.
    """
    cluster = scene.cluster
    run = scene.run("run-0")
    if was_down:
        cluster.stop_broker(3)
        scene.scheduler.sleep(500)
    scene.batch(run, 0)
    if was_down:
        cluster.start_broker(3)
        scene.scheduler.sleep(1_000)
    coordinator_of = cluster.coordinator_of
    cluster.coordinator_of = lambda key: 3 if "~run-0~" in key else coordinator_of(key)
    return run


@pytest.mark.parametrize("was_down", [True, False])
@pytest.mark.life(warm_driver=True)
def test_an_orphan_at_a_broker_that_came_back_is_swept(scene: Scene, was_down: bool) -> None:
    run = behind_broker_3(scene, was_down=was_down)
    plan = scene.plan(run)
    loser = scene.launch(run, 1, 0, 1, plan)
    messages = scene.write(run, 1, plan)
    scene.wait(lambda: loser.over)
    assert len(scene.open_ids()) == 2
    assert scene.commit(run, 1, plan, messages) is Commit.COMMITTED
    assert scene.open_ids() == []
    scene.ends_with(0, 1)


@pytest.mark.parametrize("was_down", [True, False])
@pytest.mark.life(warm_driver=True)
def test_old_transactions_at_a_returned_broker_are_not_decided(
    scene: Scene, was_down: bool
) -> None:
    run = behind_broker_3(scene, was_down=was_down)
    written = scene.written(run, 1)
    scene.scheduler.sleep(TIMEOUT_MS - margin_ms(TIMEOUT_MS) + 10_000)
    with pytest.raises(KafkaError, match="are open for more than"):
        scene.commit(*written)
    assert scene.open_ids() == []
    scene.ends_with(0)


@pytest.mark.parametrize("times", [1, FOREVER])
def test_an_id_that_no_coordinator_lists_is_not_young(
    scene: Scene, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its coordinator's partition moves: who has resigned lists it no more, who hasn't loaded it
    doesn't list it yet.
    """
    listings: list[int] = []
    hidden: list[str] = []
    handle = api_list_transactions.handle

    def without(cluster: Any, node: int, request: Request) -> Any:
        # One listing asks each of three brokers once.
        if not hidden or (times != FOREVER and len(listings) >= 3 * times):
            return handle(cluster, node, request)
        listings.append(node)
        held = {i: cluster.transactions.transactions.pop(i) for i in hidden}
        try:
            return handle(cluster, node, request)
        finally:
            cluster.transactions.transactions.update(held)

    monkeypatch.setattr(api_list_transactions, "handle", without)
    written = scene.second_batch()
    scene.scheduler.sleep(TIMEOUT_MS - margin_ms(TIMEOUT_MS) + 10_000)
    hidden.extend(written.ids)
    with pytest.raises(KafkaError):
        scene.commit(*written)
    assert listings
    hidden.clear()
    scene.abort(*written)
    assert scene.batch(scene.run("run-1"), 1) is Commit.COMMITTED
    scene.ends_with(0, 1)


def test_the_error_of_a_young_id_that_is_not_listed_claims_no_age(scene: Scene) -> None:
    """Its coordinator has resigned for a moment. The error said that a batch of half a second "took
    too long", and advised smaller batches.
    """
    written = scene.second_batch()
    begun = scene.scheduler.now
    scene.control.answer(ApiKey.LIST_TRANSACTIONS, ErrorCode.NONE, FOREVER)
    with pytest.raises(CommitError) as raised:
        scene.commit(*written)
    assert scene.scheduler.now - begun < TIMEOUT_MS / 4
    assert "took too long" not in raised.value.message
    assert "no coordinator lists them" in raised.value.message
    assert "write the batch again" in str(raised.value.hint)
    scene.control.clear()
    scene.abort(*written)
    assert scene.batch(scene.run("run-1"), 1) is Commit.COMMITTED
    scene.ends_with(0, 1)


# -- a broker that is none of ours -----------------------------------------------------------------


def without_broker_3(scene: Scene) -> None:
    """It leads and coordinates nothing from now on, and is registered all the same."""
    cluster = scene.cluster
    coordinator_of, create_topic = cluster.coordinator_of, cluster.create_topic

    def lead_elsewhere() -> None:
        for log in cluster.logs.values():
            if log.leader == 3:
                log.move(1)

    def create(*given: Any, **more: Any) -> Any:
        topic = create_topic(*given, **more)
        lead_elsewhere()
        return topic

    lead_elsewhere()
    cluster.coordinator_of = lambda key: 1 if coordinator_of(key) == 3 else coordinator_of(key)
    cluster.create_topic = create


@pytest.mark.life(warm_driver=True)
def test_a_silent_broker_without_our_ids_stops_no_commit(scene: Scene) -> None:
    """A firewall swallows what we send. (The process is warm: a new one may have to find out which
    of the bootstrap addresses answers. And any broker may be asked for metadata, so this one
    answers that: otherwise chance decides whether a process waits for it, once.)
    """
    without_broker_3(scene)
    written = scene.second_batch()
    for api in scene.cluster.ranges.keys() - {ApiKey.METADATA}:
        scene.control.drop(api, FOREVER, processed=False, node=3)
    begun = scene.scheduler.now
    assert scene.commit(*written) is Commit.COMMITTED
    assert scene.scheduler.now - begun < SOON_MS
    scene.ends_with(0, 1)


def test_a_refusing_broker_without_our_ids_stops_no_commit(scene: Scene) -> None:
    """Its advertised address is wrong for us."""
    without_broker_3(scene)
    scene.batch(scene.run("run-0"), 0)
    scene.cluster.faults = ClusterFaults(dead_node=3)
    written = scene.written(scene.run("run-1"), 1)
    begun = scene.scheduler.now
    assert scene.commit(*written) is Commit.COMMITTED
    assert scene.scheduler.now - begun < SOON_MS
    scene.ends_with(0, 1)
