"""Producers with transactional ids: what a task gets, what stays warm, what a failure leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import DeliveryError, ErrorCode, KafkaError, KafkaTimeoutError
from spark_kafka_sink.datasource.write.write_context import WriteContext
from spark_kafka_sink.transactions.ownership import Numbering
from tests.datasource.exactly_once.transaction_plans import JOB, RUN
from tests.datasource.exactly_once.worker_tasks import Tasks
from tests.fakes.fake_cluster import FOREVER
from tests.fakes.producer_world import END, INIT, ProducerWorld, texts

PRODUCE, ADD_PARTITIONS, DESCRIBE = 0, 24, 65
pytestmark = pytest.mark.simulated


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def world(request: pytest.FixtureRequest) -> ProducerWorld:
    return ProducerWorld(transaction_version=request.param)


@pytest.fixture
def tasks(world: ProducerWorld) -> Tasks:
    return Tasks(world)


def test_a_jobs_attempt_has_its_own_id_and_closes_its_producer(world: ProducerWorld, tasks: Tasks):
    """Also inside of a query, or beside one: its run is its context's."""
    tasks = Tasks(world, **JOB)
    token = tasks.worker.ids.token
    first = tasks.run(["a"], query_id="", run_id="", batch_id=-1, task_attempt_id=4)
    again = tasks.run(["a"], run_id="a-streams", batch_id=7, task_attempt_id=9)
    ids = [f"p~j0b~j0b~g3.{token}~{k}" for k in (0, 1)]
    assert [first.transactional_id, again.transactional_id] == ids
    assert all(network.closed for network in world.networks)
    assert world.asked == [("init", i) for i in ids]
    world.end(first, commit=False)
    world.end(again)
    assert world.values() == texts("a")


def test_a_versions_ids_are_its_runs_own_and_nothing_stays_warm(world: ProducerWorld):
    """Another version is another job, with a run of its own: it never comes back to these ids."""
    tasks = Tasks(world, key="p~app", numbering=Numbering.VERSIONS, number=3,
                  context=WriteContext("run-3"))  # fmt: skip
    world.end(tasks.run(["a"], query_id="", run_id="", batch_id=-1))
    tasks.done(3)
    tasks.plan = replace(tasks.plan, context=WriteContext("run-4"), number=4)
    prepared = tasks.run(["b"], query_id="", run_id="", batch_id=-1)
    token = tasks.worker.ids.token
    assert prepared.transactional_id == f"p~app~run-4~g3.{token}~0"
    assert len(tasks.worker.warm) == 0
    assert all(network.closed for network in world.networks)
    world.end(prepared)
    assert world.values() == texts("a", "b")


@pytest.mark.parametrize("way", ["stream", "foreach_batch"])
def test_a_warm_producer_is_reused_after_its_batch_is_done(world: ProducerWorld, way: str):
    key, run, who = "p", RUN, {}
    tasks = Tasks(world)
    if way == "foreach_batch":
        key, run, who = "p~name", "run-f", {"query_id": "", "run_id": "", "batch_id": -1}
        tasks = Tasks(world, key=key, context=WriteContext(run, "q"), number=0,
                      numbering=Numbering.MICRO_BATCHES)  # fmt: skip
    identities = set()
    for n in range(4):
        if who:
            tasks.plan = replace(tasks.plan, number=n)
        prepared = [tasks.run([f"{n}{x}"], **({"batch_id": n} | who)) for x in "ab"]
        ids = [f"{key}~{run}~g3.{tasks.worker.ids.token}~{k}" for k in (0, 1)]
        assert [p.transactional_id for p in prepared] == ids
        identities |= {(p.producer_id, p.producer_epoch) for p in prepared}
        for p in prepared:
            world.end(p)
        tasks.done(n)
    assert tasks.made == 2
    assert len(identities) == 8, "a producer id and epoch is one transaction"
    assert len(world.values()) == 8


def test_without_the_drivers_word_nothing_warm_is_touched(world: ProducerWorld, tasks: Tasks):
    first = tasks.run(["a"], batch_id=0)
    second = tasks.run(["b"], batch_id=1)  # planned with last_done -1: 0 is not over
    assert first.transactional_id != second.transactional_id
    assert world.state_of(first.transactional_id) == "Ongoing"
    world.end(first)
    world.end(second)
    assert world.values() == texts("a", "b")


def test_a_partition_without_rows_takes_no_id_and_no_connection(world: ProducerWorld, tasks: Tasks):
    assert tasks.run([]) is None
    assert (tasks.made, world.asked) == (0, [])
    assert tasks.run(["a"]).transactional_id.endswith("~0")


