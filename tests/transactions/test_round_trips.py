"""The requests of a commit, and which of them wait for which: with one transaction, on a network
that takes as long for each request and each answer, in simulated time.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from spark_kafka_sink.base.errors import CommitError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.producer_world import AlwaysMost
from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.scene import Scene
from tests.transactions.running_query import KEY, Query

LATENCY = NetworkFaults(latency_ms=5)
CHECK = ["DESCRIBE_TRANSACTIONS", *["LIST_TRANSACTIONS"] * 3, "METADATA"]
pytestmark = pytest.mark.life(nodes=1, network=LATENCY)


@pytest.fixture
def query(scene: Scene) -> Query:
    scene.machine.fate = AlwaysMost(0)
    return Query.of(scene)


def test_a_commit_of_a_process_that_is_used_again(scene: Scene, query: Query) -> None:
    query.commits(0, 1, 2, 3)
    assert query.rounds() == [
        ["PRODUCE"],  # to the key, which is still open
        CHECK,
        ["END_TXN"],  # the log's: the commit point
        ["END_TXN"],
        ["METADATA", "DESCRIBE_TRANSACTIONS"],  # for the sweep; have the markers come?
        ["PRODUCE"],
        ["END_TXN"],  # of DONE
        ["LIST_TRANSACTIONS"],  # the sweep
    ]
    assert scene.values() == ["row 0", "row 1", "row 2", "row 3"]


def test_a_planning_reads_the_log_in_one_round(scene: Scene, query: Query) -> None:
    query.commits(0, 1)
    query.watched.arrived.clear()
    query.planner.plan(KEY)
    assert query.rounds() == [["LIST_OFFSETS", "FETCH"]]


# --- the check of a decision asks for what it expects, and again where that was wrong -------------


def test_a_check_of_another_topic_asks_for_its_leaders(scene: Scene, query: Query) -> None:
    """The last batch wrote to ``t`` alone."""
    query.commits(0, 1)
    scene.cluster.create_topic("u", 1)
    commit = query.prepare(2, topic="u")
    scene.cluster.move_leader(TopicPartition("u", 0), -1)
    scene.scheduler.sleep(10)
    at = scene.cluster.now + 3_000
    scene.cluster.at(at, lambda: scene.cluster.move_leader(TopicPartition("u", 0), 1))
    assert commit() is Commit.COMMITTED
    assert scene.cluster.now > at, "it has not waited for the leader"
    assert [*CHECK, "METADATA"] in [a + b for a, b in pairwise(query.rounds())]


@pytest.mark.parametrize("timeout_ms", [20_000, 600_000])
def test_a_check_of_another_timeout_asks_for_its_ages(
    scene: Scene, query: Query, timeout_ms: int
) -> None:
    """The tasks' options had another one than the driver's."""
    query.commits(0, 1)
    commit = query.prepare(2, transaction_timeout_ms=timeout_ms)
    scene.scheduler.sleep(19_000)
    if timeout_ms == 600_000:
        assert commit() is Commit.COMMITTED
    else:
        with pytest.raises(CommitError, match="are open for more than"):
            commit()
    assert ["LIST_TRANSACTIONS"] * 3 in query.rounds()


@pytest.mark.life(nodes=3, network=LATENCY)
def test_a_check_after_a_coordinator_has_moved(scene: Scene, query: Query) -> None:
    """Its answers are of no use then, and no error. Leaders are asked for once all transactions are
    described: an earlier answer may be older than the loss of a leader.
    """
    query.commits(0, 1)
    commit = query.prepare(2)
    for key in scene.cluster.transactions.transactions:
        node = scene.cluster.coordinator_of(key) % 3 + 1
        scene.cluster.move_coordinator(key, node, resigned_ms=300, loading_ms=300)
    assert commit() is Commit.COMMITTED
    assert ["FIND_COORDINATOR"] in query.rounds()
    names = [name for group in query.rounds() for name in group]
    check = names[: names.index("END_TXN")]
    described = len(check) - check[::-1].index("DESCRIBE_TRANSACTIONS")
    assert "METADATA" in check[described:]
    assert scene.values() == ["row 0", "row 1", "row 2"]


@pytest.mark.parametrize("resigned_ms", [50, 500])
@pytest.mark.life(nodes=3, network=LATENCY)
def test_a_coordinator_that_resigns_in_a_check_is_no_age(
    scene: Scene, query: Query, resigned_ms: int
) -> None:
    """Between the description and the ages, as in a rolling restart: no broker lists its ids."""
    query.commits(0, 1)
    commit, (moving,) = query.prepare(2), scene.open_ids()
    node = scene.cluster.coordinator_of(moving) % 3 + 1

    def resigns(request: Request) -> bool:
        if not resigned.fired:
            took = {"resigned_ms": resigned_ms, "loading_ms": 1_000}
            scene.cluster.move_coordinator(moving, node, **took)
        return True

    resigned = scene.control.delay(ApiKey.LIST_TRANSACTIONS, 0, where=resigns)
    assert commit() is Commit.COMMITTED
    assert resigned.fired


def test_brokers_without_ages_are_not_asked_for_them(scene: Scene, query: Query) -> None:
    """Before Kafka 3.8."""
    scene.cluster.ranges[ApiKey.LIST_TRANSACTIONS] = (0, 0)
    query.commits(0, 1, 2, 3)
    assert (["PRODUCE"], ["DESCRIBE_TRANSACTIONS"]) in pairwise(query.rounds())


def test_a_broker_that_is_downgraded_lists_no_ages(scene: Scene, query: Query) -> None:
    query.commits(0, 1)
    commit = query.prepare(2)
    scene.cluster.ranges[ApiKey.LIST_TRANSACTIONS] = (0, 0)
    scene.cluster.restart_broker(1)
    assert commit() is Commit.COMMITTED
    assert scene.values() == ["row 0", "row 1", "row 2"]
