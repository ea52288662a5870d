"""Two calls of one backfill at the same time, in simulated time: each row is written once.

The second call takes over, because it takes the process of the first call for dead. But that
process was only suspended, and continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from itertools import combinations
from unittest.mock import patch

import pytest

from spark_kafka_sink.base.errors import SupersededError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.config.sink_config import TXN_GENERATION
from spark_kafka_sink.datasource.exactly_once.transaction_plan import (
    TransactionPlan,
    plan_transactions,
)
from spark_kafka_sink.datasource.jobs.backfill_ledger import BegunStep, Caller, Ledger, Progress
from spark_kafka_sink.datasource.jobs.backfill_plan import BackfillPlan
from spark_kafka_sink.transactions import exactly_once
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import Payload
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from tests.simulation.scene import Scene, scene_of
from tests.simulation.spark_world import LOG_TOPIC, TOPIC

FIRST, SECOND, THIRD = (Caller(f"id{n}", f"host{n}", n) for n in (1, 2, 3))
#: The backfill has one step, with one row.
PLAN = BackfillPlan(8)
#: What remains of the first call when its step is recorded, and the whole second call.
ACTIONS = (2, 5)


def ledger_of(driver: ExactlyOnceDriver) -> Ledger:
    return Ledger(driver.client, CommitLog(driver.client, LOG_TOPIC), driver.plan, "p", "name")


def planned(driver: ExactlyOnceDriver, step: BegunStep, token: str) -> TransactionPlan:
    """As Spark plans the write of ``step``; ``token`` is the token of the Spark driver."""
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:9093", "topic": TOPIC,
        "deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "p",
        "txnAppId": "name", "txnVersion": str(step.version),
        TXN_GENERATION: str(step.generation),
    }  # fmt: skip
    with patch.object(exactly_once, "shared_driver", lambda *_: nullcontext(driver)):
        return plan_transactions(parse_sink_config(options), streaming=False, driver=token)


def call(
    scene: Scene, driver: ExactlyOnceDriver, caller: Caller, token: str, progress: Progress
) -> Iterator[str]:
    """What a call of ``backfill`` does when it owns the records, with a pause after each action."""
    ledger = ledger_of(driver)
    if progress.step is not None:
        progress = ledger.fence(caller).progress
        yield "fenced"
    if progress.at == PLAN.end:
        return
    step = ledger.step(caller, PLAN.end)
    yield "recorded"
    plan = planned(driver, step, token)
    batch = None
    if not plan.skips:
        stem = f"{plan.key}~{plan.owner.run_id}~g{plan.owner.generation}.v{step.version}"
        batch = Batch(step.version, (scene.prepared(f"{stem}~0", "row"),), Payload(1, 3, TOPIC))
    yield "planned"
    if batch is not None:
        try:
            driver.commit(plan.owner, batch)
        except SupersededError:
            driver.abort(plan.owner, batch.number, batch.transactions, tasks_may_run=False)
            raise
    ledger.settle(caller, 1)


def taking_over(
    scene: Scene, driver: ExactlyOnceDriver, caller: Caller, token: str = ""
) -> Iterator[str]:
    """A call that takes every other call for dead."""
    gone = {one.id: None for one in (FIRST, SECOND)}
    progress = ledger_of(driver).claim(caller, gone)
    yield "claimed"
    yield from call(scene, driver, caller, token, progress)


def rows_after(order: tuple[int, ...], token: str) -> list[str]:
    """The visible rows, when the first call does its remaining actions at the places ``order``."""
    scene = scene_of()
    return scene.perform(lambda: play(scene, order, token))


def play(scene: Scene, order: tuple[int, ...], token: str) -> list[str]:
    with scene.driver() as one, scene.driver() as other, scene.driver() as last:
        ledger = ledger_of(one)
        ledger.claim(FIRST, {})
        first = call(scene, one, FIRST, token, ledger.begin(FIRST, PLAN))
        assert next(first) == "recorded"
        second = taking_over(scene, other, SECOND, token)
        for place in range(sum(ACTIONS)):
            with suppress(SupersededError):
                next(first if place in order else second, None)
        for _ in taking_over(scene, last, THIRD):
            pass
        progress, _ = ledger.read()
        assert progress is not None
        assert (progress.at, progress.rows) == (PLAN.end, 1), order
    return scene.values()


@pytest.mark.parametrize("token", ["", "driver"], ids=["two drivers", "one driver"])
def test_a_step_is_written_once_in_every_order_of_two_calls(token: str) -> None:
    orders = combinations(range(sum(ACTIONS)), ACTIONS[0])
    wrong = [order for order in orders if rows_after(order, token) != ["row"]]
    assert wrong == []
