"""The whole sender over brokers that lose, delay, move and restart, by seeds.

At the end of every life: all rows acknowledged, each in its log once and in order, nothing held.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.fakes.sender_world import TP0, TP1, TP2, SenderWorld
from tests.fakes.simulated_brokers import SimulatedBrokers


def live(seed: int, max_in_flight: int = 5, rounds: int = 150) -> SenderWorld:
    fate = random.Random(-seed)
    world = SenderWorld(
        simulation=seed,
        delivery_timeout_ms=100_000_000,
        max_in_flight_requests_per_connection=max_in_flight,
    )
    brokers = world.client
    assert isinstance(brokers, SimulatedBrokers)
    rows: Counter = Counter()

    def judge() -> None:
        assert world.sender.fatal_error is None, world.sender.fatal_error
        for tp, log in brokers.logs.items():
            assert log.records == list(range(len(log.records)))
            assert world_rows(world, tp) <= len(log.records)

    for _ in range(rounds):
        if fate.random() < 0.5:
            tp = fate.choice((TP0, TP1, TP2))
            count = fate.randint(1, 6)
            world.append(tp, count)
            rows[tp] += count
        world.round()
        judge()
    brokers.calm = True
    for _ in range(2_000):
        if not world.accumulator.has_incomplete:
            break
        world.round()
        judge()
    assert not world.accumulator.has_incomplete, "it never came to an end"
    assert {tp: len(log.records) for tp, log in brokers.logs.items() if log.records} == rows
    assert world.recorder.report().rows == rows.total()
    assert world.memory_in_use == 0
    assert world.manager is not None
    assert world.manager.reusable
    return world


def world_rows(world: SenderWorld, tp: object) -> int:
    """Rows of ``tp`` that were called acknowledged, as far as offsets tell."""
    found = world.recorder.report().offsets.get(tp)  # type: ignore[call-overload]
    return 0 if found is None else found[1] + 1


@pytest.mark.parametrize("block", range(10))
def test_every_row_once_and_in_order_whatever_the_brokers_do(block: int) -> None:
    faults: Counter = Counter()
    for seed in range(block * 10, block * 10 + 10):
        world = live(seed)
        assert isinstance(world.client, SimulatedBrokers)
        faults.update(world.client.faults)
        faults["split"] += world.recorder.report().splits
    # A fault that never fired has tested nothing.
    for fault in ("cut", "leader moves", "restart", "not leader", "split"):
        assert faults[fault] > 0, fault


def test_with_one_request_in_flight_it_holds_too() -> None:
    for seed in range(10):
        live(seed, max_in_flight=1)
