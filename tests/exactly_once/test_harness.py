"""The harness on a sink that does not promise exactly-once: the faults double rows, and the checker
finds them. Without this, a clean verdict would prove nothing.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.protocol.request import ApiKey
from tests.exactly_once.checker import Fault
from tests.exactly_once.harness import of_attempt, of_batch, thorough
from tests.faults.proxy import Action, Side
from tests.waiting import wait_for

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(240)]


def test_a_worker_killed_after_its_last_ack_doubles_rows(world, driver):
    scenario = world.scenario("harness", deliveryGuarantee="at-least-once")
    world.worker_dies(of_attempt(task=1, attempt=0), Action.CUT)
    driver.succeed("batch", **scenario.batch())
    report = scenario.check()
    assert report.faults == {Fault.DOUBLED, Fault.MIXED}, str(report)
    assert Fault.LOST not in report.faults


@thorough
def test_a_driver_killed_before_sparks_commit_doubles_rows(world, driver, new_driver):
    scenario = world.scenario("harness-stream", deliveryGuarantee="at-least-once")
    victim = new_driver().wait_until_ready()
    fault = world.fault(
        ApiKey.PRODUCE,
        Action.HOLD,
        Side.RESPONSE,
        match=of_batch(2, task=1),
    )
    victim.begin("stream", **scenario.stream())
    victim.wait_until_hit(fault)
    victim.kill()
    fault.release()
    assert scenario.committed() == 1
    driver.succeed("stream", **scenario.stream(until=4))
    wait_for(lambda: scenario.committed() >= 4)
    report = scenario.check()
    assert Fault.DOUBLED in report.faults, str(report)
    assert Fault.LOST not in report.faults, str(report)
