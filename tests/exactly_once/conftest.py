"""A cluster behind proxies, and Spark drivers to write into it.

``KPROD_FAULT_ROUNDS`` (how often each scenario runs) and ``KPROD_FAULT_NODES`` (1 or 3) are set by
``make faults``; plain pytest runs each scenario once, on one node.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.exactly_once.harness import FaultyCluster, Found, proxied_cluster
from tests.exactly_once.processes import Driver
from tests.exactly_once.results import WORLDS, Results

NODES = int(os.environ.get("KPROD_FAULT_NODES", "1"))
ROUNDS = int(os.environ.get("KPROD_FAULT_ROUNDS", "1"))
#: A transaction whose time is over is looked for each second, in place of each ten.
SOON_ABORTED = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
_results = Results.from_environment()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Scenarios take ``world``; each runs as often as asked. (A stream's many kills are rounds.)"""
    once = "repeatedly_killed" in metafunc.function.__name__
    if ROUNDS > 1 and not once and WORLDS & set(metafunc.fixturenames):
        metafunc.fixturenames.append("faults_round")
        metafunc.parametrize("faults_round", range(ROUNDS), ids=[f"r{n}" for n in range(ROUNDS)])


@pytest.fixture
def faults_round() -> int:
    return 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if _results is not None:
        _results.add(item, report)
    return report


def pytest_sessionfinish() -> None:
    if _results is not None:
        _results.write()


@pytest.fixture(scope="package")
def _world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    home = tmp_path_factory.mktemp("exactly-once")
    with proxied_cluster(NODES, home, overrides=SOON_ABORTED) as world:
        yield world


@pytest.fixture
def world(_world: FaultyCluster, record_property: Found) -> Iterator[FaultyCluster]:
    """The cluster, with no fault left over from before; each fault that was added has fired."""
    yield from _world.of_a_test(record_property)


@pytest.fixture(scope="module")
def _old_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    """Transactions of version 1, and a coordinator that soon drops ids that are idle."""
    with proxied_cluster(
        1,
        tmp_path_factory.mktemp("exactly-once-1"),
        format_options=("--feature", "transaction.version=1"),
        overrides={
            "transactional.id.expiration.ms": "2000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
            "producer.id.expiration.ms": "1500",
            "producer.id.expiration.check.interval.ms": "300",
        },
    ) as world:
        yield world


@pytest.fixture
def old_world(_old_world: FaultyCluster, record_property: Found) -> Iterator[FaultyCluster]:
    yield from _old_world.of_a_test(record_property)


@pytest.fixture(scope="module")
def _ruled_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    """Brokers with an authorizer: what no ACL is about, everybody may do."""
    overrides = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    home = tmp_path_factory.mktemp("exactly-once-acls")
    with proxied_cluster(1, home, overrides=overrides) as world:
        yield world


@pytest.fixture
def ruled_world(_ruled_world: FaultyCluster, record_property: Found) -> Iterator[FaultyCluster]:
    yield from _ruled_world.of_a_test(record_property)


def _closed_later() -> Iterator[list[Driver]]:
    drivers: list[Driver] = []
    yield drivers
    for driver in drivers:
        driver.close()


_drivers = pytest.fixture(_closed_later, scope="package", name="_drivers")
_connect_drivers = pytest.fixture(_closed_later, scope="package", name="_connect_drivers")
_spares = pytest.fixture(_closed_later, scope="module", name="_spares")
_killed = pytest.fixture(_closed_later, name="_killed")


@pytest.fixture
def new_driver(
    _world: FaultyCluster, _spares: list[Driver], _killed: list[Driver]
) -> Callable[[], Driver]:
    """A driver that the test may kill; closed after the test at the latest. The next one starts
    while this one works.
    """

    def make() -> Driver:
        _killed.append(_spares.pop() if _spares else Driver(_world.home))
        _killed[-1].wait_until_ready()
        _spares.append(Driver(_world.home))
        return _killed[-1]

    return make


@pytest.fixture
def driver(_world: FaultyCluster, _drivers: list[Driver]) -> Driver:
    """One that lives on from test to test: a JVM's start is dear."""
    return _living(_drivers, lambda: Driver(_world.home))


@pytest.fixture
def connect_driver(_world: FaultyCluster, _connect_drivers: list[Driver]) -> Driver:
    """The same, as a client of Spark Connect."""
    return _living(_connect_drivers, lambda: Driver(_world.home, connect=True))


def _living(drivers: list[Driver], make: Callable[[], Driver]) -> Driver:
    if not drivers or not drivers[0].idle:
        if drivers:
            drivers[0].close()
        drivers[:1] = [make()]
    return drivers[0].wait_until_ready()
