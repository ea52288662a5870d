"""An id is used again only when its last transaction was committed: a loser that no sweep has seen
is never aborted without a look for leaders (``transactional_producers.py``).
"""

from __future__ import annotations

from functools import partial

import pytest

from spark_kafka_sink.admin.transaction_description import TransactionDescription
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.datasource.foreach_batch import transaction
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import VERSIONS, Scene, Written
from tests.simulation.scene_requests import ends_data, of_a_sweep, of_data, of_id
from tests.simulation.scheduler import Task
from tests.simulation.seeded_cluster import NODES
from tests.simulation.spark_world import LOG_TOPIC, TIMEOUT_MS, Run

pytestmark = VERSIONS


def described(scene: Scene, message: TaskCommitMessage) -> TransactionDescription:
    """The transaction of an attempt that has prepared."""
    assert message.prepared is not None
    id_ = message.prepared.transactional_id
    with scene.by_hand() as commands:
        return commands._client.describe([id_], commands._client.deadline())[id_]


def next_batch_leaves(scene: Scene, run: Run, hit: str) -> None:
    """It is committed, and takes another id."""
    written = scene.written(run, 2)
    assert hit not in written.ids
    assert scene.open_ids().count(hit) == 1
    assert scene.commit(*written) is Commit.COMMITTED


def next_batch_takes_others(scene: Scene, run: Run, loser: TransactionDescription) -> None:
    """While a partition of the loser has no leader: its marker would be dropped."""
    plan = scene.plan(run)
    scene.lose_leader(2_000, loser)
    written = Written(run, 2, plan, scene.write(run, 2, plan, 2))
    assert written.ids
    assert loser.transactional_id not in written.ids
    scene.scheduler.sleep(3_000)
    assert scene.commit(*written) is Commit.COMMITTED
    assert scene.open_ids() == []
    scene.ends_with(0, 1, 2)


def initializes_a_report(request: Request) -> bool:
    return request.api == ApiKey.INIT_PRODUCER_ID and ".report" in request.body.transactional_id


def of_the_sweep(request: Request) -> bool:
    return request.api == ApiKey.LIST_TRANSACTIONS and of_a_sweep(request)


@pytest.mark.parametrize("unseen", ["hangs", "unclear"])
@pytest.mark.life(tasks=2)
def test_an_id_that_may_be_open_is_not_taken_by_the_next_batch(
    scene: Scene, unseen: str, version: int
) -> None:
    """The loser of a speculative pair, whose coordinator is lost before the sweep and has led its
    partition: InitProducerId would abort it without a marker, and the id's next commit show it.
    """
    run, plan = scene.second_plan()
    winner, loser = scene.speculative_pair(run, 1, plan)
    assert loser.prepared is not None
    hit = loser.prepared.transactional_id
    ends = ApiKey.END_TXN if version >= 2 else ApiKey.INIT_PRODUCER_ID
    api, where = {"hangs": (ApiKey.LIST_TRANSACTIONS, of_a_sweep), "unclear": (ends, of_id(hit))}[
        unseen
    ]
    fault = scene.control.drop(api, FOREVER, processed=False, where=where)
    assert scene.commit(run, 1, plan, [winner]) is Commit.COMMITTED
    assert fault.fired
    scene.control.clear()
    assert scene.open_ids() == [hit]
    next_batch_leaves(scene, run, hit)
    scene.scheduler.sleep(60_000)  # brokers that hang are left out for so long
    scene.batch(run, 3)
    assert scene.open_ids() == []
    scene.ends_with(0, 1, 2, 3)


@pytest.mark.parametrize("by", ["nobody", "operator"])
def test_nor_where_somebody_else_has_recorded_the_batch(scene: Scene, by: str) -> None:
    """The same, and brokers refuse the record that the batch is done, so that the next planning
    writes it; or an operator has committed the batch.
    """
    run, plan = scene.second_plan()
    winner, _ = scene.speculative_pair(run, 1, plan)
    control, refused = scene.control, list[Request]()

    def refuses() -> None:
        code = ErrorCode.NOT_ENOUGH_REPLICAS
        control.answer(ApiKey.PRODUCE, code, FOREVER, topic=LOG_TOPIC)

    silent = control.drop(ApiKey.LIST_TRANSACTIONS, FOREVER, processed=False, where=of_a_sweep)
    if by == "nobody":
        refused = scene.before_send(run, ends_data, refuses)
    commit, told = scene.beside(run.process, lambda: scene.commit(run, 1, plan, [winner]))
    scene.wait(lambda: silent.fired)
    if by == "operator":
        scene.commit_by_hand()
    scene.wait(lambda: commit.done)
    assert told == [Commit.COMMITTED]
    assert bool(refused) == (by == "nobody")
    control.clear()
    (hit,) = scene.open_ids()
    next_batch_leaves(scene, run, hit)
    scene.ends_with(0, 1, 2)


