"""upserts in a session of Spark Connect, whose client has no JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebooks.connect_server import told_by

PROGRAM = Path(__file__).with_name("upserts_over_connect.py")


@pytest.mark.long
@pytest.mark.spark
def test_the_last_changes_are_the_same_over_connect(tmp_path):
    changes, events = told_by(PROGRAM, tmp_path)
    assert changes == [[1, "delete"], [2, "delete"], [3, "update_postimage"]]
    assert events == ["c", "d"]
