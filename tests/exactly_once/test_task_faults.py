"""R01, R07, R09, R10, R11: tasks die, fail, take too long, or have no rows."""

from __future__ import annotations

import os

import pytest

from spark_kafka_sink.protocol.request import ApiKey
from tests.exactly_once.both_versions import produce_of_a_dead_attempt_is_late
from tests.exactly_once.checker import Fault as Wrong
from tests.exactly_once.half_written import EAGER, SIZE
from tests.exactly_once.harness import CLEAN_S, of_attempt, of_data, variants
from tests.exactly_once.processes import kill_and_wait, sender_of
from tests.faults.proxy import Action, Fault, Side
from tests.waiting import wait_for

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]


def test_r01_a_worker_killed_after_its_last_ack_is_not_visible(world, driver, record_property):
    """Behind the broker's acknowledgement, in front of the commit message."""
    scenario = world.scenario("r01")
    fault = world.fault(
        ApiKey.PRODUCE,
        Action.PASS,
        Side.RESPONSE,
        match=of_attempt(task=1, attempt=0),
        then=lambda hit: kill_and_wait(sender_of(hit)),
    )
    fates = {"1": {"0": "ABORT", "1": "COMMIT"}}
    answer = driver.run("batch", **scenario.batch(fates=fates))
    assert answer["result"] == "OK", answer
    assert fault.fired == 1
    report = scenario.assert_clean(settle_s=CLEAN_S)
    assert report.aborted > 0, "the dead attempt's rows are in the log"
    record_property("found", report)


def test_a_worker_killed_after_its_letters_writes_them_once(world, driver, record_property):
    """Between its dead letters and its last rows."""
    scenario = world.scenario("letters", bad=20)
    of_task = of_attempt(task=1, attempt=0)
    fault = world.fault(
        ApiKey.PRODUCE,
        Action.PASS,
        Side.RESPONSE,
        match=lambda hit: of_task(hit) and b"__kprod.errors.code" in hit.request,
        then=lambda hit: kill_and_wait(sender_of(hit)),
    )
    fates = {"1": {"0": "ABORT", "1": "COMMIT"}}
    answer = driver.run("batch", **scenario.batch(fates=fates))
    assert answer["result"] == "OK", answer
    assert fault.fired == 1
    report = scenario.assert_clean(settle_s=CLEAN_S)
    assert report.letters == 400 // 20 * 5
    assert report.aborted > 0, "the dead attempt's letters are in the log"
    record_property("found", report)


@pytest.mark.parametrize("how", variants("raise", "exit"))
def test_r10_a_failed_job_leaves_nothing_visible_and_none_open(world, driver, how, record_property):
    """Its first attempt has rows in Kafka before it fails. (Spark keeps the last ones back.)"""
    scenario = world.scenario("r10", **EAGER)
    there = scenario.home / "there"
    written = world.fault(
        ApiKey.PRODUCE,
        Action.PASS,
        Side.RESPONSE,
        match=of_attempt(task=1, attempt=0),
        then=lambda _: there.touch(),
    )
    here = {"task": 1, "marks": str(scenario.marks())}
    specs = [
        {**here, "after": 1_000, "how": "wait", "until": str(there)},
        {**here, "after": 1_500, "how": how},
    ]
    command = scenario.batch(rows=4_000, misbehave=specs, size=SIZE, fates={"": {"": "ABORT"}})
    answer = driver.run("batch", **command)
    assert answer["result"] == "FAIL", answer
    assert written.fired == 1
    # What is open now is not ended by anybody any more: abort has returned.
    report = scenario.assert_clean(settle_s=CLEAN_S)
    assert report.visible == 0
    assert report.aborted > 0, "its rows are in the log"
    marks = {p.name for p in scenario.marks().iterdir()}
    assert marks == {f"{what}-1-{n}" for what in ("wait", how) for n in range(3)}
    record_property("found", report)


def test_r07_a_stage_longer_than_its_transactions_fails_whole(world, driver, record_property):
    scenario = world.scenario("r07", **{"kafka.transaction.timeout.ms": "10000"})
    spec = {"task": 1, "after": 0, "how": "sleep", "seconds": 13, "marks": str(scenario.marks())}
    answer = driver.run("batch", **scenario.batch(misbehave=[spec]))
    assert answer["result"] == "FAIL", answer
    assert "transaction.timeout.ms" in answer["error"], answer
    assert (scenario.marks() / "sleep-1-0").exists()
    report = scenario.assert_clean()
    assert report.visible == 0
    record_property("found", report)


def test_r09_a_dead_attempts_late_produce_is_refused(world, driver, record_property):
    report = produce_of_a_dead_attempt_is_late(world, driver, "r09", within_s=200, settle_s=CLEAN_S)
    record_property("found", report)


def test_r11_what_has_no_rows_opens_and_ends_no_transaction(world, driver, record_property):
    scenario = world.scenario("r11", partitions=3)
    # What a request says behind its correlation id: one that is asked again counts once.
    ended: set[bytes] = set()
    world.faults.add(
        Fault(
            ApiKey.END_TXN,
            Action.PASS,
            Side.REQUEST,
            times=1_000_000,
            match=of_data,
            then=lambda hit: ended.add(hit.request[12:]),
        )
    )
    first = {**scenario.batch(0, rows=0, tasks=3), "first": 0}
    assert driver.run("batch", **first)["result"] == "OK"
    assert not ended
    assert (
        driver.run("batch", **{**scenario.batch(1, rows=2, tasks=6), "first": 10})["result"] == "OK"
    )
    assert len(ended) == 2, "a transaction for each task that had a row"
    many = int(os.environ.get("KPROD_FAULT_TASKS", "40"))
    assert (
        driver.run("batch", **{**scenario.batch(2, rows=1, tasks=many), "first": 20})["result"]
        == "OK"
    )
    assert len(ended) == 3
    report = scenario.assert_clean(settle_s=CLEAN_S)
    assert report.visible == 3

    stream = world.scenario("r11-stream", partitions=2)
    answer = driver.run("stream", **stream.stream(rows=50, until=5, empty=[0, 2, 3]))
    assert answer["result"] == "OK", answer
    wait_for(lambda: stream.committed() >= 5)
    report = stream.assert_clean(settle_s=CLEAN_S)
    assert report.visible >= 150
    assert Wrong.LOST not in report.faults
    record_property("found", report)
