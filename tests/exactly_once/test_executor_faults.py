"""R02, R08 and lost executors, on two executors that are processes of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import psutil
import pytest

from spark_kafka_sink.protocol.request import ApiKey
from tests.datasource.standalone_cluster import StandaloneCluster, standalone_cluster
from tests.exactly_once.harness import LOST_CLEAN_S, FaultyCluster, of_attempt, of_data
from tests.exactly_once.processes import Driver, executor_of, of_the_checkout
from tests.faults.proxy import Action, Fault, Hit, Side
from tests.waiting import LONG_S

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

CONFS = {
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "2s",
}


@pytest.fixture(scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    home, hosts = tmp_path_factory.mktemp("standalone"), ("127.0.0.1", "127.0.0.2")
    with standalone_cluster(home, hosts, cores=1, **of_the_checkout()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def _started(_cluster) -> Iterator[list[Driver]]:
    drivers: list[Driver] = []
    yield drivers
    for driver in drivers:
        driver.close()


@pytest.fixture
def executors(_world, _cluster, _started) -> Driver:
    """A driver with two executors of one core each, on two hosts."""
    if not _started or not _started[-1].idle:
        for driver in _started:
            driver.close()
        _started.append(Driver(_world.home, master=_cluster.master, confs=CONFS))
    return _started[-1].wait_until_ready()


#: What is held must not be sent again meanwhile.
PATIENT = {"kafka_request_timeout_ms": "240000", "kafka_delivery_timeout_ms": "250000"}


def meet_attempt_0(
    world: FaultyCluster, action: Action, side: Side, then: Callable[[Hit], object]
) -> Fault:
    """The first Produce of task 1's attempt 0 meets the fault, and ``then`` is called. Cold workers
    may bring attempt 1 to the broker first, which must not win before that: it waits.
    """
    met = threading.Event()

    def meet(hit: Hit) -> None:
        then(hit)
        met.set()

    world.faults.add(
        Fault(
            ApiKey.PRODUCE,
            Action.PASS,
            Side.REQUEST,
            match=of_attempt(task=1, attempt=1),
            then=lambda _: met.wait(LONG_S),
        )
    )
    return world.fault(ApiKey.PRODUCE, action, side, match=of_attempt(task=1, attempt=0), then=meet)


@pytest.mark.parametrize("bad", [0, 20], ids=["", "bad rows"])
def test_r02_one_of_two_finished_speculative_attempts_is_visible(world, executors, bad):
    """Neither gets its acknowledgement before both have written everything, or their letters. An
    audit of the report counts no row of the loser.
    """
    scenario = world.scenario("r02", bad=bad, **PATIENT).with_report()
    held = [
        world.fault(
            ApiKey.PRODUCE, Action.HOLD, Side.RESPONSE, match=of_attempt(task=1, attempt=attempt)
        )
        for attempt in (0, 1)
    ]
    executors.begin("batch", **scenario.batch())
    for fault in held:
        executors.wait_until_hit(fault, "the speculative attempt")
    for fault in held:
        fault.release()
    answer = executors.answer()
    assert answer["result"] == "OK", answer
    report = scenario.assert_clean(settle_s=LOST_CLEAN_S)
    assert report.visible == 400
    assert report.aborted >= (1 if bad else 200), "the loser's rows are in the log"
    assert report.letters == (100 if bad else 0)
    scenario.assert_audited(rows=400, letters=100 if bad else 0)


def test_r08_an_attempt_that_was_cut_off_is_refused_afterwards(world, executors):
    """Attempt 0's first Produce is on its way when its executor stands still; attempt 1 runs on
    the other one and is committed. Attempt 0 does not know when it goes on.
    """
    scenario = world.scenario("r08", **PATIENT)
    frozen: list[psutil.Process] = []

    def freeze(hit: Hit) -> None:
        frozen.append(executor_of(hit))
        frozen[0].suspend()

    held = meet_attempt_0(world, Action.HOLD, Side.REQUEST, freeze)
    try:
        executors.succeed("batch", **scenario.batch(fates={"1": {"0": "ABORT"}}))
        assert held.fired == 1
        # The next transaction on those partitions has begun when the old attempt comes back.
        second = world.fault(ApiKey.END_TXN, Action.HOLD, Side.REQUEST, match=of_data)
        executors.begin("batch", **scenario.batch(1))
        executors.wait_until_hit(second)
        held.release()
        assert held.answered.wait(LONG_S), "the old attempt's rows have reached the broker"
        second.release()
        answer = executors.answer()
    finally:
        for executor in frozen:
            executor.resume()
    assert answer["result"] == "OK", answer
    report = scenario.assert_clean()
    assert report.visible == 800


def test_an_executor_dead_after_the_last_ack_is_not_visible(world, executors):
    scenario = world.scenario("lost-executor", **PATIENT)
    fault = meet_attempt_0(world, Action.PASS, Side.RESPONSE, lambda hit: executor_of(hit).kill())
    executors.succeed("batch", **scenario.batch(fates={"1": {"0": "ABORT"}}))
    assert fault.fired == 1
    report = scenario.assert_clean(settle_s=LOST_CLEAN_S)
    assert report.aborted > 0
