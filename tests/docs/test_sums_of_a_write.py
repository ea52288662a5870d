"""The table of docs/clusters.md has the sums that a real worker is compared with."""

from __future__ import annotations

import re
from pathlib import Path

from tests.datasource.sums_of_a_write import Load

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "clusters.md").read_text("utf-8")
MIB = 1 << 20


def test_the_table_has_the_sums_of_an_executor():
    rows = re.findall(r"^\| ([\d ]+) \| (\d+) MiB \| (\d+) MiB \| (\d+)m \|$", PAGE, re.MULTILINE)
    assert len(rows) == 3
    for size, batch, worker, overhead in rows:
        load = Load(tasks=40, leaders=3, row_bytes=int(size.replace(" ", "")))
        found = (load.arrow_batch, load.worker, load.memory_overhead)
        assert [round(one / MIB) for one in found[:2]] == [int(batch), int(worker)], size
        assert -(-load.memory_overhead // MIB) == int(overhead), size
