"""A warm producer asks for the state of its last transaction while its task waits for rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from tests.datasource.exactly_once.transaction_plans import RUN
from tests.datasource.exactly_once.worker_tasks import Tasks
from tests.fakes.fake_cluster import FOREVER
from tests.fakes.producer_world import ProducerWorld, texts

DESCRIBE = 65
pytestmark = pytest.mark.simulated


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def world(request: pytest.FixtureRequest) -> ProducerWorld:
    return ProducerWorld(transaction_version=request.param)


def warm(world: ProducerWorld) -> Tasks:
    """A worker whose first task has written a row, which is committed."""
    tasks = Tasks(world)
    world.end(tasks.run(["first"]))
    tasks.done(0)
    world.cluster.arrived.clear()
    return tasks


def id_of(tasks: Tasks, number: int) -> str:
    return f"p~{RUN}~g3.{tasks.worker.ids.token}~{number}"


def arrived(world: ProducerWorld) -> list[str]:
    return [name for _, name in world.cluster.arrived]


def failing(world: ProducerWorld) -> Iterator[str]:
    """An input that fails before its first row."""
    world.scheduler.sleep(10)
    raise OSError("the input broke")
    yield


def test_the_state_is_known_before_the_first_row(world: ProducerWorld) -> None:
    tasks = warm(world)

    def late() -> Iterator[str]:
        world.scheduler.sleep(50)
        assert arrived(world) == ["DESCRIBE_TRANSACTIONS"]
        yield "a"

    prepared = tasks.run(late(), batch_id=1)
    assert arrived(world)[:2] == ["DESCRIBE_TRANSACTIONS", "INIT_PRODUCER_ID"]
    assert tasks.made == 1
    world.end(prepared)
    assert world.values() == texts("a", "first")


@pytest.mark.parametrize("ends", ["no row", "the input fails"])
def test_tasks_without_rows_share_one_request(world: ProducerWorld, ends: str) -> None:
    tasks = warm(world)
    for batch in (1, 2, 3):
        if ends == "no row":
            assert tasks.run([], batch_id=batch) is None
        else:
            with pytest.raises(OSError, match="the input broke"):
                tasks.run(failing(world), batch_id=batch)
        tasks.done(batch)
    assert len(tasks.worker.warm) == 1
    assert "INIT_PRODUCER_ID" not in arrived(world), (
        "an id in the state Empty would be aborted by a sweep"
    )
    prepared = tasks.run(["a"], batch_id=4)
    assert arrived(world)[:2] == ["DESCRIBE_TRANSACTIONS", "INIT_PRODUCER_ID"]
    assert prepared.transactional_id == id_of(tasks, 0)
    assert tasks.made == 1
    world.end(prepared)
    assert world.values() == texts("a", "first")


def test_a_task_without_rows_waits_for_no_coordinator(world: ProducerWorld) -> None:
    tasks = warm(world)
    lost = world.cluster.control.drop(DESCRIBE, FOREVER, processed=False)
    begun = world.scheduler.now
    for _ in range(3):
        assert tasks.run([], batch_id=1) is None
    assert world.scheduler.now == begun
    world.scheduler.sleep(1)
    assert lost.fired == 1, "they share one request"
    lost.stop()
    world.scheduler.sleep(tasks.world.config.request_timeout_ms + 1_000)  # it is sent again
    prepared = tasks.run(["a"], batch_id=1)
    assert prepared.transactional_id == id_of(tasks, 0)
    world.end(prepared)
    assert world.values() == texts("a", "first")


@pytest.mark.parametrize("values", [["a"], []])
def test_an_id_that_was_not_committed_is_found_before_the_rows(
    world: ProducerWorld, values: list[str]
) -> None:
    tasks = Tasks(world)
    loser = tasks.run(["loser"])
    tasks.done(0)
    prepared = tasks.run(values, batch_id=1)
    assert world.state_of(loser.transactional_id) == "Ongoing", "only a sweep may abort it"
    assert (prepared is None) == (not values)
    if prepared is None:
        prepared = tasks.run(["a"], batch_id=1)
    assert prepared.transactional_id == id_of(tasks, 1)
    world.end(prepared)
    world.end(loser, commit=False)
    assert world.values() == texts("a")


@pytest.mark.parametrize("values", [["a"], []])
def test_a_refused_request_fails_only_a_task_with_rows(
    world: ProducerWorld, values: list[str]
) -> None:
    tasks = warm(world)
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    refused = world.cluster.control.answer(DESCRIBE, code, times=1)
    if values:
        with pytest.raises(KafkaError, match=code.name):
            tasks.run(values, batch_id=1)
    else:
        assert tasks.run(values, batch_id=1) is None
        world.scheduler.sleep(50)
    assert refused.fired == 1
    prepared = tasks.run(["a"], batch_id=1)
    assert prepared.transactional_id == id_of(tasks, 1 if values else 0)
    world.end(prepared)
    assert world.values() == texts("a", "first")
