"""The plan of a backfill: each position is in one step, and steps have the size that fits."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import CommitLogError, DeliveryError
from spark_kafka_sink.datasource.jobs.backfill_plan import (
    FIRST_ROWS,
    SHARE_OF_TIMEOUT,
    BackfillPlan,
    StepSizes,
    step_too_long,
    took_too_long,
)
from spark_kafka_sink.datasource.write.write_task import TransactionTime

PLANS = st.builds(
    lambda rows, slices, counted: BackfillPlan(
        slices,
        "day",
        "int",
        tuple(map(str, range(1, len(rows)))),
        tuple(rows) if counted else (),
        facts={"topic": "t", "columns": "struct<day:int>"},
    ),
    st.lists(st.integers(0, 10**9), min_size=1, max_size=50),
    st.integers(1, 100),
    st.booleans(),
)


@given(PLANS, st.lists(st.floats(0, 1e10), min_size=1))
def test_steps_of_any_size_have_each_position_once(plan: BackfillPlan, sizes: list[float]) -> None:
    """And a step is of whole ranges, or of slices of one range: that is how its rows are found."""
    at = 0
    for most in itertools.islice(itertools.cycle(sizes), plan.end):
        if at == plan.end:
            break
        end = plan.next_end(at, most)
        assert at < end <= plan.end
        whole = at % plan.slices == 0 and end % plan.slices == 0
        assert whole or at // plan.slices == (end - 1) // plan.slices
        at = end
    assert at == plan.end


@given(PLANS, st.data())
def test_a_step_weighs_no_more_than_it_may(plan: BackfillPlan, data: st.DataObject) -> None:
    """Unless it is one slice, which is the smallest."""
    first = data.draw(st.integers(0, plan.end - 1))
    most = data.draw(st.floats(0, 1e10))
    end = plan.next_end(first, most)
    within = plan.slices - first % plan.slices
    is_whole = plan.weight(first, first + within) == 0 or end - first == 1
    assert is_whole or plan.weight(first, end) <= most * (1 + 1e-9) + 1e-6


@given(PLANS)
def test_a_recorded_plan_is_read_as_it_was(plan: BackfillPlan) -> None:
    read = BackfillPlan.decode(plan.encode())
    assert read == plan
    assert read.digest == plan.digest


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"slices":0}', "{" * 10])
def test_another_text_is_no_plan(text: str) -> None:
    with pytest.raises(CommitLogError, match="was not written by"):
        BackfillPlan.decode(text)


def test_a_difference_names_both_sides() -> None:
    plan = BackfillPlan(1, facts={"topic": "orders", "steps": "40", "keyColumns": "id"})
    same = dict(plan.facts)
    assert plan.difference(same) == ""
    found = plan.difference({"topic": "orders", "steps": "400", "by": "day", "keyColumns": "id"})
    assert "steps: 40 in the plan, 400 now" in found
    assert "by: not set in the plan, day now" in found
    assert "topic" not in found
    many = plan.difference({f"option{n}": "x" for n in range(20)})
    assert "and 18 more" in many


def test_the_next_step_follows_the_rate_of_the_last() -> None:
    plan = BackfillPlan(64, "day", "int", tuple(map(str, range(1, 1000))), (100_000,) * 1000)
    timeout_ms = 60_000
    sizes = StepSizes(plan, timeout_ms)
    first = sizes.next_end(0)
    assert plan.weight(0, first) == FIRST_ROWS
    sizes.took(0, first, 1.0)
    grown = sizes.next_end(first)
    assert plan.weight(first, grown) == 4 * FIRST_ROWS, "no faster than that"
    sizes.took(first, grown, 100.0)
    slower = sizes.next_end(grown)
    seconds = plan.weight(grown, slower) / (4 * FIRST_ROWS) * 100
    assert 0 < seconds <= timeout_ms / 1000 * SHARE_OF_TIMEOUT


def test_a_step_that_took_too_long_is_cut_to_slices() -> None:
    """Of a column with one value, too."""
    plan = BackfillPlan(64, "day", "int", (), (6_400_000,))
    sizes = StepSizes(plan, 60_000)
    ends = [sizes.next_end(0)]
    while ends[-1] > 1:
        sizes.was_too_long(0, ends[-1])
        ends.append(sizes.next_end(0))
        assert ends[-1] < ends[-2]
    assert plan.weight(0, 1) == 100_000


def test_the_timeout_of_the_hint_lets_the_smallest_step_go() -> None:
    """A task that took 40 s fails with 60 s, of which the driver needs the half."""
    with pytest.raises(DeliveryError) as failed:
        TransactionTime(60_000, 30_000).check(40_000, 0)
    assert took_too_long(str(failed.value), 40, 60_000)
    assert not took_too_long("another error", 40, 60_000)
    error = step_too_long("b", str(failed.value), 40, 60_000, by_column=False)
    assert error.hint is not None
    assert error.hint.startswith("set kafka.transaction.timeout.ms=120000 or more")
    assert error.hint.endswith("; with by= a step need not read the whole source")
    TransactionTime(120_000, 60_000).check(40_000, 0)


@pytest.mark.parametrize("steps", [1, 3, 40, 10_000])
def test_a_backfill_by_hash_has_the_steps_that_were_asked_for(steps: int) -> None:
    plan = BackfillPlan(64 * steps)
    sizes = StepSizes(plan, 900_000, steps)
    at = count = 0
    while at < plan.end:
        at, count = sizes.next_end(at), count + 1
    assert count == steps


def test_an_empty_table_has_a_plan_of_one_range() -> None:
    plan = BackfillPlan(64, "day", "int")
    assert plan.weight(0, plan.end) == 1
    assert StepSizes(plan, 900_000).next_end(0) >= 1
