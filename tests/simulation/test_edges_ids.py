"""An id is used again only when its last transaction was committed: a loser that no sweep has seen
is never aborted without a look for leaders (``transactional_producers.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from spark_kafka_sink.admin.transaction_description import TransactionDescription
from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.datasource.foreach_batch import Transaction, transaction
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.committer import Commit
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.edge_scene import EdgeScene, UntoldScene
from tests.simulation.seeded_cluster import NODES
from tests.simulation.spark_scene import of_a_sweep, of_the_log
from tests.simulation.spark_world import LOG_TOPIC, TIMEOUT_MS, Run, SparkLife
from tests.simulation.test_edges_leaderless import lose_leader, speculative_pair
from tests.simulation.test_edges_operators import by_hand, commit_by_hand

VERSIONS = pytest.mark.parametrize("version", [1, 2])


def described(scene: EdgeScene, message: TaskCommitMessage | None) -> TransactionDescription:
    """The transaction of an attempt that has prepared."""
    assert message is not None
    assert message.prepared is not None
    id_ = message.prepared.transactional_id
    with by_hand(scene, scene.run("operator")) as commands:
        return commands._client.describe([id_], commands._client.deadline())[id_]


def next_batch_takes_others(scene: EdgeScene, run: Run, loser: TransactionDescription) -> None:
    """While a partition of the loser has no leader: its marker would be dropped."""
    plan = scene.plan(run)
    lose_leader(scene, 2_000, loser)
    messages = scene.write(run, 2, plan, 2)
    used = {m.prepared.transactional_id for m in messages if m.prepared}
    assert used
    assert loser.transactional_id not in used
    scene.scheduler.sleep(3_000)
    assert scene.commit(run, 2, plan, messages) is Commit.COMMITTED
    assert scene.open_ids() == []


def shows_three_batches(play: Callable[[EdgeScene], None], version: int) -> None:
    """Each row once, with workers that live on."""
    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version, new_worker=0.0))
    assert scene.batches() == {0, 1, 2}


def of_the_sweep(request: Request) -> bool:
    return request.api == ApiKey.LIST_TRANSACTIONS and of_a_sweep(request)


@VERSIONS
@pytest.mark.parametrize("unseen", ["hangs", "unclear"])
def test_an_id_that_may_be_open_is_not_taken_by_the_next_batch(unseen: str, version: int) -> None:
    """The loser of a speculative pair, whose coordinator is lost before the sweep and has led its
    partition: InitProducerId would abort it without a marker, and the id's next commit show it.
    """

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)  # (The first take-over changes the generation, and the ids with it.)
        plan = scene.plan(run)
        winner, loser = speculative_pair(scene, run, plan)
        assert loser.prepared is not None
        hit = loser.prepared.transactional_id
        control = scene.cluster.control
        if unseen == "hangs":
            fault = control.drop(
                ApiKey.LIST_TRANSACTIONS,
                FOREVER,
                processed=False,
                where=of_a_sweep,
            )
        else:
            ends = ApiKey.END_TXN if version >= 2 else ApiKey.INIT_PRODUCER_ID
            fault = control.drop(
                ends, FOREVER, processed=False, where=lambda r: r.body.transactional_id == hit
            )
        assert scene.commit(run, 1, plan, [winner]) is Commit.COMMITTED
        assert fault.fired
        control.clear()
        assert scene.open_ids() == [hit]
        plan = scene.plan(run)
        attempts = scene.attempts(run, 2, plan, 2)
        messages = [a.message for a in attempts if a.message is not None]
        assert hit not in {m.prepared.transactional_id for m in messages if m.prepared}
        assert scene.open_ids().count(hit) == 1
        assert scene.commit(run, 2, plan, messages) is Commit.COMMITTED
        scene.scheduler.sleep(60_000)  # brokers that hang are left out for so long
        scene.batch(run, 3)
        assert scene.open_ids() == []

    scene = EdgeScene.of(play, SparkLife(1, tasks=2, transaction_version=version))
    assert scene.batches() == {0, 1, 2, 3}


@VERSIONS
@pytest.mark.parametrize("by", ["nobody", "operator"])
def test_nor_where_somebody_else_has_recorded_the_batch(by: str, version: int) -> None:
    """The same, and brokers refuse the record that the batch is done, so that the next planning
    writes it; or an operator has committed the batch.
    """

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        plan = scene.plan(run)
        winner, _ = speculative_pair(scene, run, plan)
        control, refused = scene.cluster.control, list[Request]()

        def refuses() -> None:
            code = ErrorCode.NOT_ENOUGH_REPLICAS
            control.answer(ApiKey.PRODUCE, code, FOREVER, topic=LOG_TOPIC)

        silent = control.drop(
            ApiKey.LIST_TRANSACTIONS,
            FOREVER,
            processed=False,
            where=of_a_sweep,
        )
        if by == "nobody":
            refused = scene.before_send(
                run, lambda r: r.api == ApiKey.END_TXN and not of_the_log(r), refuses
            )
        commit, told = scene.beside(run.process, lambda: scene.commit(run, 1, plan, [winner]))
        scene.scheduler.block(lambda: silent.fired > 0, NEVER)
        if by == "operator":
            commit_by_hand(scene, scene.run("operator"), TIMEOUT_MS)
        scene.scheduler.block(lambda: commit.done, NEVER)
        assert told == [Commit.COMMITTED]
        assert bool(refused) == (by == "nobody")
        control.clear()
        (hit,) = scene.open_ids()
        plan = scene.plan(run)
        messages = scene.write(run, 2, plan)
        assert hit not in {m.prepared.transactional_id for m in messages if m.prepared}
        assert scene.open_ids().count(hit) == 1
        assert scene.commit(run, 2, plan, messages) is Commit.COMMITTED

    scene = EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))
    assert scene.batches() == {0, 1, 2}


@VERSIONS
def test_an_id_whose_coordinator_moves_in_the_sweep_is_not_taken(version: int) -> None:
    """No broker is silent, and none lists it: in a rolling restart, for seconds."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        plan = scene.plan(run)
        winner, loser = speculative_pair(scene, run, plan)
        found = described(scene, loser)

        def moves() -> None:
            node = scene.cluster.coordinator_of(found.transactional_id) % NODES + 1
            scene.cluster.move_coordinator(found.transactional_id, node, resigned_ms=300)

        met = scene.before_send(run, of_the_sweep, moves)
        assert scene.commit(run, 1, plan, [winner]) is Commit.COMMITTED
        assert met
        assert scene.open_ids() == [found.transactional_id]
        next_batch_takes_others(scene, run, found)

    shows_three_batches(play, version)