@pytest.mark.life(new_worker=0.0)
def test_an_id_whose_coordinator_moves_in_the_sweep_is_not_taken(scene: Scene) -> None:
    """No broker is silent, and none lists it: in a rolling restart, for seconds."""
    run, plan = scene.second_plan()
    winner, loser = scene.speculative_pair(run, 1, plan)
    found = described(scene, loser)

    def moves() -> None:
        node = scene.cluster.coordinator_of(found.transactional_id) % NODES + 1
        scene.cluster.move_coordinator(found.transactional_id, node, resigned_ms=300)

    met = scene.before_send(run, of_the_sweep, moves)
    assert scene.commit(run, 1, plan, [winner]) is Commit.COMMITTED
    assert met
    assert scene.open_ids() == [found.transactional_id]
    next_batch_takes_others(scene, run, found)


@pytest.mark.life(new_worker=0.0)
def test_an_id_that_was_taken_behind_the_sweep_is_not_taken(scene: Scene) -> None:
    """By attempts that begin when their batch is done, in workers that live on."""
    run, plan = scene.second_plan()
    assert scene.commit(run, 1, plan, scene.write(run, 1, plan)) is Commit.COMMITTED
    _, late = scene.speculative_pair(run, 1, plan)
    next_batch_takes_others(scene, run, described(scene, late))


@pytest.mark.life(new_worker=0.0)
def test_an_id_that_brokers_aborted_without_a_leader_is_not_taken(scene: Scene) -> None:
    """For its age: no sweep sees it, and its marker is lost already."""
    run, plan = scene.second_plan()
    found = described(scene, scene.attempt_of(run, 1, 0, 0, plan))
    scene.scheduler.sleep(TIMEOUT_MS - 3_000)
    scene.lose_leader(30_000, found)
    scene.scheduler.block(lambda: not scene.open_ids(), scene.scheduler.now + 30_000)
    scene.scheduler.sleep(31_000)
    winner = scene.attempt_of(run, 1, 0, 1, plan)
    assert scene.commit(run, 1, plan, [winner]) is Commit.COMMITTED
    next_batch_takes_others(scene, run, found)


@pytest.mark.life(rows=2, new_worker=0.0)
def test_a_blocks_threads_need_no_more_ids_of_reports_than_writes(scene: Scene) -> None:
    """Each opens the log beside the others, whose next attempt keeps what it has prepared."""
    scene.tells_query = False
    run = scene.run("driver")
    scene.cluster.create_topic("reports", 1)
    for number in range(4):
        with transaction("sinks", number, **scene.options(reportTopic="reports")) as block:
            frames = [scene.frame(run, 10 * number + i) for i in range(4)]
            told = scene.at_once(run, *(partial(block.write, one) for one in frames))
        assert told == [None] * 4
    ids = [i for i in scene.cluster.transactions.transactions if ".report" in i]
    assert len(ids) == 8, "four before the first take-over, and four after it"
    scene.ends_with(*(10 * number + i for number in range(4) for i in range(4)))


@pytest.mark.life(rows=2, new_worker=0.0)
def test_threads_of_one_job_never_share_the_id_of_a_report(scene: Scene) -> None:
    """One thread has chosen the id of its report, and has not initialized it. Meanwhile an earlier
    version of the run is decided, with a report of its own.
    """
    run = scene.run("driver")
    scene.cluster.create_topic("reports", 1)

    def write(number: int) -> None:
        options = scene.options(txnAppId="app", txnVersion=number, reportTopic="reports")
        scene.job(run, options, number)

    def earlier_is_decided() -> None:
        unheard = scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=of_data)
        earlier.append(scene.beside(run.process, lambda: write(2)))
        scene.wait(lambda: unheard.fired)
        scene.cluster.at(scene.cluster.now + 1_000, unheard.stop)

    write(1)
    earlier: list[tuple[Task, list[object]]] = []
    assert scene.before_send(run, initializes_a_report, earlier_is_decided) == []
    later, told = scene.beside(run.process, lambda: write(3))
    scene.wait(lambda: later.done and earlier and earlier[0][0].done)
    assert (earlier[0][1], told) == ([None], [None]), "a decided version has lost its report"
    scene.ends_with(1, 2, 3)
