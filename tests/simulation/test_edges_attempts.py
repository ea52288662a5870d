"""What a commit says of a decision after several attempts, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spark_kafka_sink import transaction
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    ErrorCode,
    KafkaError,
    RefusedError,
)
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.exactly_once.transaction_plan import plan_transactions
from spark_kafka_sink.datasource.plan.planned_batch import PlannedBatch
from spark_kafka_sink.datasource.plan.write_plan import WritePlan
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.scene_requests import (
    ends_data,
    is_a_logs,
    of_the_log,
    opens_a_log,
    writes_a_log,
)
from tests.simulation.seeded_cluster import ClusterFaults
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, TIMEOUT_MS, TOPIC


def _log_leaves(scene: Scene, *, may_be_opened: bool = False) -> None:
    """The coordinator of the commit log's transactions."""
    for api in [ApiKey.END_TXN] if may_be_opened else [ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID]:
        scene.control.answer(api, ErrorCode.COORDINATOR_NOT_AVAILABLE, FOREVER, where=is_a_logs)


def _commit_the_job(scene: Scene) -> None:
    """``kprod txn commit`` of the only job, which has no txnAppId."""
    (log,) = (i for i in scene.cluster.transactions.transactions if i.endswith(log_id("")))
    with scene.by_hand() as commands:
        commands.commit(commands.plan_commit(log.removesuffix(log_id(""))))


@VERSIONS
@pytest.mark.life(tasks=2)
def test_without_a_leader_and_then_a_coordinator_nothing_is_decided(scene: Scene) -> None:
    """A partition has no leader, so nothing is written; at the third attempt no coordinator
    answers.
    """
    first, opened = scene.first_batch(), []
    scene.lose_leader(10 * TIMEOUT_MS)

    def opens_thirdly(request: Request) -> bool:
        if opens_a_log(request):
            opened.append(request)
        return len(opened) == 3

    def coordinators_leave() -> None:
        scene.control.drop(ApiKey.DESCRIBE_TRANSACTIONS, FOREVER, processed=False)

    met = scene.before_send(first.run, opens_thirdly, coordinators_leave)
    with pytest.raises(KafkaError, match="nothing of it is visible") as caught:
        scene.commit(*first)
    assert not isinstance(caught.value, CommitOutcomeUnknownError)
    assert met
    scene.control.clear()
    scene.ends_with()


@VERSIONS
@pytest.mark.life(tasks=2, new_worker=1.0)
def test_a_decision_that_others_committed_leaves_no_orphan(scene: Scene) -> None:
    """A killed attempt has left its transaction open; the response to the decision is lost, and
    'kprod txn commit' ends it before the job opens the log again. No later run would end the orphan
    of a job.
    """
    run, control = scene.run("driver"), scene.control
    lost = control.drop(ApiKey.END_TXN, FOREVER, where=of_the_log)

    def operator() -> None:
        control.clear()
        scene.commit_by_hand()

    met = scene.before_send(run, lambda r: lost.fired > 0 and opens_a_log(r), operator)
    plan = scene.plan(run)
    orphan = scene.launch(run, 0, 0, 1, plan)
    scene.wait(lambda: orphan.over)
    orphan.worker.process.kill()
    assert scene.commit(run, 0, plan, scene.write(run, 0, plan)) is Commit.COMMITTED
    assert met
    assert scene.open_ids() == []
    scene.ends_with(0)


@pytest.mark.parametrize("delay_ms", [4_600, 4_640, 4_680])
@pytest.mark.life(seed=0, transaction_version=1, tasks=2, new_worker=1.0,
                  cluster=ClusterFaults(work_ms=30, append_ms=20))  # fmt: skip
