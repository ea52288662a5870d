"""Transactions of version 1 (Kafka 3.9 and before), and R14: a coordinator that drops ids."""

from __future__ import annotations

import re

import pytest

from spark_kafka_sink.protocol.request import ApiKey
from tests.exactly_once.both_versions import (
    answer_to_end_txn_is_lost,
    produce_of_a_dead_attempt_is_late,
)
from tests.exactly_once.checker import transactions
from tests.exactly_once.harness import LOST_CLEAN_S, of_data, variants
from tests.faults.proxy import Action, Side
from tests.waiting import wait_for, with_patience

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]


_DATA_ID = rb"x\.r14[^~]+(?:~[0-9a-fg.]+){3}~[0-9]+"


def test_r14_transactions_forgotten_before_commit_fail_the_job(old_world, driver):
    # Two tasks must be prepared, and asked about, within a half of the first one.
    limits = {"kafka.transaction.timeout.ms": 20_000, "kafka.max.block.ms": 120_000}
    scenario = old_world.scenario("r14", **with_patience(limits))
    asked: set[bytes] = set()
    held = old_world.fault(
        ApiKey.DESCRIBE_TRANSACTIONS,
        Action.HOLD,
        Side.REQUEST,
        times=1_000_000,
        match=of_data,
        then=lambda hit: asked.update(re.findall(_DATA_ID, hit.request)),
    )
    fates = {"": {"": "ABORT"}}
    driver.begin("batch", **scenario.batch(fates=fates))
    wait_for(lambda: len(asked) == 2, 240, "the driver's question whether both are prepared")
    held_ids = {i.decode() for i in asked}
    wait_for(
        lambda: not held_ids & set(transactions(old_world.direct, scenario.prefix)),
        120,
        "the expiration",
    )
    held.release()
    answer = driver.answer()
    assert answer["result"] == "FAIL", answer
    # The decision's own transaction is a lease: nobody waits for the answer any longer.
    assert "has no clear answer" in answer["error"], answer
    report = scenario.assert_clean()
    assert report.visible == 0


@pytest.mark.parametrize("action", variants(Action.CUT, Action.SWALLOW))
def test_r05_a_lost_answer_to_end_txn_of_version_1_is_resolved(old_world, driver, action):
    answer_to_end_txn_is_lost(old_world, driver, "r05-1", action, of_data)


def test_r09_a_dead_attempts_produce_of_version_1_joins_nothing(old_world, driver):
    produce_of_a_dead_attempt_is_late(old_world, driver, "r09-1", settle_s=LOST_CLEAN_S)


def test_with_version_1_a_stream_goes_on_where_it_stopped(old_world, driver):
    """The epoch of an id goes up with each of its transactions."""
    scenario = old_world.scenario("stream-1")
    for until in (3, 6):
        driver.succeed("stream", **scenario.stream(until=until))
    report = scenario.assert_clean()
    assert report.visible >= 7 * 400
