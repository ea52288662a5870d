"""Around the decision: a driver that is frozen before it, dead or without rights behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spark_kafka_sink.protocol.request import ApiKey
from tests.exactly_once.checker import new_admin
from tests.exactly_once.harness import CLEAN_S, FaultyCluster, Scenario, of_data, thorough
from tests.exactly_once.processes import Driver
from tests.fakes.fake_cluster.codec import read_request
from tests.faults.proxy import Action, Hit, Side
from tests.waiting import wait_for

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

TASKS = 4
#: Transactions that are over soon, for whoever is to stay away: from a task's first row to the
#: commit half of that may pass (see ``margin_ms``), in which two cores must start four workers.
SHORT, LONG = ({"kafka.transaction.timeout.ms": ms} for ms in ("60000", "300000"))


def of_a_decision(hit: Hit) -> bool:
    """EndTxn of a task's transaction, to commit it."""
    return of_data(hit) and read_request(hit.request[4:]).body.committed


def written_again(scenario: Scenario, driver: Driver) -> None:
    """The next start, on a machine that may be busy: its batch has the time that users give it."""
    scenario.options |= LONG
    answer = driver.run("stream", **scenario.stream(tasks=TASKS, until=1))
    assert answer["result"] == "OK", answer["error"]


@thorough
def test_a_driver_frozen_before_its_decision_decides_in_time(world, driver):
    """SIGSTOP to all of it when the brokers have said that everything is prepared (the answer lies
    before its door), until they have aborted it.
    """
    scenario = world.scenario("frozen", **SHORT)
    told = world.fault(
        ApiKey.DESCRIBE_TRANSACTIONS,
        Action.PASS,
        Side.RESPONSE,
        match=of_data,
        then=lambda _: driver.freeze(),
    )
    driver.begin("stream", **scenario.stream(tasks=TASKS))
    driver.wait_until_hit(told, "a description")
    try:
        wait_for(lambda: not scenario.ongoing(), 180, "the transactions' time-out")
    finally:
        driver.thaw()
    answer = driver.answer()
    assert answer["result"] == "FAIL", answer
    report = scenario.assert_clean(settle_s=CLEAN_S)
    assert report.visible == 0
    written_again(scenario, driver)
    scenario.assert_clean(settle_s=CLEAN_S)


@thorough
def test_an_aborted_decision_of_a_lost_driver_is_written_again(world, driver, new_driver):
    """SIGKILL behind DECIDED, before the first EndTxn arrives."""
    scenario = world.scenario("away", **SHORT)
    held = world.fault(
        ApiKey.END_TXN, Action.HOLD, Side.REQUEST, times=1_000_000, match=of_a_decision
    )
    scenario.kill_stream(new_driver(), held, tasks=TASKS)
    held.deliver = False
    world.faults.remove(held)
    wait_for(lambda: not scenario.ongoing(), 180, "the transactions' time-out")
    written_again(scenario, driver)
    scenario.assert_clean(settle_s=CLEAN_S)


@thorough
def test_rights_revoked_after_the_decision_are_an_error(ruled_world, driver):
    scenario = ruled_world.scenario("rights")
    held = ruled_world.fault(
        ApiKey.END_TXN, Action.HOLD, Side.REQUEST, nth=2, times=1_000_000, match=of_data
    )
    driver.begin("stream", **scenario.stream(tasks=TASKS))
    driver.wait_until_hit(held)
    wait_for(lambda: len(scenario.ongoing()) < TASKS, what="the first EndTxn")
    left = scenario.ongoing()
    assert left
    with denied(ruled_world, left):
        held.release()
        answer = driver.answer()
    assert answer["result"] == "UNKNOWN", answer
    assert "decided" in answer["error"], answer
    (batch,) = scenario.batches()
    assert set(batch.ids) & set(left), answer
    ruled_world.faults.remove(held)
    driver.succeed("stream", **scenario.stream(tasks=TASKS, until=1))
    scenario.assert_clean(settle_s=CLEAN_S)


@contextmanager
def denied(world: FaultyCluster, transactional_ids: list[str]) -> Iterator[None]:
    """No principal may write under these transactional ids for a while."""
    from confluent_kafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    admin = new_admin(world.direct)
    wanted = [
        AclBinding(
            ResourceType.TRANSACTIONAL_ID, name, ResourcePatternType.LITERAL,
            "User:*", "*", AclOperation.WRITE, AclPermissionType.DENY,
        )
        for name in transactional_ids
    ]  # fmt: skip
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None,
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip

    def until(count: int) -> None:
        wait_for(lambda: len(admin.describe_acls(everything).result(20)) == count, 20, "the ACLs")

    for done in admin.create_acls(wanted).values():
        done.result(20)
    until(len(wanted))
    try:
        yield
    finally:
        admin.delete_acls([everything])[everything].result(20)
        until(0)
