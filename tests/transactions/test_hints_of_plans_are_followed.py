"""The hint of an operator's plan that no longer holds works when it is followed: on a fake cluster,
in simulated time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import CommitOutcomeUnknownError, RefusedError
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import NOTHING_DONE
from spark_kafka_sink.transactions.operations.operator import Operator
from tests.transactions.committing_world import LOG_TOPIC, CommittingWorld
from tests.transactions.failing import KEY, Failing
from tests.transactions.failing_commits import the_ids_have_expired

pytestmark = pytest.mark.simulated


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def world(request: pytest.FixtureRequest) -> CommittingWorld:
    return CommittingWorld(transaction_version=request.param)


@contextmanager
def operator(world: CommittingWorld) -> Iterator[Operator]:
    """With patience for ten seconds."""
    with world.client() as client:
        client.config = replace(client.config, max_block_ms=10_000)
        yield Operator(CommitLog(client, LOG_TOPIC), client)


def test_a_batch_of_expired_ids_is_resolved_by_force(world: CommittingWorld) -> None:
    with suppress(CommitOutcomeUnknownError):
        the_ids_have_expired(Failing(world))
    world.cluster.heal()
    with operator(world) as operates:
        with pytest.raises(RefusedError) as raised:
            operates.plan_resolve(KEY, 0, done=True)
        assert raised.value.hint == "--force resolves it nevertheless"
        plan = operates.plan_resolve(KEY, 0, done=True, force=True)
        assert operates.resolve(plan).last_done == 0


def test_a_plan_that_another_driver_overtook_is_made_again(world: CommittingWorld) -> None:
    failing = Failing(world)
    failing.commit_other("other")
    with operator(world) as operates:
        plan = operates.plan_reset(KEY)
        failing.commit_other("later", number=1)
        with pytest.raises(RefusedError) as raised:
            operates.reset(plan)
        assert raised.value.hint == "a driver is running: check again with 'kprod txn describe'"
        (report,) = operates.inspector.describe(KEY)
        assert report.state.last_done == 1
        operates.reset(operates.plan_reset(KEY))
        assert operates.inspector.key(KEY).state.last_done == NOTHING_DONE
