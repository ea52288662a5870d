"""The driver's questions when brokers and networks do their worst, in the simulated world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.clock import Latch
from spark_kafka_sink.base.errors import (
    AuthorizationError,
    ErrorCode,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.protocol.topic_requests import NewTopic
from tests.fakes.fake_cluster import FOREVER, FakeCluster, api_list_transactions
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.scene import Scene, scene_of
from tests.simulation.scheduler import Scheduler
from tests.simulation.seeded_cluster import ClusterFaults
from tests.transactions.open_transactions import open_transactions

TP = TopicPartition("t", 0)


def data_ids(count: int) -> list[str]:
    return [f"p~run~{i}" for i in range(count)]


IDS = data_ids(30)
OK = dict.fromkeys(IDS, ErrorCode.NONE)


def commit(
    scene: Scene,
    before: Callable[[list[PreparedTransaction]], object] = lambda _: None,
    *,
    milliseconds: int = 60_000,
) -> dict[str, ErrorCode | None]:
    """Open 30 transactions, let ``before`` happen, and end them by another driver."""
    transactions = open_transactions(scene.client(), IDS, TP)
    before(transactions)
    client, deadline_ms = scene.client(), scene.soon(milliseconds)
    looked_ms = client.clock.now_ms()
    return dict(
        client.end(transactions, committed=True, deadline_ms=deadline_ms, looked_ms=looked_ms)
    )


def states(cluster: FakeCluster) -> set[str]:
    return {cluster.transactions.transactions[i].state.value for i in IDS}


@pytest.mark.parametrize("processed", [True, False])
@pytest.mark.parametrize("kind", ["drop", "cut"])
def test_ends_whose_answers_are_lost_are_asked_for_again(
    scene: Scene, kind: str, processed: bool
) -> None:
    fault = getattr(scene.control, kind)(ApiKey.END_TXN, 4, processed=processed)
    assert commit(scene) == OK
    assert fault.fired == 4
    assert states(scene.cluster) <= {"CompleteCommit", "PrepareCommit"}


def test_coordinators_that_move_are_found_again(scene: Scene) -> None:
    finds = scene.control.delay(ApiKey.FIND_COORDINATOR, 1, FOREVER)
    client = scene.client()
    transactions = open_transactions(client, IDS, TP)
    before = finds.fired
    for i in IDS:
        scene.cluster.move_coordinator(i, scene.cluster.coordinator_of(i) % 3 + 1)
    deadline = scene.soon()
    assert client.end(transactions, committed=True, deadline_ms=deadline) == OK
    # Found anew in a few requests, not one by one.
    assert before < finds.fired <= before + 12
    for i in IDS:
        scene.cluster.move_coordinator(i, scene.cluster.coordinator_of(i) % 3 + 1)
    found = client.describe(IDS, deadline)
    assert {d.producer_id for d in found.values()} == {t.producer_id for t in transactions}


def test_the_ends_of_a_broker_that_dies_go_to_others(scene: Scene) -> None:
    scene.cluster.work_ms = lambda: 5
    dead = scene.cluster.coordinator_of(IDS[0])
    theirs = [i for i in IDS if scene.cluster.coordinator_of(i) == dead]
    assert len(theirs) > 3
    lost = scene.control.delay(ApiKey.END_TXN, 1, FOREVER, node=dead)

    def die(_: object) -> None:
        scene.after(40, lambda: scene.cluster.stop_broker(dead))

    assert commit(scene, die) == OK
    assert 0 < lost.fired < len(theirs)  # it was killed in the middle
    assert scene.cluster.down == {dead}


def test_an_unclear_end_is_raised_at_the_deadline(scene: Scene) -> None:
    stuck = IDS[7]
    fault = scene.control.answer(
        ApiKey.END_TXN,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        FOREVER,
        where=lambda request: request.body.transactional_id == stuck,
    )
    start = scene.scheduler.now
    assert commit(scene, milliseconds=5_000) == {**OK, stuck: None}
    assert 5_000 <= scene.scheduler.now - start < 5_200
    assert 10 < fault.fired < 25  # soon at first, then once in a second


def test_a_transaction_that_is_being_ended_is_waited_for_briefly(scene: Scene) -> None:
    scene.cluster.marker_ms = 12
    client = scene.client()
    transactions = open_transactions(client, IDS[:1], TP)
    start = scene.scheduler.now
    for _ in range(2):  # the second one waits for the marker
        client.end(transactions, committed=True, deadline_ms=scene.soon())
    assert scene.scheduler.now - start < 40


@pytest.mark.parametrize(
    ("api", "code", "times"),
    [
        (ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, 3),
        (ApiKey.END_TXN, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 40),
        (ApiKey.END_TXN, ErrorCode.NOT_COORDINATOR, 40),
        (ApiKey.END_TXN, ErrorCode.COORDINATOR_NOT_AVAILABLE, 40),
        (ApiKey.END_TXN, ErrorCode.UNKNOWN_SERVER_ERROR, 40),
    ],
)
def test_what_passes_is_asked_again(scene: Scene, api: ApiKey, code: ErrorCode, times: int) -> None:
    transactions = open_transactions(scene.client(), IDS, TP)
    fault = scene.control.answer(api, code, times)
    client = scene.client()
    assert client.end(transactions, committed=True, deadline_ms=scene.soon()) == OK
    assert fault.fired == times


CALLS: dict[ApiKey, Callable[[TransactionClient, int], object]] = {
    ApiKey.FIND_COORDINATOR: lambda c, d: c.init_producer_id("p~r~1", 60_000, d),
    ApiKey.INIT_PRODUCER_ID: lambda c, d: c.init_producer_id("p~r~1", 60_000, d),
    ApiKey.END_TXN: lambda c, d: c.end(
        [PreparedTransaction("p~r~1", 1, 1, 2)], committed=True, deadline_ms=d
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: lambda c, d: c.describe(["p~r~1"], d),
}
RIGHTS = {ApiKey.INIT_PRODUCER_ID: "the ACL WRITE", ApiKey.END_TXN: "the ACL WRITE"}


@pytest.mark.parametrize("api", CALLS)
def test_missing_rights_are_named(scene: Scene, api: ApiKey) -> None:
    scene.control.answer(api, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError) as refused:
        CALLS[api](scene.client(), scene.soon())
    assert "'p~r~1'" in refused.value.message
    assert f"needs {RIGHTS.get(api, 'DESCRIBE')} on the transactional id" in str(refused.value)
    scene.control.check()


@pytest.mark.life(versions={ApiKey.FIND_COORDINATOR: 3})
def test_brokers_before_3_0_are_asked_one_coordinator_at_a_time(scene: Scene) -> None:
    scene.cluster.ranges[ApiKey.LIST_TRANSACTIONS] = (0, 0)
    finds = scene.control.delay(ApiKey.FIND_COORDINATOR, 1, FOREVER)
    client = scene.client()
    transactions = open_transactions(client, IDS, TP)
    assert finds.fired == len(IDS)
    listed, silent = client.open_transactions("p", scene.soon())
    assert {one.transactional_id for one in listed} == set(IDS)
    assert silent == ()
    assert client.older_than(IDS, 0, scene.soon()) is None
    assert client.end(transactions, committed=True, deadline_ms=scene.soon()) == OK


@pytest.mark.life(versions={ApiKey.CREATE_TOPICS: 3})
def test_brokers_before_2_4_need_a_new_topics_partitions(scene: Scene) -> None:
    with pytest.raises(UnsupportedVersionError, match=r"before 2\.4 have no defaults") as caught:
        scene.client().create_topic(NewTopic("u"))
    assert caught.value.hint == "give its partitions and its replication factor"


@pytest.mark.life(versions={ApiKey.DESCRIBE_TRANSACTIONS: 0})
def test_brokers_without_such_transactions_are_an_error(scene: Scene) -> None:
    with pytest.raises(UnsupportedVersionError, match="does not offer DESCRIBE_TRANSACTIONS"):
        scene.client().describe(["p~r~1"], scene.soon())


def test_many_coordinators_are_found_by_few_requests(scene: Scene) -> None:
    finds = scene.control.delay(ApiKey.FIND_COORDINATOR, 1, FOREVER)
    ids = data_ids(2500)
    found = dict(scene.client().loop.coordinators(ids, scene.soon()))
    assert {i: node.id for i, node in found.items()} == {
        i: scene.cluster.coordinator_of(i) for i in ids
    }
    assert finds.fired == 3


def test_a_list_starts_again_when_a_broker_dies(scene: Scene) -> None:
    """What it coordinated is coordinated by the others then, who may have answered before."""
    dead = 2
    cut = scene.control.cut(ApiKey.LIST_TRANSACTIONS, node=dead, processed=False)
    client = scene.client()
    open_transactions(client, IDS, TP)
    slow = scene.control.delay(ApiKey.LIST_TRANSACTIONS, 50, 3)
    listed, _ = client.open_transactions("p", scene.soon())
    assert {one.transactional_id for one in listed} == set(IDS)
    assert cut.fired
    assert slow.fired == 3
    scene.cluster.stop_broker(dead)
    listed, _ = client.open_transactions("p", scene.soon())
    assert {one.transactional_id for one in listed} == set(IDS)


def asks_for_old_ones(request: Request) -> bool:
    return request.body.duration_filter >= 0


def test_an_id_without_an_age_is_old_when_a_list_got_lost(scene: Scene) -> None:
    client = scene.client(request_timeout_ms=2_000)
    open_transactions(client, IDS, TP)
    scene.scheduler.sleep(10_000)
    lost = scene.control.drop(ApiKey.LIST_TRANSACTIONS, node=2, where=asks_for_old_ones)
    assert client.older_than(IDS, 5_000, scene.soon()) == frozenset(IDS)
    assert lost.fired
    assert client.older_than(IDS, 3_600_000, scene.soon()) == frozenset()


def test_an_id_in_no_list_is_not_listed_as_old(scene: Scene) -> None:
    """A decision is undone for a listed age only: an id that moves is in no list for a moment."""
    client = scene.client()
    open_transactions(client, IDS, TP)
    scene.scheduler.sleep(10_000)
    ids = [*IDS, "p-in-no-list"]
    assert client.older_than(ids, 5_000, scene.soon()) == frozenset(ids)
    assert client.older_than(ids, 5_000, scene.soon(), only_listed=True) == frozenset(IDS)


def test_an_id_that_moved_between_two_lists_is_not_young(scene: Scene) -> None:
    """To a broker that has listed already which of its own are old."""

    def moves(request: Request) -> Any:
        for moving in IDS:
            scene.cluster.move_coordinator(moving, 1)
        return api_list_transactions.refuse(
            scene.cluster, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )

    client = scene.client()
    open_transactions(client, IDS, TP)
    scene.scheduler.sleep(10_000)
    loads = scene.control.answer(ApiKey.LIST_TRANSACTIONS, moves, node=3, where=asks_for_old_ones)
    assert client.older_than(IDS, 5_000, scene.soon()) == frozenset(IDS)
    assert loads.fired


@pytest.mark.parametrize("slow_ms", [900, 2_100, 2_900])
def test_a_slow_broker_is_not_silent(scene: Scene, slow_ms: int) -> None:
    client = scene.client()
    open_transactions(client, IDS, TP)
    for api in (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.LIST_TRANSACTIONS):
        scene.control.delay(api, slow_ms, times=FOREVER)
    listed, silent = client.open_transactions("p", scene.soon())
    assert silent == ()
    assert {one.transactional_id for one in listed} == set(IDS)


def test_a_warm_client_lists_without_waiting_for_metadata(scene: Scene) -> None:
    """Every commit of a stream looks for orphans. Answers that are like the one before make a
    producer's metadata wait longer and longer, up to retry.backoff.max.ms; here somebody waits.
    """
    client = scene.client()
    client.open_transactions("p", scene.soon(), patient=False)
    for _ in range(20):
        scene.scheduler.sleep(250)
        begun = scene.scheduler.now
        client.open_transactions("p", scene.soon(), patient=False)
        assert scene.scheduler.now - begun < 50


def test_an_unanswered_request_names_the_addresses(scene: Scene) -> None:
    for node in (1, 2, 3):
        scene.cluster.stop_broker(node)
    with pytest.raises(KafkaTimeoutError, match=r"\(FindCoordinator got no answer\)") as e:
        scene.client().describe(["p~r~1"], scene.soon(3_000))
    assert e.value.message.startswith("no broker answered within 3000 ms; tried 127.0.0.1:")
    assert "127.0.0.1:9093: Connection refused" in e.value.message


class InterruptedClock:
    """Raises KeyboardInterrupt at its ``countdown``-th reading."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.countdown = -1

    def now_ms(self) -> int:
        self.countdown -= 1
        if self.countdown == 0:
            raise KeyboardInterrupt
        return self.scheduler.now_ms()

    def wall_ms(self) -> int:
        return self.scheduler.wall_ms()

    def wait(self, latch: Latch, deadline_ms: int) -> bool:
        return self.scheduler.wait(latch, deadline_ms)


