"""A decided batch without an outcome: the hint names why, and works when it is followed."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest

from spark_kafka_sink.base.errors import CommitOutcomeUnknownError
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_state import Decision, Payload
from spark_kafka_sink.transactions.committer import Batch, Commit
from spark_kafka_sink.transactions.ending import CommitOutcomes
from spark_kafka_sink.transactions.outcome_hints import hint_for
from spark_kafka_sink.transactions.ownership import Owner
from tests.fakes.fake_cluster.transaction_coordinator import TransactionCoordinator
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.spark_world import TIMEOUT_MS

KEY, RUN, NUMBER = "orders", "run-0", 0
pytestmark = VERSIONS


def decided(scene: Scene, tasks: int = 2) -> tuple[PreparedTransaction, ...]:
    """By a driver that died before its first EndTxn."""
    written = tuple(scene.prepared(f"{KEY}~{RUN}~g0.w{k}~{k}", f"lost {k}") for k in range(tasks))
    decision = Decision(NUMBER, written, (Payload(2),))
    at_ms = scene.scheduler.wall_ms()
    scene.change_log(KEY, lambda state: state.taken_over(RUN, "query", at_ms).decided(decision))
    return written


def expired(scene: Scene, written: tuple[PreparedTransaction, ...]) -> None:
    for one in written:
        scene.cluster.transactions.expire(one.transactional_id)


def initialized_again(scene: Scene, written: tuple[PreparedTransaction, ...]) -> None:
    """So it is after an abort of a broker that reports Empty and the next epoch in place of
    CompleteAbort (franz-go's kfake), too.
    """
    with scene.client() as client:
        for one in written:
            client.init_producer_id(one.transactional_id, 60_000, client.deadline())


def hint_of_a_start(scene: Scene) -> str:
    with scene.driver() as driver, pytest.raises(CommitOutcomeUnknownError) as caught:
        driver.plan(KEY)
    assert caught.value.kind.kp_code == "KP0610"
    assert caught.value.hint is not None
    return caught.value.hint


def writes_it_again(scene: Scene) -> None:
    """The next start of the query does."""
    with scene.driver() as driver:
        state = driver.plan(KEY)
        assert state.last_done == -1
        owner = Owner(KEY, "run-1", "query", state.generation)
        again = scene.prepared(f"{KEY}~run-1~g{state.generation}.w~0", "again")
        assert driver.commit(owner, Batch(NUMBER, (again,), Payload(1))) is Commit.COMMITTED
    assert scene.values() == ["again"]


@pytest.mark.parametrize(
    ("happens", "why", "not_why"),
    [
        (expired, "ids have expired", "initialized again"),
        (initialized_again, "were initialized again", "expired"),
    ],
)
def test_an_expired_id_is_told_from_one_initialized_again(
    scene: Scene,
    happens: Callable[[Scene, tuple[PreparedTransaction, ...]], None],
    why: str,
    not_why: str,
) -> None:
    happens(scene, decided(scene))
    hint = hint_of_a_start(scene)
    assert why in hint
    assert not_why not in hint
    assert f"'kprod txn resolve {KEY} --batch {NUMBER} --as done --force'" in hint
    assert "'--as replay'" in hint
    with scene.by_hand() as operator:
        operator.resolve(operator.plan_resolve(KEY, NUMBER, done=False, force=True))
    if happens is initialized_again:  # (a log of the fake's keeps what expired open)
        writes_it_again(scene)


def test_an_aborted_transaction_beside_an_expired_one_is_named(scene: Scene) -> None:
    written = decided(scene)
    scene.cluster.transactions.expire(written[0].transactional_id)
    scene.scheduler.sleep(TIMEOUT_MS + 61_000)
    hint = hint_of_a_start(scene)
    assert "brokers have aborted 1 others, whose rows are missing in either case" in hint
    assert "'--as replay'" in hint


def test_no_rows_are_missing_if_only_the_report_was_aborted(scene: Scene) -> None:
    """The coordinator of the task's transaction was away until the report timed out."""
    task, report = f"{KEY}~{RUN}~g0.w~0", f"{KEY}~{RUN}~g0.report~0"
    written = (scene.prepared(task, "row"), scene.prepared(report, "report"))
    decision = Decision(NUMBER, written, (Payload(1),))
    at_ms = scene.scheduler.wall_ms()
    scene.change_log(KEY, lambda state: state.taken_over(RUN, "query", at_ms).decided(decision))
    scene.cluster.transactions.expire(task)
    scene.scheduler.sleep(TIMEOUT_MS + 61_000)
    hint = hint_of_a_start(scene)
    assert "brokers have aborted 1 others, which have no rows; look whether its rows are" in hint
    away = hint_for(CommitOutcomes(lost=(report,), unclear=(task,)), KEY, NUMBER, 3)
    assert away.endswith("; brokers have aborted 1 others, which have no rows")


def test_a_broker_without_timeouts_gets_no_promise_of_a_start(scene: Scene) -> None:
    """As noida-db: the batch stays open, too old to be committed by the rules, at each start."""
    written = decided(scene)
    with patch.object(TransactionCoordinator, "abort_timed_out", lambda *_, **__: None):
        scene.scheduler.sleep(TIMEOUT_MS + 61_000)
        assert scene.state_of(written[0].transactional_id) == "Ongoing", "it timed out"
        hint = hint_of_a_start(scene)
        assert "no start resolves the batch" in hint
        assert "it resolves the batch" not in hint
        assert f"'kprod txn abort --prefix {KEY} --run {RUN} --force'" in hint
        with scene.by_hand() as operator:
            operator.end(operator.plan_abort_run(KEY, RUN, force=True))
        writes_it_again(scene)


def test_an_overdue_one_beside_an_unknown_one_gets_no_promise(scene: Scene) -> None:
    """After its abort no start writes the batch again: the unknown one may be committed."""
    written = decided(scene)
    initialized_again(scene, written[:1])
    with patch.object(TransactionCoordinator, "abort_timed_out", lambda *_, **__: None):
        scene.scheduler.sleep(TIMEOUT_MS + 61_000)
        hint = hint_of_a_start(scene)
        assert "the next start writes the batch again" not in hint
        assert f"'kprod txn commit {KEY}' then ends the batch" in hint
        with scene.by_hand() as operator:
            operator.end(operator.plan_abort([written[1].transactional_id], force=True))
            with pytest.raises(CommitOutcomeUnknownError) as raised:
                operator.commit(operator.plan_commit(KEY))
    assert f"'kprod txn resolve {KEY} --batch {NUMBER} --as done --force'" in str(raised.value.hint)
