"""The calls that a batch costs (bench/batch_cost.py) may not grow unseen."""

from __future__ import annotations

import pytest

from bench.batch_cost import CASES, Case, measure

#: Calls of Python and of C functions for a batch: the goal where it is reached narrowly; else as
#: measured, and a few more for what another version of numpy or of the interpreter may count.
#: (With batches of 256 KiB, twice as many, it was 100 and 80 at 1 KB.)
BOUNDS = {"1 KB, 12 partitions": (106, 98), "100 B, 1000 partitions": (38, 58)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_batch_takes_no_more_calls_than_it_did(case: Case) -> None:
    cost = measure(case)
    python, c = BOUNDS[case.name]
    assert cost.python_per_batch <= python, cost.functions.most_common(40)
    assert cost.c_per_batch <= c, cost.functions.most_common(40)
