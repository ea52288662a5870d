"""Java's formula of exponential backoff."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.backoff import ExponentialBackoff


def test_the_wait_doubles_up_to_the_maximum() -> None:
    backoff = ExponentialBackoff(100, 1000, random=lambda: 0.5)
    assert [backoff.backoff(n) for n in range(6)] == [100, 200, 400, 800, 1000, 1000]


@pytest.mark.parametrize(("random", "factor"), [(0.0, 0.8), (0.25, 0.9), (0.75, 1.1)])
def test_the_wait_is_spread_by_a_fifth(random: float, factor: float) -> None:
    backoff = ExponentialBackoff(100, 10_000, random=lambda: random)
    assert backoff.backoff(2) == pytest.approx(400 * factor, abs=1)


def test_the_spread_never_lifts_a_wait_above_the_maximum() -> None:
    assert ExponentialBackoff(100, 1000, random=lambda: 0.999).backoff(50) == 1000


@pytest.mark.parametrize(("initial", "most"), [(1000, 1000), (2000, 1000)])
def test_a_base_at_or_above_the_maximum_has_no_jitter(initial: int, most: int) -> None:
    backoff = ExponentialBackoff(initial, most, random=lambda: 0.0)
    assert [backoff.backoff(n) for n in (0, 1, 30)] == [1000] * 3


def test_a_base_of_nothing_waits_nothing() -> None:
    assert ExponentialBackoff(0, 1000).backoff(5) == 0


@given(
    st.integers(1, 10_000), st.integers(1, 100_000), st.integers(0, 2**31), st.floats(0, 0.999999)
)
def test_a_wait_stays_within_its_bounds(
    initial: int, most: int, attempts: int, random: float
) -> None:
    wait = ExponentialBackoff(initial, most, random=lambda: random).backoff(attempts)
    assert int(min(initial, most) * 0.8) <= wait <= most