def test_an_interrupt_anywhere_leaves_a_client_that_works() -> None:
    """The next call asks over new connections, and is answered right."""
    ids = IDS[:6]
    fine = dict.fromkeys(ids, ErrorCode.NONE)

    def live(countdown: int) -> bool:
        scene = scene_of()

        def main() -> bool:
            transactions = open_transactions(scene.client(), ids, TP)
            clock = InterruptedClock(scene.scheduler)
            client = scene.client(clock)
            deadline = scene.soon()
            clock.countdown = countdown
            hit = False
            try:
                client.open_transactions("p", deadline)
                client.describe(ids, deadline)
                client.end(transactions, committed=True, deadline_ms=deadline)
            except KeyboardInterrupt:
                hit = True
            clock.countdown = -1
            assert len(client.describe(ids, deadline)) == len(ids)
            assert client.end(transactions, committed=True, deadline_ms=deadline) == fine
            return hit

        return scene.perform(main)

    assert sum(live(countdown) for countdown in range(1, 60)) > 30


def test_every_reported_end_is_the_coordinators() -> None:
    """Seeded faults of network and brokers; then each answer is compared with the coordinator."""
    fired = 0
    for seed in range(12):
        scene = scene_of(seed=seed)

        def main(scene: Scene = scene) -> None:
            transactions = open_transactions(scene.client(), IDS, TP)
            scene.cluster.faults = ClusterFaults(
                work_ms=20, stall=0.01, throttle=0.02, coordinator_error=0.2,
                coordinator_moves=0.05, broker_stops=0.02,
            )  # fmt: skip
            scene.machine.disturb(
                NetworkFaults(latency_ms=3, spike=0.02, split=0.1, cut=0.03, silent=0.2)
            )
            client = scene.client(request_timeout_ms=2_000)
            commits, aborts = transactions[:20], transactions[20:]
            deadline = scene.soon(600_000)
            answers = dict(client.end(commits, committed=True, deadline_ms=deadline))
            answers |= client.end(aborts, committed=False, deadline_ms=deadline)
            assert answers == OK
            for t in transactions:
                state = scene.state_of(t.transactional_id)
                assert state.endswith("Commit" if t in commits else "Abort")
            scene.heal()
            found = client.describe(IDS, deadline)
            assert {d.state for d in found.values()} <= {
                TransactionState.PREPARE_COMMIT,
                TransactionState.COMPLETE_COMMIT,
                TransactionState.PREPARE_ABORT,
                TransactionState.COMPLETE_ABORT,
            }

        scene.perform(main)
        fired += sum(scene.happened().values())
    assert fired > 300
