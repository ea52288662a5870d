"""A batch that fails for good while one of its tasks has rows in Kafka and goes on.

Spark kills such a task's process: it says no goodbye, and its transaction stays open unless
somebody ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_kafka_sink.protocol.request import ApiKey
from tests.exactly_once.harness import Scenario, of_batch
from tests.faults.proxy import Action, Fault, Side

#: Rows go to Kafka before their task is over.
EAGER = {"kafka_linger_ms": "0", "kafka_batch_size": "4000"}
#: Bytes of a row: Spark keeps small ones back until there are some more.
SIZE = 2000


def half_written(
    scenario: Scenario, batch: int, see: Callable[[], object] = lambda: None
) -> tuple[Fault, list[dict[str, Any]]]:
    """The fault that fires when task 0 of ``batch`` has rows in Kafka (``see`` is called then),
    and what makes task 1 throw from then on, while task 0 sleeps with half of its rows.
    """
    marks = scenario.marks()
    there = marks / f"written-{batch}"
    there.unlink(missing_ok=True)

    def reach() -> None:
        see()
        there.touch()

    reached = scenario.world.fault(
        ApiKey.PRODUCE,
        Action.PASS,
        Side.RESPONSE,
        match=of_batch(batch, 0),
        then=lambda _: reach(),
    )
    here = {"batch": batch, "marks": str(marks)}
    return reached, [
        {**here, "task": 0, "after": 100, "how": "sleep", "seconds": 60},
        {**here, "task": 1, "after": 0, "how": "wait", "until": str(there)},
        {**here, "task": 1, "after": 50, "how": "raise"},
    ]