def test_the_abort_of_a_version_leaves_the_next_one_alone(scene: Scene, delay_ms: int) -> None:
    """A version fails without a finished task in one thread, while another one has decided it: so
    the run goes on, and decides the next version while the abort waits for its killed tasks.
    """
    run, control = scene.run("driver"), scene.control

    def app(version: int) -> dict[str, str]:
        return scene.options(txnAppId="app", txnVersion=str(version))

    scene.job(run, app(0), 0)
    with scene.driving(run):
        config = parse_sink_config(app(1))
        plan = plan_transactions(config, streaming=False, driver=f"d{run.process.nth}")
        failing = WritePlan(config, ColumnPlan(topic=TOPIC, value_column=0), None, plan)
        scene.attempts(run, 1, plan, 1)[-1].worker.process.kill()
    ends = control.hold(
        ApiKey.END_TXN, 1_500, FOREVER, where=lambda r: r.body.committed and not is_a_logs(r)
    )
    first, told_first = scene.beside(run.process, lambda: scene.job(run, app(1), 1))
    scene.wait(lambda: ends.fired)
    control.clear()

    def fails() -> None:
        with scene.driving(run):
            PlannedBatch(failing).abort([None])

    begun = scene.scheduler.now
    abort, told_abort = scene.beside(run.process, fails)
    scene.wait(lambda: first.done)
    scene.scheduler.sleep(max(0, begun + delay_ms - scene.scheduler.now))
    second, told = scene.beside(run.process, lambda: scene.job(run, app(2), 2, tasks=5))
    scene.wait(lambda: abort.done and second.done)
    for one in (*told_first, *told_abort, *told):
        assert not isinstance(one, BaseException), one
    scene.ends_with(0, 1, 2)


@pytest.mark.life(tasks=1)
def test_a_version_that_the_log_has_forgotten_is_an_error(scene: Scene) -> None:
    """It was a success, whether or not the version had ever been written: 0 was left out."""
    run = scene.run("driver")
    scene.version_of_job(run, 1)
    scene.version_of_job(run, 2)
    with pytest.raises(CommitError) as raised:
        scene.version_of_job(run, 0)
    assert raised.value.kind is Kind.VERSION_NOT_KNOWN
    replay = scene.options(txnAppId="app", txnVersion=0, verifyReplays="false")
    plan = scene.job(run, replay, 0).transactions
    assert plan is not None
    assert plan.skips
    scene.ends_with(1, 2)
    scene.version_of_job(run, 0, "another")
    for known in (1, 2, 3):
        scene.version_of_job(run, known)
    scene.ends_with(0, 1, 2, 3)


@VERSIONS
@pytest.mark.parametrize("processed", [True, False])
@pytest.mark.life(tasks=2)
def test_a_decision_without_an_answer_fails_in_time(scene: Scene, processed: bool) -> None:
    """EndTxn of the log has no answer, and all others have. Each attempt finds what the one before
    has written; if that is nothing, the error names the transactions.
    """
    scene.changes.update(max_block_ms=60_000, transaction_timeout_ms=900_000)
    first = scene.first_batch()
    unanswered = scene.control.drop(ApiKey.END_TXN, FOREVER, where=of_the_log, processed=processed)
    begun = scene.scheduler.now
    if processed:
        assert scene.commit(*first) is Commit.COMMITTED
    else:
        with pytest.raises(CommitOutcomeUnknownError, match="was decided is not known") as caught:
            scene.commit(*first)
        assert all(i in caught.value.message for i in caught.value.transactional_ids)
    assert unanswered.fired
    assert scene.scheduler.now - begun <= 3 * 60_000
    scene.control.clear()
    scene.ends_with(*[0] * processed)


@VERSIONS
@pytest.mark.life(tasks=2)
def test_a_write_of_a_block_without_an_answer_decides_nothing(scene: Scene) -> None:
    """The coordinator of the log leaves before it has recorded the write."""
    run = scene.run("driver")

    def ends(request: Request) -> bool:
        return request.api == ApiKey.END_TXN and is_a_logs(request) and request.body.committed

    undecided = pytest.raises(CommitError, match="so its block commits nothing")
    with undecided as caught, transaction("block", 0, **scene.options()) as block:
        met = scene.before_send(run, ends, lambda: _log_leaves(scene))
        block.write(scene.frame(run, 0))
    assert met
    assert not isinstance(caught.value, CommitOutcomeUnknownError)
    scene.control.clear()
    scene.ends_with()