@VERSIONS
def test_an_id_that_was_taken_behind_the_sweep_is_not_taken(version: int) -> None:
    """By attempts that begin when their batch is done, in workers that live on."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        plan = scene.plan(run)
        assert scene.commit(run, 1, plan, scene.write(run, 1, plan)) is Commit.COMMITTED
        late = [scene.launch(run, 1, 0, attempt, plan) for attempt in (2, 3)]
        scene.scheduler.block(lambda: all(one.over for one in late), NEVER)
        next_batch_takes_others(scene, run, described(scene, late[1].message))

    shows_three_batches(play, version)


@VERSIONS
def test_an_id_that_brokers_aborted_without_a_leader_is_not_taken(version: int) -> None:
    """For its age: no sweep sees it, and its marker is lost already."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        scene.batch(run, 0)
        plan = scene.plan(run)
        loser = scene.launch(run, 1, 0, 0, plan)
        scene.scheduler.block(lambda: loser.over, NEVER)
        found = described(scene, loser.message)
        scene.scheduler.sleep(TIMEOUT_MS - 3_000)
        lose_leader(scene, 30_000, found)
        scene.scheduler.block(lambda: not scene.open_ids(), scene.scheduler.now + 30_000)
        scene.scheduler.sleep(31_000)
        winner = scene.launch(run, 1, 0, 1, plan)
        scene.scheduler.block(lambda: winner.over, NEVER)
        assert winner.message is not None
        assert scene.commit(run, 1, plan, [winner.message]) is Commit.COMMITTED
        next_batch_takes_others(scene, run, found)

    shows_three_batches(play, version)


@VERSIONS
def test_a_blocks_threads_need_no_more_ids_of_reports_than_writes(version: int) -> None:
    """Each opens the log beside the others, whose next attempt keeps what it has prepared."""

    def write_all(scene: EdgeScene, run: Run, number: int, block: Transaction) -> None:
        frames = [scene.frame(run, 10 * number + i) for i in range(4)]
        threads = [scene.beside(run.process, partial(block.write, one)) for one in frames]
        scene.scheduler.block(lambda: all(one.done for one, _ in threads), NEVER)
        assert [told for _, told in threads] == [[None]] * 4

    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")
        scene.cluster.create_topic("reports", 1)
        for number in range(6):
            with transaction("sinks", number, **scene.options(reportTopic="reports")) as block:
                write_all(scene, run, number, block)
        ids = [i for i in scene.cluster.transactions.transactions if ".report" in i]
        assert len(ids) == 8, "four before the first take-over, and four after it"

    life = SparkLife(1, tasks=1, rows=2, transaction_version=version, new_worker=0.0)
    scene = UntoldScene.of(play, life)
    assert scene.batches() == {10 * number + i for number in range(6) for i in range(4)}
