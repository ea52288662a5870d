"""R03, R04, R12, and drivers that get SIGKILL at a random moment: streams go on from where they
stood, and two drivers of one query never both write.

A driver that is killed dies whole (its container is gone), or only its JVM does: then the Python
process that was committing for it lives on for a while, next to the new driver.
"""

from __future__ import annotations

import os
import random
import shutil
import time
import uuid

import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_kafka_sink.protocol.request import ApiKey
from tests.exactly_once.harness import ASKED_ONCE, of_data, of_log, thorough, variants
from tests.exactly_once.truth import Result
from tests.faults.proxy import Action, Hit, Side
from tests.waiting import LONG_S, wait_for

KILLS = int(os.environ.get("KPROD_FAULT_KILLS", "3"))

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

TASKS = 4
#: The batch whose commit is disturbed; those before it are committed undisturbed.
BATCH = 2


@pytest.mark.parametrize("more", [False, True], ids=["", "offsets and letters"])
def test_r03_a_driver_killed_between_two_end_txns_commits_all(world, driver, new_driver, more):
    """DECIDED is written, one transaction of four is committed, three are not. With more, a fifth
    has the offsets of a group, and each batch has rows that can't be sent.
    """
    group = f"g.{uuid.uuid4().hex}"
    scenario = world.scenario("r03", bad=200 * more, **ASKED_ONCE)
    command = scenario.stream(tasks=TASKS)
    if more:
        scenario.options["offsetsGroup"] = group
        command["source"] = scenario.topic
    ends = TASKS + more
    before = ends * BATCH
    first = world.fault(ApiKey.END_TXN, Action.PASS, Side.RESPONSE, nth=before + 1, match=of_data)
    held = world.fault(
        ApiKey.END_TXN, Action.HOLD, Side.REQUEST, nth=before + 2, times=1_000_000, match=of_data
    )
    victim = new_driver()
    victim.begin("stream", **command)
    victim.wait_until_hit(held)
    victim.wait_until_hit(first, "the answer to the first EndTxn")
    victim.kill()
    held.deliver = False
    world.faults.remove(held)
    open_ids = scenario.ongoing()
    assert len(open_ids) == ends - 1, open_ids
    assert scenario.checkpointed() == BATCH - 1
    driver.succeed("stream", **command, until=BATCH + 2)
    report = scenario.assert_clean()
    if more:
        assert report.letters > 0
        assert offset_of(world, group, scenario.topic) == command["rows"] * (
            scenario.committed() + 1
        )


@thorough
def test_r03_a_jvm_killed_between_two_end_txns_harms_nothing(world, driver, new_driver):
    """Only the JVM dies. Its committer's requests arrive when the next driver has ended the batch
    and written two more.
    """
    scenario = world.scenario("r03-jvm", **ASKED_ONCE)
    before = TASKS * BATCH
    sender: list[int] = []

    def of_the_victim(hit: Hit) -> bool:
        return of_data(hit) and (not sender or hit.client_port in sender)

    held = world.fault(
        ApiKey.END_TXN,
        Action.HOLD,
        Side.REQUEST,
        nth=before + 2,
        match=of_the_victim,
        then=lambda hit: sender.append(hit.client_port),
    )
    victim = new_driver()
    victim.begin("stream", **scenario.stream(tasks=TASKS))
    victim.wait_until_hit(held)
    victim.kill_java()
    driver.succeed("stream", **scenario.stream(tasks=TASKS, until=BATCH + 2))
    held.release()
    assert held.answered.wait(LONG_S), "the old committer's EndTxn has reached the broker"
    scenario.assert_clean()


@pytest.mark.parametrize("side", variants(Side.RESPONSE, Side.REQUEST))
def test_r04_a_driver_killed_after_all_end_txns_writes_once(world, driver, new_driver, side):
    """All of the batch's transactions are committed, Spark's commit log does not say so, and the
    restarted query writes the batch again. The commit log says DONE (the answer to that is held)
    or still DECIDED (the request is).
    """
    scenario = world.scenario("r04", **ASKED_ONCE)
    # Each batch ends two transactions of the log: DECIDED, then DONE.
    held = world.fault(ApiKey.END_TXN, Action.HOLD, side, nth=2 * BATCH + 2, match=of_log)
    scenario.kill_stream(new_driver(), held, tasks=TASKS)
    held.release(deliver=False)
    assert scenario.checkpointed() == BATCH - 1
    driver.succeed("stream", **scenario.stream(tasks=TASKS, until=BATCH + 2))
    scenario.assert_clean()


