"""The text of a backfill's result, and the line of a step."""

from __future__ import annotations

import pytest

from spark_kafka_sink import BackfillResult, BackfillStep
from spark_kafka_sink.datasource.jobs.backfill_ledger import Progress
from spark_kafka_sink.datasource.jobs.backfill_result import line_of


@pytest.mark.parametrize(
    ("steps", "rows", "size", "shown"),
    [
        (1, 1, 12, "1 step, 1 row, 0.0 MB"),
        (2, 100_000, 9_870_000, "2 steps, 100,000 rows, 9.9 MB"),
        (41, 981_230_114, 90_900_000_000, "41 steps, 981,230,114 rows, 90.9 GB"),
    ],
)
def test_small_and_large_backfills_have_figures_to_read(steps, rows, size, shown):
    result = BackfillResult("orders", True, "", steps, rows, size, 61.0)
    assert str(result) == (
        f"backfill 'orders' is finished: {shown} in 0:01:01. Steps written by this call: 0"
    )


def test_the_line_of_a_step_has_share_totals_rate_and_time_left():
    progress = Progress(steps=17, rows=412_000_000, bytes=38_200_000_000, ms=800_000)
    step = BackfillStep(version=16, rows=1, bytes=510_000_000, seconds=10.0, share=0.4)
    assert line_of("orders", progress, step) == (
        "orders  40%  17 steps  412,000,000 rows  38.2 GB  51.0 MB/s  0:20:00 left"
    )
