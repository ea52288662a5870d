"""A warm producer asks for the state of its last transaction while its task waits for rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import AuthorizationError, ErrorCode
from tests.datasource.exactly_once.transaction_plans import RUN, plan
from tests.datasource.exactly_once.worker_tasks import Tasks
from tests.fakes.fake_cluster import FOREVER
from tests.fakes.producer_world import INIT, ProducerWorld, texts

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
@pytest.mark.parametrize(
    "code", [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_a_request_refused_before_the_rows_fails_no_task(
    world: ProducerWorld, code: ErrorCode, values: list[str]
) -> None:
    """The rows may come minutes later, when brokers accept the request."""
    tasks = warm(world)
    refused = world.cluster.control.answer(DESCRIBE, code, times=1)

    def late() -> Iterator[str]:
        world.scheduler.sleep(600_000)
        assert refused.fired == 1
        yield from values

    prepared = tasks.run(late(), batch_id=1) or tasks.run(["a"], batch_id=1)
    assert prepared.transactional_id == id_of(tasks, 1 if values else 0)
    world.end(prepared)
    assert world.values() == texts("a", "first")


def test_a_request_that_is_refused_again_fails_the_task(world: ProducerWorld) -> None:
    """With the error of the request, not with the error of a producer that had failed before."""
    tasks = warm(world)
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    refusals = [world.cluster.control.answer(api, code, FOREVER) for api in (DESCRIBE, INIT)]

    def late() -> Iterator[str]:
        world.scheduler.sleep(50)
        yield "a"

    with pytest.raises(AuthorizationError, match=code.name):
        tasks.run(late(), batch_id=1)
    assert [fault.fired for fault in refusals] == [1, 1]


# --- the cache of producers --------------------------------------------------------------------


@pytest.mark.parametrize("takes_over", [False, True])
def test_a_worker_keeps_the_producers_of_its_two_tasks(
    world: ProducerWorld, takes_over: bool
) -> None:
    """Also after the first batch of a run, whose ids have the generation of the run before it."""
    tasks = Tasks(world)
    for batch in range(6):
        for prepared in [tasks.run([f"{batch}{x}"], batch_id=batch) for x in "ab"]:
            world.end(prepared)
        tasks.done(batch)
        if batch == 0 and takes_over:
            state = replace(tasks.plan.state, generation=tasks.plan.state.generation + 1)
            tasks.plan = replace(tasks.plan, state=state)
    assert tasks.made == (4 if takes_over else 2)


@pytest.mark.parametrize("changes", ["run", "options", "three keys"])
def test_a_producer_that_is_not_kept_closes_without_a_response(
    world: ProducerWorld, changes: str
) -> None:
    """Its coordinator is silent, and the task of another run, key or config needs nothing of it."""
    tasks = warm(world)
    plans = {key: plan(key=key) for key in ("q", "r")}
    if changes == "three keys":
        first, tasks.plan = tasks.plan, plans["q"]
        world.end(tasks.run(["first"]))
        done = replace(plans["q"], state=replace(plans["q"].state, last_done=0))
        tasks.plan = first
    lost = world.cluster.control.drop(DESCRIBE, FOREVER, processed=False)
    assert tasks.run([], batch_id=1) is None
    if changes == "three keys":
        tasks.plan = done
        assert tasks.run([], batch_id=1) is None
        tasks.plan = plans["r"]
    elif changes == "options":
        world.config = replace(world.config, linger_ms=1)
    world.scheduler.sleep(5)
    assert lost.fired
    begun = world.scheduler.now
    who = {"run_id": "another"} if changes == "run" else {}
    tasks.run([] if changes == "options" else ["a"], batch_id=2, **who)
    assert world.scheduler.now - begun < 100
