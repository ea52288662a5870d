"""R01, R07, R09, R10, R11: tasks die, fail, take too long, or have no rows."""

from __future__ import annotations

import os

import pytest

from spark_kafka_sink.protocol.request import ApiKey
from tests.exactly_once.both_versions import produce_of_a_dead_attempt_is_late
from tests.exactly_once.checker import Fault as Wrong
from tests.exactly_once.half_written import EAGER, SIZE
from tests.exactly_once.harness import CLEAN_S, of_attempt, of_data, variants
from tests.faults.proxy import Action, Fault, Side
from tests.waiting import wait_for

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize("bad", [0, 20], ids=["", "bad rows"])
def test_r01_a_worker_killed_after_its_last_ack_is_not_visible(world, driver, bad):
    """Behind the broker's acknowledgement, in front of the commit message; with bad rows, between
    its dead letters and its last rows. An audit of the report counts no row of that attempt.
    """
    scenario = world.scenario("r01", bad=bad).with_report()
    of_task = of_attempt(task=1, attempt=0)
    letters = b"__kprod.errors.code" if bad else b""
    fault = world.worker_dies(lambda hit: of_task(hit) and letters in hit.request)
    driver.succeed("batch", **scenario.batch(fates={"1": {"0": "ABORT", "1": "COMMIT"}}))
    assert fault.fired == 1
    report = scenario.assert_clean(settle_s=CLEAN_S)
    assert report.letters == (400 // 20 * 5 if bad else 0)
    assert report.aborted > 0, "what the dead attempt sent is in the log"
    scenario.assert_audited(rows=400, letters=report.letters)


@pytest.mark.parametrize("how", variants("raise", "exit"))
def test_r10_a_failed_job_leaves_nothing_visible_and_none_open(world, driver, how):
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


def test_r07_a_stage_longer_than_its_transactions_fails_whole(world, driver):
    scenario = world.scenario("r07", **{"kafka.transaction.timeout.ms": "10000"})
    spec = {"task": 1, "after": 0, "how": "sleep", "seconds": 13, "marks": str(scenario.marks())}
    answer = driver.run("batch", **scenario.batch(misbehave=[spec]))
    assert answer["result"] == "FAIL", answer
    assert "transaction.timeout.ms" in answer["error"], answer
    assert (scenario.marks() / "sleep-1-0").exists()
    report = scenario.assert_clean()
    assert report.visible == 0


def test_r09_a_dead_attempts_late_produce_is_refused(world, driver):
    produce_of_a_dead_attempt_is_late(world, driver, "r09", settle_s=CLEAN_S)


def test_r11_what_has_no_rows_opens_and_ends_no_transaction(world, driver):
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
    driver.succeed("batch", **scenario.batch(0, rows=0, tasks=3))
    assert not ended
    driver.succeed("batch", **scenario.batch(1, rows=2, tasks=6) | {"first": 10})
    assert len(ended) == 2, "a transaction for each task that had a row"
    many = int(os.environ.get("KPROD_FAULT_TASKS", "40"))
    driver.succeed("batch", **scenario.batch(2, rows=1, tasks=many) | {"first": 20})
    assert len(ended) == 3
    report = scenario.assert_clean(settle_s=CLEAN_S)
    assert report.visible == 3

    stream = world.scenario("r11-stream", partitions=2)
    driver.succeed("stream", **stream.stream(rows=50, until=5, empty=[0, 2, 3]))
    wait_for(lambda: stream.committed() >= 5)
    report = stream.assert_clean(settle_s=CLEAN_S)
    assert report.visible >= 150
    assert Wrong.LOST not in report.faults
