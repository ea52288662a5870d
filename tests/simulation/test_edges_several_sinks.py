"""Several writes of one micro-batch are decided together: all become visible, or none does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.datasource.exactly_once.transaction_commit import (
    payload_of,
    prepared_transactions,
)
from spark_kafka_sink.datasource.foreach_batch import Transaction, transaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.committer import Batch, Block, Commit
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.edge_scene import PLANNED, EdgeScene, UntoldScene
from tests.simulation.seeded_cluster import ClusterFaults
from tests.simulation.spark_scene import of_the_log, owner_of
from tests.simulation.spark_world import TOPIC, Run, SparkLife

VERSIONS = pytest.mark.parametrize("version", [1, 2])

#: What the rows of the two writes say of their batch; a key's micro-batch has two of these.
FIRST, SECOND = 0, 100


def writes(scene: EdgeScene, run: Run, number: int, **of_second: str) -> None:
    """A micro-batch of a query: two writes, one decision."""
    with transaction("sinks", number, **scene.options()) as t:
        t.write(scene.frame(run, FIRST + number))
        seen = scene.batches()
        t.write(scene.frame(run, SECOND + number, **of_second))
        assert scene.batches() == seen, "nothing is visible before the end"


def half(scene: EdgeScene, run: Run, number: int, then: Callable[[], None]) -> None:
    """The first write of such a micro-batch, and an error behind it."""
    with transaction("sinks", number, **scene.options()) as t:
        t.write(scene.frame(run, FIRST + number))
        then()
        raise ValueError("planned")


def played(version: int) -> SparkLife:
    return SparkLife(1, tasks=2, rows=2, new_worker=1.0, transaction_version=version)


@VERSIONS
def test_all_writes_of_a_block_become_visible_when_it_ends(version: int) -> None:
    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")
        for number in range(3):
            writes(scene, run, number)
            assert {FIRST + number, SECOND + number} <= scene.batches()
            assert scene.open_ids() == []

    UntoldScene.of(play, played(version))


@VERSIONS
def test_a_write_that_fails_fails_all_of_its_block(version: int) -> None:
    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")
        writes(scene, run, 0)
        with pytest.raises(KafkaError, match=PLANNED):
            writes(scene, run, 1, ends="fail")
        assert scene.open_ids() == []
        assert scene.batches() == {FIRST, SECOND}
        writes(scene, run, 1)
        assert scene.open_ids() == []

    scene = UntoldScene.of(play, played(version))
    assert scene.batches() == {FIRST, FIRST + 1, SECOND, SECOND + 1}


@VERSIONS
@pytest.mark.parametrize("number", [0, 1])
def test_a_block_that_raises_leaves_none_visible_and_none_open(number: int, version: int) -> None:
    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")
        for before in range(number):
            writes(scene, run, before)
        with pytest.raises(ValueError, match="planned"):
            half(scene, run, number, lambda: None)
        assert scene.open_ids() == []
        writes(scene, run, number)
        assert scene.open_ids() == []

    scene = UntoldScene.of(play, played(version))
    assert len(scene.batches()) == 2 * (number + 1)


@VERSIONS
@pytest.mark.parametrize("number", [0, 1])
def test_a_driver_dead_between_two_writes_writes_both_again(number: int, version: int) -> None:
    def play(scene: EdgeScene) -> None:
        dead, run = scene.run("driver 1"), scene.run("driver 2")
        for before in range(number):
            writes(scene, dead, before)

        def die() -> None:
            dead.process.kill()
            scene.scheduler.block(lambda: False, NEVER)

        dead.process.start(lambda: half(scene, dead, number, die), "micro-batch")
        scene.scheduler.block(lambda: dead.process.dead, NEVER)
        assert len(scene.open_ids()) == 2
        writes(scene, run, number)
        assert scene.open_ids() == []

    # (The dead one's block is unwound when all is over, and must not wait for a cluster then.)
    with patch.object(Transaction, "abort", lambda _: None):
        scene = UntoldScene.of(play, played(version))
    assert len(scene.batches()) == 2 * (number + 1)


@VERSIONS
def test_a_driver_dead_after_the_decision_has_all_writes_ended(
    version: int,
) -> None:
    def play(scene: EdgeScene) -> None:
        dead, run = scene.run("driver 1"), scene.run("driver 2")
        writes(scene, dead, 0)
        silent = scene.cluster.control.drop(
            ApiKey.END_TXN,
            FOREVER,
            processed=False,
            where=lambda r: "~~" not in r.body.transactional_id,
        )
        scene.timeline.after(40_000, scene.cluster.control.clear)
        with pytest.raises(KafkaError):
            writes(scene, dead, 1)
        assert silent.fired
        dead.process.kill()
        scene.cluster.control.clear()
        writes(scene, run, 1)  # Spark runs it again: it is done
        assert scene.open_ids() == []
        writes(scene, run, 2)

    scene = UntoldScene.of(play, played(version))
    assert scene.batches() == {FIRST + n for n in range(3)} | {SECOND + n for n in range(3)}


@VERSIONS
def test_two_writes_of_a_block_at_once_keep_their_reports(version: int) -> None:
    """In threads: the second one is written as the first one, whose read of the log found no part,
    is about to begin the transaction of its report.
    """

    def play(scene: EdgeScene) -> None:
        scene.cluster.create_topic("reports", 1)
        run = scene.run("driver")
        with transaction("sinks", 0, **scene.options(reportTopic="reports")) as t:
            second = scene.before_send(
                run,
                lambda request: (
                    request.api == ApiKey.INIT_PRODUCER_ID
                    and request.body.transactional_id.endswith(".report~0")
                ),
                lambda: t.write(scene.frame(run, SECOND)),
            )
            t.write(scene.frame(run, FIRST))
            assert second
        assert scene.open_ids() == []

    scene = UntoldScene.of(play, played(version))
    assert scene.batches() == {FIRST, SECOND}


@VERSIONS
def test_writes_of_a_block_in_threads_do_not_fail_each_other(version: int) -> None:
    """Each opens the log in a process of its own, and shuts out who is about to record its write;
    brokers are slow.
    """
    count = 8

    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")
        with transaction("sinks", 0, **scene.options()) as t:
            threads = [
                scene.beside(run.process, lambda n=n: t.write(scene.frame(run, n)))
                for n in range(count)
            ]
            scene.scheduler.block(lambda: all(thread.done for thread, _ in threads), NEVER)
            assert [told for _, told in threads] == [[None]] * count
        assert scene.open_ids() == []

    life = replace(played(version), tasks=1, cluster=ClusterFaults(work_ms=50, append_ms=30))
    scene = UntoldScene.of(play, life)
    assert scene.batches() == set(range(count))


@VERSIONS
def test_a_block_that_its_successor_rolled_forward_succeeds(version: int) -> None:
    """Its decision is in the log, and it does not hear of it, until the successor owns the key.
    (The commit that decides the writes of a block has no transaction of its own.)
    """

    def play(scene: EdgeScene) -> None:
        old = scene.run("run-0")
        plan = scene.plan(old)
        messages = scene.write(old, 0, plan)
        owner = owner_of(old.id, plan)
        prepared = prepared_transactions(messages, owner)
        with scene.driver_side(old) as driver:
            driver.commit(owner, Batch(0, prepared, payload_of(messages, TOPIC), block=Block("b")))
        lost = scene.cluster.control.drop(ApiKey.END_TXN, where=of_the_log)

        def commit() -> Commit:
            with scene.driver_side(old) as driver:
                return driver.commit(owner, Batch(0, (), block=Block("b", 1)))

        late, told = scene.beside(old.process, commit)
        scene.scheduler.block(lambda: bool(lost.fired), NEVER)
        assert scene.batch(scene.run("run-1"), 1) is Commit.COMMITTED
        scene.scheduler.block(lambda: late.done, NEVER)
        assert told == [Commit.COMMITTED]

    scene = EdgeScene.of(play, played(version))
    assert scene.batches() == {0, 1}


def test_a_block_leaves_what_others_have_open_alone() -> None:
    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")
        theirs = ["orders~others~run~w~0", "orders~sinks.eu~run~w~0", "orders~run~w~0"]
        for transactional_id in theirs:
            scene.begin_foreign(transactional_id)
        writes(scene, run, 0)
        with pytest.raises(KafkaError, match=PLANNED):
            writes(scene, run, 1, ends="fail")
        assert scene.open_ids() == sorted(theirs)

    UntoldScene.of(play, played(2))
