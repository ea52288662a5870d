"""A decision of which brokers have aborted a part: what is left is aborted when it can be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.transactions.lease import margin_ms
from spark_kafka_sink.transactions.steps import (
    Failure,
    Forget,
    Refuse,
    Remove,
    View,
    with_failure,
)
from spark_kafka_sink.transactions.table import next_step
from tests.transactions.committing_world import CommittingWorld
from tests.transactions.test_outcome_hints import KEY, decided, hint_of_a_start

pytestmark = pytest.mark.simulated


@pytest.fixture
def world() -> CommittingWorld:
    return CommittingWorld()


def aborted_by_brokers(world: CommittingWorld, transactional_id: str) -> None:
    coordinator = world.cluster.transactions
    found = coordinator.transactions[transactional_id]
    identity = found.producer_id, found.epoch
    coordinator.end(transactional_id, identity, commit=False, version=2, now=world.cluster.now)


@contextmanager
def few_descriptions(world: CommittingWorld) -> Iterator[None]:
    """The block takes long, and asks for descriptions less than ten times a second."""
    begun = world.scheduler.now
    world.cluster.arrived.clear()
    yield
    seconds = (world.scheduler.now - begun) / 1_000
    looks = [name for _, name in world.cluster.arrived if name == "DESCRIBE_TRANSACTIONS"]
    assert seconds > 10
    assert 0 < len(looks) < 10 * seconds


def test_a_start_pauses_while_the_rest_has_no_leader(world: CommittingWorld) -> None:
    """It looks about once a second, as at a transaction that it waits for."""
    first, rest = (one.transactional_id for one in decided(world))
    aborted_by_brokers(world, first)
    for tp in world.cluster.transactions.transactions[rest].partitions:
        world.cluster.move_leader(tp, -1)
    with few_descriptions(world), world.driver() as driver:
        assert driver.plan(KEY).decision is None
    assert world.visible() == []


def test_a_start_pauses_beside_an_expired_id(world: CommittingWorld) -> None:
    """The expired id has no timeout that the pause could be a part of."""
    expired, lost, _ = (one.transactional_id for one in decided(world, tasks=3))
    world.cluster.transactions.expire(expired)
    aborted_by_brokers(world, lost)
    with few_descriptions(world):
        hint_of_a_start(world)
    assert world.visible() == []


def test_an_old_rest_is_not_committed_beside_an_expired_id(world: CommittingWorld) -> None:
    """The expired one may be aborted, as far as a start knows; then the rest would be a part."""
    expired, rest = decided(world)
    world.cluster.transactions.expire(expired.transactional_id)
    timeout_ms = world.config.transaction_timeout_ms
    world.scheduler.sleep(timeout_ms - margin_ms(timeout_ms) // 2 + 1_000)
    hint = hint_of_a_start(world)
    assert world.settled(rest.transactional_id) in ("Ongoing", "CompleteAbort")
    assert "no restart can resolve the batch" in hint


def test_a_young_rest_is_committed_beside_an_expired_id(world: CommittingWorld) -> None:
    """Brokers abort no young transaction, so the expired one was committed."""
    expired, rest = decided(world)
    world.cluster.transactions.expire(expired.transactional_id)
    hint = hint_of_a_start(world)
    assert world.settled(rest.transactional_id) == "CompleteCommit"
    assert "1 others are committed" in hint


def test_a_removal_that_is_always_shut_out_ends() -> None:
    """Another process opens the key again and again, for longer than max.block.ms."""
    view, now, attempts = View(name="a", until_ms=60_000), 0, 0
    while isinstance(step := next_step(Forget(KEY), view), Remove):
        attempts += 1
        assert step.up_to_ms >= 0
        assert attempts < 1_000
        now += 100 + round(min(step.up_to_ms, step.most_ms))
        view = with_failure(view, step, Failure.SHUT_OUT, KafkaError("fenced"), now)
    assert isinstance(step, Refuse)
    assert now >= 60_000
    assert attempts > 5
