"""The watch finds every planted stall, and none where readers go on."""

from __future__ import annotations

from tests.exactly_once.stalls import Places, Stall, worst_stall

END = (10.0, "batch 3, OK")


def looks(*stable: tuple[float, int, int]) -> list[tuple[float, Places]]:
    """Time, end and last stable offset of the one partition."""
    return [(at, {0: (high, lso)}) for at, high, lso in stable]


def test_a_stable_partition_at_the_end_of_a_batch_is_no_stall() -> None:
    found = worst_stall(looks((9.9, 50, 50), (10.1, 50, 50)), [END])
    assert found is not None
    assert found.seconds < 0.2


def test_an_open_transaction_after_the_end_is_a_stall() -> None:
    seen = looks((9.9, 50, 20), *((10 + n / 5, 50, 20) for n in range(1, 40)), (18.0, 50, 51))
    found = worst_stall(seen, [END])
    assert found == Stall("batch 3, OK", 0, found.seconds)
    assert 7.9 < found.seconds < 8.1


def test_a_stall_that_never_ends_lasts_until_the_last_look() -> None:
    seen = looks((9.9, 50, 20), *((10 + n / 2, 50, 20) for n in range(1, 13)))
    found = worst_stall(seen, [END])
    assert found is not None
    assert found.seconds == 6.0


def test_the_next_batchs_open_transactions_are_no_stall() -> None:
    seen = looks((9.9, 50, 50), *((10 + n / 5, 90, 50) for n in range(1, 60)))
    found = worst_stall(seen, [END])
    assert found is not None
    assert found.seconds < 0.3


def test_unobserved_time_counts_as_a_second() -> None:
    found = worst_stall(looks((9.9, 50, 20), (40.0, 50, 50)), [END])
    assert found is not None
    assert found.seconds == 1.0


def test_the_worst_of_several_ends_and_partitions_is_reported() -> None:
    seen: list[tuple[float, Places]] = [
        (9.9, {0: (5, 5), 1: (7, 6)}),
        (10.5, {0: (5, 5), 1: (7, 6)}),
        (10.9, {0: (9, 5), 1: (7, 7)}),
        (11.5, {0: (9, 9), 1: (7, 7)}),
    ]
    found = worst_stall(seen, [END, (11.0, "batch 4, FAIL")])
    assert found is not None
    assert (found.end, found.partition) == ("batch 3, OK", 1)
    assert worst_stall(seen, []) is None
