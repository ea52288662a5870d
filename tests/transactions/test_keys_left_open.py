"""A commit that goes on with the key that an earlier commit of its process has left open: whatever
others did to the key meanwhile, each row is there once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import CommitError, SupersededError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.ownership import Numbering
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.steps import Reset
from tests.transactions.committing_world import LOG_TOPIC, CommittingWorld
from tests.transactions.running_query import KEY, Query

pytestmark = pytest.mark.simulated
LOG = f"{KEY}~~log"


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def world(request: pytest.FixtureRequest) -> CommittingWorld:
    return CommittingWorld(transaction_version=request.param, nodes=3)


@pytest.fixture
def query(world: CommittingWorld) -> Query:
    return Query.of(world)


def opened(world: CommittingWorld) -> int:
    """How often the key was opened since."""
    return world.asked.count(("init", LOG))


def rows(*numbers: int) -> list[str]:
    return [f"row {number}" for number in numbers]


def test_the_key_is_opened_once(world: CommittingWorld, query: Query) -> None:
    query.commits(0, 1, 2, 3)
    assert "FETCH" not in {name for _, name in world.cluster.arrived}
    assert world.visible() == rows(0, 1, 2, 3)


@pytest.mark.parametrize("numbering", [Numbering.STREAM, Numbering.MICRO_BATCHES])
def test_two_processes_that_commit_in_turn(
    world: CommittingWorld, query: Query, numbering: Numbering
) -> None:
    one = replace(query, numbering=numbering)
    other = one.elsewhere()
    for number in range(6):
        (one, other)[number % 2].commits(number)
    assert world.visible() == rows(0, 1, 2, 3, 4, 5)
    assert world.logged(KEY).last_done == 5


def test_the_batch_is_committed_elsewhere_meanwhile(world: CommittingWorld, query: Query) -> None:
    query.commits(0)
    commit = query.prepare(1)
    query.elsewhere().commits(1)
    assert commit() is Commit.ALREADY_DONE
    assert world.visible() == rows(0, 1)


def test_its_run_is_aborted_meanwhile(world: CommittingWorld, query: Query) -> None:
    query.commits(0)
    commit = query.prepare(1)
    query.elsewhere().driver.abort(query.owner(), 1, (), tasks_may_run=False)
    with pytest.raises(CommitError):
        commit()
    assert world.visible() == rows(0)


def test_another_run_takes_over_meanwhile(world: CommittingWorld, query: Query) -> None:
    query.commits(0)
    commit = query.prepare(1)
    assert query.elsewhere().prepare(1, run="another")() is Commit.COMMITTED
    with pytest.raises(SupersededError):
        commit()
    assert world.visible() == rows(0, 1)


def test_the_key_is_reset_meanwhile(world: CommittingWorld, query: Query) -> None:
    """Its query may not decide then, whatever the process has of the state before."""
    query.commits(0)
    commit = query.prepare(1)
    world.driver()._committer.perform(Reset(KEY, world.logged(KEY)))
    with pytest.raises((CommitError, SupersededError)):
        commit()
    assert world.visible() == rows(0)
    assert query.prepare(0, run="another")() is Commit.COMMITTED
    assert world.visible() == rows(0, 0)


def test_the_coordinator_of_the_log_has_moved(world: CommittingWorld, query: Query) -> None:
    query.commits(0)
    node = world.cluster.coordinator_of(LOG) % 3 + 1
    world.cluster.move_coordinator(LOG, node, resigned_ms=300, loading_ms=300)
    query.commits(1, 2)
    assert world.visible() == rows(0, 1, 2)
    assert world.cluster.coordinator_of(LOG) == node


def test_the_leader_of_the_log_has_moved(world: CommittingWorld, query: Query) -> None:
    query.commits(0)
    log = TopicPartition(LOG_TOPIC, 0)
    world.cluster.move_leader(log, world.cluster.logs[log].leader % 3 + 1)
    query.commits(1, 2)
    assert world.visible() == rows(0, 1, 2)


def test_the_topic_was_created_again(world: CommittingWorld, query: Query) -> None:
    """As long as the log has fewer records than before, its offsets show that."""
    query.commits(0, 1)
    commit = query.prepare(2)
    before = opened(world)
    world.cluster.delete_topic(LOG_TOPIC)
    world.cluster.create_topic(LOG_TOPIC, 1)
    with pytest.raises(CommitError, match="has lost the state of 'orders'"):
        commit()
    assert opened(world) > before
    assert world.visible() == rows(0, 1)


def test_a_topic_created_again_with_more_records_gets_the_state_back(
    world: CommittingWorld, query: Query
) -> None:
    """The offsets do not show it, and nobody has opened the key: its state is written whole."""
    query.commits(0, 1)
    commit = query.prepare(2)
    world.cluster.delete_topic(LOG_TOPIC)
    world.cluster.create_topic(LOG_TOPIC, 1)
    with world.client() as client:
        for other in range(10):
            session = CommitLog(client, LOG_TOPIC).open(f"other-{other}", client.deadline())
            session.write(CommitState(1), client.deadline())
    assert commit() is Commit.COMMITTED
    assert [one.number for one in world.logged(KEY).done] == [0, 1, 2]
    query.elsewhere().commits(3)
    assert world.visible() == rows(0, 1, 2, 3)


def test_the_logs_id_has_expired(world: CommittingWorld, query: Query) -> None:
    """As after transactional.id.expiration.ms."""
    query.commits(0)
    commit = query.prepare(1)
    del world.cluster.transactions.transactions[LOG]
    assert commit() is Commit.COMMITTED
    assert world.visible() == rows(0, 1)


def test_a_key_is_not_left_open_for_long(world: CommittingWorld, query: Query) -> None:
    query.commits(0)
    world.scheduler.sleep(60_000)
    commit = query.prepare(1)
    before = opened(world)
    assert commit() is Commit.COMMITTED
    assert opened(world) > before


def test_a_process_that_is_gone_leaves_nothing_open(world: CommittingWorld, query: Query) -> None:
    query.commits(0)
    query.driver.close()
    query.elsewhere().commits(1, 2)
    assert world.visible() == rows(0, 1, 2)
