"""A decision of which brokers have aborted a part: what is left is aborted when it can be."""

from __future__ import annotations

import pytest

from tests.transactions.committing_world import CommittingWorld
from tests.transactions.test_outcome_hints import KEY, decided

pytestmark = pytest.mark.simulated


@pytest.fixture
def world() -> CommittingWorld:
    return CommittingWorld()


def test_a_start_pauses_while_the_rest_has_no_leader(world: CommittingWorld) -> None:
    """It looks about once a second, as at a transaction that it waits for."""
    coordinator = world.cluster.transactions
    first, rest = (one.transactional_id for one in decided(world))
    found = coordinator.transactions[first]
    identity = found.producer_id, found.epoch
    coordinator.end(first, identity, commit=False, version=2, now=world.cluster.now)
    for tp in coordinator.transactions[rest].partitions:
        world.cluster.move_leader(tp, -1)
    begun = world.scheduler.now
    world.cluster.arrived.clear()
    with world.driver() as driver:
        assert driver.plan(KEY).decision is None
    seconds = (world.scheduler.now - begun) / 1_000
    looks = [name for _, name in world.cluster.arrived if name == "DESCRIBE_TRANSACTIONS"]
    assert seconds > 10
    assert len(looks) < 10 * seconds
    assert world.visible() == []
