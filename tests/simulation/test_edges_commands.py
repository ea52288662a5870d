"""An operator's command says only what is true, and stays true."""

from __future__ import annotations

from functools import partial

import pytest

from spark_kafka_sink.base.errors import CommitError, RefusedError
from spark_kafka_sink.cli.arguments import Asked
from spark_kafka_sink.cli.txn.txn_changes import Confirmation, _commit
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.commit_state import CommitState, Decision
from spark_kafka_sink.transactions.operations.operator import Aborted, EndPlan
from spark_kafka_sink.transactions.table import DECIDED
from spark_kafka_sink.transactions.transactional_ids import log_id, parse
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.transaction_coordinator import Transaction
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.scene_requests import of_data
from tests.simulation.scheduler import Task
from tests.simulation.spark_world import LOG_TOPIC, PREFIX
from tests.simulation.test_edges_log_reading import deposed, ends_of_the_log, log_partition

pytestmark = VERSIONS


def opens_a_key(request: Request) -> bool:
    is_init = request.api == ApiKey.INIT_PRODUCER_ID
    return is_init and request.body.transactional_id.endswith("~~log")


def commits_data(request: Request) -> bool:
    return of_data(request) and bool(request.body.committed)


def begin_orphan(scene: Scene) -> tuple[str, str, str]:
    """An open transaction of an attempt that the job does not count: its id, and its key and run.
    The only job of the scene is running.
    """
    used = min(i.rpartition("~")[0] for i in scene.data_ids())
    orphan = f"{used}~9"
    scene.begin_foreign(orphan)
    found = parse(orphan)
    assert found is not None
    return orphan, found.key, found.run


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_job_that_can_not_commit_any_more_does_not(scene: Scene, is_reset: bool) -> None:
    """A job without txnAppId is about to commit. An operator ends an orphan of the job, and is told
    that the job's run can't commit any more. A reset lifts that: its question says so.
    """
    scene.tells_query = False
    run = scene.run("driver")

    def ends_an_orphan() -> None:
        orphan, key, of_job = begin_orphan(scene)
        with scene.by_hand() as operator:
            aborted = operator.end(operator.plan_abort([orphan]))
            assert (aborted.ended, aborted.runs) == ((orphan,), (of_job,))
            if is_reset:
                operator.reset(operator.plan_reset(key))
                assert operator.inspector.keys(PREFIX) == {}

    met = scene.before_send(run, opens_a_key, ends_an_orphan)
    if is_reset:
        scene.job(run, scene.options(), 0)
    else:
        with pytest.raises(CommitError, match="was aborted, and commits nothing any more"):
            scene.job(run, scene.options(), 0)
    assert met
    with scene.by_hand() as operator:
        assert operator.inspector.keys(PREFIX) == {}, "the job removes its key"
    assert scene.open_ids() == []
    scene.ends_with(*[0] * is_reset)


@pytest.mark.life(tasks=2)
def test_an_abort_that_waited_during_a_reset_tears_no_batch(scene: Scene) -> None:
    """The abort was planned while the job's run could not commit any more, and waits for its
    confirmation. Then the reset of another operator removes the job's key, so the job commits.
    """
    scene.tells_query = False
    run, plans = scene.run("driver"), list[EndPlan]()

    def plans_and_resets() -> None:
        orphan, key, of_job = begin_orphan(scene)
        with scene.by_hand() as operator:
            operator.end(operator.plan_abort([orphan]))
            plans.append(operator.plan_abort_run(PREFIX, of_job))
            operator.reset(operator.plan_reset(key))

    confirmed: list[tuple[Task, list[object]]] = []

    def confirms(plan: EndPlan) -> object:
        with scene.by_hand() as operator:
            return operator.end(plan)

    def first_end(transaction: Transaction, commit: bool) -> None:
        if commit and plans and "~~" not in transaction.transactional_id:
            operator = scene.run("operator").process
            confirmed.append(scene.beside(operator, partial(confirms, plans.pop())))

    scene.before_send(run, opens_a_key, plans_and_resets)
    scene.control.hold(ApiKey.END_TXN, 4_000, 1, nth=2, where=commits_data)
    scene.cluster.on_decided = first_end
    scene.job(run, scene.options(), 0)
    ((thread, told),) = confirmed
    scene.wait(lambda: thread.done)
    (aborted,) = told
    assert isinstance(aborted, Aborted)
    assert not aborted.ended
    assert DECIDED in aborted.kept.values()
    scene.ends_with_tasks((0, 0), (0, 1))


# -- a deposed leader shows an old state to a command ----------------------------------------------


def test_a_batch_is_not_resolved_on_a_deposed_leaders_word(scene: Scene) -> None:
    """Its state is that of before the decision, which the resolution would write, too."""
    scene.batch(scene.run("run-0"), 0)
    written = scene.written(scene.run("run-0"), 1)
    ends = ends_of_the_log(scene)
    scene.decides_and_dies(*written)
    scene.change_log(PREFIX, lambda state: state.partly_lost(written.ids))
    with scene.by_hand() as operator:
        plan = operator.plan_resolve(PREFIX, 1, done=False)
        with deposed(scene, ends) as answered:
            operator.resolve(plan)
        assert answered
        assert operator.inspector.keys(PREFIX)[PREFIX].decision is None
    assert scene.open_ids() == []
    scene.ends_with(0)


