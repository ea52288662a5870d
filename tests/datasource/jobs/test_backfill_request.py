"""The requests of a backfill to the driver: each call of the ledger, with its answer or error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from asked_in_process import SessionInProcess
from pyspark.sql import SparkSession

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, SupersededError
from spark_kafka_sink.datasource.jobs.backfill_ledger import Caller
from spark_kafka_sink.datasource.jobs.backfill_plan import BackfillPlan
from spark_kafka_sink.datasource.jobs.backfill_request import LedgerOnDriver
from spark_kafka_sink.transactions import exactly_once
from tests.real_kafka import RealKafka

ONE, OTHER = (Caller(f"id{n}", f"host{n}", n) for n in (1, 2))
PLAN = BackfillPlan(8, "day", "int", ("1", "2"), (5, 5, 5), facts={"topic": "t"})


@pytest.fixture
def options(kafka: RealKafka) -> Iterator[dict[str, Any]]:
    yield {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": "t",
        "deliveryGuarantee": "exactly-once",
        "commitLogTopic": kafka.unique_topic("log", configs={"cleanup.policy": "compact"}),
        "transactionalIdPrefix": "asked",
        "kafka.transaction.timeout.ms": 70_000,
    }
    kept = exactly_once._shared()
    while kept:
        kept.popitem()[1].close()


def ledger_of(options: dict[str, Any], caller: Caller = ONE) -> LedgerOnDriver:
    return LedgerOnDriver(cast("SparkSession", SessionInProcess()), "name", caller, options)


def test_a_plan_and_its_progress_come_back_as_they_were_recorded(options: dict[str, Any]) -> None:
    ledger = ledger_of(options)
    claimed = ledger.claim({})
    assert (claimed.plan, claimed.progress.caller, claimed.timeout_ms) == (None, ONE, 70_000)
    assert ledger.begin(PLAN).at == 0
    step = ledger.step(3)
    settled = ledger.settle(1_500)
    assert (settled.progress.at, settled.progress.ms, settled.progress.step) == (3, 1_500, None)
    assert settled.payload is None, "the step had no rows"
    again = ledger.step(6)
    assert again.version >= step.version
    ledger.beat()
    fenced = ledger.fence().progress
    assert (fenced.at, fenced.step) == (3, None), "it was not committed"
    ledger.release()
    later = ledger_of(options, OTHER).claim({})
    assert later.plan == PLAN
    assert (later.progress.at, later.progress.caller) == (3, OTHER)


def test_the_facts_of_a_plan_are_the_options_that_change_its_rows(options: dict[str, Any]) -> None:
    more = {"kafka.partitioner.class": "murmur2", "keyColumns": "id", "kafka.linger.ms": 7}
    facts = ledger_of(options | more).claim({}).facts
    assert facts["kafka.partitioner.class"] == "murmur2"
    assert facts["topic"] == "t"
    assert not {name for name in facts if "linger" in name or "bootstrap" in name}


def test_a_second_caller_has_no_plan_and_its_steps_are_refused(options: dict[str, Any]) -> None:
    first, second = ledger_of(options), ledger_of(options, OTHER)
    first.claim({})
    first.begin(PLAN)
    found = second.claim({})
    assert (found.plan, found.progress.caller) == (None, ONE)
    with pytest.raises(SupersededError) as raised:
        second.step(3)
    assert raised.value.kind is Kind.BACKFILL_RUNS
    assert "host1" in raised.value.message
    assert first.step(3).version >= 0


def test_an_option_that_is_wrong_is_an_error_of_the_caller(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.acks"):
        ledger_of(options | {"kafka.acks": "7"}).claim({})