@thorough
def test_r12_of_two_drivers_with_one_checkpoint_one_stops(
    world, driver, new_driver, record_property
):
    scenario = world.scenario("r12")
    stop = scenario.home / "stop"
    other = new_driver()
    other.begin("stream", **scenario.stream(stop=str(stop)))
    scenario.wait_for_batch(1, other)
    driver.begin("stream", **scenario.stream(stop=str(stop)))
    both = (driver, other)
    wait_for(lambda: any(d.has_answered for d in both), timeout=240, what="the end of one")
    stopped, goes_on = sorted(both, key=lambda d: not d.has_answered)
    answer = stopped.answer()
    seen = scenario.committed()
    if not goes_on.has_answered:
        wait_for(lambda: scenario.committed() > seen + 1 or goes_on.has_answered, timeout=240)
    stop.touch()
    goes_on.answer()
    assert answer["result"] in ("FAIL", "UNKNOWN"), answer
    clear = (
        "has taken over",
        "is at batch",
        # Spark's own checkpoint noticed first.
        "Multiple streaming queries are concurrently using",
        "CONCURRENT_STREAM_LOG_UPDATE",
    )
    assert any(word in answer["error"] for word in clear), answer["error"]
    scenario.assert_clean()
    record_property("found", answer["error"][:100])


def test_r12_a_frozen_driver_stops_when_it_thaws(world, driver, new_driver, record_property):
    """The successor has a copy of the checkpoint, so Spark can't tell; only the commit log can."""
    scenario = world.scenario("r12-copy")
    other = new_driver()
    other.begin("stream", **scenario.stream())
    scenario.wait_for_batch(1, other)
    time.sleep(random.random() / 4)
    other.freeze()
    copy = scenario.home / "copy"
    shutil.copytree(scenario.checkpoint, copy)
    stop = scenario.home / "stop"
    frozen_at = scenario.committed()
    driver.begin("stream", **{**scenario.stream(stop=str(stop)), "checkpoint": str(copy)})
    scenario.wait_for_batch(frozen_at + 2, driver)
    other.thaw()
    answer = other.answer()
    seen = scenario.committed()
    # The successor's next commit ends what the old driver's tasks left open.
    scenario.wait_for_batch(seen + 2, driver)
    stop.touch()
    goes_on = driver.answer()
    assert goes_on["result"] == "OK", goes_on
    assert answer["result"] in ("FAIL", "UNKNOWN"), answer
    scenario.assert_clean()
    assert "has taken over" in answer["error"] or "SupersededError" in answer["error"], answer
    record_property("found", answer["error"][:100])


@pytest.mark.timeout(600 + 120 * KILLS)
@pytest.mark.parametrize("bad", [0, 1_000], ids=["", "bad rows"])
def test_a_stream_with_a_repeatedly_killed_driver_loses_nothing(
    world, driver, new_driver, bad, record_property
):
    """SIGKILL at a random moment, KPROD_FAULT_KILLS times, to all of the driver or to its JVM. Of
    the rows that can't be sent, a thousandth for each reason, each is a dead letter once.
    KPROD_FAULT_ROWS are those of a batch with bad ones.
    """
    seed = int(os.environ.get("KPROD_FAULT_SEED", str(random.randrange(10**6))))
    chance = random.Random(seed)
    scenario = world.scenario("killed", bad=bad)
    rows = int(os.environ.get("KPROD_FAULT_ROWS", "20000")) if bad else 400
    in_flight = 0
    victim = new_driver()
    for round_ in range(KILLS):
        start = scenario.committed()
        victim.begin("stream", **scenario.stream(rows=rows, tasks=2))
        scenario.wait_for_batch(start + 1, victim, f"in round {round_} (seed {seed})")
        time.sleep(chance.random() * 0.8)
        assert victim.alive
        whole = chance.random() < 0.5
        victim.kill() if whole else victim.kill_java()
        if round_ + 1 < KILLS:
            victim = new_driver()
        last = scenario.batches()[-1]
        in_flight += last.result is Result.KILLED
    last = scenario.committed() + 3
    answer = driver.run("stream", **scenario.stream(rows=rows, tasks=2, until=last))
    assert answer["result"] == "OK", (seed, answer)
    report = scenario.check()
    assert report.clean, f"seed {seed}: {report}"
    assert (report.letters > 0) == (bad > 0)
    record_property(
        "found",
        f"seed {seed}: {KILLS} kills, {in_flight} of them with a batch begun; "
        f"{scenario.committed() + 1} batches",
    )


def offset_of(world, group: str, topic: str) -> int:
    """The group's next offset of partition 0."""
    consumer = Consumer({"bootstrap.servers": world.direct, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    finally:
        consumer.close()
    return int(found.offset)
