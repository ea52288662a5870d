"""The hint of an operator's command that waits in vain, or that is contradicted, works when it is
followed: on a fake cluster, in simulated time.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import KafkaTimeoutError, RefusedError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState, Decision, Payload
from spark_kafka_sink.transactions.operations.blockers import Blocker, blockers
from spark_kafka_sink.transactions.operations.operator import Operator
from spark_kafka_sink.transactions.outcomes import Outcome
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.scene_requests import of_data
from tests.simulation.spark_world import LOG_TOPIC
from tests.transactions.failing import KEY, Failing

pytestmark = VERSIONS

ROWS = ("committed", "lost", "open")
#: Longer than any command waits.
LONG_MS = 300_000


def decided(failing: Failing, *values: str, lost: tuple[int, ...] = ()) -> Batch:
    """Batch 0, by a driver that is gone; those ``lost`` are recorded, so that it is PARTIAL."""
    batch = failing.batch(*values)
    ids = [batch.transactions[n].transactional_id for n in lost]

    def decides(state: CommitState) -> CommitState:
        state = state.taken_over("run", "query", failing.scene.scheduler.wall_ms())
        state = state.decided(Decision(0, batch.transactions, (Payload(len(values)),)))
        return state.partly_lost(ids) if ids else state

    failing.scene.change_log(KEY, decides)
    return batch


def committed_in_part(scene: Scene) -> tuple[Failing, Batch]:
    """Of its three transactions, one is committed, one aborted and one open."""
    failing = Failing(scene)
    batch = decided(failing, *ROWS, lost=(1,))
    failing.end_one(batch, 0, commit=True)
    failing.end_one(batch, 1)
    assert scene.values() == ["committed"]
    return failing, batch


def blocking(scene: Scene, operates: Operator, topic: str) -> tuple[Blocker, ...]:
    client = operates.inspector._client
    return blockers(client, CommitLog(client, LOG_TOPIC), topic, client.deadline())


HINT = "check with 'kprod txn describe', and run the command again: it shows what is known then"


def test_a_batch_that_lost_more_rows_is_done_when_asked_again(scene: Scene) -> None:
    failing, batch = committed_in_part(scene)
    with scene.by_hand() as operates:
        plan = operates.plan_resolve(KEY, 0, done=True)
        failing.end_one(batch, 2)
        scene.scheduler.sleep(200)
        with pytest.raises(RefusedError, match="can't be committed, or are lost") as raised:
            operates.resolve(plan)
        assert raised.value.hint == HINT
        (report,) = operates.inspector.describe(KEY)
        lost = {t.transaction.transactional_id for t in report.with_outcome(Outcome.LOST)}
        assert lost == {one.transactional_id for one in batch.transactions[1:]}
        assert operates.resolve(operates.plan_resolve(KEY, 0, done=True)).last_done == 0
    assert scene.values() == ["committed"]


@pytest.mark.parametrize("commit", [False, True], ids=["lost meanwhile", "committed meanwhile"])
def test_a_forced_resolution_is_refused_if_a_rest_ended_otherwise(
    scene: Scene, commit: bool
) -> None:
    """One outcome is not known, so --force is needed; the rest was open when the operator agreed.

    With --as done the rest is lost before the command ends it, and with --as replay it is committed
    by a driver: its rows would be lost, or doubled, without a word.
    """
    failing = Failing(scene)
    batch = decided(failing, "unknown", "open")
    with scene.client() as client:
        client.init_producer_id(batch.transactions[0].transactional_id, 60_000, client.deadline())
    with scene.by_hand() as operates:
        plan = operates.plan_resolve(KEY, 0, done=not commit, force=True)
        assert plan.open_ids == (batch.transactions[1].transactional_id,)
        failing.end_one(batch, 1, commit=commit)
        scene.scheduler.sleep(200)
        with pytest.raises(RefusedError, match="; the commit log is as it was") as raised:
            operates.resolve(plan)
        assert raised.value.hint == HINT
        (report,) = operates.inspector.describe(KEY)
        assert report.state == plan.report.state
        again = operates.plan_resolve(KEY, 0, done=not commit, force=True)
        assert operates.resolve(again).last_done == (-1 if commit else 0)


def test_a_batch_is_replayed_when_asked_again(scene: Scene) -> None:
    """The abort of its open transaction gets no answer at first."""
    _, batch = committed_in_part(scene)
    with scene.by_hand() as operates:
        lost = scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=of_data)
        init = scene.control.drop(ApiKey.INIT_PRODUCER_ID, FOREVER, processed=False, where=of_data)
        with pytest.raises(RefusedError, match="can't be aborted") as raised:
            operates.resolve(operates.plan_resolve(KEY, 0, done=False))
        assert raised.value.hint == HINT
        assert lost.fired + init.fired
        scene.control.clear()
        assert operates.resolve(operates.plan_resolve(KEY, 0, done=False)).last_done < 0
    assert scene.settled(batch.transactions[2].transactional_id) != "Ongoing"


def test_transactions_without_markers_are_listed_until_they_end(scene: Scene) -> None:
    batch = decided(Failing(scene), *ROWS)
    ids = {one.transactional_id for one in batch.transactions}
    scene.cluster.markers_ms = dict.fromkeys(ids, LONG_MS)
    with scene.by_hand() as operates:
        with pytest.raises(KafkaTimeoutError, match="have no markers yet") as raised:
            operates.commit(operates.plan_commit(KEY))
        assert "'kprod txn blockers TOPIC' shows the transactions until" in str(raised.value.hint)
        found = blocking(scene, operates, "t")
        assert {one.transactional_id for one in found} == ids
        assert {one.advice for one in found} == {
            "its coordinator is ending it: check again in a moment"
        }
        scene.scheduler.sleep(LONG_MS)
        assert blocking(scene, operates, "t") == ()
    assert sorted(scene.values()) == sorted(ROWS)


def test_transactions_that_hang_are_shown_as_blockers(scene: Scene) -> None:
    """Brokers have dropped the markers, and the coordinators have forgotten the transactions."""
    batch = decided(Failing(scene), *ROWS)
    scene.cluster.markerless = {tp for tp in scene.cluster.logs if tp.topic == "t"}
    with scene.by_hand() as operates:
        with pytest.raises(KafkaTimeoutError, match="brokers have written no markers") as raised:
            operates.commit(operates.plan_commit(KEY))
        assert "then 'kprod txn blockers TOPIC' shows the transactions" in str(raised.value.hint)
        assert {one.owner for one in blocking(scene, operates, "t")} == {
            f"{one.transactional_id}, committed without its marker" for one in batch.transactions
        }


def test_a_write_of_the_log_that_has_not_ended_is_awaited(scene: Scene) -> None:
    Failing(scene).commit_other("other")
    scene.cluster.markers_ms[log_id(KEY)] = LONG_MS
    scene.change_log(KEY, lambda state: state)
    with scene.by_hand() as operates:
        with pytest.raises(KafkaTimeoutError, match="that is not ended yet") as raised:
            operates.inspector.describe(KEY)
        assert f"see 'kprod txn blockers {LOG_TOPIC}'" in str(raised.value.hint)
        (found,) = blocking(scene, operates, LOG_TOPIC)
        assert found.transactional_id == log_id(KEY)
        scene.scheduler.sleep(LONG_MS)
        assert blocking(scene, operates, LOG_TOPIC) == ()
        (report,) = operates.inspector.describe(KEY)
        assert report.state.last_done == 0
