"""What an operator sees and may not do when brokers do not answer, in the simulated world."""

from __future__ import annotations

import pytest
import typer

from spark_kafka_sink.base.errors import RefusedError
from spark_kafka_sink.cli.arguments import Asked
from spark_kafka_sink.cli.txn.txn_changes import Confirmation, _end
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.operations.operator import Operator
from tests.fakes.fake_cluster import FOREVER
from tests.simulation.scene import Scene
from tests.simulation.spark_world import LOG_TOPIC
from tests.transactions.open_transactions import open_transactions

TP = TopicPartition("t", 0)
ORPHANS = [f"orders~old~g2.w~{number}" for number in range(6)]


def operator(scene: Scene, key: str = "orders") -> Operator:
    """And a key whose batch 7 is done, and whose run has replaced the one of the orphans."""
    client = scene.client()
    log = CommitLog(client, LOG_TOPIC)
    done = CommitState(1, "run", "query", 7, superseded=("old",))
    log.open(key, scene.soon()).write(done, scene.soon())
    return Operator(log, client)


def test_a_reset_is_refused_while_a_broker_is_silent(scene: Scene) -> None:
    """Transactions of the owner may be open there."""
    operates = operator(scene)
    scene.control.drop(ApiKey.LIST_TRANSACTIONS, FOREVER, node=2)
    with pytest.raises(RefusedError, match=r"\(id 2\) did not answer") as refused:
        operates.plan_reset("orders")
    assert "or use --force" in refused.value.hint
    assert operates.plan_reset("orders", force=True).key == "orders"
    scene.control.clear()
    assert operates.plan_reset("orders").state.last_done == 7
    scene.control.check()


def test_a_sweep_ends_what_is_known_and_fails_for_the_rest(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    operates = operator(scene)
    open_transactions(scene.client(), ORPHANS, TP)
    unseen = {i for i in ORPHANS if scene.cluster.coordinator_of(i) == 2}
    scene.control.drop(ApiKey.LIST_TRANSACTIONS, FOREVER, node=2)
    plan = operates.plan_sweep("orders")
    with pytest.raises(typer.Exit) as ended:
        _end(operates, plan, Confirmation(Asked(as_json=False, dry_run=False, yes=True)), "sweep")
    assert ended.value.exit_code == 1
    shown = capsys.readouterr().out
    assert "(id 2): the list lacks its transactions." in shown
    assert f"Aborted {len(ORPHANS) - len(unseen)} transactions." in shown
    scene.control.clear()
    assert {str(t.id) for t in operates.plan_sweep("orders").transactions} == unseen
    assert unseen
    assert unseen != set(ORPHANS)


def test_brokers_before_3_8_are_swept_by_this_machines_clock(scene: Scene) -> None:
    """They can't select by age: a transaction is as old as its start says."""
    scene.cluster.ranges[ApiKey.LIST_TRANSACTIONS] = (0, 0)
    operates = operator(scene)
    old, young = ORPHANS[:3], ORPHANS[3:]
    open_transactions(scene.client(), old, TP)
    scene.scheduler.sleep(10_000)
    open_transactions(scene.client(), young, TP)
    plan = operates.plan_sweep("orders", older_than_ms=5_000)
    assert {str(t.id) for t in plan.transactions} == set(old)
    assert plan.kept == dict.fromkeys(young, "not open for that long")


def test_an_abort_without_an_answer_is_an_error_and_keeps_the_key(scene: Scene) -> None:
    """Of a job that has one run only, which is forgotten with its transactions."""
    key, one = "orders~job", "orders~job~job~g2.w~0"
    operates = operator(scene, key)
    open_transactions(scene.client(), [one], TP)
    plan = operates.plan_abort([one])
    lost = scene.control.drop(
        ApiKey.END_TXN, FOREVER, where=lambda request: request.body.transactional_id == one
    )
    aborted = operates.end(plan)
    assert (aborted.ended, aborted.failed) == ((), {one: "no clear answer in time"})
    lost.stop()
    assert CommitLog(scene.client(), LOG_TOPIC).read(key, scene.soon()).state is not None
