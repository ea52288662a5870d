"""A partition loses its leader while EndTxn is refused: an EndTxn that is sent again would lose its
marker.

The broker that coordinates a transaction, and leads one of its partitions, stops at the moment of
the first EndTxn. The next coordinator loads for a while, then accepts EndTxn, and drops the marker
for the partition without a leader.
"""

from __future__ import annotations

from collections import Counter

import pytest

from spark_kafka_sink.base.errors import CommitOutcomeUnknownError, ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.ending import commit_all
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import VERSIONS, Scene, Written
from tests.simulation.spark_world import LOG_TOPIC, TIMEOUT_MS, TOPIC

pytestmark = [VERSIONS, pytest.mark.life(tasks=2)]
#: For how long the next coordinator loads, and the partition has no leader.
TIMES = pytest.mark.parametrize(
    ("loads_ms", "away_ms"), [(200, 4_000), (1_000, 4_000), (9_000, 14_000)]
)


def rows_of(written: Written) -> int:
    return sum(message.produced.rows for message in written.messages)


def of_one_transaction(scene: Scene, written: Written) -> tuple[str, TopicPartition]:
    """A transaction, and a partition to which the other transaction does not write."""
    with scene.driver_side(written.run) as driver:
        found = driver.client.describe(written.ids, driver.client.deadline())
    writers = [
        (number, one)
        for one, description in found.items()
        for _, numbers in description.partitions
        for number in numbers
    ]
    count = Counter(number for number, _ in writers)
    number, one = next(writer for writer in writers if count[writer[0]] == 1)
    return one, TopicPartition(TOPIC, number)


def stops_the_broker(
    scene: Scene, api: ApiKey, one: str, tp: TopicPartition, *, loads_ms: int, away_ms: int
) -> list[int]:
    """At the first request ``api`` of the transactional id ``one``. The time of it is returned."""
    cluster, times = scene.cluster, list[int]()
    cluster.drops_markers = True
    leader = cluster.logs[tp].leader

    def stops(request: Request) -> bool:
        if request.body.transactional_id != one:
            return False
        if not times:
            cluster.move_coordinator(one, cluster.coordinator_of(one), loading_ms=loads_ms)
            cluster.move_leader(tp, -1)
            cluster.at(cluster.now + away_ms, lambda: cluster.move_leader(tp, leader))
        times.append(cluster.now)
        return False

    cluster.control.delay(api, 1, FOREVER, where=stops)
    return times


@TIMES
def test_an_end_is_sent_again_after_the_leader_is_back(scene: Scene, loads_ms, away_ms):
    written = scene.first_batch()
    one, tp = of_one_transaction(scene, written)
    times = stops_the_broker(scene, ApiKey.END_TXN, one, tp, loads_ms=loads_ms, away_ms=away_ms)
    assert scene.commit(*written) is Commit.COMMITTED
    assert times[-1] - times[0] >= away_ms
    scene.scheduler.sleep(1_000)
    assert len(scene.visible()) == rows_of(written)


def test_a_leader_that_stays_away_leaves_the_outcome_unknown(scene: Scene) -> None:
    """The next start commits the rest when the leader is back."""
    written = scene.first_batch()
    one, tp = of_one_transaction(scene, written)
    stops_the_broker(scene, ApiKey.END_TXN, one, tp, loads_ms=200, away_ms=TIMEOUT_MS // 2)
    with pytest.raises(CommitOutcomeUnknownError):
        scene.commit(*written)
    assert scene.open_ids() == [one]
    scene.plan(scene.run("run-1"))
    scene.scheduler.sleep(1_000)
    assert len(scene.visible()) == rows_of(written)


def test_an_old_transaction_no_longer_waits_for_its_leader(scene: Scene) -> None:
    """Brokers would abort it, although another transaction of the batch is committed."""
    written = scene.first_batch()
    one, tp = of_one_transaction(scene, written)
    begun = scene.cluster.now
    times = stops_the_broker(scene, ApiKey.END_TXN, one, tp, loads_ms=200, away_ms=2 * TIMEOUT_MS)
    with scene.driver_side(written.run) as driver:
        client = driver.client
        ended = commit_all(
            client, written.prepared, client.clock.now_ms() + 2 * TIMEOUT_MS, first_by_ms=10**15
        )
    assert not ended.unclear
    assert TIMEOUT_MS // 2 < times[1] - begun < TIMEOUT_MS


@TIMES
def test_an_abort_is_sent_again_after_the_leader_is_back(scene: Scene, loads_ms, away_ms):
    """Without the marker, no row of the partition would ever be visible again."""
    written = scene.first_batch()
    one, tp = of_one_transaction(scene, written)
    times = stops_the_broker(scene, ApiKey.END_TXN, one, tp, loads_ms=loads_ms, away_ms=away_ms)
    scene.abort(*written)
    assert times[1] - times[0] >= away_ms
    assert scene.open_ids() == []
    again = scene.written(scene.run("run-1"), 0)
    assert scene.commit(*again) is Commit.COMMITTED
    scene.scheduler.sleep(1_000)
    assert len(scene.visible()) == rows_of(again)


def first_of_version(scene: Scene) -> ApiKey:
    """The request that ends an orphan: with version 1 it must raise the epoch, too."""
    return ApiKey.END_TXN if scene.life.transaction_version == 2 else ApiKey.INIT_PRODUCER_ID


@TIMES
def test_a_sweep_ends_an_orphan_after_its_leader_is_back(scene: Scene, loads_ms, away_ms):
    """Version 1 ends it by InitProducerId, version 2 by EndTxn."""
    written = scene.first_batch()
    one, tp = of_one_transaction(scene, written)
    times = stops_the_broker(
        scene, first_of_version(scene), one, tp, loads_ms=loads_ms, away_ms=away_ms
    )
    written.run.process.kill()
    with scene.driver_side(scene.run("run-1")) as driver:
        client = driver.client
        found = client.describe(written.ids, client.deadline())
        answers = client.abort_exactly(found, client.deadline())
    assert set(answers.values()) == {ErrorCode.NONE}
    assert times[1] - times[0] >= away_ms
    scene.scheduler.sleep(1_000)
    assert scene.open_ids() == []


def moved_log(scene: Scene, written: Written) -> tuple[str, TopicPartition]:
    """The transactional id that writes to the log, and the log's partition."""
    tp = next(tp for tp, log in scene.cluster.logs.items() if tp.topic == LOG_TOPIC and log.batches)
    return next(i for i in scene.cluster.transactions.transactions if i.endswith("~log")), tp


@pytest.mark.parametrize("away_ms", [1_000, 4_000])
def test_a_decision_is_sent_again_after_the_leader_is_back(scene: Scene, away_ms: int) -> None:
    """Without its marker the decision would not be visible, although its rows are."""
    written = scene.second_batch()
    one, tp = moved_log(scene, written)
    times = stops_the_broker(scene, ApiKey.END_TXN, one, tp, loads_ms=200, away_ms=away_ms)
    assert scene.commit(*written) is Commit.COMMITTED
    assert times[1] - times[0] >= away_ms
    assert scene.plan(scene.run("run-1")).state.last_done == 1
    scene.ends_with(0, 1)
