"""What transactions of version 1 and of version 2 must stand alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_kafka_sink.protocol.request import ApiKey
from tests.exactly_once.harness import FaultyCluster, of_attempt, of_data
from tests.exactly_once.processes import Driver
from tests.faults.proxy import Action, Hit, Side
from tests.waiting import LONG_S


def answer_to_end_txn_is_lost(
    world: FaultyCluster, driver: Driver, name: str, action: Action, whose: Callable[[Hit], bool]
) -> Any:
    """R05: the batch is there all the same; its report."""
    scenario = world.scenario(name, kafka_request_timeout_ms="1500")
    fault = world.fault(ApiKey.END_TXN, action, Side.RESPONSE, match=whose)
    driver.succeed("batch", **scenario.batch(tasks=3))
    assert fault.fired == 1
    report = scenario.assert_clean()
    assert report.visible == 400
    return report


def produce_of_a_dead_attempt_is_late(
    world: FaultyCluster, driver: Driver, name: str, *, settle_s: float
) -> Any:
    """R09: it arrives in the next transaction of its id, and joins none; the report."""
    scenario = world.scenario(name, partitions=1)
    zombie = world.worker_dies(of_attempt(task=1, attempt=0), Action.HOLD, Side.REQUEST)
    driver.succeed("batch", **scenario.batch(0, fates={"1": {"0": "ABORT"}}))
    assert zombie.fired == 1
    second = world.fault(ApiKey.END_TXN, Action.HOLD, Side.REQUEST, match=of_data)
    driver.begin("batch", **scenario.batch(1))
    driver.wait_until_hit(second)
    zombie.release()
    assert zombie.answered.wait(LONG_S), "the broker has answered the zombie"
    second.release()
    answer = driver.answer()
    assert answer["result"] == "OK", answer
    report = scenario.assert_clean(settle_s=settle_s)
    assert report.visible == 800
    return report
