"""foreachBatch: on the stream's own thread, from a thread pool, over Spark Connect, and killed."""

from __future__ import annotations

import os
import random
import shutil
import time

import pytest

from spark_kafka_sink.protocol.request import ApiKey
from tests.exactly_once.half_written import EAGER, SIZE, half_written
from tests.exactly_once.harness import CLEAN_S, of_batch, thorough, variants
from tests.faults.proxy import Action, Side

KILLS = max(2, int(os.environ.get("KPROD_FAULT_KILLS", "3")) // 4)

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

WHERE = pytest.mark.parametrize("where", variants("pool", "own", "connect"))


@pytest.fixture
def runs(request, where):
    """The driver that ``where`` needs."""
    return request.getfixturevalue("connect_driver" if where == "connect" else "driver")


@WHERE
def test_a_foreach_batch_failing_at_its_second_leaves_none_open(world, where, runs):
    scenario = world.scenario("foreach-fails", **EAGER)
    reached, misbehave = half_written(scenario, 1)
    command = scenario.foreach(where=where, size=SIZE)
    answer = runs.run("foreach", **{**command, "misbehave": misbehave})
    assert answer["result"] == "FAIL", answer
    assert reached.fired
    assert "planned" in answer["error"], answer
    assert scenario.committed() == 0
    report = scenario.assert_clean(settle_s=CLEAN_S)
    assert report.aborted > 0, "its rows are in the log"
    runs.succeed("foreach", **{**command, "until": 3})
    scenario.assert_clean(settle_s=CLEAN_S)


@WHERE
def test_a_foreach_batch_without_its_checkpoint_fails_loudly(world, where, runs):
    scenario = world.scenario("deleted")
    command = scenario.foreach(where=where)
    runs.succeed("foreach", **{**command, "until": 3})
    written = scenario.assert_clean(settle_s=CLEAN_S).visible
    shutil.rmtree(scenario.checkpoint)
    answer = runs.run("foreach", **{**command, "until": scenario.committed() + 2})
    assert answer["result"] == "FAIL", f"rows dropped in silence: {answer}"
    assert scenario.run in answer["error"], answer
    report = scenario.assert_clean(settle_s=CLEAN_S)
    assert report.visible == written


@thorough
@pytest.mark.timeout(600 + 120 * KILLS)
def test_a_foreach_batch_with_a_killed_driver_loses_nothing(
    world, driver, new_driver, record_property
):
    """And the next driver's first micro-batch ends what the one before left open."""
    seed = int(os.environ.get("KPROD_FAULT_SEED", str(random.randrange(10**6))))
    chance = random.Random(seed)
    scenario = world.scenario("foreach-killed", bad=200)
    orphans = 0
    victim = new_driver()
    for round_ in range(KILLS):
        number = scenario.committed() + 2
        written = world.fault(ApiKey.PRODUCE, Action.PASS, Side.RESPONSE, match=of_batch(number, 0))
        victim.begin("foreach", **scenario.foreach(tasks=2))
        victim.wait_until_hit(written, f"round {round_} (seed {seed})")
        # From an open transaction in the first round to anywhere later on.
        time.sleep(chance.random() * 0.4 * min(round_, 1))
        assert victim.alive
        victim.kill()
        left = scenario.ongoing()
        orphans += len(left)
        following = new_driver() if round_ + 1 < KILLS else driver
        known = scenario.committed()
        answer = following.run("foreach", **scenario.foreach(tasks=2, until=known + 1))
        assert answer["result"] == "OK", (seed, answer)
        still = left & scenario.ongoing()
        assert not still, f"seed {seed}: open behind the next driver's micro-batches: {still}"
        victim = following
    assert orphans, f"seed {seed}: no kill has left anything open"
    report = scenario.check(settle_s=CLEAN_S)
    assert report.clean, f"seed {seed}: {report}"
    record_property(
        "found",
        f"seed {seed}: {KILLS} kills left {orphans} transactions open; "
        f"{scenario.committed() + 1} batches",
    )
