"""A backfill whose process gets SIGKILL: the next call goes on, and each row is there once."""

from __future__ import annotations

from collections import Counter

import pytest

from spark_kafka_sink.protocol.request import ApiKey
from tests.exactly_once.backfill_load import DAY
from tests.exactly_once.harness import of_data, variants
from tests.exactly_once.test_decision_faults import of_a_decision
from tests.faults.proxy import Action, Side
from tests.real_kafka import consume_topic
from tests.waiting import wait_for

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

ROWS = 50 * DAY
BY_DAY, BY_HASH = {"by": "day"}, {"steps": 3}


def assert_each_row_once(scenario):
    """Once the markers of the last step are there (milliseconds after its end)."""
    wait_for(lambda: not scenario.ongoing(), 60, "the end of the transactions")
    expected = Counter(str(n).encode() for n in range(ROWS))
    wait_for(lambda: sum(visible(scenario).values()) >= ROWS, 60, "the markers")
    found = visible(scenario)
    assert found == expected, (found - expected, expected - found)


def visible(scenario):
    found = consume_topic(scenario.world.direct, scenario.topic, isolation="read_committed")
    return Counter(found.values)


@pytest.mark.parametrize(
    ("cut", "after", "api", "match"),
    variants(
        pytest.param(BY_DAY, 1, ApiKey.END_TXN, of_a_decision, id="middle, decided"),
        pytest.param(BY_DAY, 0, ApiKey.PRODUCE, of_data, id="first"),
        pytest.param(BY_DAY, 2, ApiKey.PRODUCE, of_data, id="middle"),
        pytest.param(BY_HASH, 1, ApiKey.PRODUCE, of_data, id="last"),
        pytest.param(BY_HASH, 1, ApiKey.END_TXN, of_a_decision, id="last, decided"),
    ),
)
def test_a_killed_backfill_goes_on_where_it_stood(
    world, driver, new_driver, cut, after, api, match
):
    """Killed when the first request of step ``after`` + 1 with rows, or with the end of one of its
    transactions, is on its way.
    """
    scenario = world.scenario("backfill")
    command = {"name": "b", "rows": ROWS, "cut": cut, "options": scenario.options}
    marks = scenario.marks()
    victim = new_driver()
    for step in range(1, after):
        (marks / f"go-{step}").touch()
    if after:
        victim.begin("backfill", marks=str(marks), **command)
        last = marks / f"step-{after}"
        victim.wait_until(last.exists, "the steps before", lambda: sorted(marks.glob("step-*")))
        assert not victim.has_answered, victim.answer()
    held = world.fault(api, Action.HOLD, Side.REQUEST, times=1_000_000, match=match)
    if after:
        (marks / f"go-{after}").touch()
    else:
        victim.begin("backfill", marks=str(marks), **command)
    victim.wait_until_hit(held)
    victim.kill()
    held.deliver = False
    world.faults.remove(held)

    answer = driver.run("backfill", **command)
    assert answer["result"] == "OK", answer["error"]
    assert (answer["finished"], answer["rows"]) == (True, ROWS)
    assert_each_row_once(scenario)
    again = driver.run("backfill", **command)
    assert (again["finished"], again["written"]) == (True, [])
    assert_each_row_once(scenario)
    world.assert_fired()
    assert not scenario.ongoing()