@VERSIONS
@pytest.mark.life(tasks=3)
def test_a_job_without_a_name_is_not_to_be_run_again(scene: Scene) -> None:
    """It is decided, and brokers don't answer: no run of the job ends it, but an operator does."""
    run = scene.run("driver")

    def of_rows(request: Request) -> bool:
        return not is_a_logs(request) and bool(request.body.committed)

    unanswered = scene.control.drop(ApiKey.END_TXN, FOREVER, where=of_rows, processed=False)
    with pytest.raises(CommitOutcomeUnknownError, match="is decided") as caught:
        scene.job(run, scene.options(), 0)
    assert unanswered.fired
    assert "for a job without txnAppId 'kprod txn commit' does" in str(caught.value.hint)
    scene.control.clear()
    run.process.kill()
    _commit_the_job(scene)
    scene.ends_with(0)


@VERSIONS
@pytest.mark.parametrize("then", ["unanswered", "gone", "fenced"])
@pytest.mark.life(tasks=3)
def test_a_commit_that_finds_its_decision_needs_no_record(scene: Scene, then: str) -> None:
    """The response to the decision is lost; the next attempt reads it, and commits the rows. Then
    it can't record that, or open the log again; or an operator ends the batch meanwhile. A job that
    failed would be run again.
    """
    run, control = scene.run("driver"), scene.control
    lost = control.drop(ApiKey.END_TXN, FOREVER, where=is_a_logs)
    scene.before_send(run, lambda r: lost.fired > 0 and opens_a_log(r), control.clear)

    def meanwhile() -> None:
        control.clear()
        if then == "fenced":
            _commit_the_job(scene)
        _log_leaves(scene, may_be_opened=then == "unanswered")

    def records(request: Request) -> bool:
        return lost.fired > 0 and writes_a_log(request)

    met = scene.before_send(run, records, meanwhile)
    scene.job(run, scene.options(), 0)
    assert met
    control.clear()
    scene.ends_with(0)


def _abort_as_brokers_do(scene: Scene, ids: Sequence[str]) -> None:
    """By their clock, or by Kafka's own tool."""
    with scene.driver_side(scene.run("brokers")) as driver:
        found = driver.client.describe(ids, driver.client.deadline())
        driver.client.abort_exactly(found, driver.client.deadline(), prepared=found)


@VERSIONS
@pytest.mark.parametrize("by", ["commit", "planning"])
@pytest.mark.life(tasks=2)
def test_the_error_of_an_undone_decision_says_undone(scene: Scene, by: str) -> None:
    """Brokers have aborted all its transactions, and that can't be recorded."""
    first = scene.first_batch()

    def brokers_abort() -> None:
        _abort_as_brokers_do(scene, first.ids)
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        scene.control.answer(ApiKey.PRODUCE, refused, FOREVER, topic=LOG_TOPIC)

    undone = pytest.raises(CommitOutcomeUnknownError, match="are aborted and nothing of it is vis")
    if by == "planning":
        scene.decides_and_dies(*first)
        brokers_abort()
        with undone as caught:
            scene.plan(scene.run("run-1"))
    else:
        met = scene.before_send(first.run, ends_data, brokers_abort)
        with undone as caught:
            scene.commit(*first)
        assert met
    assert "nothing was undone" not in str(caught.value.hint)
    scene.control.clear()
    scene.ends_with()


