"""The hint of an operator's command that waits in vain, or that is contradicted, works when it is
followed: on a fake cluster, in simulated time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import KafkaTimeoutError, RefusedError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import Decision, Payload
from spark_kafka_sink.transactions.operations.blockers import Blocker, blockers
from spark_kafka_sink.transactions.operations.operator import Operator
from spark_kafka_sink.transactions.outcomes import Outcome
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.fakes.fake_cluster.control import FOREVER
from tests.transactions.committing_world import LOG_TOPIC, CommittingWorld
from tests.transactions.failing import KEY, Failing, of_data

pytestmark = pytest.mark.simulated

ROWS = ("committed", "lost", "open")
#: Longer than any command waits.
LONG_MS = 300_000


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def world(request: pytest.FixtureRequest) -> CommittingWorld:
    return CommittingWorld(transaction_version=request.param)


@contextmanager
def operator(world: CommittingWorld) -> Iterator[Operator]:
    """With patience for ten seconds."""
    with world.client() as client:
        client.config = replace(client.config, max_block_ms=10_000)
        yield Operator(CommitLog(client, LOG_TOPIC), client)


def decided(failing: Failing, *values: str, lost: tuple[int, ...] = ()) -> Batch:
    """Batch 0, by a driver that is gone; those ``lost`` are recorded, so that it is PARTIAL."""
    batch = failing.batch(*values)
    with failing.world.client() as client:
        session = CommitLog(client, LOG_TOPIC).open(KEY, client.deadline())
        state = session.state.taken_over("run", "query", client.clock.wall_ms())
        state = state.decided(Decision(0, batch.transactions, (Payload(len(values)),)))
        ids = [batch.transactions[n].transactional_id for n in lost]
        session.write(state.partly_lost(ids) if ids else state, client.deadline())
    return batch


def committed_in_part(world: CommittingWorld) -> tuple[Failing, Batch]:
    """Of its three transactions, one is committed, one aborted and one open."""
    failing = Failing(world)
    batch = decided(failing, *ROWS, lost=(1,))
    failing.end_one(batch, 0, commit=True)
    failing.end_one(batch, 1)
    assert world.visible() == ["committed"]
    return failing, batch


def blocking(world: CommittingWorld, operates: Operator, topic: str) -> tuple[Blocker, ...]:
    client = operates.inspector._client
    return blockers(client, CommitLog(client, LOG_TOPIC), topic, client.deadline())


def test_a_batch_that_lost_more_rows_is_done_by_force(world: CommittingWorld) -> None:
    failing, batch = committed_in_part(world)
    with operator(world) as operates:
        plan = operates.plan_resolve(KEY, 0, done=True)
        failing.end_one(batch, 2)
        world.scheduler.sleep(200)
        with pytest.raises(RefusedError, match="turned out to be lost") as raised:
            operates.resolve(plan)
        assert raised.value.hint == (
            "check with 'kprod txn describe'; --force continues without their rows"
        )
        (report,) = operates.inspector.describe(KEY)
        lost = {t.transaction.transactional_id for t in report.with_outcome(Outcome.LOST)}
        assert lost == {one.transactional_id for one in batch.transactions[1:]}
        assert operates.resolve(replace(plan, force=True)).last_done == 0
    assert world.visible() == ["committed"]


@pytest.mark.parametrize("way", ["again", "by force"])
def test_a_batch_is_replayed_again_or_by_force(world: CommittingWorld, way: str) -> None:
    """The abort of its open transaction gets no answer at first."""
    _, batch = committed_in_part(world)
    with operator(world) as operates:
        lost = world.cluster.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=of_data)
        init = world.cluster.control.drop(
            ApiKey.INIT_PRODUCER_ID, FOREVER, processed=False, where=of_data
        )
        plan = operates.plan_resolve(KEY, 0, done=False)
        with pytest.raises(RefusedError, match="can't be aborted") as raised:
            operates.resolve(plan)
        assert raised.value.hint == "try again; --force continues without aborting them"
        assert lost.fired + init.fired
        if way == "again":
            world.cluster.control.clear()
        plan = operates.plan_resolve(KEY, 0, done=False, force=way == "by force")
        assert operates.resolve(plan).last_done < 0
    state = world.settled(batch.transactions[2].transactional_id)
    assert (state == "Ongoing") == (way == "by force")


def test_transactions_without_markers_are_listed_until_they_end(world: CommittingWorld) -> None:
    batch = decided(Failing(world), *ROWS)
    ids = {one.transactional_id for one in batch.transactions}
    world.cluster.markers_ms = dict.fromkeys(ids, LONG_MS)
    with operator(world) as operates:
        with pytest.raises(KafkaTimeoutError, match="have no markers yet") as raised:
            operates.commit(operates.plan_commit(KEY))
        assert "'kprod txn blockers TOPIC' shows the transactions until" in str(raised.value.hint)
        found = blocking(world, operates, "t")
        assert {one.transactional_id for one in found} == ids
        assert {one.advice for one in found} == {
            "its coordinator is ending it: check again in a moment"
        }
        world.scheduler.sleep(LONG_MS)
        assert blocking(world, operates, "t") == ()
    assert sorted(world.visible()) == sorted(ROWS)


def test_transactions_that_hang_are_shown_as_blockers(world: CommittingWorld) -> None:
    """Brokers have dropped the markers, and the coordinators have forgotten the transactions."""
    batch = decided(Failing(world), *ROWS)
    world.cluster.markerless = {tp for tp in world.cluster.logs if tp.topic == "t"}
    with operator(world) as operates:
        with pytest.raises(KafkaTimeoutError, match="brokers have written no markers") as raised:
            operates.commit(operates.plan_commit(KEY))
        assert "then 'kprod txn blockers TOPIC' shows the transactions" in str(raised.value.hint)
        assert {one.owner for one in blocking(world, operates, "t")} == {
            f"{one.transactional_id}, committed without its marker" for one in batch.transactions
        }


def test_a_write_of_the_log_that_has_not_ended_is_awaited(world: CommittingWorld) -> None:
    Failing(world).commit_other("other")
    world.cluster.markers_ms[log_id(KEY)] = LONG_MS
    with world.client() as client:
        session = CommitLog(client, LOG_TOPIC).open(KEY, client.deadline())
        session.write(session.state, client.deadline())
    with operator(world) as operates:
        with pytest.raises(KafkaTimeoutError, match="that is not ended yet") as raised:
            operates.inspector.describe(KEY)
        assert f"see 'kprod txn blockers {LOG_TOPIC}'" in str(raised.value.hint)
        (found,) = blocking(world, operates, LOG_TOPIC)
        assert found.transactional_id == log_id(KEY)
        world.scheduler.sleep(LONG_MS)
        assert blocking(world, operates, LOG_TOPIC) == ()
        (report,) = operates.inspector.describe(KEY)
        assert report.state.last_done == 0
