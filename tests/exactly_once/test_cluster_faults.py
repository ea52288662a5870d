"""What a cluster does to a job: workers, executors and Python workers that go, brokers that stall.

Each fault waits for the first rows of task 1's attempt 0 on their way to a broker, and every row is
visible once afterwards. Speculation, a frozen and a killed executor: ``test_executor_faults.py``.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil
import pytest

from spark_kafka_sink.protocol.request import ApiKey
from tests.datasource.standalone_cluster import StandaloneCluster, standalone_cluster
from tests.exactly_once.harness import LOST_CLEAN_S, FaultyCluster, of_attempt
from tests.exactly_once.processes import Driver, executor_of, of_the_checkout, sender_of
from tests.faults.proxy import Action, Fault, Hit, Side
from tests.programs import is_running
from tests.waiting import wait_for

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
CONFS = {
    "spark.executor.memory": "512m",
    "spark.decommission.enabled": "true",
    # An attempt that runs alone must not be doubled: each test counts what was lost.
    "spark.speculation": "false",
    "spark.executor.instances": "1",
}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    home = tmp_path_factory.mktemp("cluster-faults")
    with standalone_cluster(home, HOSTS, cores=1, **of_the_checkout()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def _started(_world, standalone) -> Iterator[Driver]:
    driver = Driver(_world.home, master=standalone.master, confs=CONFS)
    yield driver.wait_until_ready()
    driver.close()


@pytest.fixture
def spread(_started) -> Driver:
    """A driver with three executors of one core each; a test may leave one less."""
    assert _started.idle, _started.log_tail()
    return _started


def when_task_1_sends(world: FaultyCluster, then: Callable[[Hit], object]) -> Fault:
    """``then`` is called when its first rows are at the proxy, before they go on."""
    return world.fault(
        ApiKey.PRODUCE, Action.PASS, Side.REQUEST, match=of_attempt(task=1, attempt=0), then=then
    )


def lost_attempts(scenario) -> int:
    (line,) = (scenario.home / "report.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert told["outcome"] == "committed"
    return int(told["lostAttempts"])


def run(scenario, driver: Driver, **more) -> None:
    scenario.options["reportPath"] = str(scenario.home / "report.jsonl")
    driver.succeed("batch", **scenario.batch(tasks=4, **more))


def executors_of(cluster: StandaloneCluster) -> list[psutil.Process]:
    """Their JVMs, which run in folders of its workers."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.name() == "java" and one.cwd().startswith(str(cluster.home)):
                found.append(one)
    return [one for one in found if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline())]


def test_a_standalone_cluster_ignores_the_number_of_executors(standalone, world, spread):
    """So no share of a rate limit may rest on it (``datasource/write/rate_limit.py``)."""
    spread.succeed("batch", **world.scenario("instances").batch())
    wait_for(lambda: len(executors_of(standalone)) == len(HOSTS), 120, "an executor on each host")


def test_a_killed_python_worker_loses_and_doubles_no_row(world, spread):
    scenario = world.scenario("python-worker")
    fault = when_task_1_sends(world, lambda hit: sender_of(hit).kill())
    run(scenario, spread, fates={"1": {"0": "ABORT"}})
    assert fault.fired == 1
    assert scenario.assert_clean(settle_s=LOST_CLEAN_S).visible == 400
    assert lost_attempts(scenario) == 1


def test_a_broker_that_stands_still_loses_and_doubles_no_row(world, spread):
    """It goes on when the client has given its connection up and asks for a new one."""
    scenario = world.scenario("frozen-broker")
    frozen: list[int] = []
    thawed = threading.Event()

    def freeze(hit: Hit) -> None:
        frozen.append(sender_of(hit).pid)
        for node in world.kafka.nodes:
            node.freeze()

    def thaw(_: Hit) -> None:
        for node in world.kafka.nodes:
            node.thaw()
        thawed.set()

    when_task_1_sends(world, freeze)
    again = world.fault(
        ApiKey.API_VERSIONS,
        Action.PASS,
        Side.REQUEST,
        match=lambda hit: bool(frozen) and sender_of(hit).pid == frozen[0],
        then=thaw,
    )
    try:
        run(scenario, spread)
    finally:
        if frozen and not thawed.is_set():
            thaw(again)  # type: ignore[arg-type] - a test that fails leaves no broker frozen
    assert again.fired == 1
    assert scenario.assert_clean().visible == 400


def test_a_decommissioned_executor_loses_and_doubles_no_row(world, spread):
    """As a spot instance or a pod that is told to go: it ends when its tasks have."""
    scenario = world.scenario("decommission")
    told: list[psutil.Process] = []

    def decommission(hit: Hit) -> None:
        told.append(executor_of(hit))
        told[0].send_signal(signal.SIGPWR)

    when_task_1_sends(world, decommission)
    run(scenario, spread)
    wait_for(lambda: not is_running(told[0].pid), 120, "the executor to go")
    assert scenario.assert_clean(settle_s=LOST_CLEAN_S).visible == 400


def test_a_stage_behind_a_lost_shuffle_loses_and_doubles_no_row(world, spread):
    """The rows of the killed executor's half of the shuffle are made again, in another attempt of
    the stage, whose attempts of tasks count from 0 again.
    """
    scenario = world.scenario("fetch-failure")
    fault = when_task_1_sends(world, lambda hit: executor_of(hit).kill())
    run(scenario, spread, shuffle=True)
    assert fault.fired == 1
    text = spread.log.read_text(errors="replace")
    assert "FetchFailed" in text or "MetadataFetchFailedException" in text, spread.log_tail()
    assert scenario.assert_clean(settle_s=LOST_CLEAN_S).visible == 400


def test_a_killed_worker_loses_and_doubles_no_row(standalone, world, spread):
    """The machine is gone, with its executor and its Python."""
    scenario = world.scenario("worker")
    killed: list[psutil.Process] = []
    hosts: list[str] = []

    def kill(hit: Hit) -> None:
        executor = executor_of(hit)
        worker = executor.parent()
        assert worker is not None
        command = worker.cmdline()
        assert "org.apache.spark.deploy.worker.Worker" in command
        hosts.append(command[command.index("--host") + 1])
        killed.extend([worker, executor, sender_of(hit)])
        for process in killed:
            process.suspend()  # neither may start anything when the other has gone
        for process in killed:
            process.kill()

    when_task_1_sends(world, kill)
    run(scenario, spread, fates={"1": {"0": "ABORT"}})
    assert len(killed) == 3
    standalone.start_worker(hosts[0])  # for the next round
    assert scenario.assert_clean(settle_s=LOST_CLEAN_S).visible == 400
    assert lost_attempts(scenario) >= 1
