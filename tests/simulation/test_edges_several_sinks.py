"""Several writes of one micro-batch are decided together: all become visible, or none does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.datasource.exactly_once.transaction_commit import payload_of
from spark_kafka_sink.datasource.foreach_batch import Transaction, transaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch, Block
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import PLANNED, VERSIONS, Scene, owner_of
from tests.simulation.scene_requests import of_data, of_the_log
from tests.simulation.seeded_cluster import ClusterFaults
from tests.simulation.spark_world import TOPIC, Run

pytestmark = [VERSIONS, pytest.mark.life(tasks=2, rows=2, new_worker=1.0)]
#: What the rows of the two writes say of their batch; a key's micro-batch has two of these.
FIRST, SECOND = 0, 100
ALL = tuple(of + number for number in range(3) for of in (FIRST, SECOND))


@pytest.fixture
def tells_query() -> bool:
    """A block needs nothing of what Spark gives its tasks."""
    return False


def writes(scene: Scene, run: Run, number: int, *, replay: bool = False, **of_second: str) -> None:
    """A micro-batch of a query: two writes, one decision. A caller of another process that names
    neither its query nor its sources' offsets says that it is a `replay`.
    """
    options = scene.options(**({"verifyReplays": "false"} if replay else {}))
    with transaction("sinks", number, **options) as t:
        t.write(scene.frame(run, FIRST + number))
        seen = scene.batches()
        t.write(scene.frame(run, SECOND + number, **of_second))
        assert scene.batches() == seen, "nothing is visible before the end"


def half(scene: Scene, run: Run, number: int, then: Callable[[], None]) -> None:
    """The first write of such a micro-batch, and an error behind it."""
    with transaction("sinks", number, **scene.options()) as t:
        t.write(scene.frame(run, FIRST + number))
        then()
        raise ValueError("planned")


def test_all_writes_of_a_block_become_visible_when_it_ends(scene: Scene) -> None:
    run = scene.run("driver")
    for number in range(3):
        writes(scene, run, number)
        assert {FIRST + number, SECOND + number} <= scene.batches()
        assert scene.open_ids() == []


def test_a_write_that_fails_fails_all_of_its_block(scene: Scene) -> None:
    run = scene.run("driver")
    writes(scene, run, 0)
    with pytest.raises(KafkaError, match=PLANNED):
        writes(scene, run, 1, ends="fail")
    assert scene.open_ids() == []
    assert scene.batches() == {FIRST, SECOND}
    writes(scene, run, 1)
    assert scene.open_ids() == []
    scene.ends_with(FIRST, FIRST + 1, SECOND, SECOND + 1)


@pytest.mark.parametrize("number", [0, 1])
def test_a_block_that_raises_leaves_none_visible_and_none_open(scene: Scene, number: int) -> None:
    run = scene.run("driver")
    for before in range(number):
        writes(scene, run, before)
    with pytest.raises(ValueError, match="planned"):
        half(scene, run, number, lambda: None)
    assert scene.open_ids() == []
    writes(scene, run, number)
    assert scene.open_ids() == []
    scene.ends_with(*ALL[: 2 * (number + 1)])


@pytest.mark.parametrize("number", [0, 1])
def test_a_driver_dead_between_two_writes_writes_both_again(
    scene: Scene, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # (The dead one's block is unwound when all is over, and must not wait for a cluster then.)
    monkeypatch.setattr(Transaction, "abort", lambda _: None)
    dead, run = scene.run("driver 1"), scene.run("driver 2")
    for before in range(number):
        writes(scene, dead, before)

    def die() -> None:
        dead.process.kill()
        scene.wait(lambda: False)

    dead.process.start(lambda: half(scene, dead, number, die), "micro-batch")
    scene.wait(lambda: dead.process.dead)
    assert len(scene.open_ids()) == 2
    writes(scene, run, number)
    assert scene.open_ids() == []
    scene.ends_with(*ALL[: 2 * (number + 1)])


def test_a_driver_dead_after_the_decision_has_all_writes_ended(scene: Scene) -> None:
    dead, run = scene.run("driver 1"), scene.run("driver 2")
    writes(scene, dead, 0)
    silent = scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=of_data)
    scene.timeline.after(40_000, scene.control.clear)
    with pytest.raises(KafkaError):
        writes(scene, dead, 1)
    assert silent.fired
    dead.process.kill()
    scene.control.clear()
    writes(scene, run, 1, replay=True)  # Spark runs it again: it is done
    assert scene.open_ids() == []
    writes(scene, run, 2)
    scene.ends_with(*ALL)


def test_two_writes_of_a_block_at_once_keep_their_reports(scene: Scene) -> None:
    """In threads: the second one is written as the first one, whose read of the log found no part,
    is about to begin the transaction of its report.
    """
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
    scene.ends_with(FIRST, SECOND)


@pytest.mark.life(rows=2, new_worker=1.0, cluster=ClusterFaults(work_ms=50, append_ms=30))
def test_writes_of_a_block_in_threads_do_not_fail_each_other(scene: Scene) -> None:
    """Each opens the log in a process of its own, and shuts out who is about to record its write;
    brokers are slow.
    """
    count = 8
    run = scene.run("driver")
    with transaction("sinks", 0, **scene.options()) as t:
        frames = [scene.frame(run, number) for number in range(count)]
        assert scene.at_once(run, *(partial(t.write, one) for one in frames)) == [None] * count
    assert scene.open_ids() == []
    scene.ends_with(*range(count))


def test_a_block_that_its_successor_rolled_forward_succeeds(scene: Scene) -> None:
    """Its decision is in the log, and it does not hear of it, until the successor owns the key.
    (The commit that decides the writes of a block has no transaction of its own.)
    """
    written = scene.first_batch()
    old, owner = written.run, owner_of(written.run.id, written.plan)
    payload = payload_of(written.messages, TOPIC)
    with scene.driver_side(old) as driver:
        driver.commit(owner, Batch(0, tuple(written.prepared), payload, block=Block("b")))
    lost = scene.control.drop(ApiKey.END_TXN, where=of_the_log)

    def commit() -> Commit:
        with scene.driver_side(old) as driver:
            return driver.commit(owner, Batch(0, (), block=Block("b", 1)))

    late, told = scene.beside(old.process, commit)
    scene.wait(lambda: lost.fired)
    assert scene.batch(scene.run("run-1"), 1) is Commit.COMMITTED
    scene.wait(lambda: late.done)
    assert told == [Commit.COMMITTED]
    scene.ends_with(0, 1)


def test_a_block_leaves_what_others_have_open_alone(scene: Scene) -> None:
    run = scene.run("driver")
    theirs = ["orders~others~run~g2.w~0", "orders~sinks.eu~run~g2.w~0", "orders~run~g2.w~0"]
    for transactional_id in theirs:
        scene.begin_foreign(transactional_id)
    writes(scene, run, 0)
    with pytest.raises(KafkaError, match=PLANNED):
        writes(scene, run, 1, ends="fail")
    assert scene.open_ids() == sorted(theirs)
