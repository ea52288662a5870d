"""Queries that are started again, or beside another one, or that see a broker go and come back:
nothing stays open, the healthy go on.
"""

from __future__ import annotations

import pytest

from tests.exactly_once.checker import coordinated_by, new_admin
from tests.exactly_once.half_written import EAGER, SIZE, half_written
from tests.exactly_once.harness import CLEAN_S, FaultyCluster, thorough
from tests.exactly_once.truth import Result
from tests.waiting import wait_for

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_restarted_query_failing_at_first_leaves_nothing_open(world, driver):
    scenario = world.scenario("restart-fails", **EAGER)
    driver.succeed("stream", **scenario.stream(until=1, size=SIZE))
    number = scenario.committed() + 1
    reached, misbehave = half_written(scenario, number)
    answer = driver.run("stream", **scenario.stream(size=SIZE, misbehave=misbehave))
    assert answer["result"] == "FAIL", answer
    assert "planned" in answer["error"], answer
    assert reached.fired
    report = scenario.assert_clean(settle_s=CLEAN_S)
    assert report.aborted > 0, "its rows are in the log"
    driver.succeed("stream", **scenario.stream(until=number + 1, size=SIZE))
    scenario.assert_clean(settle_s=CLEAN_S)


@thorough
def test_a_query_survives_another_one_with_its_prefix(world, driver):
    """The newcomer is at a later micro-batch than the healthy one: its own checkpoint says so."""
    newcomer = world.scenario("newcomer")
    driver.succeed("stream", **newcomer.stream(until=8, rows=20))
    ahead = newcomer.committed()
    healthy = world.scenario("healthy")
    newcomer.options["transactionalIdPrefix"] = healthy.prefix
    stop, behind = healthy.home / "stop", healthy.home / "behind"
    driver.begin(
        "streams",
        each=[
            healthy.stream(stop=str(stop), trigger="1 second"),
            newcomer.stream(behind=str(behind), rows=20),
        ],
    )
    wait_for(lambda: healthy.committed() >= 1, 240, "the healthy query")
    assert healthy.committed() < ahead
    behind.touch()

    def refused() -> bool:
        return any(b.result is Result.FAIL for b in newcomer.batches())

    wait_for(refused, 240, "the newcomer's end")
    seen = healthy.committed()
    wait_for(
        lambda: healthy.committed() > seen + 2 or driver.has_answered, 120, "the healthy query"
    )
    stop.touch()
    of_healthy, of_newcomer = driver.answer()["answers"]
    assert of_healthy["result"] == "OK", of_healthy
    assert of_newcomer["result"] == "FAIL", of_newcomer
    assert healthy.prefix in of_newcomer["error"], of_newcomer
    healthy.assert_clean(settle_s=CLEAN_S)


@thorough
def test_a_restarted_broker_under_a_warm_driver_is_asked_again(world, driver, record_property):
    """The driver learnt its brokers while this one was away (with one node: before it went). Since
    it coordinates again, what it has open of a batch that fails is found there, too.
    """
    scenario = world.scenario("warm", **EAGER)
    command = scenario.foreach(size=SIZE)
    driver.succeed("foreach", **command, until=1)
    node = world.kafka.nodes[-1]
    node.stop()
    if len(world.kafka.nodes) > 1:
        without_leader(world, scenario.topic, node.node_id)
        driver.succeed("foreach", **command, until=scenario.committed() + 1)
    node.start()
    world.kafka.wait_until_in_sync()
    prefer_all(world)

    there: set[str] = set()
    for _ in range(10):  # ids are random: those of a run may all be another broker's
        number = scenario.committed() + 1
        reached, misbehave = half_written(
            scenario,
            number,
            see=lambda: there.update(
                coordinated_by(world.direct, node.node_id, scenario.prefix, "Ongoing")
            ),
        )
        answer = driver.run("foreach", **command, misbehave=misbehave)
        assert answer["result"] == "FAIL", answer
        assert "planned" in answer["error"], answer
        assert reached.fired, answer
        scenario.assert_clean(settle_s=CLEAN_S)
        if there:
            break
    assert there, "no transaction of the failed batches was the restarted broker's"
    driver.succeed("foreach", **command, until=scenario.committed() + 1)
    scenario.assert_clean(settle_s=CLEAN_S)
    record_property("found", f"{len(there)} open at the restarted broker")


def without_leader(world: FaultyCluster, topic: str, node_id: int) -> None:
    """Until the node leads no partition of ``topic``."""
    admin = new_admin(world.direct)
    wait_for(
        lambda: all(
            p.leader not in (-1, node_id)
            for p in admin.list_topics(topic, 10).topics[topic].partitions.values()
        ),
        60,
        f"other leaders than node {node_id}",
    )


def prefer_all(world: FaultyCluster) -> None:
    """Each partition's first replica leads it again (and coordinates, where it is a state's)."""
    from confluent_kafka import ElectionType

    admin = new_admin(world.direct)
    admin.elect_leaders(ElectionType.PREFERRED, None).result(60)
