"""Threads of a pool write over Spark Connect: a server and a client of its own, and a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.notebooks.connect_server import told_by
from tests.real_kafka import Consumed, RealKafka

pytestmark = [
    *(pytest.mark.long, pytest.mark.spark, pytest.mark.broker),
    pytest.mark.timeout(600),
]


def test_threads_of_a_pool_write_and_start_over_connect(
    kafka: RealKafka, consume: Callable[..., Consumed], tmp_path: Path
) -> None:
    topic = kafka.unique_topic("pool")
    program = Path(__file__).with_name("connect_pool.py")
    assert told_by(program, tmp_path, kafka.bootstrap, tmp_path, topic) == ["", "", ""]
    written = sorted(value for value in consume(topic).values if value is not None)
    assert written == [b"save 0", b"save 1", b"stream a", b"stream b"]
