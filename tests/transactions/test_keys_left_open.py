"""A commit that goes on with the key that an earlier commit of its process has left open: whatever
others did to the key meanwhile, each row is there once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import CommitError, SupersededError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.ownership import Numbering
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.steps import Reset
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.scene_requests import of_id
from tests.simulation.spark_world import LOG_TOPIC
from tests.transactions.running_query import KEY, Query

LOG = f"{KEY}~~log"
pytestmark = VERSIONS


@pytest.fixture
def query(scene: Scene) -> Query:
    return Query.of(scene)


def opened(query: Query) -> int:
    """How often the key was opened."""
    return sum(map(of_id(LOG), query.watched.of(ApiKey.INIT_PRODUCER_ID)))


def rows(*numbers: int) -> list[str]:
    return [f"row {number}" for number in numbers]


def test_the_key_is_opened_once(scene: Scene, query: Query) -> None:
    query.commits(0, 1, 2, 3)
    assert "FETCH" not in {name for _, name in query.watched.arrived}
    assert scene.values() == rows(0, 1, 2, 3)


@pytest.mark.parametrize("numbering", [Numbering.STREAM, Numbering.MICRO_BATCHES])
def test_two_processes_that_commit_in_turn(
    scene: Scene, query: Query, numbering: Numbering
) -> None:
    one = replace(query, numbering=numbering)
    other = one.elsewhere()
    for number in range(6):
        (one, other)[number % 2].commits(number)
    assert scene.values() == rows(0, 1, 2, 3, 4, 5)
    assert scene.logged(KEY).last_done == 5


def test_the_batch_is_committed_elsewhere_meanwhile(scene: Scene, query: Query) -> None:
    query.commits(0)
    commit = query.prepare(1)
    query.elsewhere().commits(1)
    assert commit() is Commit.ALREADY_DONE
    assert scene.values() == rows(0, 1)


def test_its_run_is_aborted_meanwhile(scene: Scene, query: Query) -> None:
    query.commits(0)
    commit = query.prepare(1)
    query.elsewhere().driver.abort(query.owner(), 1, (), tasks_may_run=False)
    with pytest.raises(CommitError):
        commit()
    assert scene.values() == rows(0)


def test_another_run_takes_over_meanwhile(scene: Scene, query: Query) -> None:
    query.commits(0)
    commit = query.prepare(1)
    assert query.elsewhere().prepare(1, run="another")() is Commit.COMMITTED
    with pytest.raises(SupersededError):
        commit()
    assert scene.values() == rows(0, 1)


def test_the_key_is_reset_meanwhile(scene: Scene, query: Query) -> None:
    """Its query may not decide then, whatever the process has of the state before."""
    query.commits(0)
    commit = query.prepare(1)
    scene.driver()._committer.perform(Reset(KEY, scene.logged(KEY)))
    with pytest.raises((CommitError, SupersededError)):
        commit()
    assert scene.values() == rows(0)
    assert query.prepare(0, run="another")() is Commit.COMMITTED
    assert scene.values() == rows(0, 0)


def test_the_coordinator_of_the_log_has_moved(scene: Scene, query: Query) -> None:
    query.commits(0)
    node = scene.cluster.coordinator_of(LOG) % 3 + 1
    scene.cluster.move_coordinator(LOG, node, resigned_ms=300, loading_ms=300)
    query.commits(1, 2)
    assert scene.values() == rows(0, 1, 2)
    assert scene.cluster.coordinator_of(LOG) == node


def test_the_leader_of_the_log_has_moved(scene: Scene, query: Query) -> None:
    query.commits(0)
    log = TopicPartition(LOG_TOPIC, 0)
    scene.cluster.move_leader(log, scene.cluster.logs[log].leader % 3 + 1)
    query.commits(1, 2)
    assert scene.values() == rows(0, 1, 2)


def test_the_topic_was_created_again(scene: Scene, query: Query) -> None:
    """As long as the log has fewer records than before, its offsets show that."""
    query.commits(0, 1)
    commit = query.prepare(2)
    before = opened(query)
    scene.cluster.delete_topic(LOG_TOPIC)
    scene.cluster.create_topic(LOG_TOPIC, 1)
    with pytest.raises(CommitError, match="has lost the state of 'orders'"):
        commit()
    assert opened(query) > before
    assert scene.values() == rows(0, 1)


def test_a_topic_created_again_with_more_records_gets_the_state_back(
    scene: Scene, query: Query
) -> None:
    """The offsets do not show it, and nobody has opened the key: its state is written whole."""
    query.commits(0, 1)
    commit = query.prepare(2)
    scene.cluster.delete_topic(LOG_TOPIC)
    scene.cluster.create_topic(LOG_TOPIC, 1)
    with scene.client() as client:
        for other in range(10):
            session = CommitLog(client, LOG_TOPIC).open(f"other-{other}", client.deadline())
            session.write(CommitState(1), client.deadline())
    assert commit() is Commit.COMMITTED
    assert [one.number for one in scene.logged(KEY).done] == [0, 1, 2]
    query.elsewhere().commits(3)
    assert scene.values() == rows(0, 1, 2, 3)


def test_the_logs_id_has_expired(scene: Scene, query: Query) -> None:
    """As after transactional.id.expiration.ms."""
    query.commits(0)
    commit = query.prepare(1)
    del scene.cluster.transactions.transactions[LOG]
    assert commit() is Commit.COMMITTED
    assert scene.values() == rows(0, 1)


def test_a_key_is_not_left_open_for_long(scene: Scene, query: Query) -> None:
    query.commits(0)
    scene.scheduler.sleep(60_000)
    commit = query.prepare(1)
    before = opened(query)
    assert commit() is Commit.COMMITTED
    assert opened(query) > before


def test_a_process_that_is_gone_leaves_nothing_open(scene: Scene, query: Query) -> None:
    query.commits(0)
    query.driver.close()
    query.elsewhere().commits(1, 2)
    assert scene.values() == rows(0, 1, 2)
