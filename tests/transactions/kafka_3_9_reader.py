"""Reads what is committed on a Kafka 3.9."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.real_kafka import RealKafka, consume_topic

COMMITTED = "read_committed"


def visible(kafka: RealKafka, topic: str, expected: Sequence[str]) -> bool:
    """A read_committed reader sees exactly these rows, once the markers are written (within
    milliseconds of the EndTxn's answer) and nothing is open.
    """
    wanted = sorted(value.encode() for value in expected)
    deadline = time.monotonic() + 60
    while True:
        found = sorted(
            v or b"" for v in consume_topic(kafka.bootstrap, topic, isolation=COMMITTED).values
        )
        if found == wanted:
            return True
        assert time.monotonic() < deadline, f"{found} in place of {wanted}"
