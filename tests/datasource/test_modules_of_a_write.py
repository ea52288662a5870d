"""A write imports the rooms that ``modules_of_a_write.toml`` lists, and no others.

A new module in a listed room is no fault: KPROD_WRITE_MODULES=1 writes the list again.
"""

from __future__ import annotations

import os

import pytest

from tests.datasource.modules_of_a_write import PROCESSES, listed, measured, modules_of, write
from tests.real_kafka import RealKafka

#: Rooms that a task of an at-least-once write has no use for.
NEVER_IN_A_TASK = {
    "admin",
    "config.logins",
    "datasource.exactly_once",
    "network.tls",
    "transactions.commit_log",
}


# Three processes with PySpark and Arrow; exactly-once, which has other modules, is long.
@pytest.mark.broker
@pytest.mark.parametrize(
    "guarantee", ["at-least-once", pytest.param("exactly-once", marks=pytest.mark.long)]
)
def test_a_write_imports_the_listed_rooms_only(kafka: RealKafka, guarantee: str) -> None:
    found = measured(
        {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "topic": kafka.unique_topic("modules"),
            "deliveryGuarantee": guarantee,
        }
    )
    if "KPROD_WRITE_MODULES" in os.environ:
        write(guarantee, found)
    for process in PROCESSES:
        assert found[process].keys() <= modules_of(guarantee, process).keys(), process


def test_each_room_of_a_write_has_a_reason() -> None:
    assert [room for room, entry in listed().items() if not entry["reason"]] == []


def test_a_task_imports_no_room_that_it_does_not_need() -> None:
    task = modules_of("at-least-once", "task")
    assert NEVER_IN_A_TASK & task.keys() == set()
    assert task["datasource.report"] == ["failed_attempts"]
    assert task["transactions"] == ["transactional_ids"]
