"""Reports in a topic survive what their batches survive: none is missing, and none comes twice."""

from __future__ import annotations

import json

import pytest

from spark_kafka_sink.protocol.request import ApiKey
from tests.exactly_once.harness import (
    ASKED_ONCE,
    FaultyCluster,
    Scenario,
    of_data,
    of_log,
    variants,
)
from tests.faults.proxy import Action, Side
from tests.real_kafka import consume_topic

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

TASKS = 4
#: The batch whose commit is disturbed; those before it are committed undisturbed.
BATCH = 2


def reports_of(world: FaultyCluster, scenario: Scenario) -> list[dict[str, object]]:
    """As a reader of committed records sees them."""
    topic = scenario.options["reportTopic"]
    found = consume_topic(world.direct, topic, isolation="read_committed")
    return [json.loads(value) for value in found.values]


def with_reports(world: FaultyCluster, name: str) -> Scenario:
    scenario = world.scenario(name, **ASKED_ONCE)
    scenario.options["reportTopic"] = world.kafka.create_topic(f"{scenario.run}-reports", 1)
    return scenario


@pytest.mark.parametrize("ended", variants(1, 0, TASKS))
def test_a_driver_killed_before_done_leaves_one_report(world, driver, new_driver, ended):
    """DECIDED is written; so many of the transactions, of which the report's is one, are ended, and
    the others are when the next driver goes on.
    """
    scenario = with_reports(world, f"report-{ended}")
    before = (TASKS + 1) * BATCH
    held = world.fault(
        ApiKey.END_TXN,
        Action.HOLD,
        Side.REQUEST,
        nth=before + ended + 1,
        times=1_000_000,
        match=of_data,
    )
    scenario.kill_stream(new_driver(), held, tasks=TASKS)
    held.deliver = False
    world.faults.remove(held)
    assert scenario.checkpointed() == BATCH - 1
    assert {r["batchId"] for r in reports_of(world, scenario)} <= set(range(BATCH + 1))
    driver.succeed("stream", **scenario.stream(tasks=TASKS, until=BATCH + 2))
    scenario.assert_clean()
    assert_one_each(world, scenario)


@pytest.mark.parametrize("side", variants(Side.REQUEST))
def test_a_driver_killed_before_its_decision_leaves_one_report(world, driver, new_driver, side):
    """The EndTxn that decides is lost: nothing of that batch is visible, nor its report."""
    scenario = with_reports(world, "report-undecided")
    # Each batch ends two transactions of the log: DECIDED, then DONE.
    held = world.fault(ApiKey.END_TXN, Action.HOLD, side, nth=2 * BATCH + 1, match=of_log)
    scenario.kill_stream(new_driver(), held, tasks=TASKS)
    held.release(deliver=False)
    assert scenario.checkpointed() == BATCH - 1
    assert [r["batchId"] for r in reports_of(world, scenario)] == list(range(BATCH))
    driver.succeed("stream", **scenario.stream(tasks=TASKS, until=BATCH + 2))
    scenario.assert_clean()
    assert_one_each(world, scenario)


def assert_one_each(world: FaultyCluster, scenario: Scenario) -> None:
    told = reports_of(world, scenario)
    batches = [r["batchId"] for r in told if r["outcome"] == "committed"]
    assert batches == sorted(set(batches)), "none came twice, and they are in order"
    assert set(range(BATCH + 2)) <= set(batches)
    assert len({r["reportId"] for r in told}) == len(told)
    assert {r["rows"] for r in told if r["batchId"] in range(BATCH + 2)} == {400}
