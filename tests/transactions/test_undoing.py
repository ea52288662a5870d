"""A decision of which brokers have aborted a part: what is left is aborted when it can be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.lease import margin_ms
from spark_kafka_sink.transactions.steps import (
    Failure,
    Forget,
    Refuse,
    Remove,
    Return,
    View,
    with_failure,
    with_removed,
)
from spark_kafka_sink.transactions.table import next_step
from tests.simulation.scene import Scene
from tests.simulation.spark_world import TIMEOUT_MS
from tests.transactions.test_outcome_hints import (
    KEY,
    decided,
    hint_of_a_start,
    initialized_again,
)


@contextmanager
def few_descriptions(scene: Scene) -> Iterator[None]:
    """The block takes long, and asks for descriptions less than ten times a second."""
    begun = scene.scheduler.now
    watched = scene.watch()
    yield
    seconds = (scene.scheduler.now - begun) / 1_000
    looks = watched.of(ApiKey.DESCRIBE_TRANSACTIONS)
    assert seconds > 10
    assert 0 < len(looks) < 10 * seconds


def test_a_start_pauses_while_the_rest_has_no_leader(scene: Scene) -> None:
    """It looks about once a second, as at a transaction that it waits for."""
    first, rest = decided(scene)
    scene.end_elsewhere(first)
    for tp in scene.cluster.transactions.transactions[rest.transactional_id].partitions:
        scene.cluster.move_leader(tp, -1)
    with few_descriptions(scene), scene.driver() as driver:
        assert driver.plan(KEY).decision is None
    assert scene.values() == []


def test_a_start_pauses_beside_an_expired_id(scene: Scene) -> None:
    """The expired id has no timeout that the pause could be a part of."""
    expired, lost, _ = decided(scene, tasks=3)
    scene.cluster.transactions.expire(expired.transactional_id)
    scene.end_elsewhere(lost)
    with few_descriptions(scene):
        hint_of_a_start(scene)
    assert scene.values() == []


def test_an_old_rest_is_not_committed_beside_an_expired_id(scene: Scene) -> None:
    """The expired one may be aborted, as far as a start knows; then the rest would be a part."""
    expired, rest = decided(scene)
    scene.cluster.transactions.expire(expired.transactional_id)
    scene.scheduler.sleep(TIMEOUT_MS - margin_ms(TIMEOUT_MS) // 2 + 1_000)
    hint = hint_of_a_start(scene)
    assert scene.settled(rest.transactional_id) in ("Ongoing", "CompleteAbort")
    assert "no restart can resolve the batch" in hint


def test_a_young_rest_waits_beside_an_aborted_one_initialized_again(scene: Scene) -> None:
    """As a forced abort does with version 1. The rest is young, which shows nothing of that one."""
    aborted, rest = decided(scene)
    initialized_again(scene, (aborted,))
    hint = hint_of_a_start(scene)
    assert scene.settled(rest.transactional_id) in ("Ongoing", "CompleteAbort")
    assert scene.values() == []
    assert "no restart can resolve the batch" in hint


@pytest.mark.parametrize("how", [Failure.SHUT_OUT, Failure.UNCLEAR])
def test_a_removal_that_succeeds_after_a_failure_ends(how: Failure) -> None:
    """Another process opened the key, or EndTxn had no answer; the second removal is answered."""
    begun = View(name="a", until_ms=60_000)
    first = next_step(Forget(KEY), begun)
    assert isinstance(first, Remove)
    failed = with_failure(begun, first, how, KafkaError("no answer"), 100)
    assert isinstance(next_step(Forget(KEY), failed), Remove)
    assert isinstance(next_step(Forget(KEY), with_removed(failed)), Return)


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
