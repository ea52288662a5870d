"""foreach_batch and transaction over Spark Connect, where a function has no local properties."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.datasource.exactly_once.queries import COMMITTED
from tests.notebooks.connect_server import told_by

pytestmark = [pytest.mark.alone, pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]


def test_blocks_and_functions_hold_over_connect(kafka, topic, consume, tmp_path):
    """A replay with other rows is dropped; a second block of one name is refused, nested or not.
    The function's process knows neither the query nor its run, and sees a deleted checkpoint.
    """
    program = Path(__file__).with_name("connect_queries.py")
    told = told_by(program, tmp_path, kafka.bootstrap, tmp_path, topic)
    assert told["function"] == told["block"] == ["", ""]
    assert told["no_mode"] == [""]
    assert "wrote another DataFrame in micro-batch 0" in told["twice"][0]
    assert "they have one name" in told["nested"][0]
    first, other_rows, second, other_checkpoint, again = told["deleted"]
    assert first == second == ""
    assert "other rows under a done number, which would be dropped" in other_rows
    assert "is at batch 1 of query unknown" in other_checkpoint
    assert "is at batch 1 of query unknown" in again
    values = [value.decode().split() for value in consume(topic, isolation=COMMITTED).values]
    twofold = ("twice", "deleted")
    shown = Counter(" ".join(words[: 1 + (words[0] in twofold)]) for words in values)
    assert shown == {
        "function": 2,
        "block": 2,
        "twice a": 2,
        "no_mode": 2,
        "deleted a": 1,
        "deleted b": 1,
    }