@VERSIONS
@pytest.mark.life(tasks=2)
def test_what_was_undone_before_is_not_decided_any_more(scene: Scene) -> None:
    """Brokers abort all after the decision; that it is undone is recorded without a response, and
    then the log's leader is silent.
    """
    first, control = scene.first_batch(), scene.control
    met = scene.before_send(first.run, ends_data, lambda: _abort_as_brokers_do(scene, first.ids))
    lost = control.drop(ApiKey.END_TXN, FOREVER, where=lambda r: bool(met) and of_the_log(r))
    silent = control.drop(
        ApiKey.PRODUCE, FOREVER, where=lambda r: lost.fired > 0 and is_a_logs(r), processed=False
    )
    with pytest.raises(KafkaError, match="nothing of it is visible") as caught:
        scene.commit(*first)
    assert "is decided" not in caught.value.message
    assert silent.fired
    control.clear()
    scene.ends_with()


@VERSIONS
@pytest.mark.life(tasks=2)
def test_a_batch_that_its_commit_ends_counts_for_any_run(scene: Scene) -> None:
    """The decision is applied without a response. Before the next attempt, 'kprod txn sweep
    --force' aborts an orphan of its run, and then those of a second start.
    """
    run, plan = scene.second_plan()
    messages = scene.write(run, 1, plan)
    orphan = scene.launch(run, 1, 0, 1, plan)
    scene.wait(lambda: orphan.over)
    other = scene.run("run-x")
    scene.write(other, 1, scene.plan(other))
    other.process.kill()
    lost = scene.control.drop(ApiKey.END_TXN, FOREVER, where=of_the_log)

    def operator() -> None:
        scene.control.clear()
        with scene.by_hand() as commands:
            commands.end(commands.plan_sweep(PREFIX, force=True))

    met = scene.before_send(run, lambda r: lost.fired > 0 and opens_a_log(r), operator)
    assert scene.commit(run, 1, plan, messages) is Commit.COMMITTED
    assert met
    scene.ends_with(0, 1)


@VERSIONS
@pytest.mark.parametrize("is_visible", [True, False])
@pytest.mark.life(tasks=2)
def test_no_key_of_a_job_without_a_name_is_no_row(scene: Scene, is_visible: bool) -> None:
    """The commit does not know what became of its decision, and Spark aborts the job. The decision
    was not made. Or all is visible meanwhile, by an operator, who then ends an orphan by force.
    """
    run, control = scene.run("driver"), scene.control
    scene.changes.update(transaction_timeout_ms=15 * TIMEOUT_MS)
    config = parse_sink_config(scene.options())
    with scene.driving(run):
        transactions = plan_transactions(config, streaming=False, driver="")
        plan = WritePlan(config, ColumnPlan(topic=TOPIC, value_column=0), None, transactions)
        tasks = [scene.launch(run, 0, task, 0, transactions) for task in range(2)]
        if is_visible:
            tasks.append(scene.launch(run, 0, 0, 1, transactions))
        scene.wait(lambda: all(one.over for one in tasks))
        for orphan in tasks[2:]:
            orphan.worker.process.kill()
        messages = [one.message for one in tasks[:2]]
        unanswered = control.drop(
            ApiKey.END_TXN,
            FOREVER,
            where=lambda r: bool(r.body.committed) and is_a_logs(r) is not is_visible,
            processed=False,
        )
        with pytest.raises(CommitOutcomeUnknownError):
            PlannedBatch(plan).commit(messages)
        assert unanswered.fired
        control.clear()
        if is_visible:
            _commit_the_job(scene)
            with scene.by_hand() as commands:
                ended = commands.end(commands.plan_abort(scene.open_ids(), force=True)).ended
            assert len(ended) == 1
        PlannedBatch(plan).abort(messages)
    with scene.by_hand() as commands:
        if is_visible:
            assert commands.inspector.key(transactions.key).state.last_done == 0
        else:
            with pytest.raises(RefusedError) as caught:
                commands.plan_commit(transactions.key)
            assert str(caught.value.hint).endswith("nothing of it is visible")
    scene.ends_with(*[0] * is_visible)