def test_a_failed_attempt_aborts_and_its_id_is_not_used_again(world: ProducerWorld, tasks: Tasks):
    with pytest.raises(OSError, match="the input broke"):
        tasks.run(["x", "y"], fails=True)
    failed = f"p~{RUN}~g3.{tasks.worker.ids.token}~0"
    world.scheduler.sleep(100)
    assert world.state_of(failed) != "Ongoing"
    retried = tasks.run(["x", "y"])
    assert retried.transactional_id.endswith("~1")
    world.end(retried)
    assert world.values() == texts("x", "y")
    assert len(world.values(committed=False)) >= 2
    tasks.done(0)
    assert tasks.run(["z"], batch_id=1).transactional_id.endswith("~1")


@pytest.mark.parametrize("state", ["CompleteAbort", "Ongoing"])
def test_an_id_whose_transaction_was_not_committed_is_not_taken(
    world: ProducerWorld, tasks: Tasks, state: str
):
    """More of them than a task tries ids whose InitProducerId times out."""
    first = [tasks.run(["x"], batch_id=0) for _ in range(5)]
    if state != "Ongoing":
        for prepared in first:
            world.end(prepared, commit=False)
    tasks.done(0)
    second = tasks.run(["a"], batch_id=1)
    assert second.transactional_id.endswith("~5")
    world.end(second)
    tasks.done(1)
    assert {world.state_of(one.transactional_id) for one in first} == {state}
    assert tasks.run(["b"], batch_id=2).transactional_id == second.transactional_id


@pytest.mark.parametrize("api", [INIT, DESCRIBE], ids=["a new id", "an id of before"])
def test_a_task_whose_id_gets_no_answer_names_the_broker(
    world: ProducerWorld, tasks: Tasks, api: int
):
    """And says nothing of calls, which are not the user's."""
    if api == DESCRIBE:
        world.end(tasks.run(["a"]))
        tasks.done(0)
    lost = world.cluster.control.drop(api, FOREVER)
    with pytest.raises(KafkaTimeoutError, match=r"in time; tried 127\.0\.0\.1:") as raised:
        tasks.run(["b"], batch_id=1)
    assert lost.fired
    hint = "see whether its brokers run and can be reached: 'kprod check'"
    assert raised.value.hint == hint
    assert all(network.closed for network in world.networks)
    lost.stop()
    world.end(tasks.run(["b"], batch_id=1))
    assert texts("b")[0] in world.values()


def test_the_first_error_stays_when_the_abort_gets_no_answer(world: ProducerWorld, tasks: Tasks):
    lost = [world.cluster.control.drop(api, FOREVER, processed=False, nth=n)
            for api, n in ((END, 1), (INIT, 2))]  # fmt: skip
    start = world.scheduler.now
    with pytest.raises(OSError, match="the input broke"):
        tasks.run(["x"], fails=True)
    assert world.scheduler.now - start < 10_000
    assert any(fault.fired for fault in lost)


@pytest.mark.parametrize("processed", [False, True])
def test_an_id_whose_init_producer_id_timed_out_is_never_used(
    world: ProducerWorld, tasks: Tasks, processed: bool
):
    """It may still be on its way, and would abort the transaction that the next one began."""
    lost = world.cluster.control.cut(INIT, processed=processed)
    token = tasks.worker.ids.token
    for batch in range(3):
        prepared = tasks.run([f"{batch}"], batch_id=batch)
        assert prepared.transactional_id == f"p~{RUN}~g3.{token}~1"
        world.end(prepared)
        tasks.done(batch)
    assert lost.fired == 1
    assert world.values() == texts("0", "1", "2")
    assert ("init", f"p~{RUN}~g3.{token}~0") in world.asked


def test_a_warm_producer_with_a_timed_out_identity_is_replaced(world: ProducerWorld, tasks: Tasks):
    world.end(tasks.run(["a"], batch_id=0))
    tasks.done(0)
    world.cluster.control.cut(INIT)  # it is done, and only its answer gets lost
    prepared = tasks.run(["b"], batch_id=1)
    assert prepared.transactional_id.endswith("~1")
    world.end(prepared)
    assert world.values() == texts("a", "b")


def test_a_batch_jobs_attempt_takes_another_id_too(world: ProducerWorld):
    tasks = Tasks(world, **JOB)
    lost = world.cluster.control.cut(INIT)
    prepared = tasks.run(["a"], query_id="", run_id="", batch_id=-1, task_attempt_id=4)
    assert lost.fired == 1
    assert prepared.transactional_id == f"p~j0b~j0b~g3.{tasks.worker.ids.token}~1"
    world.end(prepared)
    assert world.values() == texts("a")
    assert all(network.closed for network in world.networks)


