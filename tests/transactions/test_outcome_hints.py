"""A decided batch without an outcome: the hint names why, and works when it is followed."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest

from spark_kafka_sink.base.errors import CommitOutcomeUnknownError
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import Decision, Payload
from spark_kafka_sink.transactions.committer import Batch, Commit
from spark_kafka_sink.transactions.operations.operator import Operator
from spark_kafka_sink.transactions.ownership import Owner
from tests.fakes.fake_cluster.transaction_coordinator import TransactionCoordinator
from tests.transactions.committing_world import LOG_TOPIC, CommittingWorld

KEY, RUN, NUMBER = "orders", "run-0", 0
pytestmark = pytest.mark.simulated


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def world(request: pytest.FixtureRequest) -> CommittingWorld:
    return CommittingWorld(transaction_version=request.param)


def decided(world: CommittingWorld, tasks: int = 2) -> tuple[PreparedTransaction, ...]:
    """By a driver that died before its first EndTxn."""
    written = tuple(world.prepared(f"{KEY}~{RUN}~g0.w{k}~{k}", f"lost {k}") for k in range(tasks))
    with world.client() as client:
        session = CommitLog(client, LOG_TOPIC).open(KEY, client.deadline())
        state = session.state.taken_over(RUN, "query", client.clock.wall_ms())
        decision = Decision(NUMBER, written, (Payload(2),))
        session.write(state.decided(decision), client.deadline())
    return written


def expired(world: CommittingWorld, written: tuple[PreparedTransaction, ...]) -> None:
    for one in written:
        world.cluster.transactions.expire(one.transactional_id)


def initialized_again(world: CommittingWorld, written: tuple[PreparedTransaction, ...]) -> None:
    """So it is after an abort of a broker that reports Empty and the next epoch in place of
    CompleteAbort (franz-go's kfake), too.
    """
    with world.client() as client:
        for one in written:
            client.init_producer_id(one.transactional_id, 60_000, client.deadline())


def hint_of_a_start(world: CommittingWorld) -> str:
    with world.driver() as driver, pytest.raises(CommitOutcomeUnknownError) as caught:
        driver.plan(KEY)
    assert caught.value.kind.kp_code == "KP0610"
    assert caught.value.hint is not None
    return caught.value.hint


def writes_it_again(world: CommittingWorld) -> None:
    """The next start of the query does."""
    with world.driver() as driver:
        state = driver.plan(KEY)
        assert state.last_done == -1
        owner = Owner(KEY, "run-1", "query", state.generation)
        again = world.prepared(f"{KEY}~run-1~g{state.generation}.w~0", "again")
        assert driver.commit(owner, Batch(NUMBER, (again,), Payload(1))) is Commit.COMMITTED
    assert world.visible() == ["again"]


@pytest.mark.parametrize(
    ("happens", "why", "not_why"),
    [
        (expired, "ids have expired", "initialized again"),
        (initialized_again, "were initialized again", "expired"),
    ],
)
def test_an_expired_id_is_told_from_one_initialized_again(
    world: CommittingWorld,
    happens: Callable[[CommittingWorld, tuple[PreparedTransaction, ...]], None],
    why: str,
    not_why: str,
) -> None:
    happens(world, decided(world))
    hint = hint_of_a_start(world)
    assert why in hint
    assert not_why not in hint
    assert f"'kprod txn resolve {KEY} --batch {NUMBER} --as done --force'" in hint
    assert "'--as replay'" in hint
    with world.client() as client:
        operator = Operator(CommitLog(client, LOG_TOPIC), client)
        operator.resolve(operator.plan_resolve(KEY, NUMBER, done=False, force=True))
    if happens is initialized_again:  # (a log of the fake's keeps what expired open)
        writes_it_again(world)


def test_an_aborted_transaction_beside_an_expired_one_is_named(world: CommittingWorld) -> None:
    written = decided(world)
    world.cluster.transactions.expire(written[0].transactional_id)
    world.scheduler.sleep(world.config.transaction_timeout_ms + 61_000)
    hint = hint_of_a_start(world)
    assert "brokers have aborted 1 others, whose rows are missing in either case" in hint
    assert "'--as replay'" in hint


def test_a_broker_without_timeouts_gets_no_promise_of_a_start(world: CommittingWorld) -> None:
    """As noida-db: the batch stays open, too old to be committed by the rules, at each start."""
    written = decided(world)
    with patch.object(TransactionCoordinator, "abort_timed_out", lambda *_, **__: None):
        world.scheduler.sleep(world.config.transaction_timeout_ms + 61_000)
        assert world.state_of(written[0].transactional_id) == "Ongoing", "it timed out"
        hint = hint_of_a_start(world)
        assert "no start resolves the batch" in hint
        assert "it resolves the batch" not in hint
        assert f"'kprod txn abort --prefix {KEY} --run {RUN} --force'" in hint
        with world.client() as client:
            operator = Operator(CommitLog(client, LOG_TOPIC), client)
            operator.end(operator.plan_abort_run(KEY, RUN, force=True))
        writes_it_again(world)
