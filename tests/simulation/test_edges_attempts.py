"""What a commit says of a decision after several attempts, and what it leaves behind."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import CommitError, CommitOutcomeUnknownError, KafkaError
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.exactly_once.transaction_plan import plan_transactions
from spark_kafka_sink.datasource.write_plan import WritePlan
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.transactions.committer import Commit
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.edge_scene import VERSIONS, EdgeScene
from tests.simulation.seeded_cluster import ClusterFaults
from tests.simulation.spark_scene import is_a_logs, of_the_log, opens_a_log
from tests.simulation.spark_world import PREFIX, TIMEOUT_MS, TOPIC


@VERSIONS
@pytest.mark.parametrize("command", ["abort", "sweep"])
@pytest.mark.life(tasks=2)
def test_a_decision_that_an_operator_prevents_was_not_made(scene: EdgeScene, command: str) -> None:
    """The operator fences its write: it is not written, and the next attempt says what is true."""
    first = scene.first_batch()

    def operator() -> None:
        with scene.by_hand() as commands:
            if command == "abort":
                commands.end(commands.plan_abort_run(PREFIX, first.run.id))
            else:
                commands.end(commands.plan_sweep(PREFIX))

    def writes(request: Request) -> bool:
        return request.api == ApiKey.PRODUCE and is_a_logs(request)

    met = scene.before_send(first.run, writes, operator)
    with pytest.raises(CommitError, match="was aborted, and commits nothing") as caught:
        scene.commit(*first)
    assert not isinstance(caught.value, CommitOutcomeUnknownError)
    assert met
    scene.ends_with()


@VERSIONS
@pytest.mark.life(tasks=2)
def test_without_a_leader_and_then_a_coordinator_nothing_is_decided(scene: EdgeScene) -> None:
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
def test_a_decision_that_others_committed_leaves_no_orphan(scene: EdgeScene) -> None:
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
def test_the_abort_of_a_version_leaves_the_next_one_alone(scene: EdgeScene, delay_ms: int) -> None:
    """A version fails without a finished task in one thread, while another one has decided it: so
    the run goes on, and decides the next version while the abort waits for its killed tasks.
    """
    run, control = scene.run("driver"), scene.control

    def app(version: int) -> dict[str, str]:
        return scene.options(txnAppId="app", txnVersion=str(version))

    scene.job(run, app(0), 0)
    with scene.driving(run):
        config = SinkConfig.parse(app(1))
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
            failing.abort([None])

    begun = scene.scheduler.now
    abort, told_abort = scene.beside(run.process, fails)
    scene.wait(lambda: first.done)
    scene.scheduler.sleep(max(0, begun + delay_ms - scene.scheduler.now))
    second, told = scene.beside(run.process, lambda: scene.job(run, app(2), 2, tasks=5))
    scene.wait(lambda: abort.done and second.done)
    for one in (*told_first, *told_abort, *told):
        assert not isinstance(one, BaseException), one
    scene.ends_with(0, 1, 2)