@pytest.mark.parametrize("processed", [False, True])
@pytest.mark.parametrize("world", [1], indirect=True, ids=["version 1"])
def test_an_attempt_with_a_lost_add_partitions_is_not_prepared(
    world: ProducerWorld, tasks: Tasks, processed: bool
):
    """Behind the commit it would open another transaction, which would look like one that is lost.
    With version 2 there is no such request.
    """
    lost = world.cluster.control.cut(ADD_PARTITIONS, processed=processed)
    with pytest.raises(KafkaTimeoutError, match="AddPartitionsToTxn for 'p~") as raised:
        tasks.run(["a"])
    assert lost.fired == 1
    assert "Spark starts another one" in raised.value.hint
    world.scheduler.sleep(100)
    assert world.state_of(f"p~{RUN}~g3.{tasks.worker.ids.token}~0") != "Ongoing"
    again = tasks.run(["a"])
    world.end(again)
    assert world.values() == texts("a")


def test_a_task_fails_when_every_init_producer_id_times_out(world: ProducerWorld, tasks: Tasks):
    token = tasks.worker.ids.token
    for n in (1, 2, 3):  # the first one of each id: a fault does not count what another met
        world.cluster.control.cut(INIT, nth=n)
    last = f"InitProducerId for 'p~{RUN}~g3.{token}~2'"
    with pytest.raises(KafkaTimeoutError, match=last) as raised:
        tasks.run(["a"])
    assert "the next attempt has another transactional.id" in str(raised.value.hint)
    assert world.values(committed=False) == []
    prepared = tasks.run(["a"])
    assert prepared.transactional_id == f"p~{RUN}~g3.{token}~3"
    world.end(prepared)
    assert world.values() == texts("a")


def test_the_id_of_an_attempt_without_a_response_is_not_used_again(world: ProducerWorld) -> None:
    """``max.block.ms`` was over before ``request.timeout.ms``, so nothing was sent again. The
    request that is still in flight would abort the transaction of a later task.
    """
    tasks = Tasks(world)
    lost = world.cluster.control.drop(INIT, FOREVER, processed=False)
    with pytest.raises(KafkaError, match="did not complete in time"):
        tasks.run(["a"])
    assert lost.fired == 1
    lost.stop()
    world.end(tasks.run(["a"]))
    tasks.done(0)
    prepared = tasks.run(["b"], batch_id=1)
    assert prepared.transactional_id == f"p~{RUN}~g3.{tasks.worker.ids.token}~1"
    world.end(prepared)
    assert world.values() == texts("a", "b")


def test_a_forbidden_id_fails_the_task_before_anything_is_sent(world: ProducerWorld, tasks: Tasks):
    world.cluster.control.answer(INIT, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, FOREVER)
    with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        tasks.run(["x"])
    assert world.values(committed=False) == []
    assert all(network.closed for network in world.networks)


def test_a_warm_producer_is_not_reused_under_another_config(world: ProducerWorld, tasks: Tasks):
    world.end(tasks.run(["a"], batch_id=0))
    tasks.done(0)
    world.config = replace(world.config, linger_ms=1)
    second = tasks.run(["b"], batch_id=1)
    assert second.transactional_id.endswith("~0")
    assert tasks.made == 2
    assert [network.closed for network in world.networks] == [True, False]
    world.end(second)
    assert world.values() == texts("a", "b")


def test_warm_producers_of_an_earlier_run_are_closed(world: ProducerWorld, tasks: Tasks):
    old = tasks.run(["a"], batch_id=0)
    tasks.run(["b"], batch_id=0, run_id="another")
    assert [network.closed for network in world.networks] == [True, False]
    assert world.state_of(old.transactional_id) == "Ongoing", "the driver decides on it"


def test_a_task_aborts_when_its_transaction_has_no_time_left(world: ProducerWorld, tasks: Tasks):

    class Slow(list):
        def __iter__(self):
            yield "a"
            world.scheduler.sleep(30_001)
            yield "b"

    with pytest.raises(DeliveryError, match=r"kafka\.transaction\.timeout\.ms \(60000\)") as e:
        tasks.run(Slow())
    assert "transaction.max.timeout.ms" in e.value.hint
    world.scheduler.sleep(100)
    assert world.values() == []
    assert world.state_of(f"p~{RUN}~g3.{tasks.worker.ids.token}~0") != "Ongoing"