def test_a_decision_is_not_ended_on_a_deposed_leaders_word(scene: Scene) -> None:
    """Its state is that of before the decision, whose transactions are open."""
    scene.batch(scene.run("run-0"), 0)
    written = scene.written(scene.run("run-0"), 1)
    ends = ends_of_the_log(scene)
    scene.decides_and_dies(*written)
    with scene.by_hand() as operator:
        report = operator.plan_commit(PREFIX)
        with deposed(scene, ends) as answered:
            committed = operator.commit(report)
        assert answered
        assert (committed.committed, committed.state.last_done) == (True, 1)
    scene.ends_with(0, 1)


def test_a_job_is_not_forgotten_on_a_deposed_leaders_word(scene: Scene) -> None:
    """It does not have the job's key yet."""
    scene.batch(scene.run("run-0"), 0)
    key, ends = f"{PREFIX}~job-1", ends_of_the_log(scene)
    scene.change_log(key, lambda state: state.with_aborted_run("job-1", 1))
    with scene.by_hand() as operator:
        report = operator.plan_reset(key)
        with deposed(scene, ends) as answered:
            operator.reset(report)
        assert answered
        assert operator.inspector.keys(PREFIX).keys() == {PREFIX}
    scene.ends_with(0)


def test_a_state_has_not_changed_on_a_deposed_leaders_word(scene: Scene) -> None:
    scene.batch(scene.run("run-0"), 0)
    ends = ends_of_the_log(scene)
    scene.batch(scene.run("run-0"), 1)
    with scene.by_hand() as operator:
        report = operator.plan_reset(PREFIX)
        with deposed(scene, ends) as answered:
            operator.reset(report)
        assert answered
        assert operator.inspector.keys(PREFIX)[PREFIX] == report.state.forgotten(1)
    scene.ends_with(0, 1)


def test_a_damaged_key_is_not_forgotten_on_a_deposed_leaders_word(scene: Scene) -> None:
    """It does not have the damaged record yet."""
    scene.batch(scene.run("run-0"), 0)
    key, ends = f"{PREFIX}~app", ends_of_the_log(scene)
    producer = scene.producer(log_id(key))
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(ProducerRecord(LOG_TOPIC, b"damaged", key.encode(), log_partition(key)))
    producer.commit_transaction()
    with scene.by_hand() as operator:
        assert operator.damage(key) is not None
        with deposed(scene, ends) as answered:
            operator.forget(key)
        assert answered
        assert operator.damage(key) is None
    scene.ends_with(0)


def test_no_transaction_is_decided_on_a_deposed_leaders_word(scene: Scene) -> None:
    """There the batch is decided, which is undone since."""
    scene.batch(scene.run("run-0"), 0)
    (one,) = scene.written(scene.run("run-0"), 1).prepared
    scene.change_log(PREFIX, lambda state: state.decided(Decision(1, (one,))))
    ends = ends_of_the_log(scene)
    scene.change_log(PREFIX, CommitState.undone)
    with scene.by_hand() as operator:
        plan = operator.plan_abort([one.transactional_id], force=True)
        with deposed(scene, ends) as answered:
            aborted = operator.end(plan)
        assert answered
        assert (aborted.ended, aborted.kept) == ((one.transactional_id,), {})
    scene.ends_with(0)


@pytest.mark.life(tasks=2)
def test_a_plan_at_a_deposed_leader_says_what_it_has_read(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """There the batch is not decided yet. The commands said so as a fact, and change nothing."""
    scene.batch(scene.run("run-0"), 0)
    written = scene.written(scene.run("run-0"), 1)
    ends = ends_of_the_log(scene)
    scene.decides_and_dies(*written)
    with scene.by_hand() as operator, deposed(scene, ends) as answered:
        _commit(operator, Confirmation(Asked(as_json=False, dry_run=False, yes=True)), PREFIX)
        assert answered
        told = capsys.readouterr().out
        assert told.startswith("No decision was read under 'orders': DONE, last batch 0. A broker")
        assert "may return an old state: if an error says that a batch is decided" in told
        with pytest.raises(RefusedError, match="as the commit log was read") as refused:
            operator.plan_resolve(PREFIX, 1, done=True)
        assert "run the command again when all brokers are up" in str(refused.value.hint)
    with scene.by_hand() as operator:
        with pytest.raises(RefusedError, match=r"DECIDED.* not 2, as the commit log") as refused:
            operator.plan_resolve(PREFIX, 2, done=True)
        assert str(refused.value.hint).startswith("is --batch right? ")
        with pytest.raises(RefusedError, match="batch 1 of 'orders' is DECIDED, not PARTIAL"):
            operator.plan_resolve(PREFIX, 1, done=True)
    assert scene.commit_by_hand().last_done == 1
    scene.ends_with(0, 1)
